package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Cache is a directory that an engine keeps between sessions.
type Cache = engine.Cache

// ErrNoCaches means that the engine keeps no caches.
var ErrNoCaches = errors.New("this engine keeps no caches")

// cachesThere returns an error if spec names a cache and the engine has none.
func (e *Engine) cachesThere(spec *Spec) error {
	_, ok := e.backend.(engine.Caches)
	if i := slices.IndexFunc(spec.Mounts, func(m Mount) bool { return m.Cache != "" }); i >= 0 && !ok {
		return &InputError{Field: "caches", Text: fmt.Sprintf("cache %s: %v", spec.Mounts[i].Cache, ErrNoCaches), err: ErrNoCaches}
	}
	return nil
}

// ErrUnknownCache is returned for a cache that does not exist.
var ErrUnknownCache = errors.New("unknown cache")

// Caches returns all caches of the engine, by name.
func (e *Engine) Caches(ctx context.Context) ([]Cache, error) {
	backend, ok := e.backend.(engine.Caches)
	if !ok {
		return nil, ErrNoCaches
	}
	return backend.Caches(ctx)
}

// RemoveCache removes a cache. The error is an ErrUnknownCache if there is none of that name, and an
// engine.ErrConflict if a session has it.
func (e *Engine) RemoveCache(ctx context.Context, name string) error {
	backend, ok := e.backend.(engine.Caches)
	if !ok {
		return ErrNoCaches
	}
	if !engine.ValidCacheName(name) {
		return fmt.Errorf("cache %q: %w", name, ErrUnknownCache)
	}
	err := backend.RemoveCache(ctx, name)
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return fmt.Errorf("cache %q: %w", name, ErrUnknownCache)
	case err != nil:
		return fmt.Errorf("cache %s: %w", name, err)
	}
	return nil
}

// Stored returns what takes room on the engine, by kind and name. Sizes may take long to find. The error is an
// ErrNoStock if the engine does not tell.
func (e *Engine) Stored(ctx context.Context) ([]engine.Stored, error) {
	backend, ok := e.backend.(engine.Stock)
	if !ok {
		return nil, ErrNoStock
	}
	all, err := backend.Stored(ctx)
	slices.SortFunc(all, func(a, b engine.Stored) int {
		return cmp.Or(cmp.Compare(kindOrder[a.Kind], kindOrder[b.Kind]), cmp.Compare(a.Name, b.Name))
	})
	return all, err
}

// ErrNoStock means that the engine does not tell what is stored on it.
var ErrNoStock = errors.New("this engine does not tell what is stored on it")

var kindOrder = map[engine.StoredKind]int{
	engine.StoredSession: 1, engine.StoredKept: 2, engine.StoredCache: 3, engine.StoredImage: 4, engine.StoredShared: 5,
}
