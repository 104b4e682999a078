package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/image"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Image finds an image on the engine by reference or ID.
func (c *Client) Image(ctx context.Context, ref string) (engine.Image, error) {
	found, err := ask(ctx, "inspect image "+ref, func(ctx context.Context) (image.InspectResponse, error) {
		return c.api.ImageInspect(ctx, ref)
	})
	if err != nil {
		return engine.Image{}, err
	}
	out := engine.Image{
		ID:      engine.ImageID(found.ID),
		Refs:    slices.Sorted(slices.Values(found.RepoTags)),
		OS:      found.Os,
		Arch:    found.Architecture,
		Size:    found.Size,
		Created: timestamp(found.Created),
	}
	if found.Config != nil {
		out.Labels = found.Config.Labels
		out.Env = found.Config.Env
	}
	return out, nil
}

// Images lists the images on the engine, newest first. One that vanishes while
// they are listed is left out.
func (c *Client) Images(ctx context.Context) ([]engine.Image, error) {
	return c.ImagesLabelled(ctx, nil)
}

// ImagesLabelled lists the images that have all these labels, as Images does.
func (c *Client) ImagesLabelled(ctx context.Context, labels map[string]string) ([]engine.Image, error) {
	list, err := ask(ctx, "list images", func(ctx context.Context) ([]image.Summary, error) {
		return c.api.ImageList(ctx, image.ListOptions{Filters: labelFilter(labels)})
	})
	if err != nil {
		return nil, err
	}
	var out []engine.Image
	for _, one := range list {
		img, err := c.Image(ctx, one.ID)
		if errors.Is(err, engine.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, img)
	}
	slices.SortStableFunc(out, func(a, b engine.Image) int { return b.Created.Compare(a.Created) })
	return out, nil
}

// PullImage fetches an image from its registry, with the user's credentials.
// progress may be nil. Only ctx bounds it.
func (c *Client) PullImage(ctx context.Context, ref string, progress func(engine.Progress)) error {
	op := "pull " + ref
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return invalid(op, "%w", err)
	}
	auth, authErr := c.credentials(named)
	body, err := c.api.ImagePull(ctx, ref, image.PullOptions{RegistryAuth: auth})
	if err == nil {
		defer body.Close()
		err = follow(ctx, body, reporter(progress))
	}
	if err != nil && authErr != nil {
		// Most pulls need no credentials; this one may have.
		err = fmt.Errorf("%w (without credentials: %w)", err, authErr)
	}
	return fail(ctx, op, err)
}

// LoadImages reads an archive as `docker save` writes it, and returns the
// references or, of images without one, the IDs that it held. progress may be
// nil. Only ctx bounds it.
func (c *Client) LoadImages(ctx context.Context, r io.Reader, progress func(engine.Progress)) ([]string, error) {
	const op = "load images"
	resp, err := c.api.ImageLoad(ctx, r)
	if err != nil {
		return nil, fail(ctx, op, err)
	}
	defer resp.Body.Close()
	var loaded []string
	report := reporter(progress)
	err = follow(ctx, resp.Body, func(m message) {
		report(m)
		for line := range strings.Lines(m.Stream) {
			// The engine names what it has loaded nowhere else.
			for _, prefix := range []string{"Loaded image: ", "Loaded image ID: ", "Loaded image(s): "} {
				if ref, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
					loaded = append(loaded, ref)
				}
			}
		}
	})
	if err != nil {
		return loaded, fail(ctx, op, err)
	}
	return loaded, nil
}

// ImportImage makes an image of one layer from the tar archive of a root file
// system. Only ctx bounds it.
func (c *Client) ImportImage(ctx context.Context, rootfs io.Reader, cfg engine.ImageConfig) (engine.ImageID, error) {
	op := "import image " + cfg.Ref
	changes, err := labelChanges(op, cfg.Labels)
	if err != nil {
		return "", err
	}
	opts := image.ImportOptions{Changes: changes}
	if cfg.OS != "" && cfg.Arch != "" {
		opts.Platform = cfg.OS + "/" + cfg.Arch
	}
	body, err := c.api.ImageImport(ctx, image.ImportSource{Source: rootfs, SourceName: "-"}, cfg.Ref, opts)
	if err != nil {
		return "", fail(ctx, op, err)
	}
	defer body.Close()
	var id engine.ImageID
	err = follow(ctx, body, func(m message) {
		if strings.HasPrefix(m.Status, "sha256:") {
			id = engine.ImageID(strings.TrimSpace(m.Status))
		}
	})
	if err != nil {
		return "", fail(ctx, op, err)
	}
	if id == "" {
		return "", fail(ctx, op, errNoID)
	}
	return id, nil
}

// errNoID is an engine that says neither what it made nor that it failed.
var errNoID = errors.New("the engine did not say which image it made")

// labelChanges writes labels as Dockerfile instructions, which is how an import takes them.
func labelChanges(op string, labels map[string]string) ([]string, error) {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`)
	var out []string
	for k, v := range labels {
		if k == "" || strings.ContainsAny(k+v, "\r\n") {
			return nil, invalid(op, "label %q=%q: it must have a name and be of one line", k, v)
		}
		out = append(out, fmt.Sprintf(`LABEL "%s"="%s"`, quote.Replace(k), quote.Replace(v)))
	}
	slices.Sort(out)
	return out, nil
}

// BuildImage builds an image with the engine's own builder from the tar archive
// of a directory. progress may be nil. Only ctx bounds it.
func (c *Client) BuildImage(ctx context.Context, contextTar io.Reader, want engine.Build, progress func(engine.Progress)) (engine.ImageID, error) {
	op := "build image " + want.Ref
	opts := build.ImageBuildOptions{
		Version: build.BuilderV1, Dockerfile: want.Dockerfile, Target: want.Target, Labels: want.Labels,
		NetworkMode: want.Network, BuildArgs: map[string]*string{},
		Remove: true, ForceRemove: true, AuthConfigs: c.allCredentials(),
	}
	for name, value := range want.Args {
		opts.BuildArgs[name] = &value
	}
	if want.Ref != "" {
		opts.Tags = []string{want.Ref}
	}
	resp, err := c.api.ImageBuild(ctx, contextTar, opts)
	if err != nil {
		return "", fail(ctx, op, err)
	}
	defer resp.Body.Close()
	var id engine.ImageID
	report := reporter(progress)
	err = follow(ctx, resp.Body, func(m message) {
		report(m)
		var made build.Result
		if m.Aux != nil && json.Unmarshal(m.Aux, &made) == nil && made.ID != "" {
			id = engine.ImageID(made.ID)
		}
	})
	if err != nil {
		return "", fail(ctx, op, err)
	}
	if id == "" {
		return "", fail(ctx, op, errNoID)
	}
	return id, nil
}

// RemoveImage takes a reference, or with an ID the whole image, off the engine.
// ErrConflict: a container uses it.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := c.api.ImageRemove(ctx, ref, image.RemoveOptions{PruneChildren: true})
	return fail(ctx, "remove image "+ref, err)
}
