package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/processes"
)

// hostMark is an environment variable that marks our processes on this machine. The host's
// environment does not enter containers, so it marks no others.
const hostMark = "SOAK_OF"

// lab is what the parts share: the program under test, a home for it, and an engine.
type lab struct {
	options
	dir      string   // all files, the homes of the program's included
	env      []string // of the program
	progress io.Writer
}

func openLab(ctx context.Context, o options, progress io.Writer) (*lab, error) {
	binary, err := filepath.Abs(o.binary)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("%w: build it with `make build`", err)
	}
	o.binary = binary
	dir, err := os.MkdirTemp("", "soak-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // commands have a uid of their own
		return nil, err
	}
	l := &lab{options: o, dir: dir, progress: progress}
	l = l.at("home", "")
	if _, err := l.cli(ctx, "image", "host"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return l, nil
}

// home returns the environment of the program with its own home directory.
func (l *lab) home(dir string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "SANDBOXBASH_") })
	return append(env, "HOME="+dir, "XDG_CONFIG_HOME="+dir+"/config", "XDG_STATE_HOME="+dir+"/state", "XDG_CACHE_HOME="+dir+"/cache",
		"SANDBOXBASH_IMAGE=host", "SANDBOXBASH_KEEP_FOR=0s", hostMark+"="+l.dir)
}

// at returns a lab with another home and, unless host is "", another engine.
func (l *lab) at(home, host string) *lab {
	other := *l
	other.env = l.home(filepath.Join(l.dir, home))
	if host != "" {
		other.env = append(other.env, "DOCKER_HOST="+host)
	}
	return &other
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

func (l *lab) say(format string, args ...any) {
	fmt.Fprintf(l.progress, "%s "+format+"\n", append([]any{time.Now().UTC().Format(time.TimeOnly)}, args...)...)
}

// random returns a source of random numbers for one part, so that leaving out a part does not
// change the others.
func (l *lab) random(of string) *rand.Rand {
	var n uint64
	for _, c := range []byte(of) {
		n = n*131 + uint64(c)
	}
	return rand.New(rand.NewPCG(l.seed, n))
}

// command returns a command that runs the program. When ctx ends, the program is killed with
// SIGKILL, like a host that dies, and cannot clean up.
func (l *lab) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, l.binary, args...)
	cmd.Env = l.env
	cmd.Dir = l.dir
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// cli runs the program to its end; a status other than 0 is an error.
func (l *lab) cli(ctx context.Context, args ...string) (string, error) {
	return output(l.command(ctx, args...))
}

// docker runs Docker's command line on the engine.
func (l *lab) docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = l.env
	return output(cmd)
}

func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// result is what `--json` prints of a command.
type result struct {
	Stdout     string
	Reason     string
	ExitCode   *int
	Killed     string
	WallTimeMs int64
	Session    string
	Artifact   *artifact
	Error      *struct{ Outcome, Cause, Message string }
}

type artifact struct {
	ID       string
	Bytes    int64
	Complete bool
	Cause    string
}

// outcome returns one word for how the command ended.
func (r result) outcome() string {
	if r.Error != nil {
		return r.Error.Outcome
	}
	return r.Reason
}

// cause returns the cause of an error.
func (r result) cause() string {
	if r.Error != nil {
		return r.Error.Cause
	}
	return ""
}

// errNoOutcome is returned if the program has reported no outcome of a command, or more than
// one.
var errNoOutcome = errors.New("not exactly one outcome")

// readResult reads the program's output, which must be one JSON object and nothing else.
func readResult(stdout []byte) (result, error) {
	var r result
	dec := json.NewDecoder(bytes.NewReader(stdout))
	if err := dec.Decode(&r); err != nil {
		return r, fmt.Errorf("%w: %q: %w", errNoOutcome, cut(string(stdout)), err)
	}
	if dec.More() {
		return r, fmt.Errorf("%w: %q", errNoOutcome, cut(string(stdout)))
	}
	if (r.Reason == "") == (r.Error == nil) {
		return r, fmt.Errorf("%w: a reason %q and an error %v", errNoOutcome, r.Reason, r.Error)
	}
	return r, nil
}

// exec runs a script with `session exec --json`. An error means that the program reported no
// outcome.
func (l *lab) exec(ctx context.Context, id string, args ...string) (result, error) {
	cmd := l.command(ctx, append([]string{"session", "exec", "--json"}, args...)...)
	cmd.Args = slices.Insert(cmd.Args, len(cmd.Args)-1, id) // before the script
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return result{}, err
	}
	r, err := readResult(stdout.Bytes())
	if err != nil {
		err = fmt.Errorf("%w; standard error: %q", err, cut(stderr.String()))
	}
	return r, err
}

// full returns the outcome and, for an error, the cause.
func (r result) full() string {
	if cause := r.cause(); cause != "" {
		return r.outcome() + "{" + cause + "}"
	}
	return r.outcome()
}

// session is a session that the lab has started.
type session struct {
	dev       bool // it has profile dev, so that commands are root
	id        string
	container string // the engine's full id
	dir       string // path of its workspace on this machine
}

// startSession starts a session with a bound workspace, which is /ws inside.
func (l *lab) startSession(ctx context.Context, args ...string) (*session, error) {
	s := &session{}
	var err error
	if s.dir, err = l.workspace(); err != nil {
		return nil, err
	}
	args = append([]string{"session", "start", "--quiet", "--workspace", "bind:" + s.dir + ":at=/ws"}, args...)
	if s.id, err = l.cli(ctx, args...); err != nil {
		return nil, err
	}
	s.container, err = l.docker(ctx, "inspect", "--format", "{{.Id}}", "sandboxbash-"+s.id)
	return s, err
}

// sandboxUser is the uid of commands.
const sandboxUser = 1000

// workspace creates a directory that commands can write to.
func (l *lab) workspace() (string, error) {
	dir, err := os.MkdirTemp(l.dir, "ws-")
	if err != nil {
		return "", err
	}
	if os.Getuid() == 0 {
		return dir, os.Chown(dir, sandboxUser, sandboxUser)
	}
	return dir, nil // it is ours, and commands run as its owner
}

func (l *lab) stop(ctx context.Context, all ...*session) error {
	var errs []error
	for _, s := range all {
		if s != nil && s.id != "" {
			_, err := l.cli(ctx, "session", "stop", s.id)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// things returns our containers and volumes on the engine, except those that are kept between
// sessions on purpose.
func (l *lab) things(ctx context.Context) ([]string, error) {
	var all []string
	for _, args := range [][]string{
		{"ps", "-a", "--format", "container {{.Names}}"},
		{"volume", "ls", "--format", "volume {{.Name}}"},
		{"network", "ls", "--format", "network {{.Name}}"},
	} {
		out, err := l.docker(ctx, args...)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(out) {
			line = strings.TrimSpace(line)
			kept := strings.HasPrefix(line, "volume sandboxbash-runner-") || strings.HasPrefix(line, "volume sandboxbash-programs-") ||
				strings.HasPrefix(line, "volume sandboxbash-accounts-")
			if strings.Contains(line, "sandboxbash") && !kept {
				all = append(all, line)
			}
		}
	}
	return all, nil
}

// settle is how long the engine may take to finish its background work after an answer, and
// the kernel to remove killed processes.
const settle = 10 * time.Second

// nothingSince waits until the engine has nothing of ours besides before, and this machine
// has no process that the lab has started.
func (l *lab) nothingSince(ctx context.Context, before []string) error {
	var left []string
	for until := time.Now().Add(settle); ; time.Sleep(100 * time.Millisecond) {
		now, err := l.things(ctx)
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(now, func(t string) bool { return slices.Contains(before, t) })
		for _, p := range processes.All() {
			if p.Has(hostMark+"="+l.dir) && p.PID != os.Getpid() {
				left = append(left, "process "+p.String())
			}
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("left behind: %s", strings.Join(left, "; "))
		}
	}
}

// machine describes the machine and the engine.
func (l *lab) machine(ctx context.Context) string {
	engine, err := l.docker(ctx, "info", "--format",
		"{{.NCPU}} CPUs, kernel {{.KernelVersion}}; engine {{.ServerVersion}}, {{.Driver}}, cgroup v{{.CgroupVersion}}, {{.DefaultRuntime}}")
	if err != nil {
		engine = "engine unknown"
	}
	return fmt.Sprintf("%s/%s, %s; %s", runtime.GOOS, runtime.GOARCH, engine, runtime.Version())
}

// cut shortens what is quoted in an error.
func cut(text string) string {
	const most = 400
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
