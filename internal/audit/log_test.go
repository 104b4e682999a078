package audit

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/filelock"
)

// helperVariable makes the test binary a writer that a test can kill.
const helperVariable = "AUDIT_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperVariable); dir != "" {
		write(dir)
	}
	os.Exit(m.Run())
}

// write writes intents and outcomes until it is killed.
func write(dir string) {
	l, err := Open(dir, Options{FileBytes: 16 << 10})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		id := fmt.Sprintf("%d-%d", os.Getpid(), i)
		err := errors.Join(l.Append(Record{Kind: Intent, ID: id}), l.Append(Record{Kind: Outcome, ID: id}))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

func open(t *testing.T, dir string, o Options) *Log {
	t.Helper()
	l, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func add(t *testing.T, l *Log, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := l.Append(Record{Kind: Outcome, ID: id}); err != nil {
			t.Fatal(err)
		}
	}
}

func verify(t *testing.T, dir, head string) Report {
	t.Helper()
	r, err := Verify(dir, head)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAppend(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "audit")
	l := open(t, dir, Options{})
	add(t, l, "a", "b", "c")
	r := verify(t, dir, "")
	if len(r.Problems) > 0 || r.Records != 3 || r.Files != 1 || r.Head != l.last.hash {
		t.Errorf("Verify() = %+v; want 3 good records that end with %s", r, l.last.hash)
	}
	if again := verify(t, dir, r.Head); len(again.Problems) > 0 || !again.HeadFound {
		t.Errorf("Verify(head) = %+v; want it found", again)
	}
	if runtime.GOOS == "windows" {
		return
	}
	for name, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, filepath.Join(dir, currentName): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, Options{FileBytes: 1 << 10})
	for i := range 50 {
		add(t, l, fmt.Sprint(i))
	}
	r := verify(t, dir, "")
	if len(r.Problems) > 0 || r.Files < 5 || r.Records != 50+r.Files-1 {
		t.Errorf("Verify() = %+v; want good records in several files", r)
	}
	// An old file is gone for its age, and the log says so.
	old := open(t, dir, Options{FileBytes: 1 << 10, Retention: time.Hour})
	past := time.Now().Add(-2 * time.Hour)
	for n := 1; n <= 2; n++ {
		name := filepath.Join(dir, fmt.Sprintf("audit-%08d.jsonl", n))
		if err := os.Chtimes(name, past, past); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		add(t, old, fmt.Sprint(i))
	}
	if _, err := os.Stat(filepath.Join(dir, "audit-00000002.jsonl")); err == nil {
		t.Error("a file that is past its retention is still there")
	}
	if r := verify(t, dir, ""); len(r.Problems) > 0 {
		t.Errorf("Verify() after the retention = %+v; want no problem", r.Problems)
	}
	// Another one is removed.
	if err := os.Remove(filepath.Join(dir, "audit-00000003.jsonl")); err != nil {
		t.Fatal(err)
	}
	wantProblem(t, verify(t, dir, ""), "audit-00000004.jsonl:1: ", "are missing before this one, and no record says")
}

func TestConcurrentWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	const logs, each = 6, 40
	for i := range logs {
		l := open(t, dir, Options{FileBytes: 4 << 10, Patience: time.Minute})
		for half := range 2 {
			wg.Go(func() {
				for j := range each / 2 {
					if err := l.Append(Record{Kind: Outcome, ID: fmt.Sprint(i, half, j)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	r := verify(t, dir, "")
	if len(r.Problems) > 0 || r.Records != logs*each+r.Files-1 {
		t.Errorf("Verify() = %d records in %d files, %q; want %d", r.Records, r.Files, r.Problems, logs*each)
	}
}

// TestKilledWriters kills processes at any point of their writing, while another
// one writes.
func TestKilledWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own := open(t, dir, Options{FileBytes: 16 << 10, Patience: time.Minute})
	written := 0
	const kills = 12
	for i := range kills {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), helperVariable+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewScanner(out)
		for n := 0; n < 10+i*7 && in.Scan(); n++ {
			add(t, own, "own")
			written++
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for in.Scan() { // until the process has ended
		}
		_ = cmd.Wait() // it was killed
	}
	add(t, own, "last")
	r := verify(t, dir, "")
	if len(r.Problems) > 0 || r.Records < 3*written {
		t.Errorf("Verify() = %d records, %q; want more than %d, and no problem", r.Records, r.Problems, 3*written)
	}
	if len(r.Unclosed) > kills {
		t.Errorf("%d intents without outcome; want at most %d", len(r.Unclosed), kills)
	}
}

func TestBusy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := open(t, dir, Options{})
	if ok, err := filelock.TryLock(other.lock); !ok || err != nil {
		t.Fatal(ok, err)
	}
	l := open(t, dir, Options{Patience: 20 * time.Millisecond})
	if err := l.Append(Record{Kind: Intent}); !errors.Is(err, ErrBusy) {
		t.Errorf("Append() = %v; want ErrBusy", err)
	}
	if err := filelock.Unlock(other.lock); err != nil {
		t.Fatal(err)
	}
	add(t, l, "a")
	if r := verify(t, dir, ""); r.Missed != 1 {
		t.Errorf("missed %d records; want 1", r.Missed)
	}
}

func TestNotOurs(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on windows")
	}
	dir := t.TempDir()
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, currentName)); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir, Options{}).Append(Record{Kind: Intent}); err == nil {
		t.Error("Append() follows a link out of its directory")
	}
	if info, err := os.Stat(victim); err != nil || info.Size() > 0 {
		t.Errorf("the file behind the link: %v, %v", info, err)
	}
}

// TestJobEndOnce has several processes told the end of one job, the log going on in
// other files meanwhile.
func TestJobEndOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{FileBytes: 1 << 10, Patience: time.Minute}
	l := open(t, dir, o)
	if err := l.Append(Record{Kind: Outcome, ID: "a", Session: "s", Job: "bg_1", JobTag: "tag1"}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			l, err := Open(dir, o)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = l.Close() }() // every record is on the disk
			for i := range 10 {
				err := errors.Join(l.Append(Record{Kind: Outcome, ID: fmt.Sprint(i)}), l.Append(Record{Kind: JobEnd, Session: "s", Job: "bg_1", JobTag: "tag1"}))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// The id again, of another job; and another session's, of which no begin is there.
	for _, r := range []Record{
		{Kind: JobEnd, Session: "s", Job: "bg_1", JobTag: "tag2"},
		{Kind: JobEnd, Session: "t", Job: "bg_1", JobTag: "tag1"},
		{Kind: JobEnd, Session: "t", Job: "bg_1", JobTag: "tag1"},
	} {
		if err := l.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]int{}
	err := Each(dir, func(r Record, _ Problem, _ []byte) error {
		if r.Kind == JobEnd {
			got[r.Session+" "+r.JobTag]++
		}
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got["s tag1"] != 1 || got["s tag2"] != 1 || got["t tag1"] != 1 {
		t.Errorf("ends by job: %v; want one of each of three", got)
	}
	if r := verify(t, dir, ""); len(r.Problems) > 0 || r.Files < 3 {
		t.Errorf("Verify() = %+v; want several good files", r)
	}
}

// TestDirectory has directories that were there before the log.
func TestDirectory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("windows has no modes")
	}
	for mode, good := range map[os.FileMode]bool{0o700: true, 0o755: true, 0o775: false, 0o702: false} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		l, err := Open(dir, Options{})
		if (err == nil) != good {
			t.Errorf("Open() of a directory of mode %v: %v; want it taken: %v", mode, err, good)
		}
		if err != nil {
			if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "audit.dir") {
				t.Errorf("Open() = %v; want the directory and what to do", err)
			}
		} else if err := l.Close(); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != mode {
			t.Errorf("Open() has made the mode %v of it, %v; it was %v", info.Mode(), err, mode)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	l, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }() // every record is on the disk
	for b.Loop() {
		if err := l.Append(Record{Kind: Outcome, ID: "a", Command: "make test"}); err != nil {
			b.Fatal(err)
		}
	}
}
