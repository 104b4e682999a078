package images

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// registryPatience is how long ResolveDefault waits for the first progress of a pull. A
// registry that cannot be reached usually fails at once; a network that drops packets
// would delay a machine's first command by half a minute.
const registryPatience = 3 * time.Second

// pullSilence is how long a pull may go on without progress. Engines report every step of
// downloading and unpacking; the longest silence seen is while they compute the digest of
// a layer of gigabytes on a slow disk.
const pullSilence = 5 * time.Minute

var errNotPulled = errors.New("the engine reported success, but does not have the image")

var errPullSilent = fmt.Errorf("neither the registry nor the engine has reported progress for %v", pullSilence)

var errNoAnswer = fmt.Errorf("the registry did not answer within %v", registryPatience)

// UnresolvedError says that an image is not on the engine and could not be pulled.
type UnresolvedError struct {
	Ref  string
	Pull error // why the pull failed; nil for an image ID, which cannot be pulled

	LoadWith string // of Options
}

func (e *UnresolvedError) Error() string {
	others := "put it there" + with(e.LoadWith) + ", or use the image host (a snapshot of this machine's programs)"
	if e.Pull == nil {
		return fmt.Sprintf("image %q is not on the engine, and an image ID cannot be pulled: %s", e.Ref, others)
	}
	return fmt.Sprintf("image %q is not on the engine and could not be pulled (%s): %s", e.Ref, oneLine(e.Pull.Error()), others)
}

// with words how something is done, if that is known.
func with(how string) string {
	if how == "" {
		return ""
	}
	return " with " + how
}

func (e *UnresolvedError) Unwrap() error { return e.Pull }

// Is reports whether target is engine.ErrImage.
func (*UnresolvedError) Is(target error) bool { return target == engine.ErrImage }

func (r *Resolver) unresolved(ref string, pull error) *UnresolvedError {
	return &UnresolvedError{Ref: ref, Pull: pull, LoadWith: r.loadWith}
}

// Resolve returns the image that ref names: as it is on the engine, or else after a pull,
// which concurrent callers share. The reference "host" is the snapshot that Host makes, and "host+go" that of HostWith.
// The error is an *InvalidRefError or an *UnresolvedError if the reference is the cause,
// and the engine's own error if the engine is. Progress may be nil; Resolve calls it in
// the caller's goroutine only.
func (r *Resolver) Resolve(ctx context.Context, ref string, progress func(engine.Progress)) (engine.Image, error) {
	t, err := parseRef(ref)
	if err != nil {
		return engine.Image{}, err
	}
	if isHost(t.name) {
		return r.hostNamed(ctx, t.name, progress)
	}
	img, err := r.present(ctx, t)
	if !errors.Is(err, engine.ErrNotFound) {
		return img, err
	}
	if t.byID {
		return engine.Image{}, r.unresolved(ref, nil)
	}
	return r.pull(ctx, t, progress)
}

// ResolveDefault returns the default image, for a user who has configured none. If it is
// not on the engine and cannot be pulled, the host snapshot replaces it, and note says so
// in one line; otherwise note is empty.
func (r *Resolver) ResolveDefault(ctx context.Context, progress func(engine.Progress)) (img engine.Image, note string, err error) {
	patient, heard, stop := withPatience(ctx, progress)
	img, err = r.Resolve(patient, r.fallback, heard)
	stop()
	if err == nil || ctx.Err() != nil {
		return img, "", err
	}
	if errors.Is(err, errNoAnswer) {
		err = r.unresolved(r.fallback, errNoAnswer)
	}
	if _, ok := errors.AsType[*UnresolvedError](err); !ok {
		return engine.Image{}, "", err
	}
	img, hostErr := r.Host(ctx, progress)
	if hostErr != nil {
		return engine.Image{}, "", errors.Join(err, hostErr)
	}
	note = fmt.Sprintf("image %s is neither on the engine nor to be pulled: using %q, a snapshot of this machine's programs (name an image to choose another)", r.fallback, HostRef)
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
		// The engine has found a repository whose name looks like an ID.
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
	return r.images.Do(ctx, t.name, progress, func(ctx context.Context, tell func(engine.Progress)) (engine.Image, error) {
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
				err = r.unresolved(t.name, errNotPulled)
			}
			return img, err
		case ctx.Err() != nil:
			return engine.Image{}, context.Cause(ctx)
		case errors.Is(err, engine.ErrUnreachable):
			return engine.Image{}, fmt.Errorf("image %q: %w", t.name, err)
		default:
			return engine.Image{}, r.unresolved(t.name, err)
		}
	})
}

// maxWords bounds what is quoted of another program's message.
const maxWords = 500 // bytes

// oneLine quotes a message of a registry or engine: one line, bounded.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "") + "…"
	}
	return s
}
