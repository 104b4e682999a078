// Package core is what every command is made from: one call's configuration, environment
// and secrets, its connection to the engine, and those who observe what it does.
package core

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// App is one call of the program: what it was given, and what it has made of it
// so far.
type App struct {
	*stdio.Streams

	version string // "" in a build that is not a release
	Environ []string
	args    []string

	ctx        context.Context //nolint:containedctx // of execute: what is printed may have to wait for secrets
	configFile flags.TextValue // --config
	Cfg        *config.Config  // nil before load
	masking    masking         // what is masked in all that is printed, stored and logged
	Docker     *docker.Client  // nil before connect
	observing  sync.Once       // of observers
	observers  *observers      // made by observing

	metricsAt net.Listener // where metrics are served; nil: nowhere; set before observing

	mu     sync.Mutex
	logTo  *logWriter // guarded by mu; nil before log
	gather bool       // guarded by mu; notes go to the JSON result, not to standard error
	notes  []string   // guarded by mu
	atEnd  func()     // guarded by mu; puts this process's terminal back; nil unless it was changed
}

// ErrNoSessionID is an id that was to come from somewhere: `session exec "$id"`.
var ErrNoSessionID = exit.Misuse("list the sessions with `sandboxbash session ls`, or start one with `sandboxbash session start`", "the session's id is empty")

// New returns the program with its streams, before the configuration is loaded.
func New(version string, environ []string, stdin io.Reader, stdout, stderr io.Writer) *App {
	a := &App{ctx: context.Background(), version: version, Environ: environ}
	a.Streams = stdio.New(stdin, stdout, stderr, a.Known)
	a.Guard(a.runnersOf(ciAuto)) // for what is said before the configuration is known
	return a
}

// Begin says what this call is.
func (a *App) Begin(ctx context.Context, args []string) { a.ctx, a.args = ctx, args }

// Close ends what observes, and lets go of the engine.
func (a *App) Close() {
	a.endObserving()
	if a.Docker != nil {
		_ = a.Docker.Close()
	}
}

// Quiet reports whether notes, warnings and progress are not wanted.
func (a *App) Quiet() bool { return a.Cfg != nil && a.Cfg.Quiet }

// Getenv is a variable of the program's environment, or "".
func (a *App) Getenv(name string) string {
	for _, kv := range slices.Backward(a.Environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

func (a *App) home() string {
	if runtime.GOOS == "windows" {
		return a.Getenv("USERPROFILE")
	}
	return a.Getenv("HOME")
}

// UserDir returns a directory of the user's by its XDG variable, or the place
// that the system has for it; "" if there is none.
func (a *App) UserDir(variable, fallback string) string {
	if dir := a.Getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	home := a.home()
	switch {
	case runtime.GOOS == "windows" && a.Getenv("LOCALAPPDATA") != "":
		return a.Getenv("LOCALAPPDATA")
	case home == "":
		return ""
	case runtime.GOOS == "darwin":
		return filepath.Join(home, "Library", "Application Support")
	}
	return filepath.Join(home, filepath.FromSlash(fallback))
}

// Load makes the configuration, from the command's flags as parsed by now.
func (a *App) Load(cmd *cobra.Command) error {
	src := a.configSource()
	src.Flags = cmd.Flags()
	cfg, err := config.Load(src)
	if err != nil {
		exit.WordConfig(err)
		if !exit.IsConfig(err) {
			err = exit.Misuse("", "%v", err)
		}
		return err
	}
	if f := cmd.Flags().Lookup("session"); f != nil && f.Changed && cfg.Session.ID == "" {
		return ErrNoSessionID
	}
	a.Cfg = cfg
	a.Guard(a.runnersOf(cfg.CI))
	a.gatherNotes()
	unknown := config.UnknownVariables(a.Environ)
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		text := "environment variable " + name + " is not a setting of sandboxbash"
		switch like := unknown[name]; {
		case strings.HasPrefix(like, "--"):
			text += " (" + like + " applies to a single call, and is a flag only)"
		case like != "":
			text += " (did you mean " + like + "?)"
		}
		a.Note(text)
	}
	return nil
}

// ConfigFlag is the value of --config.
func (a *App) ConfigFlag() pflag.Value { return &a.configFile }

// configSource is what the configuration is made from, but for the flags.
func (a *App) configSource() config.Source {
	return config.Source{
		Dir: a.UserDir("XDG_CONFIG_HOME", ".config"), File: a.configFile.Text, Home: a.home(), Environ: a.Environ, SecretName: sink.SecretName,
		LoadsCode: policy.LoadsCode,
	}
}

// Note tells the user something that is not an error.
func (a *App) Note(text string) {
	text = a.Safe(text)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.gather:
		a.notes = append(a.notes, text)
	case a.Cfg == nil || !a.Cfg.Quiet:
		fmt.Fprintf(a.Stderr, "sandboxbash: note: %s\n", text)
	}
}

// gatherNotes keeps the notes from now on for a JSON result.
func (a *App) gatherNotes() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gather = a.Cfg.JSON
}

// PrintNotes has notes printed from now on, whatever else is.
func (a *App) PrintNotes() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gather = false
}

// KeepNotes drops the notes so far, and keeps those from now on for takeNotes.
func (a *App) KeepNotes() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gather, a.notes = true, nil
}

// UseEnviron has the environment of another process stand for this one's.
func (a *App) UseEnviron(environ []string) { a.Environ = environ }

// TakeNotes returns the notes for a JSON result.
func (a *App) TakeNotes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notes
}

// Connect finds the engine, once.
func (a *App) Connect(ctx context.Context) (*docker.Client, error) {
	if a.Docker != nil {
		return a.Docker, nil
	}
	c, err := docker.Connect(ctx, docker.Options{Address: a.Cfg.Engine, Source: "--engine", Getenv: a.Getenv, Home: a.home()})
	a.Docker = c
	return c, err
}

// Resolver makes images available on the engine.
func (a *App) Resolver(ctx context.Context) (*images.Resolver, error) {
	c, err := a.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return images.New(c, images.Options{Cache: a.cacheDir(), LoadWith: exit.LoadImages})
}

// Prepare puts on the engine of Connect what each session of an architecture needs.
func (a *App) Prepare(ctx context.Context, arch string) error {
	return docker.NewEngine(a.Docker, images.Runner).Prepare(ctx, arch)
}

// cacheDir is the user's cache directory for us, "" where there is none.
func (a *App) cacheDir() string {
	dir := a.Getenv("XDG_CACHE_HOME")
	if dir == "" && a.home() != "" {
		dir = filepath.Join(a.home(), ".cache")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "sandboxbash")
}

// Sessions returns the owner of sessions, in which rules decide what may run; nil
// allows all. Its Close is the caller's.
func (a *App) Sessions(ctx context.Context, progress func(engine.Progress), rules *policy.Policy) (*sandbox.Engine, error) {
	r, err := a.Resolver(ctx)
	if err != nil {
		return nil, err
	}
	store, err := a.OutputStore()
	if err != nil {
		return nil, err
	}
	return a.Observed(r, sandbox.Options{
		Policy: rules, Secrets: a.Known(), Artifacts: store, Grace: a.Cfg.Grace, Progress: progress, Keep: a.KeepLimits(), Pruned: a.TellPruned,
	}), nil
}

// stateDir is the user's directory for what programs keep, "" if there is none.
func (a *App) stateDir() string { return a.UserDir("XDG_STATE_HOME", ".local/state") }

// ArtifactsDir is where artifacts are kept, "" if there is no place for them.
func (a *App) ArtifactsDir() string {
	if dir := a.Cfg.Artifacts.Dir; dir != "" {
		return dir
	}
	state := a.stateDir()
	if state == "" {
		return ""
	}
	return filepath.Join(state, "sandboxbash", "artifacts")
}

// Store returns where artifacts are kept, nil if there is no place for them. It
// touches no file.
func (a *App) Store() (*sink.Store, error) {
	dir := a.ArtifactsDir()
	if dir == "" {
		return nil, nil
	}
	c := a.Cfg.Artifacts
	return sink.NewStore(dir, sink.StoreOptions{
		ArtifactBytes: c.Max, SessionBytes: c.SessionMax, TotalBytes: c.TotalMax, Retention: c.Retention,
	})
}

// OutputStore is where commands' outputs are kept, nil if they are not to be.
func (a *App) OutputStore() (*sink.Store, error) {
	if a.Cfg.Artifacts.Mode == "never" {
		return nil, nil
	}
	return a.Store()
}

// Collect removes artifacts that are past their retention, and what takes
// longer. The function that it returns waits for the end of it.
func (a *App) Collect() (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		store, err := a.Store()
		if err == nil && store != nil {
			_, err = store.GC(time.Now())
		}
		if err != nil {
			a.Note("old artifacts were not removed: " + err.Error())
		}
	}()
	return func() { <-done }
}

// Spec is the session that the configuration describes.
func (a *App) Spec() (sandbox.Spec, error) {
	c := a.Cfg
	s := sandbox.Spec{
		Image: c.Image, Profile: sandbox.Profile(c.Profile), Network: sandbox.Network(c.Network), Runtime: c.Runtime,
		Limits: sandbox.Limits{
			Memory: c.Limits.Memory, CPUs: c.Limits.CPUs, Pids: c.Limits.Pids,
			Disk: c.Limits.Disk, Home: c.Limits.Home, Tmp: c.Limits.Tmp,
		},
	}
	var err error
	if s.Workspace, err = sandbox.ParseWorkspace(cmp.Or(c.Workspace, string(sandbox.WorkspaceVolume))); err == nil && c.User != "" {
		s.User, err = sandbox.ParseUser(c.User)
	}
	if err == nil {
		s, err = s.Normalize()
	}
	if err != nil {
		return s, exit.Misuse(exit.Hint(err), "%v", err)
	}
	return s, a.CiWorkspace(s.Workspace)
}

// RestoreTerminal undoes what may have been done to this process's terminal. It
// may be called from any goroutine.
func (a *App) RestoreTerminal() {
	a.mu.Lock()
	restore := a.atEnd
	a.mu.Unlock()
	if restore != nil {
		restore()
	}
}

// AtExit has restore called when this call ends, however it does: it puts this
// process's terminal back.
func (a *App) AtExit(restore func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.atEnd = restore
}
