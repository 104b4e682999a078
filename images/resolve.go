package images

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// registryPatience is how long the default image's registry has for its first
// word. A registry that is refused or unknown answers at once; a network that
// drops packets would hold up a machine's first command for half a minute.
const registryPatience = 3 * time.Second

// pullSilence is how long a pull may say nothing. Engines tell every step of a
// download and of unpacking; the longest that they are seen to be busy without a
// word is with the digest of a layer of gigabytes, on a slow disk.
const pullSilence = 5 * time.Minute

var errNotPulled = errors.New("the engine says that it has pulled it, and does not have it")

var errPullSilent = fmt.Errorf("neither the registry nor the engine has said anything for %v", pullSilence)

var errNoAnswer = fmt.Errorf("the registry did not answer within %v", registryPatience)

// UnresolvedError says that an image is neither on the engine nor to be had.
type UnresolvedError struct {
	Ref  string
	Pull error // the registry's words; nil for an image ID, which nothing pulls
}

func (e *UnresolvedError) Error() string {
	const others = "put it there with `sandboxbash image load FILE` or `sandboxbash image build DIR`, or use --image host (a snapshot of this machine's programs)"
	if e.Pull == nil {
		return fmt.Sprintf("image %q is not on the engine, and an image ID cannot be pulled: %s", e.Ref, others)
	}
	return fmt.Sprintf("image %q is not on the engine and could not be pulled (%s): %s", e.Ref, oneLine(e.Pull.Error()), others)
}

func (e *UnresolvedError) Unwrap() error { return e.Pull }

// Resolve returns the image that ref names: as it is on the engine, else after
// a pull, of which concurrent callers share one. The reference "host" is the
// snapshot that Host makes. The error is an *InvalidRefError or an
// *UnresolvedError where the reference is the cause, the engine's own where the
// engine is. Progress may be nil; it is called in this goroutine only.
func (r *Resolver) Resolve(ctx context.Context, ref string, progress func(engine.Progress)) (engine.Image, error) {
	t, err := parseRef(ref)
	if err != nil {
		return engine.Image{}, err
	}
	if t.name == HostRef {
		return r.Host(ctx, progress)
	}
	img, err := r.present(ctx, t)
	if !errors.Is(err, engine.ErrNotFound) {
		return img, err
	}
	if t.byID {
		return engine.Image{}, &UnresolvedError{Ref: ref}
	}
	return r.pull(ctx, t, progress)
}

// ResolveDefault returns the default image for a user who configured none.
// Where it can neither be found nor pulled, the host snapshot stands in, and
// note says so in one line; otherwise note is empty.
func (r *Resolver) ResolveDefault(ctx context.Context, progress func(engine.Progress)) (img engine.Image, note string, err error) {
	patient, heard, stop := withPatience(ctx, progress)
	img, err = r.Resolve(patient, r.fallback, heard)
	stop()
	if err == nil || ctx.Err() != nil {
		return img, "", err
	}
	if errors.Is(err, errNoAnswer) {
		err = &UnresolvedError{Ref: r.fallback, Pull: errNoAnswer}
	}
	if _, ok := errors.AsType[*UnresolvedError](err); !ok {
		return engine.Image{}, "", err
	}
	img, hostErr := r.Host(ctx, progress)
	if hostErr != nil {
		return engine.Image{}, "", errors.Join(err, hostErr)
	}
	note = fmt.Sprintf("image %s is neither on the engine nor to be pulled: using %q, a snapshot of this machine's programs (choose with --image)", r.fallback, HostRef)
	return img, note, nil
}

// withPatience returns a context that ends with errNoAnswer unless the returned
// progress function is called in time.
func withPatience(ctx context.Context, progress func(engine.Progress)) (context.Context, func(engine.Progress), func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(registryPatience, func() { cancel(errNoAnswer) })
	heard := func(p engine.Progress) {
		timer.Stop()
		if progress != nil {
			progress(p)
		}
	}
	return ctx, heard, func() {
		timer.Stop()
		cancel(nil)
	}
}

// present returns an image that is on the engine, or an engine.ErrNotFound.
func (r *Resolver) present(ctx context.Context, t target) (engine.Image, error) {
	img, err := r.engine.Image(ctx, t.name)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return engine.Image{}, err
	case errors.Is(err, engine.ErrInvalid): // engines differ in what a name may be
		return engine.Image{}, &InvalidRefError{Ref: t.name, Reason: oneLine(err.Error())}
	case err != nil:
		return engine.Image{}, fmt.Errorf("image %q: %w", t.name, err)
	case t.byID && !strings.HasPrefix(strings.TrimPrefix(string(img.ID), "sha256:"), strings.TrimPrefix(t.name, "sha256:")):
		// A repository can have a name that looks like an ID.
		return engine.Image{}, fmt.Errorf("image ID %q: %w", t.name, engine.ErrNotFound)
	case img.OS != "" && img.OS != "linux":
		return engine.Image{}, fmt.Errorf("image %q is for %s; sessions need a linux image", t.name, img.OS)
	}
	return img, nil
}

func (r *Resolver) pull(ctx context.Context, t target, progress func(engine.Progress)) (engine.Image, error) {
	if reserved(t.name) {
		return engine.Image{}, &InvalidRefError{Ref: t.name, Reason: "the name is reserved for images that sandboxbash makes itself"}
	}
	return r.images.do(ctx, t.name, progress, func(ctx context.Context, tell func(engine.Progress)) (engine.Image, error) {
		pulling, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		silence := time.AfterFunc(pullSilence, func() { cancel(errPullSilent) })
		defer silence.Stop()
		err := r.engine.PullImage(pulling, t.name, func(p engine.Progress) {
			silence.Reset(pullSilence)
			tell(p)
		})
		switch {
		case err == nil:
			img, err := r.present(ctx, t)
			if errors.Is(err, engine.ErrNotFound) {
				err = &UnresolvedError{Ref: t.name, Pull: errNotPulled}
			}
			return img, err
		case ctx.Err() != nil:
			return engine.Image{}, context.Cause(ctx)
		case errors.Is(err, engine.ErrUnreachable):
			return engine.Image{}, fmt.Errorf("image %q: %w", t.name, err)
		default:
			return engine.Image{}, &UnresolvedError{Ref: t.name, Pull: err}
		}
	})
}

// maxWords bounds what is quoted of somebody else's message.
const maxWords = 500 // bytes

// oneLine quotes a message of a registry or engine: one line, bounded.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "") + "…"
	}
	return s
}
