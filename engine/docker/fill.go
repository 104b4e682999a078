package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

const (
	fillPatience = 2 * time.Minute       // for filling a volume, which takes seconds at most
	fillPoll     = 50 * time.Millisecond // between two looks at what another process fills
	cleanupTime  = 15 * time.Second      // for removing what a call has made
)

// content is a volume that is filled with what an image has in a directory.
type content struct {
	volume string
	dir    string
	role   string // the volume's label
}

// mark returns the name of an empty volume that says that c's volume is filled. It takes
// a second volume because a volume exists before its content, and its labels cannot
// change.
func (c content) mark() string { return c.volume + markSuffix }

const markSuffix = "-filled"

// filledVolume returns the name of c's volume. It fills the volume from an image if it is
// missing, once per engine, however many callers ask for it.
func (s *copier) filledVolume(ctx context.Context, c content, image func(context.Context) (engine.ImageID, error)) (string, error) {
	return s.fills.Do(ctx, c.volume, nil, func(ctx context.Context, _ func(engine.Progress)) (string, error) {
		ready, err := s.filled(ctx, c)
		if err != nil || ready {
			return c.volume, err
		}
		id, err := image(ctx)
		if err != nil {
			return "", err
		}
		return c.volume, s.fill(ctx, c, id)
	})
}

// filled reports whether the volume and its mark exist. fill removes the mark before it
// makes a volume, and makes it again after filling. So the order matters here: first the
// volume, then the mark.
func (s *copier) filled(ctx context.Context, c content) (bool, error) {
	for _, name := range []string{c.volume, c.mark()} {
		_, err := s.volumes.Volume(ctx, name)
		if errors.Is(err, engine.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, c.wrap(err)
		}
	}
	return true, nil
}

func (c content) wrap(err error) error { return fmt.Errorf("%s volume: %w", c.role, err) }

// fill makes the volume and its content. The name of the filling container is the lock,
// because an engine gives a name only once. A process that finds it taken waits, or
// finishes the work of a process that died at it:
//
//	remove the mark; then until it works or another process has done it:
//	remove the volume, unless it is used; create it
//	create the filler, which has the engine copy the content; a conflict means that
//	another process fills, or that the engine has just filled for one
//	create the mark; remove the filler
func (s *copier) fill(ctx context.Context, c content, image engine.ImageID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, fillPatience, fmt.Errorf("volume %s was not filled within %v", c.volume, fillPatience))
	defer cancel()
	// The mark goes before the volume is made, and comes back after: see filled.
	if err := ignore(s.volumes.RemoveVolume(ctx, c.mark()), engine.ErrNotFound); err != nil {
		return c.wrap(err)
	}
	for {
		err := s.fillOnce(ctx, c, image)
		if !errors.Is(err, engine.ErrConflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(fillPoll):
		}
		if ready, err := s.filled(ctx, c); err != nil || ready {
			return err
		}
	}
}

// fillOnce returns an engine.ErrConflict while another container of the lock's
// name is being made.
func (s *copier) fillOnce(ctx context.Context, c content, image engine.ImageID) (err error) {
	// An engine that died while it filled the volume has left a part of the content. A
	// volume that a container uses is whole, or it is empty and is filled in place.
	if err := ignore(s.volumes.RemoveVolume(ctx, c.volume), engine.ErrNotFound, engine.ErrConflict); err != nil {
		return c.wrap(err)
	}
	if err := s.volumes.CreateVolume(ctx, Volume{Name: c.volume, Labels: roleLabels(c.role)}); err != nil {
		return c.wrap(err)
	}
	lock := ContainerID(c.volume + "-filler")
	_, _, err = s.containers.CreateContainer(ctx, filler(string(lock), image, specs.Mount{Source: c.volume, Destination: c.dir}))
	if errors.Is(err, engine.ErrConflict) {
		// An engine shows a container once it is made, and then the volume is filled.
		state, stateErr := s.containers.Container(ctx, string(lock))
		if stateErr != nil || !fills(state, c.volume) {
			return c.wrap(err)
		}
	} else if err != nil {
		err = c.wrap(err)
	}
	if err == nil || errors.Is(err, engine.ErrConflict) {
		err = s.volumes.CreateVolume(ctx, Volume{Name: c.mark(), Labels: roleLabels(c.role)})
	}
	return errors.Join(err, s.removeFiller(ctx, lock))
}

// fills reports whether a container is a filler of the volume.
func fills(c ContainerState, volume string) bool {
	for _, m := range c.Mounts {
		if m.Type == "volume" && m.Source == volume && c.Labels[labelRole] == roleFiller {
			return true
		}
	}
	return false
}

// filler returns a container that is never started. When it is created, the engine copies
// what the image has at the mount's destination into the empty volume.
func filler(name string, image engine.ImageID, mount specs.Mount) Container {
	mount.Type = "volume"
	return Container{
		Name:    name,
		Image:   image,
		Labels:  roleLabels(roleFiller),
		Network: "none",
		Spec: specs.Spec{
			Process: &specs.Process{Args: []string{engine.RunnerPath}, Cwd: "/"},
			Root:    &specs.Root{},
			Mounts:  []specs.Mount{mount},
			Linux:   &specs.Linux{},
		},
	}
}

// removeFiller removes a filler by its name, even if ctx has ended. It succeeds if there
// is no such container.
func (s *copier) removeFiller(ctx context.Context, name ContainerID) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, fmt.Errorf("container %s was not removed within %v", name, cleanupTime))
	defer cancel()
	return ignore(s.containers.RemoveContainer(ctx, name), engine.ErrNotFound)
}

// ignore returns nil if err is one of the kinds, and else err.
func ignore(err error, kinds ...error) error {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return nil
		}
	}
	return err
}
