// Package sandbox owns sessions. An engine provisions a hardened container for each, the
// package runs commands in it, and nothing is left behind when the owner is gone. It is
// composed of four packages: images (what to start from), exec (how a command runs), policy
// (whether it may run) and sink (what is shown and kept of its output).
//
// The engine is the registry. Everything that is needed to list, adopt or reap a session is
// in labels that the engine keeps with it, so nothing is lost when a process ends. The
// package works with any engine.Engine.
package sandbox

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Images turns a reference into an image that is present on the engine.
type Images interface {
	Resolve(ctx context.Context, ref string, progress func(engine.Progress)) (engine.Image, error)
	// ResolveDefault returns the image to use if the caller names none. If another image
	// replaced the default one, note says so.
	ResolveDefault(ctx context.Context, progress func(engine.Progress)) (img engine.Image, note string, err error)
	// Prune removes images and volumes that were made for earlier states of this machine
	// and that no session uses. It returns their names.
	Prune(ctx context.Context) ([]string, error)
}

// Options of an Engine. Zero values are defaults.
type Options struct {
	Policy    *policy.Policy // nil: everything may run
	Secrets   *sink.Secrets  // scrubbed from all output; nil: none
	Artifacts *sink.Store    // nil: there are no artifacts
	Grace     time.Duration  // from SIGTERM to SIGKILL; 0: exec.DefaultGrace
	// Ahead is how many runners each session keeps open ahead of need: 1 for a
	// process that lives long, 0 for one that runs a single command.
	Ahead int
	// Warm is how many sessions of the last Spec are kept prepared.
	Warm int
	// Resolver resolves the names that sessions with Spec.Allow connect to. nil: this machine's.
	Resolver network.Resolver
	// Roots are the authorities that hosts must have a certificate of where requests are read inside
	// TLS. nil: those that this machine trusts.
	Roots *x509.CertPool
	// Upstream is the proxy of this machine that such connections leave through. nil: none.
	Upstream *network.Upstream
	// Network is called before each command of a session that was started with Spec.Detached, and
	// whose connections another process carries. It asks that process to watch them; the function
	// that it returns is called at the command's end, and returns Result.Network. It may be nil, and
	// may return nil.
	Network func(ctx context.Context, session Info) (used func() *NetworkUse)
	// Observer is called with what happens to commands and sessions. It may be nil.
	Observer Observer
	// Keep limits the kept workspaces of sessions that have ended.
	Keep Keep
	// Pruned, if not nil, is called with the names of what Images.Prune has removed.
	Pruned func(names []string)
	// Progress is called while images are pulled or made. It may be called concurrently.
	Progress func(engine.Progress)
}

// Engine owns sessions. It is safe for concurrent use.
type Engine struct {
	backend    engine.Engine
	workspaces engine.Workspaces // of backend; nil if it keeps none
	images     Images
	opts       Options

	opening *exec.Openings // of the sessions' runners

	idle time.Duration // how long a transfer may stand still

	mu       sync.Mutex
	sessions map[string]*Session // guarded by mu; those started here and not stopped
	warm     warmPool
}

// New returns an Engine whose sessions run on backend. It makes no request to backend.
func New(backend engine.Engine, images Images, opts Options) *Engine {
	e := &Engine{backend: backend, images: images, opts: opts, opening: exec.NewOpenings(), idle: transferIdle, sessions: map[string]*Session{}}
	e.workspaces, _ = backend.(engine.Workspaces)
	return e
}

// callTime bounds one call of the engine that has nothing to transfer.
const callTime = 30 * time.Second

// ErrUnknownSession is returned if a reference names no session, or several.
var ErrUnknownSession = errors.New("unknown session")

// Open adopts a session that any process has started. ref is the session's id or name, a part of
// one of them that no other session has, or LastStarted.
func (e *Engine) Open(ctx context.Context, ref string) (*Session, error) {
	e.mu.Lock()
	s := e.sessions[ref]
	e.mu.Unlock()
	if s != nil {
		return s, nil
	}
	state, err := e.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	info, err := e.describe(state)
	if err != nil {
		return nil, err
	}
	if info.Kept != nil {
		return nil, fmt.Errorf("session %s: %w", info.ID, lostKept(info))
	}
	if state.Status != engine.StatusRunning && state.Status != engine.StatusPaused {
		return nil, fmt.Errorf("session %s: %w", info.ID, lost(state))
	}
	s = e.session(state.Handle, info)
	if state.Started.Sub(state.Created) > startSlack {
		s.restarted.pending.Store(true)
	}
	return s, nil
}

// find finds a session by a reference, as Open says.
func (e *Engine) find(ctx context.Context, ref string) (engine.Session, error) {
	if engine.ValidID(ref) {
		state, err := e.backend.Find(ctx, ref)
		if errors.Is(err, engine.ErrNotFound) || err == nil && !isSession(state) {
			return engine.Session{}, unknown(ref)
		}
		return state, err
	}
	if !nameForm.MatchString(ref) {
		return engine.Session{}, unknown(ref)
	}
	all, err := e.backend.List(ctx)
	if err != nil {
		return engine.Session{}, err
	}
	return match(all, ref)
}

// isSession reports whether s can be found and listed. Readers cannot, nor can the remains of
// a session that are neither a container nor a kept workspace.
func isSession(s engine.Session) bool {
	return s.Labels[labelReader] == "" && s.Status != engine.StatusLeft && s.Status != engine.StatusStray
}

func unknown(id string) error {
	return fmt.Errorf("session %q: %w", id, ErrUnknownSession)
}

// Info describes a session.
type Info struct {
	ID        string        `json:"id"`
	Name      string        `json:"name"`   // as given, or made up from the id
	Status    engine.Status `json:"status"` // the engine's, or StatusKept
	Image     string        `json:"image"`
	ImageID   string        `json:"imageID"`
	Profile   Profile       `json:"profile"`
	User      User          `json:"user"`
	UserName  string        `json:"userName"` // what USER says, and passwd if the image has no name for the uid
	Home      string        `json:"home"`
	Network   Network       `json:"network"`
	Rules     *NetworkRules `json:"networkRules,omitempty"` // nil: there are none, and there will be none
	Limits    Limits        `json:"limits"`
	Workspace Workspace     `json:"workspace"`
	Env       []string      `json:"env,omitempty"`       // names of the variables that all its commands have: see Spec.Env
	Mounts    []Mount       `json:"mounts,omitempty"`    // besides the workspace
	Directory string        `json:"directory,omitempty"` // as Spec.Directory
	Lease     time.Duration `json:"-"`
	LeaseText string        `json:"lease"`
	Created   time.Time     `json:"created"`
	Owner     string        `json:"owner"` // host/pid/start of the process that created it
	Container string        `json:"container"`
	// Kept is set if the session has ended, and only its workspace is there.
	Kept *Kept `json:"kept,omitempty"`

	labels labelSpec
	key    []byte        // of the records of jobs; nil for a session that has none
	keep   time.Duration // how long its workspace is kept
}

// describe reads a session's labels.
func describe(state engine.Session) (Info, error) {
	info, err := describeLabels(state.ID, state.Labels)
	info.Status, info.Container, info.key = state.Status, state.Ref, decodeKey(state.Labels[labelKey])
	return info, err
}

// describeLabels returns what the labels alone say of a session.
func describeLabels(id string, labels map[string]string) (Info, error) {
	info := Info{ID: id, Owner: labels[labelOwner]}
	var err error
	if info.labels, err = decodeLabel(labels[labelShape]); err != nil {
		return info, fmt.Errorf("session %s: label %s: %w", id, labelShape, err)
	}
	if info.Lease, err = time.ParseDuration(labels[labelLease]); err != nil || info.Lease <= 0 {
		return info, fmt.Errorf("session %s: label %s: bad duration %q", id, labelLease, labels[labelLease])
	}
	if info.Created, err = time.Parse(time.RFC3339Nano, labels[labelCreated]); err != nil {
		return info, fmt.Errorf("session %s: label %s: %w", id, labelCreated, err)
	}
	info.readKeep(labels)
	l := info.labels
	info.Name, info.Directory = cmp.Or(l.Name, MadeUpName(id)), l.Directory
	info.Image, info.ImageID, info.Profile, info.User = l.Image, l.ImageID, l.Profile, l.User
	info.Network, info.Rules, info.Workspace, info.LeaseText = l.Network, l.Rules, l.Workspace, leaseText(info.Lease)
	info.Env, info.Mounts, info.UserName, info.Home = l.envNames(), l.Mounts, l.userName(), l.home()
	info.Limits = l.Limits.sized(l.Profile) // earlier versions did not write the default sizes
	return info, nil
}

// List describes every session of ours on the engine, oldest first.
func (e *Engine) List(ctx context.Context) ([]Info, error) {
	all, err := e.backend.List(ctx)
	if err != nil {
		return nil, err
	}
	var list []Info
	for _, state := range all {
		if !isSession(state) {
			continue
		}
		info, err := e.describe(state)
		if err != nil && state.Status == engine.StatusKept {
			continue // of another version of ours
		}
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	sortByCreated(list)
	return list, nil
}

// Show describes one session, by a reference as Open takes it.
func (e *Engine) Show(ctx context.Context, ref string) (Info, error) {
	state, err := e.find(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	return e.describe(state)
}

// describe returns the description of a session. A session that has ended and whose
// workspace will be kept is described as kept, even before a reap has kept it.
func (e *Engine) describe(state engine.Session) (Info, error) {
	info, err := describe(state)
	if err == nil && state.Status == engine.StatusKept {
		info.Kept, err = e.describeKept(state, info.keep)
		return info, err
	}
	if now := time.Now(); err == nil && e.leaves(state, info, now) {
		info.Status = StatusKept
		info.Kept = &Kept{Since: now, Until: e.until(now, info.keep), Cause: lost(state).Cause}
	}
	return info, err
}

// Stop ends a session that any process has started, and removes everything made for it.
// It also removes what is left of a session whose container was removed from outside,
// which a reap would keep otherwise.
func (e *Engine) Stop(ctx context.Context, id string) (Info, error) {
	state, err := e.find(ctx, id)
	if errors.Is(err, ErrUnknownSession) && engine.ValidID(id) {
		if left, findErr := e.backend.Find(ctx, id); findErr == nil && left.Status == engine.StatusLeft {
			state, err = left, nil
		}
	}
	if err != nil {
		return Info{}, err
	}
	info, err := describe(state)
	if err != nil {
		return info, err
	}
	if state.Status == engine.StatusKept {
		info, err = e.describe(state)
	}
	if err != nil {
		return info, err
	}
	e.mu.Lock()
	s := e.sessions[info.ID]
	e.mu.Unlock()
	if s != nil && state.Status != engine.StatusKept {
		return info, s.Stop(ctx)
	}
	start := time.Now()
	err = untilFree(ctx, func() error { return e.remove(ctx, state.Handle) })
	e.noteSession(EventSessionStop, info.ID, start, err)
	if e.opts.Artifacts != nil && state.Status != engine.StatusKept {
		err = errors.Join(err, e.opts.Artifacts.Forget(info.ID))
	}
	return info, err
}

// freeTime is how long to wait for a workspace that is being read. A reap reads one for
// less than a second.
const freeTime = 5 * time.Second

// untilFree calls do, and calls it again while its error is a conflict because the workspace
// is being read.
func untilFree(ctx context.Context, do func() error) error {
	for until := time.Now().Add(freeTime); ; {
		err := do()
		if !errors.Is(err, engine.ErrConflict) || time.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(freeTime / 50):
		}
	}
}

// remove removes everything that was made for a session.
func (e *Engine) remove(ctx context.Context, h engine.Handle) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	if err := e.backend.Remove(ctx, h); err != nil && !errors.Is(err, engine.ErrNotFound) {
		return fmt.Errorf("session %s: %w", h.ID, err)
	}
	return nil
}

// Close stops the sessions that were prepared and not used. It releases the others, which
// live on until they are stopped or their lease is over.
func (e *Engine) Close(ctx context.Context) error {
	err := e.warm.close(ctx)
	e.mu.Lock()
	left := e.sessions
	e.sessions = map[string]*Session{}
	e.mu.Unlock()
	for _, s := range left {
		s.Release()
	}
	return err
}
