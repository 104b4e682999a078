// Package images turns a reference into an image on the engine.
//
// A reference is resolved in a fixed order: the image is on the engine, or it is pulled,
// or the error names the other ways. Those are explicit: Load reads an archive, Build a
// directory with a Dockerfile, and Host makes a snapshot of this machine's own programs,
// which needs neither a registry nor a network.
//
// The package also makes the images that volumes are filled from: the runner, which
// every session mounts, and the workspace, which gives a fresh volume its owner. An
// image decides what is in a root file system, never what is run.
package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/distribution/reference"

	"github.com/sandboxbash/sandboxbash/engine"
)

// DefaultRef is the image that is used if none is configured.
const DefaultRef = "debian:stable-slim"

// HostRef is the reference of the snapshot of this machine's own programs.
const HostRef = "host"

// The repositories of the images that this package makes. Users cannot load, build or
// pull an image under the names whose content we rely on: see reserved.
const (
	hostRepo      = "sandboxbash/host"
	runnerRepo    = "sandboxbash/runner"
	workspaceRepo = "sandboxbash/workspace"
)

// Label keys, and the roles of the objects that this package makes on an engine.
const (
	labelPrefix = "sandboxbash."
	labelRole   = labelPrefix + "role"
	labelDigest = labelPrefix + "digest"

	roleHost      = "host"
	roleRunner    = "runner"
	roleWorkspace = "workspace"
	rolePrograms  = "programs" // the volume of a snapshot's programs
	roleAccounts  = "accounts" // the volume of an image's /etc in which the session's user has a name
	roleImage     = "image"    // loaded or built for the user
	roleFiller    = "filler"   // a container that is never started
)

// Engine is what this package needs of an engine.
type Engine interface {
	Finder
	Maker
	Registry
	Volumes
	Fillers
	Starters
}

// Finder finds what is on the engine. Image returns an error that is engine.ErrNotFound
// if the engine lacks the image.
type Finder interface {
	Info(ctx context.Context) (engine.Info, error)
	Image(ctx context.Context, ref string) (engine.Image, error)
	Images(ctx context.Context) ([]engine.Image, error)
}

// Maker makes images from streams that it reads to their end.
type Maker interface {
	LoadImages(ctx context.Context, r io.Reader, progress func(engine.Progress)) ([]string, error)
	ImportImage(ctx context.Context, rootfs io.Reader, cfg engine.ImageConfig) (engine.ImageID, error)
	BuildImage(ctx context.Context, contextTar io.Reader, opts engine.Build, progress func(engine.Progress)) (engine.ImageID, error)
}

// Registry brings images to the engine and takes them away.
type Registry interface {
	PullImage(ctx context.Context, ref string, progress func(engine.Progress)) error
	RemoveImage(ctx context.Context, ref string) error
	// ImagesLabelled lists the images with all these labels.
	ImagesLabelled(ctx context.Context, labels map[string]string) ([]engine.Image, error)
}

// Volumes are the engine's named volumes.
type Volumes interface {
	volumeFinder
	volumeMaker
}

type volumeFinder interface {
	Volume(ctx context.Context, name string) (engine.Volume, error)
	Volumes(ctx context.Context, labels map[string]string) ([]engine.Volume, error)
}

// CreateVolume succeeds if the volume exists already.
type volumeMaker interface {
	CreateVolume(ctx context.Context, v engine.Volume) error
	RemoveVolume(ctx context.Context, name string) error
}

// Fillers makes containers that are never started: creating one has the engine fill a
// volume. CreateContainer returns engine.ErrConflict if the name is taken.
type Fillers interface {
	CreateContainer(ctx context.Context, c engine.Container) (engine.ContainerID, []string, error)
	RemoveContainer(ctx context.Context, id engine.ContainerID) error
	Container(ctx context.Context, nameOrID string) (engine.ContainerState, error)
}

// Starters run a container of ours to its end.
type Starters interface {
	StartContainer(ctx context.Context, id engine.ContainerID) error
	WaitContainer(ctx context.Context, id engine.ContainerID) error
}

// Options of a Resolver. The zero value is useful.
type Options struct {
	// Default is the reference that ResolveDefault tries first; "" is DefaultRef.
	Default string
	// Cache is a directory in which Host remembers which snapshot this machine's
	// programs make. It is created when needed. If it is "", Host looks each time.
	Cache string
}

// Resolver makes images available on one engine. It may be used concurrently,
// and by several processes on one engine at once.
type Resolver struct {
	engine   Engine
	fallback string // the reference of ResolveDefault
	cache    string // directory, or ""
	runners  func(arch string) (runnerBinary, error)
	snapshot func(ctx context.Context) (*snapshot, error)

	maxUnpacked int64 // bytes; see the constant

	images  flights[engine.Image] // by reference, and of the host snapshot
	volumes flights[string]       // of the runner, by its volume's name
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
	return &Resolver{engine: eng, fallback: opts.Default, cache: opts.Cache, runners: embeddedRunner, snapshot: newSnapshot, maxUnpacked: maxUnpacked}, nil
}

// InvalidRefError says that a reference is malformed or reserved.
type InvalidRefError struct {
	Ref    string
	Reason string
}

func (e *InvalidRefError) Error() string {
	return fmt.Sprintf("image %q is not a valid reference: %s (give NAME[:TAG], NAME@DIGEST, an image ID or %q)", e.Ref, e.Reason, HostRef)
}

// Is makes it an engine.ErrImage.
func (*InvalidRefError) Is(target error) bool { return target == engine.ErrImage }

// target is a parsed reference: a name or an image ID.
type target struct {
	name string // as given to the engine
	byID bool   // an image ID, or a prefix of one: it is never pulled
}

// parseRef parses a reference as strictly as the engine does. A name without a tag or
// digest means its tag "latest".
func parseRef(ref string) (target, error) {
	if ref == HostRef {
		return target{name: ref}, nil
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
	case t.byID || t.name == HostRef || strings.Contains(t.name, "@"):
		return "", &InvalidRefError{Ref: ref, Reason: "an image can only be given a NAME[:TAG]"}
	case reserved(t.name):
		return "", &InvalidRefError{Ref: ref, Reason: "the name is reserved for images that sandboxbash makes itself"}
	}
	return t.name, nil
}

// reserved reports whether ref names the runner or workspace image. A snapshot
// (sandboxbash/host) may be saved on one machine and loaded on another.
func reserved(ref string) bool {
	ref = strings.TrimPrefix(strings.TrimPrefix(ref, "docker.io/"), "index.docker.io/")
	return strings.HasPrefix(ref, runnerRepo+":") || strings.HasPrefix(ref, workspaceRepo+":")
}

func quiet(engine.Progress) {}
