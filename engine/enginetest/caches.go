package enginetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// PutCache puts a cache there.
func (e *Engine) PutCache(c engine.Cache) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.caches = append(e.caches, c)
}

// makeCaches makes those caches of a shape that do not exist.
func (e *Engine) makeCaches(s engine.Shape) error {
	for _, m := range s.Mounts {
		if m.Cache == "" {
			continue
		}
		e.mu.Lock()
		at := slices.IndexFunc(e.caches, func(c engine.Cache) bool { return c.Name == m.Cache })
		if at < 0 {
			at = len(e.caches)
			e.caches = append(e.caches, engine.Cache{Name: m.Cache, UID: s.Account.UID, Created: time.Now()})
		}
		e.caches[at].Used = time.Now()
		owner := e.caches[at].UID
		e.mu.Unlock()
		if owner != s.Account.UID {
			return &engine.CacheError{Name: m.Cache, Reason: "it belongs to another uid"}
		}
	}
	return nil
}

// Caches returns all caches.
func (e *Engine) Caches(ctx context.Context) ([]engine.Cache, error) {
	if err := e.begin(ctx, "caches"); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	all := slices.Clone(e.caches)
	slices.SortFunc(all, func(a, b engine.Cache) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// RemoveCache removes a cache that no session has.
func (e *Engine) RemoveCache(ctx context.Context, name string) error {
	if err := e.begin(ctx, "removecache"); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.sessions {
		if s.Ref != "" && slices.ContainsFunc(s.shape.Mounts, func(m engine.Mount) bool { return m.Cache == name }) {
			return &engine.Error{Op: "remove cache", Kind: engine.ErrConflict, Err: errors.New("a session has it")}
		}
	}
	left := slices.DeleteFunc(slices.Clone(e.caches), func(c engine.Cache) bool { return c.Name == name })
	if len(left) == len(e.caches) {
		return &engine.Error{Op: "remove cache", Kind: engine.ErrNotFound, Err: errors.New("there is no such cache")}
	}
	e.caches = left
	return nil
}

// Stored returns Sizes.
func (e *Engine) Stored(ctx context.Context) ([]engine.Stored, error) {
	if err := e.begin(ctx, "stored"); err != nil {
		return nil, err
	}
	return slices.Clone(e.Sizes), nil
}
