package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// labelMaker says which machine and cache a snapshot was made for. For another machine or
// cache, another snapshot may be current.
const labelMaker = labelPrefix + "maker"

// staleAge is how old a snapshot must be to be removed if its maker is unknown.
const staleAge = 7 * 24 * time.Hour

// maker is the value of labelMaker.
func (r *Resolver) maker() string {
	host, _ := os.Hostname()
	machine, _ := os.ReadFile("/etc/machine-id")
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", host, machine, r.cache))
	return hex.EncodeToString(sum[:8])
}

// Prune removes older snapshots of this machine's programs that no container uses. It
// returns the names. If another process is about to use one of them, that process makes
// it again. Without a cache, Prune does not know which snapshot is current, and removes
// none.
func (r *Resolver) Prune(ctx context.Context) (gone []string, err error) {
	if r.cache == "" {
		return nil, nil
	}
	if r.remembered(stamp()) == "" {
		return nil, nil // it is being made, or this machine has none
	}
	all, err := r.engine.ImagesLabelled(ctx, map[string]string{engine.LabelRole: engine.RoleSnapshot})
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	currents := map[string]string{} // by stampName
	var errs []error
	for _, img := range all {
		// One with tools that was not made again since the machine has changed is left for later.
		tools := slices.Sorted(maps.Keys(Tools(img)))
		current, asked := currents[stampName(tools)]
		if !asked {
			current = r.remembered(stamp(tools...), tools...)
			currents[stampName(tools)] = current
		}
		if current == "" || img.Labels[labelDigest] == current || !r.stale(img) {
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
