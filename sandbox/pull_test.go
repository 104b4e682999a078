package sandbox

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// killed ends what is asked to end.
func killed(f *fakeRunner, _ wire.Kill) {
	f.send(wire.TypeExit, wire.Exit{Seq: f.current.Seq, Signal: 9, Rung: wire.RungKill}.Append(nil))
}

// A command of profile dev can stop the program at the other end: the transfer is
// given up, and not after an hour.
func TestTransferIdle(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(src, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(t *testing.T, s *Session) error{
		"pull": func(t *testing.T, s *Session) error {
			t.Helper()
			dir := filepath.Join(t.TempDir(), "out")
			_, err := s.Pull(t.Context(), ".", dir, PullOptions{})
			if _, statErr := os.Stat(dir); statErr == nil {
				t.Errorf("%s was made", dir)
			}
			return err
		},
		"push": func(t *testing.T, s *Session) error {
			t.Helper()
			_, err := s.Push(t.Context(), src, ".")
			return err
		},
		"diff": func(t *testing.T, s *Session) error {
			t.Helper()
			_, err := s.Diff(t.Context(), ".", t.TempDir())
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newFakeEngine(t)
			_, s := start(t, d, Spec{})
			defer s.Release()
			d.stopped, d.onKill = true, killed
			d.onPull = func(*fakeRunner, string) {} // and says nothing
			begin := time.Now()
			err := do(t, s)
			if took := time.Since(begin); !errors.Is(err, errTransferIdle) || took < transferIdle || took > transferIdle+5*time.Second {
				t.Errorf("%s = %v after %v; want it given up after %v", name, err, took, transferIdle)
			}
		})
	}
}

// A stream that ends well but is none of a tree makes nothing, wherever it stops.
func TestPullForged(t *testing.T) {
	t.Parallel()
	var whole bytes.Buffer
	w := tar.NewWriter(&whole)
	for _, h := range []tar.Header{
		{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "a", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "../b", Typeflag: tar.TypeReg, Mode: 0o644},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	for _, archive := range [][]byte{whole.Bytes(), whole.Bytes()[:700], whole.Bytes()[:512], []byte("garbage"), nil} {
		d := newFakeEngine(t)
		_, s := start(t, d, Spec{})
		d.onPull = func(f *fakeRunner, path string) {
			if strings.HasPrefix(path, copiedDir) {
				f.send(wire.TypeExit, wire.Exit{Seq: f.current.Seq, Code: wire.ExitNoInput}.Append(nil))
				return
			}
			f.answer(archive)
		}
		outer := t.TempDir()
		done, err := s.Pull(t.Context(), ".", filepath.Join(outer, "x", "y"), PullOptions{})
		left, _ := os.ReadDir(outer)
		if wellFormed := len(archive) == 512; (err == nil) != wellFormed || done.Written != 0 || !wellFormed && len(left) > 0 {
			t.Errorf("Pull(%d bytes) = %+v, %v, and %d made", len(archive), done, err, len(left))
		}
		s.Release()
	}
}

// A record says nothing of another session or directory, and nothing once a byte of it
// is another.
func TestCopiedRecord(t *testing.T) {
	t.Parallel()
	state := transfer.NewState([]transfer.Entry{{Name: "f", Kind: transfer.Link, Target: "x"}})
	s, other := &Session{info: Info{key: []byte("one")}}, &Session{info: Info{key: []byte("two")}}
	id := s.pairID("/here", "/there")
	record := s.sealCopied(id, state)
	if got, err := s.openCopied(id, record); err != nil || len(got) != 1 || got[0].Target != "x" {
		t.Errorf("openCopied() = %v, %v", got, err)
	}
	if got, err := s.openCopied(s.pairID("/here", "/elsewhere"), record); got != nil || err != nil {
		t.Errorf("openCopied(another pair) = %v, %v; want nothing", got, err)
	}
	if _, err := other.openCopied(id, record); !errors.Is(err, errAltered) {
		t.Errorf("openCopied(another session) = %v; want it altered", err)
	}
	for i := range record {
		bad := bytes.Clone(record)
		bad[i] ^= 1
		if _, err := s.openCopied(id, bad); !errors.Is(err, errAltered) {
			t.Errorf("openCopied(with another byte %d) = %v; want it altered", i, err)
		}
	}
	if bytes.Contains(record, []byte("here")) {
		t.Error("the record names a directory of the host")
	}
}
