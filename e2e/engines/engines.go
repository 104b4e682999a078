// Package engines starts private engines for a test. Each has its own socket, data root and
// network namespace, so that a test can stop, kill and restart it without an effect on the
// machine's engine. They have no images, no registry and no bridge, so containers must use
// the network none.
package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrNotHere is returned if no engine can be started because root or a program is missing.
// The wrapping error says which. A test should skip.
var ErrNotHere = errors.New("no engine of one's own can be started here")

// Options of an engine. Zero values are defaults.
type Options struct {
	// Dir holds the engine's socket, state and log. It must exist and be empty or belong to
	// an earlier engine. Its path must be short, because that of a socket has at most 107
	// bytes.
	Dir string
	// DataRoot is where images, containers and volumes are; empty: below Dir. It must not be
	// a mount point, because Close removes the mount that dockerd makes there.
	DataRoot string
	// LiveRestore keeps containers running while the engine does not run.
	LiveRestore bool
	// Runtimes are OCI runtimes besides runc: name and program.
	Runtimes map[string]string
	// Driver is the storage driver; empty: that of the engine that the environment names,
	// because it is known to work on this machine.
	Driver string
	// Hide lists mount points that the engine must not see. It gets a mount namespace of
	// its own.
	Hide []string
	// Config is added to dockerd's configuration file and overrides other settings.
	Config map[string]any
	// Args are added to dockerd's arguments and Env, as K=V, to its environment.
	Args, Env []string
}

// Engine is a Docker engine. Methods that only return information may be called
// concurrently; the others must not.
type Engine struct {
	opts   Options
	daemon *exec.Cmd
	exited chan struct{} // closed when daemon has ended
}

// Time limits, long enough for a slow machine.
const (
	startTime = 90 * time.Second
	stopTime  = time.Minute
)

// Start starts an engine and waits until it answers. ctx bounds the wait, not the engine's
// life; the caller must call Close. If no engine can be started here, the error wraps
// ErrNotHere.
func Start(ctx context.Context, opts Options) (*Engine, error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("%w: it takes root", ErrNotHere)
	}
	for _, program := range []string{"dockerd", "containerd", "unshare", "docker"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w: it takes %s", ErrNotHere, program)
		}
	}
	if opts.Driver == "" {
		out, err := exec.CommandContext(ctx, "docker", "info", "--format", "{{.Driver}}").Output()
		if err != nil {
			return nil, fmt.Errorf("the storage driver of the machine's engine: %w", err)
		}
		opts.Driver = strings.TrimSpace(string(out))
	}
	if opts.DataRoot == "" {
		opts.DataRoot = filepath.Join(opts.Dir, "data")
	}
	e := &Engine{opts: opts}
	if err := e.Again(ctx); err != nil {
		return nil, errors.Join(err, e.Close(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// Host returns the engine's address in the form of DOCKER_HOST.
func (e *Engine) Host() string { return "unix://" + filepath.Join(e.opts.Dir, "docker.sock") }

// Dir returns the engine's directory.
func (e *Engine) Dir() string { return e.opts.Dir }

// Log returns the end of the daemon's log.
func (e *Engine) Log() string {
	const most = 3 << 10 // bytes
	text, err := os.ReadFile(filepath.Join(e.opts.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// Docker runs Docker's command line on this engine and returns what it prints.
func (e *Engine) Docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", append([]string{"-H", e.Host()}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Again starts the daemon after Stop or Kill and waits until it answers.
func (e *Engine) Again(ctx context.Context) error {
	config := filepath.Join(e.opts.Dir, "daemon.json")
	if err := os.WriteFile(config, e.config(), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(e.opts.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	in := func(name string) string { return filepath.Join(e.opts.Dir, name) }
	// The engine gets its own network namespace, because an engine without a bridge removes
	// docker0.
	e.daemon = exec.CommandContext(context.WithoutCancel(ctx), "unshare", append([]string{"--net"}, hiding(e.opts.Hide, append([]string{
		"dockerd", "--config-file", config, "-H", e.Host(),
		"--data-root", e.opts.DataRoot, "--exec-root", in("exec"), "-p", in("pid"),
		"--bridge", "none", "--iptables=false", "--ip-forward=false", "--ip-masq=false",
	}, e.opts.Args...)...)...)...)
	e.daemon.Stdout, e.daemon.Stderr = log, log
	e.daemon.Env = append(os.Environ(), e.opts.Env...) //nolint:forbidigo // it is for tests, and dockerd needs all of it
	// A daemon that was killed leaves these files behind. By now their pids may belong to
	// other processes, or to a containerd that is a zombie, which a daemon would take for a
	// running one.
	_ = os.Remove(in("pid"))
	_ = os.Remove(in("exec/containerd/containerd.pid"))
	if err := e.daemon.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	e.exited = exited
	go func() {
		defer close(exited)
		_ = e.daemon.Wait() // how it ended does not matter
	}()
	return e.answers(ctx)
}

// hiding returns the command line that runs command in a mount namespace where nothing is
// mounted at paths.
func hiding(paths []string, command ...string) []string {
	if len(paths) == 0 {
		return command
	}
	const each = "for path; do shift; [ \"$path\" = -- ] && break; umount \"$path\" || exit 1; done; exec \"$@\""
	args := append([]string{"--mount", "sh", "-c", each, "sh"}, paths...)
	return slices.Concat(args, []string{"--"}, command)
}

func (e *Engine) config() []byte {
	config := map[string]any{"storage-driver": e.opts.Driver, "live-restore": e.opts.LiveRestore}
	if len(e.opts.Runtimes) > 0 {
		runtimes := map[string]any{}
		for name, path := range e.opts.Runtimes {
			runtimes[name] = map[string]any{"path": path}
		}
		config["runtimes"] = runtimes
	}
	maps.Copy(config, e.opts.Config)
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // a caller's Config has a channel in it
	}
	return text
}

// answers waits until the engine answers.
func (e *Engine) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("the engine does not answer within %s", startTime))
	defer cancel()
	for {
		if _, err := e.Docker(ctx, "version"); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w:\n%s", context.Cause(ctx), e.Log())
		case <-e.exited:
			return fmt.Errorf("the engine has ended:\n%s", e.Log())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Stop ends the daemon with SIGTERM and waits for it. Its containers end too unless
// LiveRestore is set. Stop is a no-op if the daemon has ended.
func (e *Engine) Stop(ctx context.Context) error {
	if e.daemon == nil || e.daemon.Process == nil {
		return nil
	}
	if err := e.daemon.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	select {
	case <-e.exited:
		return nil
	case <-ctx.Done():
		_ = e.Kill()
		return fmt.Errorf("the engine does not end: killed\n%s", e.Log())
	}
}

// Kill ends the daemon with SIGKILL and waits for it and its containerd to end. Shims and
// containers go on running.
func (e *Engine) Kill() error {
	if e.daemon == nil || e.daemon.Process == nil {
		return nil
	}
	if err := e.daemon.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-e.exited
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if pid, _ := e.Containerd(); pid == 0 { // it ends with its daemon
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the containerd of the engine at %s lives on", e.opts.Dir)
		}
	}
}

// Close stops the engine and ends everything that it has left: containers that a live
// restore would find, shims, containerd and mounts. It does not remove files.
func (e *Engine) Close(ctx context.Context) error {
	err := e.Stop(ctx)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left := e.descendants()
		for _, p := range left {
			_ = p.Signal(os.Kill)
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			err = errors.Join(err, fmt.Errorf("%d processes of the engine at %s do not end", len(left), e.opts.Dir))
			break
		}
	}
	return errors.Join(err, e.unmount(ctx))
}

// unmount removes the mounts below the engine's directories that a killed daemon has left,
// the innermost first.
func (e *Engine) unmount(ctx context.Context) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var dirs []string
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && e.owns(f[4]) {
			dirs = append(dirs, f[4])
		}
	}
	slices.Reverse(dirs)
	var errs []error
	for _, dir := range dirs {
		if out, err := exec.CommandContext(ctx, "umount", "--lazy", dir).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("umount %s: %w: %s", dir, err, out))
		}
	}
	return errors.Join(errs...)
}

// owns reports whether a path is in one of the engine's directories.
func (e *Engine) owns(path string) bool {
	for _, dir := range []string{e.opts.Dir, e.opts.DataRoot} {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}
