package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// fakeEngine holds images by reference. What it embeds is nil: a test that asks
// for more than it fakes panics.
type fakeEngine struct {
	Engine
	arch     string
	driver   string // of storage
	pullTime time.Duration
	pullErr  error
	imageErr error
	forgets  bool          // what it has pulled
	silent   bool          // a pull says nothing until its end
	tells    time.Duration // between two words of a pull; 0: there is one

	mu      sync.Mutex
	present map[string]engine.Image // guarded by mu
	pulls   int                     // guarded by mu
	loaded  []byte                  // guarded by mu; the last archive or root file system
}

func notFound(ref string) error {
	return &engine.Error{Op: "inspect image " + ref, Kind: engine.ErrNotFound, Err: errors.New("no such image")}
}

func (f *fakeEngine) Info(context.Context) (engine.Info, error) {
	return engine.Info{Arch: f.arch, OS: "linux", StorageDriver: f.driver}, nil
}

func (f *fakeEngine) Image(_ context.Context, ref string) (engine.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.imageErr != nil {
		return engine.Image{}, f.imageErr
	}
	if img, ok := f.present[ref]; ok {
		return img, nil
	}
	return engine.Image{}, notFound(ref)
}

func (f *fakeEngine) PullImage(ctx context.Context, ref string, progress func(engine.Progress)) error {
	f.mu.Lock()
	f.pulls++
	f.mu.Unlock()
	if !f.silent {
		progress(engine.Progress{ID: "layer", Status: "Downloading", Current: 1, Total: 2})
	}
	end := time.After(f.pullTime)
	var word <-chan time.Time
	if f.tells > 0 {
		ticker := time.NewTicker(f.tells)
		defer ticker.Stop()
		word = ticker.C
	}
	for pulling := true; pulling; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-word:
			progress(engine.Progress{ID: "layer", Status: "Downloading", Current: 1, Total: 2})
		case <-end:
			pulling = false
		}
	}
	if f.pullErr != nil {
		return f.pullErr
	}
	if !f.forgets {
		f.put(ref)
	}
	return nil
}

func (f *fakeEngine) put(ref string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.present == nil {
		f.present = make(map[string]engine.Image)
	}
	f.present[ref] = engine.Image{ID: "sha256:" + engine.ImageID(fmt.Sprintf("%064x", len(f.present))), Refs: []string{ref}, OS: "linux"}
}

func (f *fakeEngine) LoadImages(_ context.Context, r io.Reader, _ func(engine.Progress)) ([]string, error) {
	data, err := io.ReadAll(r)
	f.mu.Lock()
	f.loaded = data
	f.mu.Unlock()
	f.put("loaded:1")
	return []string{"loaded:1"}, err
}

func (f *fakeEngine) ImportImage(_ context.Context, r io.Reader, cfg engine.ImageConfig) (engine.ImageID, error) {
	data, err := io.ReadAll(r)
	f.mu.Lock()
	f.loaded = data
	f.mu.Unlock()
	f.put(cfg.Ref)
	f.mu.Lock()
	defer f.mu.Unlock()
	img := f.present[cfg.Ref]
	f.present[string(img.ID)] = img
	return img.ID, err
}
