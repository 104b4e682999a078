package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
		{"a record made unreadable", func(l []string) []string { l[4] = "x" + l[4]; return l }, "audit.jsonl:5:", "it is not a record", false},
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

// cutTo ends the current file after what is given of its line n, from 0.
func cutTo(t *testing.T, dir string, n int, keep func(line string) string) {
	t.Helper()
	name := filepath.Join(dir, currentName)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.SplitAfter(string(text), "\n")
	all = append(all[:n:n], keep(all[n]))
	if err := os.WriteFile(name, []byte(strings.Join(all, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestHalfLine is about the line that is left when a writer is killed while it
// writes, or its machine loses power. It differs from any line that a program has
// written there.
func TestHalfLine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		keep func(line string) string
		torn bool
	}{
		{"a byte", func(l string) string { return l[:1] }, true},
		{"half", func(l string) string { return l[:len(l)/2] }, true},
		{"all but its end", func(l string) string { return l[:len(l)-2] }, true},
		{"zeros", func(string) string { return strings.Repeat("\x00", 4096) }, true},
		{"half, and zeros", func(l string) string { return l[:90] + strings.Repeat("\x00", 512) }, true},
		{"another text", func(string) string { return "x" }, false},
		{"another number", func(l string) string { return strings.Replace(l[:90], `"seq":3`, `"seq":4`, 1) }, false},
		{"another link", func(l string) string { return strings.Replace(l[:90], `"prev":"`, `"prev":"0`, 1) }, false},
		{"a whole line that is not a record", func(l string) string { return l[:90] + "\n" }, false},
		{"half, longer than any record", func(l string) string { return l[:90] + strings.Repeat("x", maxLine) }, false},
		{"what no program of ours writes", func(string) string { return strings.Repeat("x", 3*maxLine) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			add(t, open(t, dir, Options{}), "a", "b", "c")
			cutTo(t, dir, 2, tt.keep)
			r := verify(t, dir, "")
			if (r.Torn != nil) != tt.torn || (len(r.Problems) == 0) != tt.torn {
				t.Errorf("Verify() = torn %v, problems %q; want torn %v, and a problem if not", r.Torn, r.Problems, tt.torn)
			}
			add(t, open(t, dir, Options{}), "d")
			r = verify(t, dir, "")
			if (len(r.Problems) == 0) != tt.torn || r.Torn != nil || tt.torn && r.Records != 4 {
				t.Errorf("Verify() after the next record = %+v; want two records, one about the line, and one more; problems: %v", r, !tt.torn)
			}
		})
	}
}

// TestTwoBadLines has two lines in a row that are not records. Both are reported unless both
// were cut off: the record about the second one excuses no damage before it.
func TestTwoBadLines(t *testing.T) {
	t.Parallel()
	start := func(after string) string { return fmt.Sprintf(`{"seq":3,"prev":"%s","time":"20`, Hash([]byte(after))) }
	const garbage = "garbage"
	for _, tt := range []struct {
		name  string
		lines func(b string) (first, second string) // after the line b
		want  []int                                 // lines with problems
	}{
		{"damage, then a torn line", func(string) (string, string) { return garbage, start(garbage) }, []int{3}},
		{"a torn line, then damage", func(b string) (string, string) { return start(b), garbage }, []int{3, 4}},
		{"damage twice", func(string) (string, string) { return garbage, garbage }, []int{3, 4}},
		{"a torn line, and a torn record about it", func(b string) (string, string) { return start(b), start(start(b)) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			add(t, open(t, dir, Options{}), "a", "b")
			whole := read(t, dir, currentName)
			lines := strings.Split(strings.TrimSuffix(whole, "\n"), "\n")
			first, second := tt.lines(lines[1])
			put(t, dir, currentName, whole+first+"\n"+second)
			add(t, open(t, dir, Options{}), "c")
			var got []int
			for _, p := range verify(t, dir, "").Problems {
				got = append(got, p.Line)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("Verify() finds problems in lines %d; want %d", got, tt.want)
			}
		})
	}
}

// TestWholeWithoutEnd has only the end of a line cut off: the record is there.
func TestWholeWithoutEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, open(t, dir, Options{}), "a", "b")
	cutTo(t, dir, 1, func(l string) string { return l[:len(l)-1] })
	add(t, open(t, dir, Options{}), "c")
	if r := verify(t, dir, ""); len(r.Problems) > 0 || r.Torn != nil || r.Records != 4 {
		t.Errorf("Verify() = %+v; want three records and one about the end, and no problem", r)
	}
}

// TestHalfMending has the record cut off that was to say that one was cut off.
func TestHalfMending(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, open(t, dir, Options{}), "a", "b", "c")
	cutTo(t, dir, 2, func(l string) string { return l[:30] })
	add(t, open(t, dir, Options{}), "d")
	cutTo(t, dir, 3, func(l string) string { return l[:40] })
	if r := verify(t, dir, ""); len(r.Problems) > 0 || r.Torn == nil {
		t.Errorf("Verify() = %+v; want it torn, and no problem", r)
	}
	add(t, open(t, dir, Options{}), "e")
	if r := verify(t, dir, ""); len(r.Problems) > 0 || r.Records != 4 {
		t.Errorf("Verify() = %+v; want four records and no problem", r)
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

func TestUnclosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, Options{})
	for _, r := range []Record{
		{Kind: Intent, ID: "a"},
		{Kind: Intent, ID: "b"},
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

// A Reader goes on where it has ended, through rotations, and with the line that was cut off.
func TestReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, Options{FileBytes: 1 << 10})
	log := NewReader(dir)
	var got []string
	read := func() {
		t.Helper()
		got = nil
		err := log.Each(func(r Record, at Problem, _ []byte) error {
			if r.Kind != Segment && r.Kind != Torn {
				got = append(got, r.ID)
			}
			return nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	for n := range 12 { // none, one, two … between two reads: several files at once in the end
		var want []string
		for i := range n {
			id := fmt.Sprintf("%d-%d", n, i)
			add(t, l, id)
			want = append(want, id)
		}
		if read(); !slices.Equal(got, want) {
			t.Errorf("after %d records Each() has %q; want %q", n, got, want)
		}
		all = append(all, want...)
	}
	name := filepath.Join(dir, currentName)
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if read(); got != nil {
		t.Errorf("after half a line Each() has %q; want nothing", got)
	}
	add(t, open(t, dir, Options{}), "after")
	if read(); !slices.Equal(got, []string{"after"}) {
		t.Errorf("after the line's end Each() has %q; want what follows it", got)
	}
	log = NewReader(dir)
	if read(); !slices.Equal(got, append(all, "after")) {
		t.Errorf("a new Reader has %q; want everything", got)
	}
}
