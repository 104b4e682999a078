// Package sandbox owns sessions: it creates a hardened container for each, runs
// commands in it, and leaves nothing behind when its owner is gone. It composes
// four leaves: images (what to start from), exec (how a command runs), policy
// (whether it may) and sink (what is seen of its output).
//
// The engine is the registry: everything needed to list, adopt or reap a session
// is in its container's labels, so that nothing is lost with a process.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

// containers are the engine's calls that make and end a container.
type containers interface {
	CreateContainer(ctx context.Context, c engine.Container) (engine.ContainerID, []string, error)
	StartContainer(ctx context.Context, id engine.ContainerID) error
	RemoveContainer(ctx context.Context, id engine.ContainerID) error
}

// inspector tells of containers.
type inspector interface {
	Container(ctx context.Context, nameOrID string) (engine.ContainerState, error)
	Containers(ctx context.Context, labels map[string]string) ([]engine.ContainerState, error)
	Usage(ctx context.Context, id engine.ContainerID) (engine.Usage, error)
}

// signaller reaches into a running container.
type signaller interface {
	SignalContainer(ctx context.Context, id engine.ContainerID, signal string) error
	WaitContainer(ctx context.Context, id engine.ContainerID) error
	OpenExec(ctx context.Context, id engine.ContainerID, e engine.Exec) (engine.Stream, error)
}

// volumes are the engine's calls on volumes.
type volumes interface {
	CreateVolume(ctx context.Context, v engine.Volume) error
	Volumes(ctx context.Context, labels map[string]string) ([]engine.Volume, error)
	RemoveVolume(ctx context.Context, name string) error
}

// Docker is the engine as this package needs it.
type Docker interface {
	containers
	inspector
	signaller
	terminals
	volumes
	Info(ctx context.Context) (engine.Info, error)
}

// resolver turns a reference into an image that is present.
type resolver interface {
	Resolve(ctx context.Context, ref string, progress func(engine.Progress)) (engine.Image, error)
	// ResolveDefault is for no reference; the note says what stood in for the
	// default image, if anything.
	ResolveDefault(ctx context.Context, progress func(engine.Progress)) (img engine.Image, note string, err error)
}

// provider makes the volumes that sessions share.
type provider interface {
	// Runner returns the volume with the runner for that architecture.
	Runner(ctx context.Context, arch string) (volume string, err error)
	// Refill fills that volume again when it has turned out to be empty.
	Refill(ctx context.Context, arch string) error
	// Programs returns the volume that stands in for the image's
	// images.ProgramsDir, or "".
	Programs(ctx context.Context, img engine.Image) (volume string, err error)
}

// workspaces settles the volumes of single sessions.
type workspaces interface {
	// FillWorkspace makes the user the owner of a fresh volume.
	FillWorkspace(ctx context.Context, volume string, uid, gid uint32) error
	// ClearWorkspace empties a volume that the engine cannot remove.
	ClearWorkspace(ctx context.Context, volume string) error
	// ReleaseWorkspace removes what is left of the making of a volume and keeps the
	// engine from removing it.
	ReleaseWorkspace(ctx context.Context, volume string) error
}

// Images is what this package needs of package images.
type Images interface {
	resolver
	provider
	workspaces
}

// Options of an Engine. Zero values are defaults.
type Options struct {
	Policy    *policy.Policy // nil: everything may run
	Secrets   *sink.Secrets  // scrubbed from all output; nil: none
	Artifacts *sink.Store    // nil: output that is not shown is not kept
	Grace     time.Duration  // from SIGTERM to SIGKILL; 0: exec.DefaultGrace
	// Ahead is how many runners each session keeps open ahead of need: 1 for a
	// process that lives long, 0 for one that runs a single command.
	Ahead int
	// Warm is how many sessions of the last Spec are kept prepared.
	Warm int
	// Observer is told what becomes of commands and sessions; nil: nobody is.
	Observer Observer
	// Progress hears of pulls and of images being made. It may be called
	// concurrently.
	Progress func(engine.Progress)
}

// Engine owns sessions. It is safe for concurrent use.
type Engine struct {
	docker Docker
	images Images
	opts   Options

	opening *exec.Gate // of the sessions' runners

	info func() (engine.Info, error) // asked once

	mu       sync.Mutex
	sessions map[string]*Session // guarded by mu; those started here and not stopped
	warm     warmPool
}

// New returns an Engine. It asks the engine nothing.
func New(docker Docker, images Images, opts Options) *Engine {
	e := &Engine{docker: docker, images: images, opts: opts, opening: exec.NewGate(), sessions: map[string]*Session{}}
	e.info = sync.OnceValues(func() (engine.Info, error) {
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		defer cancel()
		return docker.Info(ctx)
	})
	return e
}

// callTime bounds one call of the engine that has nothing to transfer.
const callTime = 30 * time.Second

// ErrUnknownSession is returned for an id that no session of ours has, or for the
// beginning of several.
var ErrUnknownSession = errors.New("unknown session")

// Open adopts a session, whoever has started it: by its id, or by a prefix of it
// that only one session has.
func (e *Engine) Open(ctx context.Context, id string) (*Session, error) {
	e.mu.Lock()
	s := e.sessions[id]
	e.mu.Unlock()
	if s != nil {
		return s, nil
	}
	state, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	info, err := describe(state)
	if err != nil {
		return nil, err
	}
	if state.Status != "running" && state.Status != "paused" {
		return nil, fmt.Errorf("session %s: %w", info.ID, lost(state))
	}
	return e.session(state.ID, info), nil
}

// find looks a session up.
func (e *Engine) find(ctx context.Context, id string) (engine.ContainerState, error) {
	if validID(id) {
		state, err := e.docker.Container(ctx, namePrefix+id)
		if errors.Is(err, engine.ErrNotFound) {
			return state, unknown(id)
		}
		if err != nil {
			return state, err
		}
		if _, ok := ours(state); !ok {
			return state, unknown(id)
		}
		return state, nil
	}
	if !validPrefix(id) {
		return engine.ContainerState{}, unknown(id)
	}
	all, err := e.containers(ctx)
	if err != nil {
		return engine.ContainerState{}, err
	}
	var found []engine.ContainerState
	for _, state := range all {
		if full, _ := ours(state); len(full) >= len(id) && full[:len(id)] == id {
			found = append(found, state)
		}
	}
	switch len(found) {
	case 0:
		return engine.ContainerState{}, unknown(id)
	case 1:
		return found[0], nil
	default:
		return engine.ContainerState{}, fmt.Errorf("%w: %d sessions begin with %q: give more of the id", ErrUnknownSession, len(found), id)
	}
}

func unknown(id string) error {
	return fmt.Errorf("session %q: %w", id, ErrUnknownSession)
}

// validPrefix reports whether text could begin an id. Less than 4 characters are
// not worth a search.
func validPrefix(text string) bool {
	if len(text) < 4 || len(text) > 36 {
		return false
	}
	for _, r := range text {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') && r != '-' {
			return false
		}
	}
	return true
}

// containers returns all session containers that are ours.
func (e *Engine) containers(ctx context.Context) ([]engine.ContainerState, error) {
	all, err := e.docker.Containers(ctx, map[string]string{labelRole: "session"})
	if err != nil {
		return nil, err
	}
	mine := all[:0]
	for _, state := range all {
		if _, ok := ours(state); ok {
			mine = append(mine, state)
		}
	}
	return mine, nil
}

// Info describes a session.
type Info struct {
	ID        string        `json:"id"`
	Status    string        `json:"status"` // the engine's: "running", "paused", "exited", …
	Image     string        `json:"image"`
	ImageID   string        `json:"imageID"`
	Profile   Profile       `json:"profile"`
	User      User          `json:"user"`
	Network   Network       `json:"network"`
	Limits    Limits        `json:"limits"`
	Workspace Workspace     `json:"workspace"`
	Lease     time.Duration `json:"-"`
	LeaseText string        `json:"lease"`
	Created   time.Time     `json:"created"`
	Owner     string        `json:"owner"` // host/pid/start of the process that has made it
	Container string        `json:"container"`

	labels labelSpec
	key    []byte // of the records of jobs; nil for a session that has none
}

// describe reads a session's labels. They were set by a process of ours on a
// container that is ours.
func describe(state engine.ContainerState) (Info, error) {
	id, ok := ours(state)
	if !ok {
		return Info{}, unknown(state.Name)
	}
	info := Info{ID: id, Status: state.Status, Owner: state.Labels[labelOwner], Container: string(state.ID)}
	var err error
	if info.labels, err = decodeLabel(state.Labels[labelShape]); err != nil {
		return info, fmt.Errorf("session %s: label %s: %w", id, labelShape, err)
	}
	if info.Lease, err = time.ParseDuration(state.Labels[labelLease]); err != nil || info.Lease <= 0 {
		return info, fmt.Errorf("session %s: label %s: bad duration %q", id, labelLease, state.Labels[labelLease])
	}
	if info.Created, err = time.Parse(time.RFC3339Nano, state.Labels[labelCreated]); err != nil {
		return info, fmt.Errorf("session %s: label %s: %w", id, labelCreated, err)
	}
	info.key = decodeKey(state.Labels[labelKey])
	l := info.labels
	info.Image, info.ImageID, info.Profile, info.User = l.Image, l.ImageID, l.Profile, l.User
	info.Network, info.Limits, info.Workspace, info.LeaseText = l.Network, l.Limits, l.Workspace, info.Lease.String()
	return info, nil
}

// List describes every session of ours on the engine, oldest first.
func (e *Engine) List(ctx context.Context) ([]Info, error) {
	all, err := e.containers(ctx)
	if err != nil {
		return nil, err
	}
	var list []Info
	for _, state := range all {
		info, err := describe(state)
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	sortByCreated(list)
	return list, nil
}

// Show describes one session, by its id or a unique prefix.
func (e *Engine) Show(ctx context.Context, id string) (Info, error) {
	state, err := e.find(ctx, id)
	if err != nil {
		return Info{}, err
	}
	return describe(state)
}

// Stop ends a session, whoever has started it, and removes what was made for it.
func (e *Engine) Stop(ctx context.Context, id string) (Info, error) {
	state, err := e.find(ctx, id)
	if err != nil {
		return Info{}, err
	}
	info, err := describe(state)
	if err != nil {
		return info, err
	}
	e.mu.Lock()
	s := e.sessions[info.ID]
	e.mu.Unlock()
	if s != nil {
		return info, s.Stop(ctx)
	}
	start := time.Now()
	err = e.remove(ctx, state.ID, info.ID)
	e.noteSession(EventSessionStop, info.ID, start, err)
	if e.opts.Artifacts != nil {
		err = errors.Join(err, e.opts.Artifacts.Forget(info.ID))
	}
	return info, err
}

// remove removes a session's container and volumes.
func (e *Engine) remove(ctx context.Context, container engine.ContainerID, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	err := e.docker.RemoveContainer(ctx, container)
	if err == nil {
		err = e.removeVolumes(ctx, id)
	}
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return fmt.Errorf("session %s: %w", id, err)
	}
	return nil
}

// removeVolume removes a workspace, if need be after emptying it.
func (e *Engine) removeVolume(ctx context.Context, name string) error {
	err := e.docker.RemoveVolume(ctx, name)
	if errors.Is(err, engine.ErrConflict) {
		if err := e.images.ReleaseWorkspace(ctx, name); err != nil {
			return err
		}
		err = e.docker.RemoveVolume(ctx, name)
	}
	if err == nil || errors.Is(err, engine.ErrNotFound) || errors.Is(err, engine.ErrConflict) {
		return err
	}
	// Its own words may repeat a path of any length.
	if clearErr := e.images.ClearWorkspace(ctx, name); clearErr != nil {
		return fmt.Errorf("the engine cannot remove volume %s: %w", name, clearErr)
	}
	return e.docker.RemoveVolume(ctx, name)
}

// Close stops the sessions whose life is this process's: those prepared and not
// taken. It releases the others, which live on until their lease is over.
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
