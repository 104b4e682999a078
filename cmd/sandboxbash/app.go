package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// app is one call of the program: what it was given, and what it has made of it
// so far.
type app struct {
	environ []string
	stdin   io.Reader
	stdout  io.Writer // rawStdout, as guard has it
	stderr  io.Writer // rawStderr, as guard has it

	rawStdout, rawStderr io.Writer // of this process

	configFile string         // --config
	cfg        *config.Config // nil before load
	masks      *sink.Secrets  // what is masked in all that is printed; see secrets
	inject     []string       // K=V of configured secrets; set with masks
	docker     *docker.Client // nil before connect
	rules      *policy.Policy // of what is run; nil allows all
	observing  sync.Once      // of observers
	observers  *observers     // made by observing
	ran        string         // the script of run and session exec
	reported   bool           // it is in the reports
	onPTY      *bool          // whether a command that asked for a terminal got one; nil if none did

	metricsAt net.Listener // where metrics are served; nil: nowhere; set before observing

	mu     sync.Mutex
	logTo  *logWriter // guarded by mu; nil before log
	gather bool       // guarded by mu; notes go to the JSON result, not to standard error
	notes  []string   // guarded by mu
	atEnd  func()     // guarded by mu; puts this process's terminal back; nil unless it was changed
}

func newApp(environ []string, stdin io.Reader, stdout, stderr io.Writer) *app {
	a := &app{environ: environ, stdin: stdin, rawStdout: stdout, rawStderr: stderr}
	a.guard(a.runnersOf(ciAuto)) // for what is said before the configuration is known
	return a
}

// execute runs a command line and returns the exit status.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	defer a.unguard()
	a.endObserving()
	if a.docker != nil {
		_ = a.docker.Close()
	}
	if err == nil {
		return 0
	}
	if status, ok := errors.AsType[statusError](err); ok {
		return int(status)
	}
	// An engine's connection can break too: only files are streams of ours.
	if _, file := errors.AsType[*fs.PathError](err); file && isBrokenPipe(err) {
		return statusBrokenPipe
	}
	v := judge(err)
	if ctx.Err() != nil && v.outcome == exec.NotStarted {
		err = context.Cause(ctx)
		v = judge(err)
	}
	report(a.stderr, a.clean(wordsOf(err)), a.clean(v.todo))
	return v.status
}

func (a *app) getenv(name string) string {
	for _, kv := range slices.Backward(a.environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

func (a *app) home() string {
	if runtime.GOOS == "windows" {
		return a.getenv("USERPROFILE")
	}
	return a.getenv("HOME")
}

// userDir returns a directory of the user's by its XDG variable, or the place
// that the system has for it; "" if there is none.
func (a *app) userDir(variable, fallback string) string {
	if dir := a.getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	home := a.home()
	switch {
	case runtime.GOOS == "windows" && a.getenv("LOCALAPPDATA") != "":
		return a.getenv("LOCALAPPDATA")
	case home == "":
		return ""
	case runtime.GOOS == "darwin":
		return filepath.Join(home, "Library", "Application Support")
	}
	return filepath.Join(home, filepath.FromSlash(fallback))
}

// load makes the configuration, from the command's flags as parsed by now.
func (a *app) load(cmd *cobra.Command) error {
	cfg, err := config.Load(config.Source{
		Dir: a.userDir("XDG_CONFIG_HOME", ".config"), File: a.configFile, Environ: a.environ,
		Flags: cmd.Flags(), SecretName: sink.SecretName,
	})
	if err != nil {
		if !isConfig(err) {
			err = misuse("", "%v", err)
		}
		return err
	}
	a.cfg = cfg
	a.guard(a.runnersOf(cfg.CI))
	a.gatherNotes()
	unknown := config.UnknownVariables(a.environ)
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		text := "environment variable " + name + " means nothing to sandboxbash"
		if like := unknown[name]; like != "" {
			text += " (did you mean " + like + "?)"
		}
		a.note(text)
	}
	return nil
}

// note tells the user something that is no error.
func (a *app) note(text string) {
	text = a.safe(text)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.gather:
		a.notes = append(a.notes, text)
	case a.cfg == nil || !a.cfg.Quiet:
		fmt.Fprintf(a.stderr, "sandboxbash: note: %s\n", text)
	}
}

// gatherNotes keeps the notes from now on for a JSON result.
func (a *app) gatherNotes() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gather = a.cfg.JSON
}

// takeNotes returns the notes for a JSON result.
func (a *app) takeNotes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notes
}

// connect finds the engine, once.
func (a *app) connect(ctx context.Context) (*docker.Client, error) {
	if a.docker != nil {
		return a.docker, nil
	}
	c, err := docker.Connect(ctx, docker.Options{Address: a.cfg.Engine, Getenv: a.getenv, Home: a.home()})
	a.docker = c
	return c, err
}

// resolver makes images available on the engine.
func (a *app) resolver(ctx context.Context) (*images.Resolver, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return images.New(c, images.Options{Cache: a.cacheDir()})
}

// cacheDir is the user's cache directory for us, "" where there is none.
func (a *app) cacheDir() string {
	dir := a.getenv("XDG_CACHE_HOME")
	if dir == "" && a.home() != "" {
		dir = filepath.Join(a.home(), ".cache")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "sandboxbash")
}

// sessions returns the owner of sessions. Its Close is the caller's.
func (a *app) sessions(ctx context.Context, progress func(engine.Progress)) (*sandbox.Engine, error) {
	r, err := a.resolver(ctx)
	if err != nil {
		return nil, err
	}
	var store *sink.Store
	if a.cfg.Artifacts.Mode != "never" {
		if store, err = a.store(); err != nil {
			return nil, err
		}
	}
	return a.observed(a.docker, r, sandbox.Options{
		Policy: a.rules, Secrets: a.masks, Artifacts: store, Grace: a.cfg.Grace, Progress: progress,
	}), nil
}

// stateDir is the user's directory for what programs keep, "" if there is none.
func (a *app) stateDir() string { return a.userDir("XDG_STATE_HOME", ".local/state") }

// artifactsDir is where artifacts are kept, "" if there is no place for them.
func (a *app) artifactsDir() string {
	if dir := a.cfg.Artifacts.Dir; dir != "" {
		return dir
	}
	state := a.stateDir()
	if state == "" {
		return ""
	}
	return filepath.Join(state, "sandboxbash", "artifacts")
}

// store returns where artifacts are kept, nil if there is no place for them. It
// touches no file.
func (a *app) store() (*sink.Store, error) {
	dir := a.artifactsDir()
	if dir == "" {
		return nil, nil
	}
	c := a.cfg.Artifacts
	return sink.NewStore(dir, sink.StoreOptions{
		ArtifactBytes: c.Max, SessionBytes: c.SessionMax, TotalBytes: c.TotalMax, Retention: c.Retention,
	})
}

// collect removes artifacts that are past their retention, beside what takes
// longer. The function that it returns waits for the end of it.
func (a *app) collect() (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		store, err := a.store()
		if err == nil && store != nil {
			_, err = store.GC(time.Now())
		}
		if err != nil {
			a.note("old artifacts were not removed: " + err.Error())
		}
	}()
	return func() { <-done }
}

// spec is the session that the configuration describes.
func (a *app) spec() (sandbox.Spec, error) {
	c := a.cfg
	s := sandbox.Spec{
		Image: c.Image, Profile: sandbox.Profile(c.Profile), Network: sandbox.Network(c.Network), Runtime: c.Runtime,
		Limits: sandbox.Limits{Memory: c.Limits.Memory, CPUs: c.Limits.CPUs, Pids: c.Limits.Pids, Disk: c.Limits.Disk},
	}
	var err error
	if s.Workspace, err = sandbox.ParseWorkspace(cmp.Or(c.Workspace, string(sandbox.WorkspaceVolume))); err == nil && c.User != "" {
		s.User, err = sandbox.ParseUser(c.User)
	}
	if err == nil {
		s, err = s.Normalize()
	}
	if err != nil {
		return s, misuse("", "%v", err)
	}
	return s, a.ciWorkspace(s.Workspace)
}
