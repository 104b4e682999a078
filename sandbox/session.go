package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/exec/wire"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Session is one agent's long-lived container. It is safe for concurrent use:
// up to 8 commands run at once, later ones wait in order.
type Session struct {
	engine    *Engine
	container engine.ContainerID
	info      Info
	pool      *exec.Pool
	notes     []string
	left      []string
	spare     bool                          // nobody has been given it; set before anybody is
	kept      func() (*sink.Session, error) // artifacts, opened once

	resetting sync.Mutex // one reset at a time

	mu    sync.Mutex
	noted map[string]bool // guarded by mu; tags of the jobs whose end was told
}

// ID returns the session's id.
func (s *Session) ID() string { return s.info.ID }

// Info describes the session as it was when it was opened.
func (s *Session) Info() Info { return s.info }

// Notes are what the owner of the session should know: what stood in for a
// default image, what a network reaches, what the engine cannot do.
func (s *Session) Notes() []string { return s.notes }

// LeftOut lists what a copied workspace was made without, because it looked like
// credentials.
func (s *Session) LeftOut() []string { return s.left }

// Command is one command of a session. Zero values are defaults.
type Command struct {
	Script string   // at most 10 MiB, not blank, without NUL
	Args   []string // $1 and so on
	Shell  string   // "bash" or "sh"; empty: bash
	Env    []string // K=V, above the session's own
	Dir    string   // in the container; empty: the workspace; relative to it
	Stdin  io.Reader
	// Timeout is from the command's start. 0 is none.
	Timeout   time.Duration
	Exclusive bool         // refuse while any other command runs in the session
	Output    sink.Options // what is shown and kept of the output
	// Watch is called before the start, if not nil, with what takes the output:
	// to Subscribe to it. It must not block.
	Watch func(*sink.Sink)
	// Decided is what a policy has decided of it before: for the record only.
	Decided policy.Decision
	// Job makes it a command that may become a job; nil: it ends with this process.
	Job *JobOptions
}

// Result is how a command that ran has ended, and its output.
type Result struct {
	exec.Status
	Session string
	Output  sink.Output
	// Killed says how far the kill had to go: "" (it ended by itself), "term",
	// "kill", "stuck", "reset" (the container was started again; files of the
	// workspace kept) or "removed" (the session is gone).
	Killed string
	// Room is set when leftovers of earlier commands had to be killed so that
	// this one could start.
	Room bool
	// Policy is what the policy has decided; the zero value if there is none.
	Policy policy.Decision
	// Job is set when the command has become a job: its Reason is exec.HandedOver,
	// and the Output what it had written by then.
	Job *Job
}

// Run runs one command. A nil error means that it ran and has ended, whatever
// its exit code, or goes on as the job Result.Job. Otherwise the error is a *policy.Denial, an *InputError, or an
// *exec.Error (as by errors.As) that says whether it may have run, and the
// Result has no more than the output so far. It returns at most 5 s after the
// timeout or after the end of ctx.
func (s *Session) Run(ctx context.Context, c Command) (Result, error) {
	res := Result{Session: s.ID()}
	if err := c.Check(); err != nil {
		return res, err
	}
	if rules := s.engine.opts.Policy; rules != nil {
		res.Policy = rules.Check(policy.Input{Script: c.Script})
		if res.Policy.Blocked {
			s.Denied(c, res.Policy)
			return res, &policy.Denial{Decision: res.Policy}
		}
		c.Decided = res.Policy
	}
	mode := ModeCommand
	if c.Job != nil && c.Job.After == 0 {
		mode = ModeJob
	}
	over, err := s.Observe(ctx, c, mode, InContainer)
	if err != nil {
		return res, fmt.Errorf("session %s: %w", s.ID(), err)
	}
	err = s.run(ctx, c, &res)
	over(res, err)
	return res, err
}

// run runs a command that may run. With an error res has no more than the output.
func (s *Session) run(ctx context.Context, c Command, res *Result) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.Output.OnLimit = func() { end(exec.ErrOutputLimit) }
	blocked, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	c.Output.Release = blocked.Done()
	out, err := s.sink(c.Output)
	if err != nil {
		return err
	}
	if c.Watch != nil {
		c.Watch(out)
	}
	command := s.command(c)
	command.Stdout = out.Stdout()
	if c.Output.Streams == sink.Split {
		command.Stderr = out.Stderr()
	}
	// Live writers have half of the grace to take what there is; then the pool
	// need not give up on the sink.
	command.OnKill = func() { time.AfterFunc(cmp.Or(command.Grace, exec.DefaultGrace)/2, release) }
	if c.Job != nil {
		if err := s.offer(&command, c.Job, release); err != nil {
			return fmt.Errorf("session %s: %w", s.ID(), err)
		}
	}
	start := time.Now()
	res.Status, err = s.pool.Run(ctx, command)
	if err != nil && s.makeRoom(ctx, err) {
		res.Room = true
		res.Status, err = s.pool.Run(ctx, command)
	}
	if job := s.handedOver(ctx, command.Job, err); job != nil {
		res.Status, err = exec.Status{Reason: exec.HandedOver, Elapsed: time.Since(start), Handed: job}, nil
	}
	res.Killed = rungs[res.Rung]
	if err != nil {
		res.Status, res.Killed, err = s.recover(ctx, err)
		res.Elapsed = time.Since(start)
	}
	res.Output = out.Close()
	if err != nil {
		return fmt.Errorf("session %s: %w", s.ID(), limitText(err, c.Job))
	}
	if started := res.Handed; started != nil {
		res.Job = s.handle(command, started)
		if res.Output.Artifact.Stored {
			// The whole output becomes one when the job has ended. If this one stays it is
			// an artifact too many.
			_ = s.discard(&res.Output)
		}
	}
	return nil
}

var rungs = map[wire.Rung]string{wire.RungTerm: "term", wire.RungKill: "kill", wire.RungStuck: "stuck"}

// command is what the runner is asked for.
func (s *Session) command(c Command) exec.Command {
	l := s.info.labels
	dir := c.Dir
	if dir == "" {
		dir = l.Workspace.Target
	}
	if !path.IsAbs(dir) {
		dir = path.Join(l.Workspace.Target, dir)
	}
	shell := c.Shell
	if shell == "" {
		shell = "bash"
	}
	return exec.Command{
		Shell: shell, Script: c.Script, Args: c.Args, Env: overlay(l.environment(), c.Env), Dir: dir,
		UID: l.User.UID, GID: l.User.GID, Stdin: c.Stdin,
		Exclusive: c.Exclusive, Timeout: c.Timeout, Grace: s.engine.opts.Grace,
	}
}

// overlay puts later values of a name in the place of earlier ones.
func overlay(base, more []string) []string {
	at := map[string]int{}
	var all []string
	for _, kv := range append(base, more...) {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			all[i] = kv
			continue
		}
		at[name] = len(all)
		all = append(all, kv)
	}
	return all
}

// InputError is a command that cannot be run as it was given. Nothing ran.
type InputError struct {
	Field string // "script", "env", "cwd", "shell", "timeout", "argument"
	Text  string
}

func (e *InputError) Error() string { return e.Text }

func badInput(field, format string, args ...any) *InputError {
	return &InputError{Field: field, Text: fmt.Sprintf(format, args...)}
}

// EnvName is the grammar of environment names that a command may be given.
var EnvName = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*\z`)

// maxArguments is what execve takes of arguments and environment together with
// a stack limit of 8 MiB, a quarter of it, less some room for its own.
const maxArguments = 2<<20 - 64<<10 // bytes

// maxOneArgument is MAX_ARG_STRLEN of the kernel with its closing NUL.
const maxOneArgument = 128<<10 - 1 // bytes

// Check refuses what could not run, with an *InputError, before anything is asked
// of the engine. Values are never repeated: they may be secret. Run calls it too.
func (c Command) Check() error {
	switch {
	case strings.TrimSpace(c.Script) == "":
		return badInput("script", "the script is empty")
	case len(c.Script) > wire.MaxScript:
		return badInput("script", "the script is %d bytes long; the limit is %d (10 MiB): put it in a file of the workspace", len(c.Script), wire.MaxScript)
	case strings.IndexByte(c.Script, 0) >= 0:
		return badInput("script", "the script has a NUL byte at offset %d", strings.IndexByte(c.Script, 0))
	case c.Shell != "" && c.Shell != "bash" && c.Shell != "sh":
		return badInput("shell", "shell %q: it can be bash or sh", c.Shell)
	case c.Timeout < 0:
		return badInput("timeout", "timeout %s: it must not be negative", c.Timeout)
	case strings.IndexByte(c.Dir, 0) >= 0:
		return badInput("cwd", "the working directory has a NUL byte")
	case len(c.Dir) >= maxTargetLength:
		return badInput("cwd", "the working directory is %d bytes long; the limit is %d", len(c.Dir), maxTargetLength-1)
	}
	total := 0
	for i, arg := range c.Args {
		if strings.IndexByte(arg, 0) >= 0 {
			return badInput("argument", "argument %d has a NUL byte", i+1)
		}
		if len(arg) > maxOneArgument {
			return badInput("argument", "argument %d is %d bytes long; the kernel takes %d: pass it on standard input", i+1, len(arg), maxOneArgument)
		}
		total += len(arg) + 1 + pointerSize
	}
	for _, kv := range c.Env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || !EnvName.MatchString(name) {
			return badInput("env", "Invalid bash env name: %s", printable(name))
		}
		if strings.IndexByte(value, 0) >= 0 {
			return badInput("env", "the value of environment variable %s has a NUL byte", name)
		}
		if len(kv) > maxOneArgument {
			return badInput("env", "environment variable %s is %d bytes long; the kernel takes %d", name, len(kv), maxOneArgument)
		}
		total += len(kv) + 1 + pointerSize
	}
	if total > maxArguments {
		return badInput("argument", "arguments and environment take %d bytes together; the kernel takes %d: pass them on standard input or in a file", total, maxArguments)
	}
	return nil
}

const pointerSize = 8 // bytes; execve counts one for each string

// printable cuts and escapes a name for an error message.
func printable(name string) string {
	if len(name) > 64 {
		name = name[:64] + "…"
	}
	if utf8.ValidString(name) && strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0 {
		return name
	}
	return fmt.Sprintf("%q", name)
}

// sink makes the writers that a command's output goes through.
func (s *Session) sink(opts sink.Options) (*sink.Sink, error) {
	kept, err := s.kept()
	if err != nil {
		return nil, err
	}
	return sink.New(opts, kept, s.engine.opts.Secrets)
}

// artifacts opens the session's part of the store, once and when it is needed.
func (s *Session) artifacts() (*sink.Session, error) {
	if s.engine.opts.Artifacts == nil {
		return nil, nil //nolint:nilnil // sink takes nil for none
	}
	return s.engine.opts.Artifacts.Session(s.ID())
}

// openRunner opens an exec whose process is a runner.
func (s *Session) openRunner(ctx context.Context) (io.ReadWriteCloser, error) {
	return s.engine.docker.OpenExec(ctx, s.container, engine.Exec{Args: serveCommand(), User: "0:0"})
}

// maxHelperOutput bounds what a verb of the runner may answer.
const maxHelperOutput = 4 << 20 // bytes

// helperTime bounds a verb of the runner that has nothing to transfer.
const helperTime = 10 * time.Second

// helper runs a verb of the runner as the session's user.
func (s *Session) helper(ctx context.Context, verb string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	err := s.helperTo(ctx, helperStreams{out: &limited{w: &out, left: maxHelperOutput}, timeout: helperTime}, verb, args...)
	return out.Bytes(), err
}

type helperStreams struct {
	in      io.Reader
	out     io.Writer
	timeout time.Duration
	// run is nil for a verb that waits for its place among the session's commands.
	run func(context.Context, exec.Command) (exec.Status, error)
}

// helperTo runs a verb of the runner with streams of its own.
func (s *Session) helperTo(ctx context.Context, streams helperStreams, verb string, args ...string) error {
	return s.helperAs(ctx, s.info.labels.User, streams, verb, args...)
}

// helperAs runs a verb of the runner as another user: 0 for what only the
// container's own programs may do.
func (s *Session) helperAs(ctx context.Context, user User, streams helperStreams, verb string, args ...string) error {
	var stderr tail
	l := s.info.labels
	if streams.out == nil {
		streams.out = io.Discard
	}
	command := exec.Command{
		Path: runnerPath, Args: append([]string{verb}, args...), Env: l.environment(), Dir: "/",
		UID: user.UID, GID: user.GID, Stdin: streams.in, Stdout: streams.out, Stderr: &stderr, Timeout: streams.timeout,
	}
	run := streams.run
	if run == nil {
		run = s.pool.Run
	}
	st, err := run(ctx, command)
	if err != nil && s.makeRoom(ctx, err) {
		st, err = run(ctx, command)
	}
	switch {
	case err != nil:
		return err
	case st.Reason != exec.Exited:
		return fmt.Errorf("runner %s: %s", verb, st.Reason)
	case st.Code == runtimeAbort:
		// It could not start a thread. What the runtime prints then is no message.
		return &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseResources, Err: fmt.Errorf(
			"the session is at its pids limit: end what runs in it (session ps), or run a command, which makes room")}
	case st.Code != 0:
		return errors.New(strings.TrimSpace(stderr.String()))
	case st.Write != nil:
		return st.Write
	}
	return nil
}

// runtimeAbort is the exit code of a Go program that its runtime has ended.
const runtimeAbort = 2

// limited fails when more is written than left says.
type limited struct {
	w    io.Writer
	left int64 // bytes
}

// errTooMuch is what a limited writer fails with.
var errTooMuch = errors.New("more than the limit")

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, errTooMuch
	}
	return l.w.Write(p)
}

// tail keeps the last bytes of an error message.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	const keep = 4 << 10 // bytes
	t.b = append(t.b, p...)
	if len(t.b) > keep {
		t.b = t.b[len(t.b)-keep:]
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.b) }

// Release closes this process's hold on the session, which kills what it still
// runs in the foreground. The session lives on until its lease is over.
func (s *Session) Release() {
	s.engine.mu.Lock()
	if s.engine.sessions[s.ID()] == s {
		delete(s.engine.sessions, s.ID())
	}
	s.engine.mu.Unlock()
	s.pool.Close()
	if kept, err := s.kept(); err == nil && kept != nil {
		_ = kept.Close() // of what is only read and locked
	}
}

// Stop ends the session and everything in it, and removes what was made for it.
func (s *Session) Stop(ctx context.Context) error {
	start := time.Now()
	err := s.engine.remove(ctx, s.container, s.ID())
	if !s.spare {
		s.engine.noteSession(EventSessionStop, s.ID(), start, err)
	}
	s.Release()
	if store := s.engine.opts.Artifacts; store != nil {
		err = errors.Join(err, store.Forget(s.ID()))
	}
	return err
}
