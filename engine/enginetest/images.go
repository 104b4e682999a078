package enginetest

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxbash/sandboxbash/engine"
)

// ImageStore holds the images of an engine, in memory. Its exported fields are set
// before it is used, or between calls; its methods may be called concurrently. The zero
// value has no images.
type ImageStore struct {
	Facts engine.Info // what Info returns
	Err   error       // what Image fails with, if not nil
	Used  []string    // names that cannot be removed, because containers use them

	mu     sync.Mutex
	byRef  map[string]engine.Image // guarded by mu
	loaded []byte                  // guarded by mu
}

// NotFound is what an engine says of something that it lacks.
func NotFound(name string) error {
	return &engine.Error{Op: "inspect " + name, Kind: engine.ErrNotFound, Err: errors.New("no such thing")}
}

// Put adds an image under a reference.
func (s *ImageStore) Put(ref string, img engine.Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byRef == nil {
		s.byRef = map[string]engine.Image{}
	}
	s.byRef[ref] = img
}

// Refs returns the references of all images, sorted.
func (s *ImageStore) Refs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.byRef))
}

// Loaded returns the last archive that was loaded, or nil.
func (s *ImageStore) Loaded() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded
}

// Take reads an archive to its end, for Loaded.
func (s *ImageStore) Take(archive io.Reader) error {
	data, err := io.ReadAll(archive)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = data
	return err
}

// Info returns Facts.
func (s *ImageStore) Info(context.Context) (engine.Info, error) { return s.Facts, nil }

// Image finds an image by its reference, its ID or the start of its ID.
func (s *ImageStore) Image(_ context.Context, ref string) (engine.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err != nil {
		return engine.Image{}, s.Err
	}
	if img, ok := s.byRef[ref]; ok {
		return img, nil
	}
	for _, img := range s.byRef {
		if string(img.ID) == ref || strings.HasPrefix(string(img.ID), "sha256:"+ref) {
			return img, nil
		}
	}
	return engine.Image{}, NotFound(ref)
}

// Images lists all images.
func (s *ImageStore) Images(ctx context.Context) ([]engine.Image, error) {
	return s.ImagesLabelled(ctx, nil)
}

// ImagesLabelled lists the images that have all these labels.
func (s *ImageStore) ImagesLabelled(_ context.Context, labels map[string]string) ([]engine.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []engine.Image
	for _, ref := range slices.Sorted(maps.Keys(s.byRef)) {
		img := s.byRef[ref]
		has := true
		for key, value := range labels {
			has = has && img.Labels[key] == value
		}
		if has {
			all = append(all, img)
		}
	}
	return all, nil
}

// LoadImages reads an archive, and makes no image of it.
func (s *ImageStore) LoadImages(_ context.Context, archive io.Reader, _ func(engine.Progress)) ([]string, error) {
	return nil, s.Take(archive)
}

// Remove calls do unless a container uses name, or it is not there.
func (s *ImageStore) Remove(name string, there bool, do func()) error {
	switch {
	case slices.Contains(s.Used, name):
		return &engine.Error{Op: "remove " + name, Kind: engine.ErrConflict, Err: errors.New("it is in use")}
	case !there:
		return NotFound(name)
	}
	do()
	return nil
}

// RemoveImage removes one reference.
func (s *ImageStore) RemoveImage(_ context.Context, ref string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.byRef[ref]
	return s.Remove(ref, there, func() { delete(s.byRef, ref) })
}
