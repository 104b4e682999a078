package sink

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSpill(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("\x1b[m", minRawHead)
	for _, tt := range []struct {
		name   string
		mode   ArtifactMode
		in     []string
		stored bool
	}{
		{"fits", OnOverflow, []string{"123456789", "0"}, false},
		{"overflows", OnOverflow, []string{"123456789", "01"}, true},
		{"much that is not text", OnOverflow, []string{big}, true},
		{"always", Always, []string{"1"}, true},
		{"always, empty", Always, nil, true},
		{"never", Never, []string{"12345678901"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := New(Options{Streams: Merged, Window: Tail(10), Artifact: tt.mode}, newTestSession(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range tt.in {
				writeAll(t, s.Stdout(), c)
			}
			a := s.Close().Artifact
			if a.Stored != tt.stored || a.Complete != tt.stored || a.Cause != "" || a.ID != "0" {
				t.Fatalf("artifact %+v; want stored %v", a, tt.stored)
			}
			if !tt.stored {
				return
			}
			if got, err := os.ReadFile(a.Path); string(got) != strings.Join(tt.in, "") || err != nil {
				t.Errorf("artifact has %d bytes, %v; want all from the first", len(got), err)
			}
		})
	}
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		opts  StoreOptions
		bytes int64 // in the second artifact of ten
		cause string
	}{
		{"artifact", StoreOptions{ArtifactBytes: 4}, 4, "artifact's quota of 4B"},
		{"session", StoreOptions{SessionBytes: 16}, 6, "session's quota"},
		{"store", StoreOptions{TotalBytes: 18}, 8, "store's quota"},
		{"exactly", StoreOptions{ArtifactBytes: 10}, 10, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := newTestStore(t, tt.opts)
			keep(t, sessionOf(t, store, "s1"), "0123456789")
			a := keep(t, sessionOf(t, store, "s1"), "0123456789")
			if !a.Stored || a.Bytes != tt.bytes || a.Complete != (tt.cause == "") || !strings.Contains(a.Cause, tt.cause) {
				t.Errorf("artifact %+v; want %d bytes and %q", a, tt.bytes, tt.cause)
			}
			infos, err := store.List("s1")
			if err != nil || len(infos) != 2 || infos[1].Cause != a.Cause || (infos[1].State == Complete) != a.Complete {
				t.Errorf("List() = %+v, %v; want the same to be known later", infos, err)
			}
		})
	}
}

// failing runs a command with more output than the store takes and returns what
// became of it. The command itself notices nothing.
func failing(t *testing.T, store *Store, sabotage func()) Output {
	t.Helper()
	s, err := New(Options{Streams: Merged}, sessionOf(t, store, "s1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	chunk := strings.Repeat("0123456789abcde\n", benchChunk/16)
	for i := range 64 {
		writeAll(t, s.Stdout(), chunk)
		if i == 20 && sabotage != nil {
			sabotage()
		}
	}
	o := s.Close()
	if o.Stdout.Bytes != 64*benchChunk || len(o.Stdout.Tail) != DefaultWindow || o.Stdout.Lines != 64*benchChunk/16+1 {
		t.Errorf("%d bytes, %d shown, %d lines; want all counted", o.Stdout.Bytes, len(o.Stdout.Tail), o.Stdout.Lines)
	}
	if o.Artifact.Complete || o.Artifact.Cause == "" {
		t.Errorf("artifact %+v; want it incomplete with a cause", o.Artifact)
	}
	return o
}

func TestDirectoryCannotBeMade(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := NewStore(filepath.Join(file, "artifacts"), StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := failing(t, store, nil)
	if o.Artifact.ID != "" || o.Artifact.Stored || *o.Stdout.Truncation.ShownRange != (Range{521089, 524289}) {
		t.Errorf("artifact %+v, truncation %+v; want no id, and lines 521089-524289", o.Artifact, o.Stdout.Truncation)
	}
}

func TestDirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	store := newTestStore(t, StoreOptions{})
	o := failing(t, store, func() {
		// What is not written yet may appear between the two steps of RemoveAll.
		waitFor(t, func() bool { return os.RemoveAll(store.dir) == nil })
	})
	if o.Artifact.Stored || !strings.Contains(o.Artifact.Cause, "removed") {
		t.Errorf("artifact %+v; want it removed", o.Artifact)
	}
	// The session goes on, in a new directory.
	if a := keep(t, sessionOf(t, store, "s1"), "x"); !a.Complete {
		t.Errorf("the next artifact: %+v; want it complete", a)
	}
}

func TestSessionSurvivesItsDirectory(t *testing.T) {
	t.Parallel()
	store := newTestStore(t, StoreOptions{})
	session := sessionOf(t, store, "s1")
	keep(t, session, "x")
	if err := os.RemoveAll(store.dir); err != nil {
		t.Skipf("an open directory cannot be removed here: %v", err)
	}
	if a := keep(t, session, "y"); !a.Complete || a.ID != "1" {
		t.Errorf("artifact %+v; want a complete one with id 1", a)
	}
}
