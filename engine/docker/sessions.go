package docker

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Engine runs sessions as containers of a Docker engine. It is an engine.Engine, with
// engine.Workspaces and engine.Limiter.
//
// A session is a container, and volumes that end with it: its workspace, unless that is
// a directory of the engine's machine, its records, and on Podman what is in memory. The
// engine is the registry: what is known of a session is in labels, which cannot change.
// An image can carry any label and anyone can choose a name, so what is a session of ours
// takes more than that: see ours.
type Engine struct {
	containers containers
	volumes    volumes
	store      Store
}

var (
	_ engine.Engine     = (*Engine)(nil)
	_ engine.Workspaces = (*Engine)(nil)
	_ engine.Limiter    = (*Engine)(nil)
)

// NewEngine returns an Engine over a client. It asks the engine nothing.
func NewEngine(c *Client, store Store) *Engine {
	return &Engine{containers: c, volumes: c, store: store}
}

// Store makes what sessions share: volumes that are filled once, and images of helpers.
// Package images has one.
type Store interface {
	// Runner returns the volume with the runner for an architecture, and Refill fills that
	// volume again when it has turned out to be empty.
	Runner(ctx context.Context, arch string) (volume string, err error)
	Refill(ctx context.Context, arch string) error
	// Programs returns the volume to lay over the image's ProgramsDir, or "".
	Programs(ctx context.Context, img engine.Image) (volume string, err error)
	// Accounts returns the volume to lay over the image's AccountsDir, in which the account
	// has a name; or "", and what the owner of the session should know of that, if anything.
	// RefillAccounts fills that volume again.
	Accounts(ctx context.Context, img engine.Image, a engine.Account) (volume, note string, err error)
	RefillAccounts(ctx context.Context, img engine.Image, a engine.Account) error
	// Helper returns the image that holds the runner alone.
	Helper(ctx context.Context, arch string) (engine.Image, error)
	// FillWorkspace makes a user the owner of a fresh volume.
	FillWorkspace(ctx context.Context, volume string, uid, gid uint32) error
	// ClearWorkspace empties a volume that the engine cannot remove, and ReleaseWorkspace
	// removes the containers that filling or clearing it has left.
	ClearWorkspace(ctx context.Context, volume string) error
	ReleaseWorkspace(ctx context.Context, volume string) error
}

// containers are the calls of Client on containers.
type containers interface {
	Info(ctx context.Context) (engine.Info, error)
	CreateContainer(ctx context.Context, c engine.Container) (engine.ContainerID, []string, error)
	StartContainer(ctx context.Context, id engine.ContainerID) error
	SignalContainer(ctx context.Context, id engine.ContainerID, signal string) error
	WaitContainer(ctx context.Context, id engine.ContainerID) error
	RemoveContainer(ctx context.Context, id engine.ContainerID) error
	Container(ctx context.Context, nameOrID string) (engine.ContainerState, error)
	Containers(ctx context.Context, labels map[string]string) ([]engine.ContainerState, error)
	OpenExec(ctx context.Context, id engine.ContainerID, e engine.Exec) (engine.Stream, error)
	ContainerUsage(ctx context.Context, id engine.ContainerID) (engine.Usage, error)
	LimitContainer(ctx context.Context, id engine.ContainerID, u engine.Usage) error
}

// volumes are the calls of Client on volumes.
type volumes interface {
	CreateVolume(ctx context.Context, v engine.Volume) error
	Volumes(ctx context.Context, labels map[string]string) ([]engine.Volume, error)
	RemoveVolume(ctx context.Context, name string) error
	plainTmpfs(ctx context.Context) (bool, error)
}

// Labels and names of what is a session's. An image can carry these labels: see ours.
const (
	labelSession = "sandboxbash.session" // the session's id
	labelDigest  = "sandboxbash.digest"  // of the Spec, mounts included
	labelRole    = "sandboxbash.role"

	roleSession   = "session"   // of containers
	roleWorkspace = "workspace" // of the volumes that end with a session
	roleKept      = "kept"      // of marks: see Keep

	namePrefix   = "sandboxbash-"
	runnerVolume = namePrefix + "runner-" // and a content hash

	recordsSuffix = "-jobs"
	tmpSuffix     = "-tmp"
	homeSuffix    = "-home"
	keptSuffix    = "-kept"
)

// Info describes the engine.
func (e *Engine) Info(ctx context.Context) (engine.Info, error) { return e.containers.Info(ctx) }

// Open starts a process in a running session.
func (e *Engine) Open(ctx context.Context, h engine.Handle, x engine.Exec) (engine.Stream, error) {
	return e.containers.OpenExec(ctx, engine.ContainerID(h.Ref), x)
}

// Usage asks the engine for one sample of a session's counters.
func (e *Engine) Usage(ctx context.Context, h engine.Handle) (engine.Usage, error) {
	return e.containers.ContainerUsage(ctx, engine.ContainerID(h.Ref))
}

// Limit has the engine update the container.
func (e *Engine) Limit(ctx context.Context, h engine.Handle, u engine.Usage) error {
	return e.containers.LimitContainer(ctx, engine.ContainerID(h.Ref), u)
}

// Sweep signals PID 1, which takes no process.
func (e *Engine) Sweep(ctx context.Context, h engine.Handle) error {
	return e.containers.SignalContainer(ctx, engine.ContainerID(h.Ref), "USR2")
}

// Reset kills the container and starts it again.
func (e *Engine) Reset(ctx context.Context, h engine.Handle) error {
	id := engine.ContainerID(h.Ref)
	err := e.containers.SignalContainer(ctx, id, "KILL")
	if err == nil || errors.Is(err, engine.ErrNotRunning) {
		err = e.containers.WaitContainer(ctx, id)
	}
	if err != nil {
		return err
	}
	if err := e.containers.StartContainer(ctx, id); err != nil {
		return &engine.Error{Op: "start it again", Kind: engine.ErrNotRunning, Err: err}
	}
	return nil
}

// containerOf is the container of a session or a helper.
func containerOf(id string, image engine.ImageID, c engine.Confinement, mounts []specs.Mount) engine.Container {
	c.Spec.Mounts = mounts
	return engine.Container{
		Name: namePrefix + id, Image: image, Network: c.Network, Runtime: c.Runtime, ShmBytes: c.ShmBytes, DNS: c.DNS, Spec: c.Spec,
	}
}

// boot starts a container. Where that fails because a volume that sessions share is
// empty, as a prune leaves it, refill fills it, and the container is made again, once.
// After an error there is no container.
func (e *Engine) boot(ctx context.Context, shape engine.Container, id engine.ContainerID, refill func(context.Context) error) (engine.ContainerID, error) {
	err := e.containers.StartContainer(ctx, id)
	if err == nil {
		return id, nil
	}
	err = errors.Join(err, e.discard(ctx, shape.Name))
	if ctx.Err() != nil {
		return "", err
	}
	if refillErr := refill(ctx); refillErr != nil {
		return "", errors.Join(err, refillErr)
	}
	if id, _, err = e.containers.CreateContainer(ctx, shape); err == nil {
		err = e.containers.StartContainer(ctx, id)
	}
	if err != nil {
		return "", errors.Join(err, e.discard(ctx, shape.Name))
	}
	return id, nil
}

// discard removes a container that was being made. It goes by the name: an engine may
// have made it and not have come to say so.
func (e *Engine) discard(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), callTimeout, fmt.Errorf("container %s was not removed within %v", name, callTimeout))
	defer cancel()
	return e.containers.RemoveContainer(ctx, engine.ContainerID(name))
}
