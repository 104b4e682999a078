package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Wherever a writer is killed in its last line, the record is whole or it is not there; the
// next writer goes on, and Verify finds no fault.
func TestTornAtEachByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, open(t, dir, Options{}), "a", "b")
	whole := read(t, dir, currentName)
	begin := strings.Index(whole, "\n") + 1
	for cut := begin; cut <= len(whole); cut++ {
		dir := t.TempDir()
		put(t, dir, currentName, whole[:cut])
		r := verify(t, dir, "")
		wantTorn, wantRecords := cut > begin && cut < len(whole)-1, 1
		if cut >= len(whole)-1 {
			wantRecords = 2
		}
		if (r.Torn != nil) != wantTorn || r.Records != wantRecords || len(r.Problems) > 0 {
			t.Errorf("cut at %d of %d: torn %v, %d records, %q; want torn %v, %d records", cut, len(whole), r.Torn, r.Records, r.Problems, wantTorn, wantRecords)
		}
		add(t, open(t, dir, Options{}), "c")
		if r := verify(t, dir, ""); len(r.Problems) > 0 || r.Torn != nil {
			t.Errorf("cut at %d, the log that goes on has %q, torn %v; want no fault", cut, r.Problems, r.Torn)
		}
		if got := read(t, dir, currentName); !strings.HasPrefix(got, whole[:cut]) {
			t.Errorf("cut at %d, the log that goes on has lost what was there", cut)
		}
	}
}

// A change of any byte of any record is found, and placed in its line or the one behind it.
// The last line has no successor that could tell: a noted head can.
func TestEachByteCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, open(t, dir, Options{}), "a", "b", "c")
	whole := read(t, dir, currentName)
	head := verify(t, dir, "").Head
	changed := t.TempDir()
	for at := range whole {
		bad := []byte(whole)
		bad[at] ^= 0x01
		put(t, changed, currentName, string(bad))
		r := verify(t, changed, head)
		if len(r.Problems) == 0 && r.Torn == nil {
			t.Errorf("byte %d, %q, as %q: no problem", at, whole[at], bad[at])
		}
		if line := strings.Count(whole[:at], "\n") + 1; line < 3 {
			plain := verify(t, changed, "")
			if len(plain.Problems) == 0 || plain.Problems[0].Line < line || plain.Problems[0].Line > line+1 {
				t.Errorf("byte %d in line %d: problems %q; want one there", at, line, plain.Problems)
			}
		}
	}
}

// What was done to whole files is found too.
func TestFilesOfTheChain(t *testing.T) {
	t.Parallel()
	name := func(n int) string { return fmt.Sprintf("%s%08d%s", sealedPrefix, n, sealedSuffix) }
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, dir string)
		at   string // of the first problem; "" means none
		want string
	}{
		{"nothing", func(*testing.T, string) {}, "", ""},
		{"other files", func(t *testing.T, dir string) {
			t.Helper()
			put(t, dir, "audit-x.jsonl", "no log")
			put(t, dir, "audit-0.jsonl", "no log")
			put(t, dir, "audit--1.jsonl", "no log")
			put(t, dir, "audit-1.json", "no log")
		}, "", ""},
		{"the oldest removed", func(t *testing.T, dir string) { t.Helper(); remove(t, dir, name(1)) }, name(2) + ":1:", "no record says that they were removed"},
		{"one in the middle removed", func(t *testing.T, dir string) { t.Helper(); remove(t, dir, name(2)) }, name(3) + ":1:", "records are missing"},
		{"the current one removed", func(t *testing.T, dir string) { t.Helper(); remove(t, dir, currentName) }, "", ""}, // as a tail that was cut off
		{"one emptied", func(t *testing.T, dir string) { t.Helper(); put(t, dir, name(2), "") }, name(3) + ":1:", "records are missing"},
		{"two exchanged", func(t *testing.T, dir string) {
			t.Helper()
			a, b := read(t, dir, name(1)), read(t, dir, name(2))
			put(t, dir, name(1), b)
			put(t, dir, name(2), a)
		}, name(2) + ":1:", "moved or repeated"},
		{"one copied", func(t *testing.T, dir string) { t.Helper(); put(t, dir, name(99), read(t, dir, name(2))) }, name(99) + ":1:", "moved or repeated"},
		{"a line added to an old one", func(t *testing.T, dir string) {
			t.Helper()
			put(t, dir, name(1), read(t, dir, name(1))+"{}\n")
		}, name(1), "it is not a record"},
		{"the end of an old one cut off", func(t *testing.T, dir string) {
			t.Helper()
			text := read(t, dir, name(1))
			put(t, dir, name(1), text[:len(text)-20])
		}, name(1), "it is not a record"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l := open(t, dir, Options{FileBytes: 400})
			for i := range 12 {
				add(t, l, fmt.Sprint(i))
			}
			if files, _ := filepath.Glob(filepath.Join(dir, sealedPrefix+"*")); len(files) < 3 {
				t.Fatalf("the log has the files %q; want three sealed ones", files)
			}
			tt.do(t, dir)
			r := verify(t, dir, "")
			switch {
			case tt.at == "" && len(r.Problems) > 0:
				t.Errorf("problems %q; want none", r.Problems)
			case tt.at != "" && (len(r.Problems) == 0 || !strings.HasPrefix(r.Problems[0].String(), tt.at) || !strings.Contains(r.Problems[0].Text, tt.want)):
				t.Errorf("problems %q; want the first at %s with %q", r.Problems, tt.at, tt.want)
			}
		})
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// A file that is full while its last line is torn is mended first and sealed then: the
// chain goes from the torn line to the record about it, and through it to the next file.
func TestRotationOfATornFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, open(t, dir, Options{}), "a", "b", "c")
	cutTo(t, dir, 2, func(l string) string { return l[:len(l)/2] })
	add(t, open(t, dir, Options{FileBytes: 100}), "d", "e")
	r := verify(t, dir, "")
	if len(r.Problems) > 0 || r.Torn != nil || r.Files < 2 {
		t.Errorf("Verify() = %+v; want several files and no fault", r)
	}
	var kinds []string
	if err := Each(dir, func(r Record, at Problem, _ []byte) error {
		kinds = append(kinds, at.File[:len("audit-")]+string(r.Kind))
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(kinds[:4], " "); got != "audit-outcome audit-outcome audit-torn audit-segment" {
		t.Errorf("the records are %q; want two, the one about the torn line, and the next file's first", kinds)
	}
}

// Many writers, each with a Log of its own and some with one in common, make one chain
// through all rotations.
func TestWritersInOneProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{FileBytes: 2 << 10, Patience: time.Minute}
	shared := open(t, dir, o)
	const writers, records = 6, 25
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			l := shared
			if i%2 == 0 {
				var err error
				if l, err = Open(dir, o); err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = l.Close() }() // every record is on the disk
			}
			for n := range records {
				if err := l.Append(Record{Kind: Outcome, ID: fmt.Sprintf("%d-%d", i, n)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers := make(chan struct{})
	go func() { // a reader in between sees a whole log
		defer close(readers)
		for range 10 {
			if r, err := Verify(dir, ""); err != nil || len(r.Problems) > 0 || r.Torn != nil {
				t.Errorf("Verify() while records are written = %+v, %v; want no fault", r, err)
			}
		}
	}()
	wg.Wait()
	<-readers
	next := map[string]int{}
	if err := Each(dir, func(r Record, _ Problem, _ []byte) error {
		if writer, n, ok := strings.Cut(r.ID, "-"); ok {
			if n != fmt.Sprint(next[writer]) {
				t.Errorf("writer %s has the record %s; want %d", writer, n, next[writer])
			}
			next[writer]++
		}
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	for i := range writers {
		if next[fmt.Sprint(i)] != records {
			t.Errorf("writer %d has %d records; want %d", i, next[fmt.Sprint(i)], records)
		}
	}
	if r := verify(t, dir, ""); len(r.Problems) > 0 || r.Missed != 0 || r.Files < 3 {
		t.Errorf("Verify() = %+v; want several files, and no fault", r)
	}
}

// A record holds what it was given, whatever its texts are, and is one line.
func TestRecordLines(t *testing.T) {
	t.Parallel()
	code := 1
	for _, r := range []Record{
		{Kind: Intent},
		{Kind: Intent, Command: "a\nb\r\n\x00\x1b[31m\u2028\u2029<>&\"\\"},
		{Kind: Outcome, Code: &code, Receipt: json.RawMessage(`{"a":[1,2]}`), Artifact: &Artifact{ID: "1", Bytes: 2, Complete: true}},
		{Kind: Denied, Policy: &Policy{Verdict: "deny", Rule: "r", Reason: "because"}, Error: &Failure{Outcome: "not-started", Cause: "policy"}},
		{Kind: Retention, Removed: []string{"audit-00000001.jsonl"}, RemovedHead: first},
	} {
		r.Seq, r.Prev, r.Time = 7, first, time.Unix(1e9, 5).UTC()
		line, err := r.line()
		if err != nil || bytes.Count(line, []byte("\n")) != 1 || !bytes.HasSuffix(line, []byte("\n")) {
			t.Fatalf("line() = %q, %v; want one line", line, err)
		}
		got, err := parse(bytes.TrimSuffix(line, []byte("\n")))
		again, _ := got.line()
		if err != nil || !bytes.Equal(again, line) {
			t.Errorf("parse(%s) = %+v, %v; want the same record", line, got, err)
		}
	}
	if _, err := (Record{Kind: Intent, Command: strings.Repeat("\x01", maxLine/6+1)}).line(); err == nil {
		t.Error("a line of more than the limit is accepted")
	}
	if line, err := (Record{Kind: Intent, Command: strings.Repeat("\x01", MaxCommand)}).line(); err != nil || len(line) > maxLine {
		t.Errorf("the longest command makes a line of %d bytes, %v; want it to fit", len(line), err)
	}
	for _, text := range []string{
		"", "{}", "null", "[]", `"x"`, `{"seq":1}`, `{"seq":0,"prev":"` + first + `","kind":"intent"}`, `{"seq":1,"prev":"` + first[1:] + `","kind":"intent"}`,
		`{"seq":1,"prev":"` + first + `"}`, `{"seq":-1,"prev":"` + first + `","kind":"intent"}`, `{"seq":1,"prev":"` + first + `","kind":"intent"}x`,
	} {
		if r, err := parse([]byte(text)); err == nil {
			t.Errorf("parse(%s) = %+v, nil; want an error", text, r)
		}
	}
}

// A record that is too long is refused, and counted as missing in the next one.
func TestLongRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, Options{})
	add(t, l, "a")
	for range 3 {
		if err := l.Append(Record{Kind: Intent, Command: strings.Repeat("x", maxLine)}); err == nil {
			t.Fatal("a record of more than the limit is written")
		}
	}
	add(t, l, "b", "c")
	if r := verify(t, dir, ""); r.Missed != 3 || r.Records != 3 || len(r.Problems) > 0 {
		t.Errorf("Verify() = %+v; want three records, three missed, and no problem", r)
	}
}

// lines gives back every line of a file, whatever the sizes of its lines and of the reads.
func TestLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70<<10)
	for _, text := range []string{"", "\n", "a", "a\n", "a\nb", "\n\na\n", long, long + "\n" + long, strings.Repeat("y", 64<<10) + "\nz", "a\r\n\x00\n"} {
		var got strings.Builder
		last := 0
		err := lines(strings.NewReader(text), func(n int, line []byte, whole bool) error {
			if n != last+1 {
				t.Errorf("line %d comes after line %d", n, last)
			}
			last = n
			got.Write(line)
			if whole {
				got.WriteByte('\n')
			}
			return nil
		})
		if err != nil || got.String() != text {
			t.Errorf("lines() of %d bytes gives %d bytes, %v; want them all", len(text), got.Len(), err)
		}
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		all := strings.SplitAfter(text, "\n")
		want := all[len(all)-1]
		if want == "" && len(all) > 1 {
			want = all[len(all)-2]
		}
		if got, size, err := lastLine(f); string(got) != want || size != int64(len(text)) || err != nil {
			t.Errorf("lastLine() of %d bytes = %d bytes, size %d, %v; want %d bytes", len(text), len(got), size, err, len(want))
		}
	}
	mine := errors.New("enough")
	if err := lines(strings.NewReader("a\nb\n"), func(int, []byte, bool) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("lines() = %v; want its caller's error", err)
	}
	if err := lines(io.MultiReader(strings.NewReader("a\n"), failing{mine}), func(int, []byte, bool) error { return nil }); !errors.Is(err, mine) {
		t.Errorf("lines() = %v; want the reader's error", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Names of sealed files have one number, and are ordered by it.
func TestSealedNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, Options{})
	for _, name := range []string{"audit-00000002.jsonl", "audit-10.jsonl", "audit-9.jsonl", "audit-1.jsonl.gz", "audit-.jsonl", "audit-0x1.jsonl", "xaudit-1.jsonl", "audit-99999999999999999999.jsonl"} {
		put(t, dir, name, "")
	}
	got, err := sealedFiles(l.root)
	if want := []string{"audit-00000002.jsonl", "audit-9.jsonl", "audit-10.jsonl"}; !slices.Equal(got, want) || err != nil {
		t.Errorf("sealedFiles() = %q, %v; want %q", got, err, want)
	}
}
