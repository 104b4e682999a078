package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/ociarchive"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// workspaceDir is where a volume is mounted while it is filled or cleared.
const workspaceDir = "/workspace"

// workspaceImage returns an image that holds only workspaceDir, empty, owned by uid:gid
// and with mode 0755. It makes the image if it is missing.
func (s *copier) workspaceImage(ctx context.Context, uid, gid uint32) (engine.ImageID, error) {
	info, err := s.containers.Info(ctx)
	if err != nil {
		return "", fmt.Errorf("workspace image: %w", err)
	}
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	dir := tar.Header{Typeflag: tar.TypeDir, Name: workspaceDir[1:] + "/", Mode: 0o755, Uid: int(uid), Gid: int(gid), ModTime: ociarchive.Epoch, Format: tar.FormatPAX}
	if err := errors.Join(tw.WriteHeader(&dir), tw.Close()); err != nil {
		return "", fmt.Errorf("workspace image: %w", err)
	}
	img := smallImage{
		ref:    fmt.Sprintf("%s:%d-%d", engine.WorkspaceRepo, uid, gid),
		arch:   info.Arch,
		labels: roleLabels(roleWorkspace),
		layer:  layer.Bytes(),
	}
	return img.ensure(ctx, s.images)
}

// FillWorkspace gives an empty volume its owner: its root directory becomes uid:gid's,
// with mode 0755. It does not change a volume that is not empty. It starts no container,
// and leaves none behind.
func (s *copier) FillWorkspace(ctx context.Context, volume string, uid, gid uint32) error {
	id, err := s.workspaceImage(ctx, uid, gid)
	if err != nil {
		return err
	}
	name := ContainerID(volume + fillerSuffix)
	_, _, err = s.containers.CreateContainer(ctx, filler(string(name), id, specs.Mount{Source: volume, Destination: workspaceDir}))
	if err = errors.Join(err, s.removeFiller(ctx, name)); err != nil {
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
func (s *copier) ReleaseWorkspace(ctx context.Context, volume string) error {
	for _, suffix := range []string{fillerSuffix, clearerSuffix} {
		state, err := s.containers.Container(ctx, volume+suffix)
		if errors.Is(err, engine.ErrNotFound) {
			continue
		}
		if err == nil && !fills(state, volume) {
			continue // another program's
		}
		if err == nil && state.Status == "running" {
			err = s.containers.WaitContainer(ctx, state.ID)
		}
		if err = errors.Join(err, s.removeFiller(ctx, state.ID)); err != nil {
			return fmt.Errorf("release volume %s: %w", volume, err)
		}
	}
	return nil
}

// ClearWorkspace empties a volume that no container uses, in a container of the runner's
// image. It is for contents that the engine cannot remove, because they are nested too
// deep. If there is no such volume, the error wraps engine.ErrNotFound: an engine may have
// removed it although its answer was lost.
func (s *copier) ClearWorkspace(ctx context.Context, volume string) error {
	if err := s.clear(ctx, volume); err != nil {
		return fmt.Errorf("clear volume %s: %w", volume, err)
	}
	return nil
}

func (s *copier) clear(ctx context.Context, volume string) error {
	// Creating the container would have the engine make the volume, without our labels.
	if _, err := s.volumes.Volume(ctx, volume); err != nil {
		return err
	}
	info, err := s.containers.Info(ctx)
	if err != nil {
		return err
	}
	img, err := s.Helper(ctx, info.Arch)
	if err != nil {
		return err
	}
	name := ContainerID(volume + clearerSuffix)
	shape := filler(string(name), img.ID, specs.Mount{Source: volume, Destination: workspaceDir, Options: []string{"nocopy"}})
	shape.Spec.Root.Readonly = true
	shape.Spec.Process.NoNewPrivileges = true
	shape.Spec.Process.Args = append([]string{engine.RunnerPath}, wire.VerbClear.Command(&wire.ClearArgs{Dir: workspaceDir})...)
	shape.Spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: []string{"CAP_DAC_OVERRIDE", "CAP_FOWNER"}}
	_, _, err = s.containers.CreateContainer(ctx, shape)
	if errors.Is(err, engine.ErrConflict) { // another process clears it too, or died at that
		if err = s.ReleaseWorkspace(ctx, volume); err == nil {
			_, _, err = s.containers.CreateContainer(ctx, shape)
		}
	}
	if err == nil {
		if err = s.containers.StartContainer(ctx, name); err == nil {
			err = s.containers.WaitContainer(ctx, name)
		}
	}
	return errors.Join(err, s.removeFiller(ctx, name))
}
