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
	// Somebody removes another.
	if err := os.Remove(filepath.Join(dir, "audit-00000003.jsonl")); err != nil {
		t.Fatal(err)
	}
	wantProblem(t, verify(t, dir, ""), "audit-00000004.jsonl:1: ", "are missing before this one, and no record says")
}

func wantProblem(t *testing.T, r Report, at, text string) {
	t.Helper()
	if len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0].String(), at) || !strings.Contains(r.Problems[0].Text, text) {
		t.Errorf("problems %q; want one at %s with %q", r.Problems, at, text)
	}
}

func TestTampering(t *testing.T) {
	t.Parallel()
	swap := func(lines []string, a, b int) []string { lines[a], lines[b] = lines[b], lines[a]; return lines }
	tests := []struct {
		name string
		edit func(lines []string) []string
		at   string // of the first problem
		want string
		more bool // further problems follow from it
	}{
		{"a changed record", func(l []string) []string {
			l[4] = strings.Replace(l[4], `"id":"e"`, `"id":"x"`, 1)
			return l
		}, "audit.jsonl:5:", "it was changed", false},
		{"a record changed together with its link", func(l []string) []string {
			l[4] = strings.Replace(l[4], `"prev":"`+l[4][17:20], `"prev":"000`, 1)
			return l
		}, "audit.jsonl:5:", "it was changed", false},
		{"a record made no record", func(l []string) []string { l[4] = "x" + l[4]; return l }, "audit.jsonl:5:", "it is no record", false},
		{"a changed first record", func(l []string) []string {
			l[0] = strings.Replace(l[0], `"id":"a"`, `"id":"x"`, 1)
			return l
		}, "audit.jsonl:1:", "it was changed", false},
		{"a record taken out", func(l []string) []string { return append(l[:4], l[5:]...) }, "audit.jsonl:5:", "1 records are missing before this one: 5 to 5", false},
		{"the first taken out", func(l []string) []string { return l[1:] }, "audit.jsonl:1:", "records 1 to 1 are missing", false},
		{"two exchanged", func(l []string) []string { return swap(l, 3, 4) }, "audit.jsonl:4:", "missing", true},
		{"one repeated", func(l []string) []string { return append(l[:5], append([]string{l[4]}, l[5:]...)...) }, "audit.jsonl:6:", "moved or repeated", false},
		{"one put in", func(l []string) []string {
			return append(l[:5], append([]string{strings.Replace(l[4], `"id":"e"`, `"id":"x"`, 1)}, l[5:]...)...)
		}, "audit.jsonl:6:", "moved or repeated", true},
		{"a changed last record but one", func(l []string) []string {
			l[8] = strings.Replace(l[8], `"id":"i"`, `"id":"x"`, 1)
			return l
		}, "audit.jsonl:9:", "it was changed", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			add(t, open(t, dir, Options{}), strings.Split("abcdefghij", "")...)
			name := filepath.Join(dir, currentName)
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			edited := tt.edit(strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"))
			if err := os.WriteFile(name, []byte(strings.Join(edited, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			r := verify(t, dir, "")
			if len(r.Problems) == 0 || !strings.HasPrefix(r.Problems[0].String(), tt.at) || !strings.Contains(r.Problems[0].Text, tt.want) {
				t.Errorf("problems %q; want the first at %s with %q", r.Problems, tt.at, tt.want)
			}
			if !tt.more && len(r.Problems) > 1 {
				t.Errorf("problems %q; want one", r.Problems)
			}
			// The log goes on all the same, and hides nothing of it.
			add(t, open(t, dir, Options{}), "k")
			if after := verify(t, dir, ""); len(after.Problems) == 0 {
				t.Error("after the next record nothing of it is seen any more")
			}
		})
	}
}

// TestCutTail shows what a chain cannot, and what a noted head can.
func TestCutTail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, Options{})
	add(t, l, "a", "b", "c")
	head := verify(t, dir, "").Head
	name := filepath.Join(dir, currentName)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	if err := os.WriteFile(name, []byte(lines[0]+lines[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, ""); len(r.Problems) > 0 {
		t.Errorf("problems %q; a chain does not know its end", r.Problems)
	}
	wantProblem(t, verify(t, dir, head), "audit.jsonl:2:", "cut off")
}

// TestHalfLine is what a writer leaves that is killed while it writes.
func TestHalfLine(t *testing.T) {
	t.Parallel()
	for _, rest := range []string{`{"seq":3,"pre`, "{", strings.Repeat("x", 3*maxLine)} {
		dir := t.TempDir()
		add(t, open(t, dir, Options{}), "a", "b")
		f, err := os.OpenFile(filepath.Join(dir, currentName), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(rest); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if r := verify(t, dir, ""); len(r.Problems) != 1 {
			t.Errorf("problems %q; want the half line", r.Problems)
		}
		if len(rest) > maxLine {
			continue // nobody of ours writes such a line
		}
		add(t, open(t, dir, Options{}), "c")
		if r := verify(t, dir, ""); len(r.Problems) > 0 || r.Records != 4 {
			t.Errorf("Verify() = %+v; want two records, one about the half line, and one more", r)
		}
	}
}

// TestHalfFirstLine has the writer killed in the first line of a new file.
func TestHalfFirstLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, open(t, dir, Options{}), "a", "b")
	if err := os.Rename(filepath.Join(dir, currentName), filepath.Join(dir, "audit-00000001.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, currentName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	add(t, open(t, dir, Options{}), "c")
	if r := verify(t, dir, ""); len(r.Problems) > 0 || r.Records != 4 || r.Files != 2 {
		t.Errorf("Verify() = %+v; want 4 records in 2 files", r)
	}
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
		cmd := exec.Command(os.Args[0])
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

func TestUnclosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, Options{})
	for _, r := range []Record{
		{Kind: Intent, ID: "a"}, {Kind: Intent, ID: "b"},
		{Kind: Outcome, ID: "a"},
	} {
		if err := l.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if r := verify(t, dir, ""); len(r.Unclosed) != 1 || r.Unclosed[0].ID != "b" || len(r.Problems) > 0 {
		t.Errorf("Verify() = %+v; want one intent unclosed", r)
	}
}

func TestBusy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := open(t, dir, Options{})
	if ok, err := tryLock(other.lock); !ok || err != nil {
		t.Fatal(ok, err)
	}
	l := open(t, dir, Options{Patience: 20 * time.Millisecond})
	if err := l.Append(Record{Kind: Intent}); !errors.Is(err, ErrBusy) {
		t.Errorf("Append() = %v; want ErrBusy", err)
	}
	if err := unlock(other.lock); err != nil {
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
