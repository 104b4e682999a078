package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A person is shown each changed file, and what they choose is applied.
func TestApplyAsks(t *testing.T) {
	t.Parallel()
	src := planted(t, "was\n", "a", "b", "c", "d")
	id := newSession(t, "--workspace", "copy:"+src)
	says(t, "session", "exec", id, "for f in a b c d; do echo is >$f; done; mkdir new; echo new >new/e")
	p := sit(t, "session", "apply", "-p", id)
	for _, step := range []struct{ sees, types string }{
		{"b/a", ""},
		{"+is", ""},
		{"apply this file? [y,n,a,q,?] ", "y\n"},
		{"b/b", ""},
		{"apply this file? [y,n,a,q,?] ", "?\n"},
		{"leave it as it is here", ""},
		{"apply this file? [y,n,a,q,?] ", "n\n"},
		{"b/c", ""},
		{"apply this file? [y,n,a,q,?] ", "a\n"},
	} {
		p.sees(step.sees)
		p.types(step.types)
	}
	p.leaves(0)
	for name, want := range map[string]string{"a": "is\n", "b": "was\n", "c": "is\n", "d": "is\n", "new/e": "new\n"} {
		if got, err := os.ReadFile(filepath.Join(src, name)); string(got) != want || err != nil {
			t.Errorf("%s has %q, %v; want %q", name, got, err, want)
		}
	}
	p = sit(t, "session", "apply", "-p", id)
	p.sees("b/b")
	p.sees("apply this file?")
	p.types("q\n")
	p.leaves(0)
	if got, err := os.ReadFile(filepath.Join(src, "b")); string(got) != "was\n" || err != nil {
		t.Errorf("b has %q, %v; want what it was", got, err)
	}
}

// A person chooses hunks of a file. The others stay changes of the session.
func TestApplyAsksForHunks(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 40 {
		lines = append(lines, strconv.Itoa(i)+"\n")
	}
	src := planted(t, strings.Join(lines, ""), "a", "b")
	id := newSession(t, "--workspace", "copy:"+src)
	says(t, "session", "exec", id, "sed -i -e 's/^3$/three/' -e 's/^20$/twenty/' -e 's/^36$/last/' a b")
	p := sit(t, "session", "apply", "-p", id)
	for _, step := range []struct{ sees, types string }{
		{"b/a", ""},
		{"+last", ""},
		{"apply this file? [y,n,s,a,q,?] ", "s\n"},
		{"+three", ""},
		{"apply this hunk (1/3)? [y,n,a,d,q,?] ", "?\n"},
		{"apply this hunk and the rest of the file", ""},
		{"apply this hunk (1/3)? [y,n,a,d,q,?] ", "n\n"},
		{"+twenty", ""},
		{"apply this hunk (2/3)? [y,n,a,d,q,?] ", "y\n"},
		{"+last", ""},
		{"apply this hunk (3/3)? [y,n,a,d,q,?] ", "q\n"},
	} {
		p.sees(step.sees)
		p.types(step.types)
	}
	p.leaves(0)
	want := slices.Clone(lines)
	want[20] = "twenty\n"
	for name, want := range map[string][]string{"a": want, "b": lines} {
		if got, err := os.ReadFile(filepath.Join(src, name)); string(got) != strings.Join(want, "") || err != nil {
			t.Errorf("%s has %q, %v; want %q", name, got, err, want)
		}
	}
	says(t, "session", "sync", id)
	left := says(t, "session", "diff", "-u", id)
	if n := strings.Count(left, "\n+"); n != 2+2+3 || strings.Count(left, "+twenty") != 1 {
		t.Errorf("diff shows %q; want three hunks of b and the other two of a", left)
	}
	says(t, "session", "apply", id)
	want[3], want[36] = "three\n", "last\n"
	if got, err := os.ReadFile(filepath.Join(src, "a")); string(got) != strings.Join(want, "") || err != nil {
		t.Errorf("a has %q, %v; want all changes", got, err)
	}
}

// planted makes a directory of files with one text.
func planted(t *testing.T, text string, names ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "src")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
