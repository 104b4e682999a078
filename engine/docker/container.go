package docker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"golang.org/x/sync/errgroup"

	"github.com/sandboxbash/sandboxbash/engine"
)

// CreateContainer creates a container of that shape and returns the engine's warnings:
// one usually means that a limit was dropped.
// Nothing that the image configures takes effect, its LABEL apart: the engine
// merges those in, so a caller sets every label that it will trust.
// It does not return before the engine has answered, unless ctx ended 4 s ago.
// After any error but ErrConflict there may be a container of that name.
func (c *Client) CreateContainer(ctx context.Context, want Container) (ContainerID, []string, error) {
	op := "create container " + want.Name
	image, err := ask(ctx, op, func(ctx context.Context) (imageDefaults, error) { return c.defaults(ctx, want.Image) })
	if err != nil {
		return "", nil, err
	}
	if image.podman, err = c.isPodman(ctx); err != nil {
		return "", nil, err
	}
	cfg, host, err := translate(op, want, image)
	if err != nil {
		return "", nil, err
	}
	if err := c.dropSwappiness(ctx, host); err != nil {
		return "", nil, err
	}
	if ctx.Err() != nil {
		return "", nil, fail(ctx, op, context.Cause(ctx))
	}
	ctx, cancel := making(ctx)
	defer cancel()
	if image.podman {
		return c.createOnPodman(ctx, op, want.Name, cfg, host)
	}
	made, err := c.api.ContainerCreate(ctx, cfg, host, &network.NetworkingConfig{}, nil, want.Name)
	if err != nil {
		return "", nil, fail(ctx, op, err)
	}
	return ContainerID(made.ID), made.Warnings, nil
}

// dropSwappiness leaves out what cgroups of version 2 do not have, and engines there warn of, where it would
// change nothing: a container that may use as much of memory and swap together as of memory alone has a
// memory.swap.max of 0, and nothing of it is swapped.
func (c *Client) dropSwappiness(ctx context.Context, host *container.HostConfig) error {
	if host.MemorySwappiness == nil || host.Memory == 0 || host.MemorySwap != host.Memory {
		return nil
	}
	about, err := c.Info(ctx)
	if err == nil && about.CgroupVersion == "2" {
		host.MemorySwappiness = nil
	}
	return err
}

// imageDefaults is what an image would add to a container and must not.
type imageDefaults struct {
	env     []string // names
	volumes []string // paths
	podman  bool     // the engine is Podman
}

func (c *Client) defaults(ctx context.Context, id engine.ImageID) (imageDefaults, error) {
	found, err := c.api.ImageInspect(ctx, string(id))
	if err != nil || found.Config == nil {
		return imageDefaults{}, err
	}
	var out imageDefaults
	for _, kv := range found.Config.Env {
		name, _, _ := strings.Cut(kv, "=")
		out.env = append(out.env, name)
	}
	for dir := range found.Config.Volumes {
		out.volumes = append(out.volumes, dir)
	}
	slices.Sort(out.volumes)
	return out, nil
}

// StartContainer starts a container. One that runs already is not an error.
func (c *Client) StartContainer(ctx context.Context, id ContainerID) error {
	op := "start container " + string(id)
	ctx, cancel := bounded(ctx)
	defer cancel()
	return fail(ctx, op, c.api.ContainerStart(ctx, string(id), container.StartOptions{}))
}

// Container returns what the engine knows of a container.
func (c *Client) Container(ctx context.Context, nameOrID string) (ContainerState, error) {
	found, err := ask(ctx, "inspect container "+nameOrID, func(ctx context.Context) (container.InspectResponse, error) {
		found, err := c.api.ContainerInspect(ctx, nameOrID)
		if err == nil && found.ContainerJSONBase == nil { // the document names no container
			err = errNoContainer
		}
		return found, err
	})
	if err != nil {
		return ContainerState{}, err
	}
	return state(found), nil
}

// Containers lists the containers that have all these labels, in any state,
// oldest first. One that vanishes while they are listed is left out.
func (c *Client) Containers(ctx context.Context, labels map[string]string) ([]ContainerState, error) {
	list, err := ask(ctx, "list containers", func(ctx context.Context) ([]container.Summary, error) {
		return c.api.ContainerList(ctx, container.ListOptions{All: true, Filters: labelFilter(labels)})
	})
	if err != nil {
		return nil, err
	}
	var (
		mu  sync.Mutex
		out []ContainerState // guarded by mu
	)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8) // enough to hide the round trips of a remote engine
	for _, one := range list {
		group.Go(func() error {
			st, err := c.Container(ctx, one.ID)
			if errors.Is(err, engine.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, st)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b ContainerState) int {
		if n := a.Created.Compare(b.Created); n != 0 {
			return n
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return out, nil
}

func labelFilter(labels map[string]string) filters.Args {
	args := filters.NewArgs()
	for k, v := range labels {
		args.Add("label", k+"="+v)
	}
	return args
}

func state(found container.InspectResponse) ContainerState {
	out := ContainerState{
		ID:         ContainerID(found.ID),
		Name:       strings.TrimPrefix(found.Name, "/"),
		Image:      engine.ImageID(found.Image),
		Entrypoint: append([]string{found.Path}, found.Args...),
		Created:    timestamp(found.Created),
	}
	if found.Config != nil {
		out.Labels = found.Config.Labels
	}
	if st := found.State; st != nil {
		out.Status = engine.Status(st.Status)
		out.OOMKilled = st.OOMKilled
		out.ExitCode = st.ExitCode
		out.Error = st.Error
		out.Started = timestamp(st.StartedAt)
		out.Finished = timestamp(st.FinishedAt)
		out.PID = st.Pid
	}
	if out.Status == engine.StatusRunning {
		out.Finished = time.Time{} // the engine keeps that of the run before
	}
	for _, m := range found.Mounts {
		source := m.Source
		if m.Name != "" {
			source = m.Name
		}
		out.Mounts = append(out.Mounts, Mount{Type: string(m.Type), Source: source, Target: m.Destination, ReadOnly: !m.RW})
	}
	if found.HostConfig != nil {
		for dir, opts := range found.HostConfig.Tmpfs {
			out.Mounts = append(out.Mounts, Mount{Type: "tmpfs", Target: dir, ReadOnly: slices.Contains(strings.Split(opts, ","), "ro")})
		}
	}
	slices.SortFunc(out.Mounts, func(a, b Mount) int { return strings.Compare(a.Target, b.Target) })
	return out
}

// timestamp parses a time of the engine's, which writes the year 1 for never. It returns
// the zero time for that, and for what is not a time.
func timestamp(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// SignalContainer sends a signal, as in "SIGKILL", to PID 1. ErrNotRunning: it
// has none.
func (c *Client) SignalContainer(ctx context.Context, id ContainerID, signal string) error {
	op := "send " + signal + " to container " + string(id)
	ctx, cancel := bounded(ctx)
	defer cancel()
	return c.explain(ctx, id, fail(ctx, op, c.api.ContainerKill(ctx, string(id), signal)))
}

// PauseContainer stops the processes of a container where they are. One that is paused already is not
// an error. ErrNotRunning: it has none.
func (c *Client) PauseContainer(ctx context.Context, id ContainerID) error {
	return c.turn(ctx, "pause", id, engine.StatusPaused, c.api.ContainerPause)
}

// UnpauseContainer lets the processes of a container go on. One that runs already is not an error.
func (c *Client) UnpauseContainer(ctx context.Context, id ContainerID) error {
	return c.turn(ctx, "unpause", id, engine.StatusRunning, c.api.ContainerUnpause)
}

// turn has the engine bring a container into a state. Engines refuse it with different statuses where
// it is in that state, so the container is asked.
func (c *Client) turn(ctx context.Context, verb string, id ContainerID, to engine.Status, do func(ctx context.Context, id string) error) error {
	op := verb + " container " + string(id)
	bound, cancel := bounded(ctx)
	defer cancel()
	err := fail(bound, op, do(bound, string(id)))
	if err == nil || !cerrdefs.IsConflict(err) && !cerrdefs.IsInternal(err) {
		return err
	}
	if st, e := c.Container(ctx, string(id)); e == nil && st.Status == to {
		return nil
	}
	return c.explain(ctx, id, err)
}

// explain gives a refusal the kind ErrNotRunning if the container does not run.
// Engines refuse such calls with different statuses, so the container is asked.
func (c *Client) explain(ctx context.Context, id ContainerID, err error) error {
	refused, ok := errors.AsType[*engine.Error](err)
	if !ok || !cerrdefs.IsConflict(err) && !cerrdefs.IsInternal(err) {
		return err
	}
	if st, e := c.Container(ctx, string(id)); e == nil && st.Status != engine.StatusRunning {
		return &engine.Error{Op: refused.Op, Kind: engine.ErrNotRunning, Err: refused.Err}
	}
	return err
}

// WaitContainer returns once the container is not running, at once if it is not. Only
// ctx bounds it.
func (c *Client) WaitContainer(ctx context.Context, id ContainerID) error {
	return c.wait(ctx, id, container.WaitConditionNotRunning)
}

func (c *Client) wait(ctx context.Context, id ContainerID, until container.WaitCondition) error {
	op := "wait for container " + string(id)
	ctx, cancel := context.WithCancel(ctx) // ends the client's goroutine
	defer cancel()
	ended, broken := c.api.ContainerWait(ctx, string(id), until)
	select {
	case <-ended:
		return nil
	case err := <-broken:
		return fail(ctx, op, err)
	}
}

// RemoveContainer kills and removes a container and its anonymous volumes. One
// that is not there, or that has just been removed, is not an error.
func (c *Client) RemoveContainer(ctx context.Context, id ContainerID) error {
	op := "remove container " + string(id)
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := c.api.ContainerRemove(ctx, string(id), container.RemoveOptions{Force: true, RemoveVolumes: true})
	if cerrdefs.IsConflict(err) {
		err = c.wait(ctx, id, container.WaitConditionRemoved) // a removal is in progress
	}
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	return fail(ctx, op, err)
}
