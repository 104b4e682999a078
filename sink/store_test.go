package sink

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// store one command's output, with an artifact in any case.
func keep(tb testing.TB, session *Session, text string) Artifact {
	tb.Helper()
	s, err := New(Options{Streams: Merged, Artifact: Always}, session, nil)
	if err != nil {
		tb.Fatal(err)
	}
	writeAll(tb, s.Stdout(), text)
	return s.Close().Artifact
}

func TestArtifactIDs(t *testing.T) {
	t.Parallel()
	store := newTestStore(t, StoreOptions{})
	session := sessionOf(t, store, "s1")
	if a := keep(t, session, "zero"); a.ID != "0" || !a.Complete || filepath.Base(a.Path) != "0.bash.log" {
		t.Fatalf("first artifact %+v; want id 0", a)
	}
	s, err := New(Options{}, session, nil) // spills nothing, and takes an id
	if err != nil {
		t.Fatal(err)
	}
	if s.spill.id != "1" {
		t.Errorf("the id of the artifact is %q; want 1", s.spill.id)
	}
	if o := s.Close(); o.Artifact.ID != "1" || o.Artifact.Stored || o.Artifact.Cause != "" {
		t.Errorf("artifact of a silent command %+v; want id 1 and no file", o.Artifact)
	}
	if a := keep(t, session, "two"); a.ID != "2" {
		t.Errorf("third artifact has id %s; want 2", a.ID)
	}
	if a := keep(t, sessionOf(t, store, "s2"), "x"); a.ID != "0" {
		t.Errorf("first artifact of another session has id %s; want 0", a.ID)
	}
	if a := keep(t, sessionOf(t, store, "s1"), "x"); a.ID != "3" {
		t.Errorf("after resume the id is %s; want 3", a.ID)
	}
	if err := store.Remove("s1", "3"); err != nil {
		t.Fatal(err)
	}
	if a := keep(t, sessionOf(t, store, "s1"), "x"); a.ID != "4" {
		t.Errorf("after a removal the id is %s; want 4: none is used again", a.ID)
	}
	// Without the counter, or with nonsense in it, the files count.
	for _, nonsense := range []string{"", "-7", "x"} {
		dir := filepath.Join(store.dir, "s1")
		if err := os.WriteFile(filepath.Join(dir, counterName), []byte(nonsense), 0o600); err != nil {
			t.Fatal(err)
		}
		if a := keep(t, sessionOf(t, store, "s1"), "x"); a.ID == "" || slices.Contains([]string{"0", "1", "2", "3", "4"}, a.ID) {
			t.Errorf("with %q as counter the id is %q; want a new one", nonsense, a.ID)
		}
	}
}

// Ids are given out once, to however many sinks in however many sessions' Session
// values, which is what processes are to each other.
func TestArtifactIDsAtOnce(t *testing.T) {
	t.Parallel()
	store := newTestStore(t, StoreOptions{})
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for range 8 {
		session := sessionOf(t, store, "s1")
		wg.Go(func() {
			for range 50 {
				id, err := session.next()
				mu.Lock()
				if err != nil || seen[id] {
					t.Errorf("next() = %d, %v; given out before: %v", id, err, seen[id])
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != 400 || !seen[399] {
		t.Errorf("%d ids; want 0 to 399", len(seen))
	}
}

func TestArtifactFiles(t *testing.T) {
	t.Parallel()
	store := newTestStore(t, StoreOptions{})
	a := keep(t, sessionOf(t, store, "s1"), "text")
	if runtime.GOOS != "windows" {
		for path, want := range map[string]os.FileMode{a.Path: 0o600, filepath.Dir(a.Path): 0o700} {
			if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != want {
				t.Errorf("%s has mode %v, %v; want %v", path, fi.Mode().Perm(), err, want)
			}
		}
	}
	if _, err := os.Stat(a.Path + partialSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark of a complete artifact: %v; want none", err)
	}
}

func TestOpenRefusesOtherNames(t *testing.T) {
	t.Parallel()
	store := newTestStore(t, StoreOptions{})
	session := sessionOf(t, store, "s1")
	keep(t, session, "secret of s1")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(store.dir, "s1")
	planted := map[string]string{
		filepath.Join(dir, "5.bash.log"): outside,
		filepath.Join(dir, "6.bash.log"): "0.bash.log",
		filepath.Join(store.dir, "s2"):   "s1",
		filepath.Join(store.dir, "s3"):   filepath.Dir(outside),
	}
	for link, target := range planted {
		if err := os.Symlink(target, link); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	for _, n := range [][2]string{
		{"s1", "../../etc/passwd"},
		{"s1", "%2e%2e%2f"},
		{"s1", `..%5c`},
		{"s1", outside},
		{"s1", "0.bash.log"},
		{"s1", "00"},
		{"s1", "+0"},
		{"s1", "-0"},
		{"s1", ""},
		{"s1", " 0"},
		{"s1", "0\x00"},
		{"s1", "1"},
		{"s1", "next"},
		{"s1", "99999999999999999999"},
		{"s1", "٠"},
		{"s1", "5"},
		{"s1", "6"},
		{"s2", "0"},
		{"s3", "0"},
		{"", "0"},
		{".", "0"},
		{"..", "0"},
		{"s1/.", "0"},
		{"../s1", "0"},
		{`s1\`, "0"},
		{"unknown", "0"},
	} {
		a, err := store.Open(n[0], n[1])
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("Open(%q, %q) = %v, %v; want ErrNotFound", n[0], n[1], a, err)
		}
		if err := store.Remove(n[0], n[1]); !errors.Is(err, ErrNotFound) {
			t.Errorf("Remove(%q, %q) = %v; want ErrNotFound", n[0], n[1], err)
		}
	}
	infos, err := store.List("")
	if err != nil || len(infos) != 1 || infos[0].ID != "0" || infos[0].Session != "s1" {
		t.Errorf("List() = %+v, %v; want the one artifact", infos, err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "-x", "a.b", strings.Repeat("x", 129)} {
		if _, err := store.Session(name); err == nil {
			t.Errorf("Session(%q) = nil; want an error", name)
		}
	}
}

// A link where an artifact's mark, the counter or the session's directory
// should be is not followed when writing either.
func TestWritingFollowsNoLinks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"0.bash.log.partial", counterName, ""} {
		store := newTestStore(t, StoreOptions{})
		victim := filepath.Join(t.TempDir(), "victim")
		target := victim
		if name == "" {
			target = t.TempDir()
		} else if err := os.Mkdir(filepath.Join(store.dir, "s1"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(store.dir, "s1", name)); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
		a := keep(t, sessionOf(t, store, "s1"), "text")
		if a.Complete || a.Stored || a.Cause == "" && a.ID != "" {
			t.Errorf("with a link at %q: %+v; want nothing stored, and a cause", name, a)
		}
		if _, err := os.Stat(victim); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("with a link at %q the victim was written", name)
		}
		if names, err := os.ReadDir(target); name == "" && (err != nil || len(names) > 0) {
			t.Errorf("the other directory has %v, %v; want nothing", names, err)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	store := newTestStore(t, StoreOptions{})
	long := strings.Repeat("y", 3*maxLine+5)
	text := "one\ntwo\r\n" + long + "\nfour\nfive"
	keep(t, sessionOf(t, store, "s1"), text)
	a, err := store.Open("s1", "0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	if a.State != Complete || a.Bytes != int64(len(text)) || a.Name != "0.bash.log" || time.Since(a.Written) > time.Hour {
		t.Errorf("Open() = %+v", a.Info)
	}
	for _, tt := range []struct {
		from, to int64
		want     string
	}{{0, -1, text}, {0, 3, "one"}, {4, 7, "two"}, {int64(len(text)) - 4, -1, "five"}, {1 << 40, -1, ""}, {5, 2, ""}} {
		var b strings.Builder
		if err := a.CopyBytes(&b, tt.from, tt.to); b.String() != tt.want || err != nil {
			t.Errorf("CopyBytes(%d, %d) = %.40q, %v; want %.40q", tt.from, tt.to, b.String(), err, tt.want)
		}
	}
	for _, tt := range []struct {
		from, to int64
		want     string
	}{{1, 0, text}, {1, 1, "one\n"}, {2, 2, "two\r\n"}, {3, 3, long + "\n"}, {4, 0, "four\nfive"}, {5, 9, "five"}, {6, 0, ""}} {
		var b strings.Builder
		if err := a.CopyLines(&b, tt.from, tt.to); b.String() != tt.want || err != nil {
			t.Errorf("CopyLines(%d, %d) = %.40q, %v; want %.40q", tt.from, tt.to, b.String(), err, tt.want)
		}
	}
	var found []string
	err = a.Grep(regexp.MustCompile(`^(two|f.*|y+)$`), func(line int64, text []byte) error {
		found = append(found, fmt.Sprintf("%d:%.4s", line, text))
		return nil
	})
	if want := []string{"2:two", "3:yyyy", "3:yyyy", "3:yyyy", "3:yyyy", "4:four", "5:five"}; !slices.Equal(found, want) || err != nil {
		t.Errorf("Grep() = %v, %v; want %v", found, err, want)
	}
	if err := a.Grep(regexp.MustCompile(`.`), func(int64, []byte) error { return errBroken }); !errors.Is(err, errBroken) {
		t.Errorf("Grep() = %v; want the error of found", err)
	}
}

// A link in place of an artifact takes its id, and is left alone.
func TestPlantedArtifact(t *testing.T) {
	t.Parallel()
	store := newTestStore(t, StoreOptions{})
	session := sessionOf(t, store, "s1")
	keep(t, session, "x")
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.Symlink(victim, filepath.Join(store.dir, "s1", "1.bash.log")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if a := keep(t, session, "text"); a.ID != "1" || a.Stored || !strings.Contains(a.Cause, "exists") {
		t.Errorf("artifact %+v; want none with id 1", a)
	}
	if a := keep(t, sessionOf(t, store, "s1"), "text"); a.ID != "2" || !a.Complete {
		t.Errorf("artifact %+v; want a complete one with id 2", a)
	}
	if _, err := os.Stat(victim); !errors.Is(err, os.ErrNotExist) {
		t.Error("the victim was written")
	}
}

// An artifact can be read while it is written, is listed as such, and cannot be
// removed.
func TestReadWhileWritten(t *testing.T) {
	t.Parallel()
	store := newTestStore(t, StoreOptions{})
	session := sessionOf(t, store, "s1")
	w := newDiskWriter(session, "0"+logSuffix)
	w.write([]byte("first\n"))
	waitFor(t, func() bool {
		a, err := store.Open("s1", "0")
		if err != nil {
			return false
		}
		var b strings.Builder
		err = errors.Join(a.CopyBytes(&b, 0, -1), a.Close())
		return err == nil && b.String() == "first\n" && a.State == Writing
	})
	if err := store.Remove("s1", "0"); !errors.Is(err, ErrBusy) {
		t.Errorf("Remove() = %v; want ErrBusy", err)
	}
	if gone, err := store.GC(time.Now().AddDate(1, 0, 0)); len(gone) != 0 || err != nil {
		t.Errorf("GC() = %v, %v; want nothing gone", gone, err)
	}
	if a := w.finish("0", ""); !a.Complete || a.Bytes != 6 {
		t.Errorf("finish() = %+v; want a complete artifact", a)
	}
	infos, err := store.List("s1")
	if err != nil || len(infos) != 1 || infos[0].State != Complete {
		t.Errorf("List() = %+v, %v; want it complete", infos, err)
	}
}

// waitFor waits for what another goroutine does in real time, on a real disk.
func waitFor(tb testing.TB, done func() bool) {
	tb.Helper()
	for begin := time.Now(); !done(); runtime.Gosched() {
		if time.Since(begin) > 10*time.Second {
			tb.Fatal("it did not come")
		}
	}
}

// helperDir, if set, makes the test binary the writer of TestKilledWriter.
const helperDir = "SINK_HELPER_DIR"

// helpWriting begins an artifact in dir and does not end it.
func helpWriting(dir string) error {
	store, err := NewStore(dir, StoreOptions{})
	if err != nil {
		return err
	}
	session, err := store.Session("s1")
	if err != nil {
		return err
	}
	newDiskWriter(session, "0"+logSuffix).write([]byte("part"))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func TestKilledWriter(t *testing.T) {
	t.Parallel()
	store := newTestStore(t, StoreOptions{})
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperDir+"="+store.dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		infos, err := store.List("s1")
		return err == nil && len(infos) == 1 && infos[0].State == Writing && infos[0].Bytes == 4
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	_ = stdin.Close()
	infos, err := store.List("s1")
	if err != nil || len(infos) != 1 || infos[0].State != Incomplete || infos[0].Cause == "" {
		t.Errorf("List() = %+v, %v; want it incomplete with a cause", infos, err)
	}
}

func TestGC(t *testing.T) {
	t.Parallel()
	store := newTestStore(t, StoreOptions{Retention: time.Hour})
	old, young := keep(t, sessionOf(t, store, "old"), "x"), keep(t, sessionOf(t, store, "young"), "x")
	past := time.Now().Add(-2 * time.Hour)
	for _, path := range []string{old.Path, filepath.Join(filepath.Dir(old.Path), counterName)} {
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := store.GC(time.Now())
	if err != nil || len(gone) != 1 || gone[0].Session != "old" {
		t.Errorf("GC() = %+v, %v; want the old one", gone, err)
	}
	if _, err := os.Stat(filepath.Dir(old.Path)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory of the old session: %v; want none", err)
	}
	if _, err := os.Stat(young.Path); err != nil {
		t.Errorf("the young artifact: %v", err)
	}
	empty, err := NewStore(filepath.Join(t.TempDir(), "none"), StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if gone, err := empty.GC(time.Now()); len(gone) != 0 || err != nil {
		t.Errorf("GC() of no directory = %v, %v; want nothing", gone, err)
	}
}

func TestNewStoreRefuses(t *testing.T) {
	t.Parallel()
	if _, err := NewStore("", StoreOptions{}); err == nil {
		t.Error(`NewStore("") = nil; want an error`)
	}
	if _, err := NewStore("x", StoreOptions{TotalBytes: -1}); err == nil {
		t.Error("NewStore() with a negative quota = nil; want an error")
	}
}
