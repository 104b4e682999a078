package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// labelMaker says which machine and cache a snapshot was made for. For another machine or
// cache, another snapshot may be current.
const labelMaker = labelPrefix + "maker"

// staleAge is how old an object must be to be removed if its maker is unknown, or if
// another version of this program may still use it from time to time.
const staleAge = 7 * 24 * time.Hour

// maker is the value of labelMaker.
func (r *Resolver) maker() string {
	host, _ := os.Hostname()
	machine, _ := os.ReadFile("/etc/machine-id")
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", host, machine, r.cache))
	return hex.EncodeToString(sum[:8])
}

// Prune removes what was made for earlier states of this machine and is used by no
// container: older snapshots of its programs, with their volumes, and runners of other
// versions that are older than a week. It returns the names. If another process is about
// to use one of them, that process makes it again. Without a cache, Prune does not know
// which snapshot is current, and removes none.
func (r *Resolver) Prune(ctx context.Context) ([]string, error) {
	hosts, err := r.pruneHosts(ctx)
	volumes, volErr := r.pruneVolumes(ctx)
	return slices.Concat(hosts, volumes), errors.Join(err, volErr)
}

func (r *Resolver) pruneHosts(ctx context.Context) (gone []string, err error) {
	if r.cache == "" {
		return nil, nil
	}
	current := r.remembered(stamp())
	if current == "" {
		return nil, nil // it is being made, or this machine has none
	}
	all, err := r.engine.ImagesLabelled(ctx, map[string]string{labelRole: roleHost})
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	var errs []error
	for _, img := range all {
		if img.Labels[labelDigest] == current || !r.stale(img) {
			continue
		}
		for _, ref := range img.Refs {
			if !strings.HasPrefix(ref, hostRepo+":") {
				continue
			}
			switch err := r.engine.RemoveImage(ctx, ref); {
			case err == nil:
				gone = append(gone, ref)
			case !errors.Is(err, engine.ErrNotFound) && !errors.Is(err, engine.ErrConflict):
				errs = append(errs, err)
			}
		}
	}
	return gone, errors.Join(errs...)
}

// stale reports whether a snapshot that is not current was made for this machine and
// cache, or is old and has no label that says for which.
func (r *Resolver) stale(img engine.Image) bool {
	by := img.Labels[labelMaker]
	return by == r.maker() || by == "" && time.Since(img.Created) > staleAge
}

// pruneVolumes removes the volumes of programs whose snapshot is gone, and the volumes
// and images of old runners.
func (r *Resolver) pruneVolumes(ctx context.Context) (gone []string, err error) {
	programs, err := r.engine.Volumes(ctx, map[string]string{labelRole: rolePrograms})
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	var errs []error
	for _, v := range programs {
		digits, ok := strings.CutPrefix(v.Name, programsPrefix)
		if !ok || strings.HasSuffix(v.Name, markSuffix) {
			continue
		}
		if _, err := r.engine.Image(ctx, digits); !errors.Is(err, engine.ErrNotFound) {
			continue
		}
		// The mark goes first, so that no process takes the volume for filled.
		removed, err := r.removeMarked(ctx, content{volume: v.Name, role: rolePrograms})
		if errs = append(errs, err); removed {
			gone = append(gone, v.Name)
		}
	}
	runners, err := r.engine.Volumes(ctx, map[string]string{labelRole: roleRunner})
	if err != nil {
		return gone, errors.Join(append(errs, err)...)
	}
	mine := map[string]bool{}
	for _, arch := range []string{"amd64", "arm64"} {
		if b, err := r.runners(arch); err == nil {
			mine[b.content().volume] = true
		}
	}
	for _, v := range runners {
		id, ok := strings.CutPrefix(v.Name, runnerPrefix)
		if !ok || strings.HasSuffix(v.Name, markSuffix) || mine[v.Name] || v.Created.IsZero() || time.Since(v.Created) < staleAge {
			continue
		}
		removed, err := r.removeMarked(ctx, content{volume: v.Name, role: roleRunner})
		if errs = append(errs, err); removed {
			gone = append(gone, v.Name)
			errs = append(errs, ignore(r.engine.RemoveImage(ctx, runnerRepo+":"+id), engine.ErrNotFound, engine.ErrConflict))
		}
	}
	return gone, errors.Join(errs...)
}

// removeMarked removes a volume and its mark. If a container uses the volume, both stay.
func (r *Resolver) removeMarked(ctx context.Context, c content) (bool, error) {
	_, err := r.engine.Volume(ctx, c.mark())
	marked := err == nil
	if err := ignore(r.engine.RemoveVolume(ctx, c.mark()), engine.ErrNotFound, engine.ErrConflict); err != nil {
		return false, c.wrap(err)
	}
	err = r.engine.RemoveVolume(ctx, c.volume)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, engine.ErrNotFound):
		return false, nil
	case errors.Is(err, engine.ErrConflict) && marked:
		return false, r.engine.CreateVolume(context.WithoutCancel(ctx), engine.Volume{Name: c.mark(), Labels: roleLabels(c.role)})
	case errors.Is(err, engine.ErrConflict):
		return false, nil
	}
	return false, c.wrap(err)
}
