package docker

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Keep makes a mark: a second volume, which is always empty, for its labels. Those of the
// workspace itself cannot change. See docs/adr/0025.
func (e *Engine) Keep(ctx context.Context, id string, labels map[string]string) error {
	mark := Volume{Name: namePrefix + id + keptSuffix, Labels: withLabels(labels, id, roleKept)}
	if err := e.volumes.CreateVolume(ctx, mark); err != nil {
		return err
	}
	names, err := e.volumesOf(ctx, id)
	if err != nil || slices.Contains(names, namePrefix+id) {
		return err
	}
	// Another process has stopped the session meanwhile.
	if err := e.removeVolume(ctx, mark.Name); err != nil && !errors.Is(err, engine.ErrNotFound) {
		return err
	}
	return &engine.GoneError{Session: id}
}

// volumesOf returns the names of those of keptVolumes that there are.
func (e *Engine) volumesOf(ctx context.Context, id string) ([]string, error) {
	all, err := e.volumes.Volumes(ctx, map[string]string{labelSession: id, labelRole: roleWorkspace})
	var names []string
	for _, v := range all {
		if slices.Contains(keptVolumes(id), v.Name) {
			names = append(names, v.Name)
		}
	}
	return names, err
}

// Attach starts a container of the runner's own image over the workspaces.
func (e *Engine) Attach(ctx context.Context, p engine.Helper) (engine.Handle, error) {
	id, err := e.attach(ctx, p)
	if err != nil {
		return engine.Handle{}, e.discardMade(ctx, err)
	}
	return engine.Handle{ID: p.ID, Ref: string(id)}, nil
}

func (e *Engine) attach(ctx context.Context, p engine.Helper) (ContainerID, error) {
	info, err := e.containers.Info(ctx)
	if err != nil {
		return "", err
	}
	img, err := e.copies.Helper(ctx, info.Arch)
	if err != nil {
		return "", err
	}
	runner, err := e.copies.Runner(ctx, img.Arch)
	if err != nil {
		return "", err
	}
	over, err := e.mountsOver(ctx, p.Over)
	if err != nil {
		return "", err
	}
	shape := containerOf(p.ID, img.ID, p.Confinement, slices.Concat([]specs.Mount{readOnly(runner, engine.RunnerDir)}, p.Spec.Mounts, over))
	shape.Labels = containerLabels(p.ID, p.Labels, shape.Spec)
	id, err := e.create(ctx, shape, p.Exact)
	if err == nil {
		err = e.pinned(ctx, p.Over, over)
	}
	if err != nil {
		return "", errors.Join(err, e.discard(ctx, shape.Name))
	}
	return e.boot(ctx, shape, id, func(ctx context.Context) error { return e.copies.Refill(ctx, img.Arch) })
}

// mountsOver are the volumes that a helper reads, as far as there are any.
func (e *Engine) mountsOver(ctx context.Context, over []engine.Attachment) ([]specs.Mount, error) {
	var all []specs.Mount
	for _, a := range over {
		names, err := e.volumesOf(ctx, a.Session)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			at := a.Target
			if strings.HasSuffix(name, recordsSuffix) {
				at = a.Records
			}
			if at != "" {
				all = append(all, readOnly(name, at))
			}
		}
	}
	return all, nil
}

// pinned checks that the volumes that a container mounts are those that were meant, each
// workspace among them: an engine makes what a container names, and another process may
// have removed it before. What it has made so discardMade removes.
func (e *Engine) pinned(ctx context.Context, over []engine.Attachment, mounted []specs.Mount) error {
	for _, a := range over {
		names, err := e.volumesOf(ctx, a.Session)
		if err != nil {
			return err
		}
		gone := func(name string) bool {
			return !slices.Contains(names, name) && slices.ContainsFunc(mounted, func(m specs.Mount) bool { return m.Source == name })
		}
		if !slices.Contains(names, namePrefix+a.Session) || slices.ContainsFunc(keptVolumes(a.Session), gone) {
			return &engine.GoneError{Session: a.Session}
		}
	}
	return nil
}

// discardMade removes the empty volumes that an engine has made in the place of those
// that were gone. They have no label.
func (e *Engine) discardMade(ctx context.Context, err error) error {
	gone, ok := errors.AsType[*engine.GoneError](err)
	if !ok {
		return err
	}
	all, listErr := e.volumes.Volumes(ctx, nil)
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	for _, v := range all {
		if slices.Contains(keptVolumes(gone.Session), v.Name) && len(v.Labels) == 0 {
			if removeErr := e.volumes.RemoveVolume(ctx, v.Name); removeErr != nil && !errors.Is(removeErr, engine.ErrNotFound) {
				return errors.Join(err, removeErr)
			}
		}
	}
	return err
}
