package images

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/enginetest"
)

// fakeEngine is an engine that pulls, loads and imports images. What it lacks panics.
type fakeEngine struct {
	unfaked
	enginetest.ImageStore
	pullTime time.Duration
	pullErr  error
	loadErr  error         // of LoadImages, ImportImage and BuildImage, after reads bytes
	reads    int64         // how much they read before loadErr; 0: everything
	forgets  bool          // what it has pulled
	silent   bool          // a pull says nothing until its end
	tells    time.Duration // between two words of a pull; 0: there is one
	made     atomic.Int32  // images

	pulls atomic.Int32
	built engine.Build // the last one
}

// newFake returns an engine of amd64 without images.
func newFake() *fakeEngine {
	f := &fakeEngine{}
	f.Facts = engine.Info{Arch: "amd64", OS: "linux"}
	return f
}

// with adds an image that is on the engine.
func (f *fakeEngine) with(ref string, img engine.Image) *fakeEngine {
	f.Put(ref, img)
	return f
}

func (f *fakeEngine) PullImage(ctx context.Context, ref string, progress func(engine.Progress)) error {
	f.pulls.Add(1)
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

// put makes an image.
func (f *fakeEngine) put(ref string) engine.ImageID {
	id := engine.ImageID(fmt.Sprintf("sha256:%064x", f.made.Add(1)))
	f.Put(ref, engine.Image{ID: id, Refs: []string{ref}, OS: "linux"})
	return id
}

// take reads what is sent, or as much of it as the engine reads before it fails.
func (f *fakeEngine) take(r io.Reader) error {
	if f.loadErr != nil && f.reads > 0 {
		r = io.LimitReader(r, f.reads)
	}
	return cmp.Or(f.Take(r), f.loadErr)
}

func (f *fakeEngine) LoadImages(_ context.Context, r io.Reader, _ func(engine.Progress)) ([]string, error) {
	if err := f.take(r); err != nil {
		return nil, err
	}
	f.put("loaded:1")
	return []string{"loaded:1"}, nil
}

func (f *fakeEngine) ImportImage(_ context.Context, r io.Reader, cfg engine.ImageConfig) (engine.ImageID, error) {
	if err := f.take(r); err != nil {
		return "", err
	}
	return f.put(cfg.Ref), nil
}

func (f *fakeEngine) BuildImage(_ context.Context, r io.Reader, want engine.Build, _ func(engine.Progress)) (engine.ImageID, error) {
	f.built = want
	if err := f.take(r); err != nil {
		return "", err
	}
	return f.put(want.Ref), nil
}

func listenUnix(t *testing.T, path string) (net.Listener, error) {
	t.Helper()
	var lc net.ListenConfig
	return lc.Listen(t.Context(), "unix", path)
}
