package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

// A cache is a volume that no session owns. Its labels say whose it is; an engine keeps the labels of the
// first caller that makes a volume, so that two sessions that make it at once agree. A second volume, the
// mark, says that the root of the cache belongs to that user, and by its age when the cache was last used:
// labels cannot change, but a mark can be made again. See docs/adr/0054.

const (
	labelCache    = "sandboxbash.cache"    // the cache's name
	labelCacheUID = "sandboxbash.cacheuid" // whose it is

	roleCache    = "cache"
	roleCacheUse = "cache-use" // of marks

	cachePrefix    = namePrefix + "cache-"
	cacheUsePrefix = namePrefix + "cacheuse-"
)

// markAge is how old a mark must be to be made again: a cache's last use is known to that precision.
const markAge = time.Hour

// cacheTime bounds the wait for another process that makes the same cache.
const cacheTime = 30 * time.Second

// makeCaches makes those caches of a session that do not exist, and marks all as used.
func (e *Engine) makeCaches(ctx context.Context, s engine.Shape) error {
	for _, m := range s.Mounts {
		if m.Cache == "" {
			continue
		}
		if err := e.makeCache(ctx, m, s.Account); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) makeCache(ctx context.Context, m engine.Mount, a engine.Account) error {
	_, err := e.cache(ctx, m.Cache)
	switch {
	case err == nil:
	case !errors.Is(err, engine.ErrNotFound):
		return err
	case m.ReadOnly:
		return &engine.CacheError{Name: m.Cache, Reason: "it does not exist, and a session that only reads it would find nothing: start one without :ro first"}
	default:
		// A mark that is left of an earlier cache of this name would say that this one has its owner.
		if err := ignore(e.volumes.RemoveVolume(ctx, cacheUsePrefix+m.Cache), engine.ErrNotFound); err != nil {
			return err
		}
		labels := map[string]string{labelRole: roleCache, labelCache: m.Cache, labelCacheUID: strconv.FormatUint(uint64(a.UID), 10)}
		if err := e.volumes.CreateVolume(ctx, Volume{Name: cachePrefix + m.Cache, Labels: labels}); err != nil {
			return err
		}
	}
	c, err := e.cache(ctx, m.Cache)
	if err != nil {
		return err
	}
	if c.UID != a.UID {
		return &engine.CacheError{Name: m.Cache, Reason: fmt.Sprintf("it belongs to uid %d, and the commands of this session run as uid %d: use a cache of another name", c.UID, a.UID)}
	}
	return e.markCache(ctx, m.Cache, a)
}

// cache describes the cache of that name. The error is a *engine.CacheError if its volume is not ours.
func (e *Engine) cache(ctx context.Context, name string) (engine.Cache, error) {
	v, err := e.volumes.Volume(ctx, cachePrefix+name)
	if err != nil {
		return engine.Cache{}, err
	}
	c, ok := cacheOf(v)
	if !ok {
		return c, &engine.CacheError{Name: name, Reason: "the volume " + v.Name + " was not made by this program: use a cache of another name"}
	}
	return c, nil
}

// cacheOf describes a volume that is a cache.
func cacheOf(v Volume) (engine.Cache, bool) {
	name, ok := strings.CutPrefix(v.Name, cachePrefix)
	uid, err := strconv.ParseUint(v.Labels[labelCacheUID], 10, 32)
	if !ok || err != nil || v.Labels[labelRole] != roleCache || v.Labels[labelCache] != name {
		return engine.Cache{}, false
	}
	return engine.Cache{Name: name, UID: uint32(uid), Created: v.Created, Used: v.Created}, true
}

// markCache says that a cache is used now. Before its first mark it is given its owner.
func (e *Engine) markCache(ctx context.Context, name string, a engine.Account) error {
	mark, err := e.volumes.Volume(ctx, cacheUsePrefix+name)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		if err := e.ownCache(ctx, name, a); err != nil {
			return err
		}
	case err != nil:
		return err
	case time.Since(mark.Created) < markAge:
		return nil
	default:
		if err := ignore(e.volumes.RemoveVolume(ctx, mark.Name), engine.ErrNotFound); err != nil {
			return err
		}
	}
	return e.volumes.CreateVolume(ctx, Volume{Name: cacheUsePrefix + name, Labels: map[string]string{labelRole: roleCacheUse, labelCache: name}})
}

// ownCache gives an empty cache its owner. If another process is doing that, ownCache waits for it.
func (e *Engine) ownCache(ctx context.Context, name string, a engine.Account) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cacheTime, fmt.Errorf("cache %s was not made within %v", name, cacheTime))
	defer cancel()
	for begin := time.Now(); ; {
		err := e.copies.FillWorkspace(ctx, cachePrefix+name, a.UID, a.GID)
		if !errors.Is(err, engine.ErrConflict) {
			return err
		}
		if time.Since(begin) > abandonedAfter { // a process has died at it
			if err := e.copies.ReleaseWorkspace(ctx, cachePrefix+name); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(fillPoll):
		}
	}
}

// pinnedCaches checks that a container has the caches that were meant: an engine makes an empty volume in the
// place of one that was removed before. The container keeps them from now on.
func (e *Engine) pinnedCaches(ctx context.Context, s engine.Shape) error {
	for _, m := range s.Mounts {
		if m.Cache == "" {
			continue
		}
		if _, err := e.cache(ctx, m.Cache); err != nil {
			return &engine.CacheError{Name: m.Cache, Reason: "it was removed while the session was being started: start it again"}
		}
	}
	return nil
}

// discardCaches removes the empty volumes that an engine has made in the place of caches that were removed.
// They have no label.
func (e *Engine) discardCaches(ctx context.Context, s engine.Shape, err error) error {
	if _, ok := errors.AsType[*engine.CacheError](err); !ok {
		return err
	}
	for _, m := range s.Mounts {
		if v, found := e.volumes.Volume(ctx, cachePrefix+m.Cache); m.Cache != "" && found == nil && len(v.Labels) == 0 {
			err = errors.Join(err, ignore(e.volumes.RemoveVolume(ctx, v.Name), engine.ErrNotFound, engine.ErrConflict))
		}
	}
	return err
}

// extraMounts are the mounts of a session besides its own.
func extraMounts(s engine.Shape) (all []specs.Mount) {
	for _, m := range s.Mounts {
		switch {
		case m.Cache != "" && m.ReadOnly:
			all = append(all, readOnly(cachePrefix+m.Cache, m.Target))
		case m.Cache != "":
			all = append(all, readWrite(cachePrefix+m.Cache, m.Target))
		default:
			all = append(all, bind(m.Dir, m.Target, m.ReadOnly))
		}
	}
	return all
}

// Caches returns all caches, by name.
func (e *Engine) Caches(ctx context.Context) ([]engine.Cache, error) {
	volumes, err := e.volumes.Volumes(ctx, roleLabels(roleCache))
	if err != nil {
		return nil, err
	}
	marks, err := e.volumes.Volumes(ctx, roleLabels(roleCacheUse))
	if err != nil {
		return nil, err
	}
	used := map[string]time.Time{}
	for _, m := range marks {
		if name, ok := strings.CutPrefix(m.Name, cacheUsePrefix); ok {
			used[name] = m.Created
		}
	}
	var all []engine.Cache
	for _, v := range volumes {
		if c, ok := cacheOf(v); ok {
			if at := used[c.Name]; at.After(c.Used) {
				c.Used = at
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b engine.Cache) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// RemoveCache removes a cache, and its mark after it.
func (e *Engine) RemoveCache(ctx context.Context, name string) error {
	if _, err := e.cache(ctx, name); err != nil {
		return err
	}
	if err := e.removeVolume(ctx, cachePrefix+name); err != nil {
		return err
	}
	return ignore(e.volumes.RemoveVolume(ctx, cacheUsePrefix+name), engine.ErrNotFound)
}
