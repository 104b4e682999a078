package core

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Whatever starts a session collects what is past its retention first.
func TestCollect(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	dir := filepath.Join(state, "sandboxbash", "artifacts")
	store, err := sink.NewStore(dir, sink.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"aaaa-1", "bbbb-2"} {
		s, err := store.Session(id)
		if err != nil {
			t.Fatal(err)
		}
		out, err := sink.New(sink.Options{Artifact: sink.Always}, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.Stdout().Write([]byte("text\n"))
		out.Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	old := filepath.Join(dir, "bbbb-2", "0.bash.log")
	past := time.Now().Add(-15 * 24 * time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	p := New("", []string{"XDG_STATE_HOME=" + state, "HOME=" + state}, nil, io.Discard, io.Discard)
	p.Cfg.Config = &config.Config{Artifacts: config.Artifacts{Retention: 14 * 24 * time.Hour}}
	p.Artifacts.Collect()()
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after collect: Stat(%s) = %v; want it gone", old, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "aaaa-1", "0.bash.log")); err != nil {
		t.Errorf("after collect: %v; want what is young to stay", err)
	}
}
