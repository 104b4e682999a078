package docker

import (
	"context"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/volume"
)

// CreateVolume creates a volume of the engine's local driver. If there is one of
// that name already, the engine keeps that as it is and this is not an error; Volume
// tells whose it is.
// It does not return before the engine has answered, unless ctx ended 4 s ago.
func (c *Client) CreateVolume(ctx context.Context, want Volume) error {
	op := "create volume " + want.Name
	podman, err := c.isPodman(ctx)
	if err != nil {
		return err
	}
	options := want.Options
	if podman {
		options = volumeForPodman(want)
	}
	if ctx.Err() != nil {
		return fail(ctx, op, context.Cause(ctx))
	}
	ctx, cancel := making(ctx)
	defer cancel()
	_, err = c.api.VolumeCreate(ctx, volume.CreateOptions{Name: want.Name, Driver: "local", DriverOpts: options, Labels: want.Labels})
	return fail(ctx, op, err)
}

// Volume finds a volume by its name.
func (c *Client) Volume(ctx context.Context, name string) (Volume, error) {
	found, err := ask(ctx, "inspect volume "+name, func(ctx context.Context) (volume.Volume, error) {
		return c.api.VolumeInspect(ctx, name)
	})
	if err != nil {
		return Volume{}, err
	}
	return volumeOf(&found), nil
}

// Volumes lists the volumes that have all these labels, by name.
func (c *Client) Volumes(ctx context.Context, labels map[string]string) ([]Volume, error) {
	list, err := ask(ctx, "list volumes", func(ctx context.Context) (volume.ListResponse, error) {
		return c.api.VolumeList(ctx, volume.ListOptions{Filters: labelFilter(labels)})
	})
	if err != nil {
		return nil, err
	}
	var out []Volume
	for _, one := range list.Volumes {
		if one != nil {
			out = append(out, volumeOf(one))
		}
	}
	slices.SortFunc(out, func(a, b Volume) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func volumeOf(v *volume.Volume) Volume {
	return Volume{Name: v.Name, Labels: v.Labels, Options: v.Options, Created: timestamp(v.CreatedAt)}
}

// RemoveVolume removes a volume. ErrConflict: a container uses it.
func (c *Client) RemoveVolume(ctx context.Context, name string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return fail(ctx, "remove volume "+name, c.api.VolumeRemove(ctx, name, false))
}
