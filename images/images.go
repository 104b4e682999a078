// Package images finds the image that a reference names on the engine, and puts images there.
//
// Resolve returns an image that is on the engine. If there is none, Resolve pulls it. If
// that fails, the error names the other ways to get an image, which a caller has to ask
// for: Load reads an archive, Build builds a directory with a Dockerfile, and Host makes a
// snapshot of this machine's own programs, which needs neither a registry nor a network.
//
// The package also embeds the runner, which an engine puts into every session. An image
// determines the files of a session, never the program that its engine runs.
package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/distribution/reference"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/flight"
)

// DefaultRef is the image that is used if none is configured.
const DefaultRef = "debian:stable-slim"

// HostRef is the reference of the snapshot of this machine's own programs. With tools (see HostWith) it is
// HostRef and each of their names behind a +, as in "host+gcc+go".
const HostRef = "host"

// hostRepo is the repository of snapshots.
const hostRepo = "sandboxbash/host"

// Label keys, and the role of the images that this package makes for users.
const (
	labelPrefix = "sandboxbash."
	labelDigest = labelPrefix + "digest"

	roleImage = "image" // loaded or built
)

func imageLabels() map[string]string { return map[string]string{engine.LabelRole: roleImage} }

// Engine is what this package needs of an engine: it stores images.
type Engine interface {
	Info(ctx context.Context) (engine.Info, error)
	// Image finds an image by reference or ID. The error wraps engine.ErrNotFound if the
	// engine does not have it.
	Image(ctx context.Context, ref string) (engine.Image, error)
	Images(ctx context.Context) ([]engine.Image, error)
	// ImagesLabelled lists the images with all these labels.
	ImagesLabelled(ctx context.Context, labels map[string]string) ([]engine.Image, error)
	PullImage(ctx context.Context, ref string, progress func(engine.Progress)) error
	// LoadImages, ImportImage and BuildImage make images from streams, which they read to
	// their end.
	LoadImages(ctx context.Context, archive io.Reader, progress func(engine.Progress)) ([]string, error)
	ImportImage(ctx context.Context, rootfs io.Reader, cfg engine.ImageConfig) (engine.ImageID, error)
	BuildImage(ctx context.Context, contextTar io.Reader, opts engine.Build, progress func(engine.Progress)) (engine.ImageID, error)
	RemoveImage(ctx context.Context, ref string) error
	// RemoveCopies removes what the engine has made for sessions of images that are gone,
	// and RemoveAllCopies all that it keeps between sessions.
	RemoveCopies(ctx context.Context) error
	RemoveAllCopies(ctx context.Context) error
}

// Options of a Resolver. The zero value is useful.
type Options struct {
	// Default is the reference that ResolveDefault tries first; "" is DefaultRef.
	Default string
	// Cache is a directory in which Host remembers which snapshot this machine's
	// programs make. It is created when needed. If it is "", Host looks each time.
	Cache string
	// LoadWith says how an image is put on the engine, such as "`docker load`". Errors
	// suggest it if an image is missing; "" leaves it out.
	LoadWith string
}

// Resolver makes images available on one engine. It may be used concurrently,
// and by several processes on one engine at once.
type Resolver struct {
	engine   Engine
	fallback string // the reference of ResolveDefault
	cache    string // directory, or ""
	loadWith string // for errors
	snapshot func(ctx context.Context, tools []string) (*snapshot, error)

	maxUnpacked int64 // bytes; see the constant

	images flight.Group[engine.Image] // by reference, and of the host snapshot
}

// New returns a Resolver over eng. It does not call the engine.
func New(eng Engine, opts Options) (*Resolver, error) {
	if eng == nil {
		return nil, errors.New("images: no engine given")
	}
	if opts.Default == "" {
		opts.Default = DefaultRef
	}
	if _, err := parseRef(opts.Default); err != nil {
		return nil, err
	}
	return &Resolver{engine: eng, fallback: opts.Default, cache: opts.Cache, loadWith: opts.LoadWith, snapshot: newSnapshot, maxUnpacked: maxUnpacked}, nil
}

// InvalidRefError says that a reference is malformed or reserved.
type InvalidRefError struct {
	Ref    string
	Reason string
}

func (e *InvalidRefError) Error() string {
	return fmt.Sprintf("image %q is not a valid reference: %s (give NAME[:TAG], NAME@DIGEST, an image ID or %q)", e.Ref, e.Reason, HostRef)
}

// Is reports whether target is engine.ErrImage.
func (*InvalidRefError) Is(target error) bool { return target == engine.ErrImage }

// target is a parsed reference: a name or an image ID.
type target struct {
	name string // as given to the engine
	byID bool   // an image ID, or a prefix of one: it is never pulled
}

// parseRef parses a reference as strictly as the engine does. A name without a tag or
// digest means its tag "latest".
func parseRef(ref string) (target, error) {
	if isHost(ref) {
		name, err := HostWithRef(toolsOf(ref))
		return target{name: name}, err
	}
	if isImageID(ref) {
		return target{name: ref, byID: true}, nil
	}
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return target{}, &InvalidRefError{Ref: ref, Reason: strings.TrimPrefix(err.Error(), "invalid reference format: ")}
	}
	if digested, ok := named.(reference.Digested); ok {
		// The digest decides; engines of different ages read NAME:TAG@DIGEST differently.
		if named, err = reference.WithDigest(reference.TrimNamed(named), digested.Digest()); err != nil {
			return target{}, &InvalidRefError{Ref: ref, Reason: err.Error()}
		}
	}
	return target{name: reference.FamiliarString(reference.TagNameOnly(named))}, nil
}

// isImageID reports whether ref is "sha256:<64 hex digits>", or 12 to 64 hex
// digits, the forms that engines print.
func isImageID(ref string) bool {
	digits, full := strings.CutPrefix(ref, "sha256:")
	if full && len(digits) != 64 || len(digits) < 12 || len(digits) > 64 {
		return false
	}
	return strings.Trim(digits, "0123456789abcdef") == ""
}

// makeRef checks a name for a new image: it must not be a digest, an ID, or one of the
// names whose content we rely on.
func makeRef(ref string) (string, error) {
	t, err := parseRef(ref)
	if err != nil {
		return "", err
	}
	switch {
	case t.byID || isHost(t.name) || strings.Contains(t.name, "@"):
		return "", &InvalidRefError{Ref: ref, Reason: "an image can only be given a NAME[:TAG]"}
	case reserved(t.name):
		return "", &InvalidRefError{Ref: ref, Reason: "the name is reserved for images that sandboxbash makes itself"}
	}
	return t.name, nil
}

// reserved reports whether ref names an image that the engine makes for itself. A snapshot
// (sandboxbash/host) may be saved on one machine and loaded on another.
func reserved(ref string) bool {
	ref = strings.TrimPrefix(strings.TrimPrefix(ref, "docker.io/"), "index.docker.io/")
	return strings.HasPrefix(ref, engine.RunnerRepo+":") || strings.HasPrefix(ref, engine.WorkspaceRepo+":")
}

func quiet(engine.Progress) {}
