package images

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// WorkspaceDir is where a session has its workspace by default.
const WorkspaceDir = "/workspace"

// Workspace returns an image that holds only WorkspaceDir, empty, owned by uid:gid and
// with mode 0755. It makes the image if it is missing.
func (r *Resolver) Workspace(ctx context.Context, uid, gid uint32) (engine.ImageID, error) {
	info, err := r.engine.Info(ctx)
	if err != nil {
		return "", fmt.Errorf("workspace image: %w", err)
	}
	layer, err := layerOf(func(tw *tar.Writer) error {
		return writeDir(tw, dirEntry{name: WorkspaceDir[1:], uid: int(uid), gid: int(gid)})
	})
	if err != nil {
		return "", fmt.Errorf("workspace image: %w", err)
	}
	img := smallImage{
		ref:    fmt.Sprintf("%s:%d-%d", workspaceRepo, uid, gid),
		arch:   info.Arch,
		labels: roleLabels(roleWorkspace),
		layer:  layer,
	}
	return img.ensure(ctx, r.engine)
}

// FillWorkspace gives an empty volume its owner: its root directory becomes uid:gid's,
// with mode 0755. It does not change a volume that is not empty. It starts no container,
// and leaves none behind.
func (r *Resolver) FillWorkspace(ctx context.Context, volume string, uid, gid uint32) error {
	id, err := r.Workspace(ctx, uid, gid)
	if err != nil {
		return err
	}
	name := engine.ContainerID(volume + fillerSuffix)
	_, _, err = r.engine.CreateContainer(ctx, filler(string(name), id, specs.Mount{Source: volume, Destination: WorkspaceDir}))
	if err = errors.Join(err, r.removeFiller(ctx, name)); err != nil {
		return fmt.Errorf("workspace volume %s: %w", volume, err)
	}
	return nil
}

// The containers that work on a volume are named after it, so that ReleaseWorkspace finds
// those that a process left when it died.
const (
	fillerSuffix  = "-filler"
	clearerSuffix = "-clearer"
)

// ReleaseWorkspace removes the containers that this package has made to work on a volume
// and that a process left when it died: an engine does not remove a volume that has any.
// It waits for a container that is still running.
func (r *Resolver) ReleaseWorkspace(ctx context.Context, volume string) error {
	for _, suffix := range []string{fillerSuffix, clearerSuffix} {
		state, err := r.engine.Container(ctx, volume+suffix)
		if errors.Is(err, engine.ErrNotFound) {
			continue
		}
		if err == nil && !fills(state, volume) {
			continue // another program's
		}
		if err == nil && state.Status == "running" {
			err = r.engine.WaitContainer(ctx, state.ID)
		}
		if err = errors.Join(err, r.removeFiller(ctx, state.ID)); err != nil {
			return fmt.Errorf("release volume %s: %w", volume, err)
		}
	}
	return nil
}

// ClearWorkspace empties a volume that no container uses, in a container of the runner's
// image. It is for contents that the engine cannot remove, because they are nested too
// deep. If there is no such volume, the error wraps engine.ErrNotFound: an engine may have
// removed it although its answer was lost.
func (r *Resolver) ClearWorkspace(ctx context.Context, volume string) error {
	if err := r.clear(ctx, volume); err != nil {
		return fmt.Errorf("clear volume %s: %w", volume, err)
	}
	return nil
}

func (r *Resolver) clear(ctx context.Context, volume string) error {
	// Creating the container would have the engine make the volume, without our labels.
	if _, err := r.engine.Volume(ctx, volume); err != nil {
		return err
	}
	info, err := r.engine.Info(ctx)
	if err != nil {
		return err
	}
	b, err := r.runners(info.Arch)
	if err != nil {
		return err
	}
	img, err := b.image()
	if err != nil {
		return err
	}
	id, err := img.ensure(ctx, r.engine)
	if err != nil {
		return err
	}
	name := engine.ContainerID(volume + clearerSuffix)
	shape := filler(string(name), id, specs.Mount{Source: volume, Destination: WorkspaceDir, Options: []string{"nocopy"}})
	shape.Spec.Root.Readonly = true
	shape.Spec.Process.NoNewPrivileges = true
	shape.Spec.Process.Args = append([]string{engine.RunnerPath}, wire.VerbClear.Command(&wire.ClearArgs{Dir: WorkspaceDir})...)
	shape.Spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: []string{"CAP_DAC_OVERRIDE", "CAP_FOWNER"}}
	_, _, err = r.engine.CreateContainer(ctx, shape)
	if errors.Is(err, engine.ErrConflict) { // another process clears it too, or died at that
		if err = r.ReleaseWorkspace(ctx, volume); err == nil {
			_, _, err = r.engine.CreateContainer(ctx, shape)
		}
	}
	if err == nil {
		if err = r.engine.StartContainer(ctx, name); err == nil {
			err = r.engine.WaitContainer(ctx, name)
		}
	}
	return errors.Join(err, r.removeFiller(ctx, name))
}
