package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Engine runs sessions as containers of a Docker engine. It is an engine.Engine, with
// engine.Workspaces, engine.Limiter, engine.Holder, engine.Pauser, engine.Waiter, engine.Pruner,
// engine.Caches and engine.Stock.
//
// A session is a container, and volumes that end with it: its workspace, unless that is a
// directory of the engine's machine, its records, and on Podman what is in memory. The engine is
// the registry: what is known of a session is in labels, which cannot change. An image can carry
// any label, and any client of the engine can choose a name. So neither is enough to recognise a
// session of ours: see ours.
type Engine struct {
	containers containers
	volumes    volumes
	copies     copies
	stock      stock
}

var (
	_ engine.Engine     = (*Engine)(nil)
	_ engine.Workspaces = (*Engine)(nil)
	_ engine.Limiter    = (*Engine)(nil)
	_ engine.Holder     = (*Engine)(nil)
	_ engine.Pauser     = (*Engine)(nil)
	_ engine.Waiter     = (*Engine)(nil)
	_ engine.Pruner     = (*Engine)(nil)
	_ engine.Caches     = (*Engine)(nil)
	_ engine.Stock      = (*Engine)(nil)
)

// NewEngine returns an Engine over a client. It asks the engine nothing. runner returns
// what sessions on a linux architecture, in GOARCH form, have in engine.RunnerDir:
// images.Runner does.
func NewEngine(c *Client, runner func(arch string) (engine.Content, error)) *Engine {
	return &Engine{containers: c, volumes: c, copies: newCopier(c, runner), stock: c}
}

// containers are the calls of Client on containers.
type containers interface {
	Info(ctx context.Context) (engine.Info, error)
	CreateContainer(ctx context.Context, c Container) (ContainerID, []string, error)
	StartContainer(ctx context.Context, id ContainerID) error
	SignalContainer(ctx context.Context, id ContainerID, signal string) error
	PauseContainer(ctx context.Context, id ContainerID) error
	UnpauseContainer(ctx context.Context, id ContainerID) error
	WaitContainer(ctx context.Context, id ContainerID) error
	RemoveContainer(ctx context.Context, id ContainerID) error
	Container(ctx context.Context, nameOrID string) (ContainerState, error)
	Containers(ctx context.Context, labels map[string]string) ([]ContainerState, error)
	OpenExec(ctx context.Context, id ContainerID, e engine.Exec) (engine.Stream, error)
	ContainerUsage(ctx context.Context, id ContainerID) (engine.Usage, error)
	LimitContainer(ctx context.Context, id ContainerID, u engine.Usage) error
}

// volumes are the calls of Client on volumes.
type volumes interface {
	CreateVolume(ctx context.Context, v Volume) error
	Volume(ctx context.Context, name string) (Volume, error)
	Volumes(ctx context.Context, labels map[string]string) ([]Volume, error)
	RemoveVolume(ctx context.Context, name string) error
	plainTmpfs(ctx context.Context) (bool, error)
}

// Labels and names of what is a session's. An image can carry these labels: see ours.
const (
	labelSession = "sandboxbash.session" // the session's id
	labelDigest  = "sandboxbash.digest"  // of the Spec, mounts included
	labelRole    = engine.LabelRole

	roleSession   = "session"   // of containers
	roleWorkspace = "workspace" // of the volumes that end with a session, and of the images that they are filled from
	roleKept      = "kept"      // of marks: see Keep
	roleRunner    = "runner"    // of volumes and images
	rolePrograms  = "programs"  // of the volumes of a snapshot's programs
	roleAccounts  = "accounts"  // of the volumes of an image's /etc in which the session's user has a name
	roleFiller    = "filler"    // of containers that fill or clear a volume

	namePrefix = "sandboxbash-"

	recordsSuffix = "-jobs"
	tmpSuffix     = "-tmp"
	homeSuffix    = "-home"
	keptSuffix    = "-kept"
)

// Info describes the engine.
func (e *Engine) Info(ctx context.Context) (engine.Info, error) { return e.containers.Info(ctx) }

// Prepare puts in place what each session of an architecture needs. Provision does so
// by itself.
func (e *Engine) Prepare(ctx context.Context, arch string) error {
	_, err := e.copies.Runner(ctx, arch)
	return err
}

// Prune removes volumes that sessions shared: those of programs whose image is gone, and
// those of runners of other versions that are older than a week.
func (e *Engine) Prune(ctx context.Context) ([]string, error) { return e.copies.Prune(ctx) }

// Open starts a process in a running session.
func (e *Engine) Open(ctx context.Context, h engine.Handle, x engine.Exec) (engine.Stream, error) {
	return e.containers.OpenExec(ctx, ContainerID(h.Ref), x)
}

// Usage asks the engine for one sample of a session's counters.
func (e *Engine) Usage(ctx context.Context, h engine.Handle) (engine.Usage, error) {
	return e.containers.ContainerUsage(ctx, ContainerID(h.Ref))
}

// Limit has the engine update the container.
func (e *Engine) Limit(ctx context.Context, h engine.Handle, u engine.Usage) error {
	return e.containers.LimitContainer(ctx, ContainerID(h.Ref), u)
}

// Sweep signals PID 1, which takes no process.
func (e *Engine) Sweep(ctx context.Context, h engine.Handle) error {
	return e.containers.SignalContainer(ctx, ContainerID(h.Ref), "USR2")
}

// Hold signals PID 1, which takes no process.
func (e *Engine) Hold(ctx context.Context, h engine.Handle) error {
	return e.containers.SignalContainer(ctx, ContainerID(h.Ref), "USR1")
}

// Pause stops the processes of a session where they are.
func (e *Engine) Pause(ctx context.Context, h engine.Handle) error {
	return e.containers.PauseContainer(ctx, ContainerID(h.Ref))
}

// Resume lets the processes of a session go on.
func (e *Engine) Resume(ctx context.Context, h engine.Handle) error {
	return e.containers.UnpauseContainer(ctx, ContainerID(h.Ref))
}

// Wait returns once the session is not running.
func (e *Engine) Wait(ctx context.Context, h engine.Handle) error {
	return e.containers.WaitContainer(ctx, ContainerID(h.Ref))
}

// againTime is how long a container that was killed has to start again. Its processes are dead by
// then, so a slow engine costs the caller time, and too little time would cost it the session.
const againTime = 10 * time.Second

// Reset kills the container and starts it again. ctx bounds the kill, and againTime the start.
func (e *Engine) Reset(ctx context.Context, h engine.Handle) error {
	id := ContainerID(h.Ref)
	err := e.containers.SignalContainer(ctx, id, "KILL")
	if err == nil || errors.Is(err, engine.ErrNotRunning) {
		err = e.containers.WaitContainer(ctx, id)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), againTime)
	defer cancel()
	if err := e.containers.StartContainer(ctx, id); err != nil {
		return &engine.Error{Op: "start it again", Kind: engine.ErrNotRunning, Err: err}
	}
	return nil
}

// containerOf is the container of a session or a helper.
func containerOf(id string, image engine.ImageID, c engine.Confinement, mounts []specs.Mount) Container {
	c.Spec.Mounts = mounts
	return Container{
		Name: namePrefix + id, Image: image, Network: c.Network, Runtime: c.Runtime, ShmBytes: c.ShmBytes, DNS: c.DNS, Spec: c.Spec,
	}
}

// boot starts a container. Where that fails because a volume that sessions share is
// empty, as a prune leaves it, refill fills it, and the container is made again, once.
// After an error there is no container.
func (e *Engine) boot(ctx context.Context, shape Container, id ContainerID, refill func(context.Context) error) (ContainerID, error) {
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
	return e.containers.RemoveContainer(ctx, ContainerID(name))
}
