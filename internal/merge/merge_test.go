package merge

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, base, ours, theirs, want string
		ok                             bool
	}{
		{"apart", "1\n2\n3\n4\n5\n", "one\n2\n3\n4\n5\n", "1\n2\n3\n4\nfive\n", "one\n2\n3\n4\nfive\n", true},
		{"the same line", "1\n2\n3\n", "1\nours\n3\n", "1\ntheirs\n3\n", "", false},
		{"the same change", "1\n2\n3\n", "1\nx\n3\n", "1\nx\n3\n", "1\nx\n3\n", true},
		{"the same change and one more", "1\n2\n3\n4\n5\n", "1\nx\n3\n4\n5\n", "1\nx\n3\n4\nfive\n", "1\nx\n3\n4\nfive\n", true},
		{"lines that touch", "1\n2\n3\n", "one\n2\n3\n", "1\ntwo\n3\n", "", false},
		{"added at both ends", "m\n", "a\nm\n", "m\nz\n", "a\nm\nz\n", true},
		{"added far apart", "1\n2\n3\n", "0\n1\n2\n3\n", "1\n2\n3\n4\n", "0\n1\n2\n3\n4\n", true},
		{"deleted and changed", "1\n2\n3\n", "1\n3\n", "1\ntwo\n3\n", "", false},
		{"only ours", "1\n", "2\n", "1\n", "2\n", true},
		{"only theirs", "1\n", "1\n", "2\n", "2\n", true},
		{"no end of line", "1\n2\n3\n4", "1\n2\n3\n4\n", "one\n2\n3\n4", "one\n2\n3\n4\n", true},
		{"binary", "\x00", "\x00a", "\x00b", "", false},
		{"emptied", "1\n2\n3\n", "", "1\n2\nthree\n", "", false},
	} {
		got, ok := Merge([]byte(row.base), []byte(row.ours), []byte(row.theirs))
		if string(got) != row.want || ok != row.ok {
			t.Errorf("%s: Merge() = %q, %v; want %q, %v", row.name, got, ok, row.want, row.ok)
		}
	}
}

// FuzzMerge holds what every merge must: what only one side has changed is that side's, and both
// orders have one result.
func FuzzMerge(f *testing.F) {
	f.Add("1\n2\n3\n4\n5\n", "1\n2\n3\n4\n5\n6", "0\n1\n2\n3\n4\n5\n")
	f.Add("a\nb\na\nb\na\n", "b\na\nb\na\n", "a\nb\na\nb\n")
	f.Add("", "x", "x\n")
	f.Add("a\nb\nc\nd\ne\nf\ng\n", "a\nc\nd\ne\nx\nf\ng\n", "a\nb\nc\nd\ne\nf\nh\n")
	f.Fuzz(func(t *testing.T, base, ours, theirs string) {
		b, o, h := []byte(base), []byte(ours), []byte(theirs)
		for _, row := range [][3][]byte{{b, o, b}, {b, b, o}, {b, o, o}} {
			if got, ok := Merge(row[0], row[1], row[2]); !ok || !bytes.Equal(got, o) {
				t.Fatalf("Merge(%q) = %q, %v; want the one change", row, got, ok)
			}
		}
		if got := apply(lines(b), 0, len(lines(b)), edits(b, o)); IsText(b) && IsText(o) && got != ours {
			t.Fatalf("edits(%q, %q) make %q", base, ours, got)
		}
		one, okOne := Merge(b, o, h)
		two, okTwo := Merge(b, h, o)
		if okOne != okTwo || !bytes.Equal(one, two) {
			t.Fatalf("Merge(%q, %q, %q) = %q, %v; the other way round %q, %v", base, ours, theirs, one, okOne, two, okTwo)
		}
	})
}

// git agrees with what was merged without a conflict.
func TestMergeLikeGit(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("needs git")
	}
	base := strings.Split("a b c d e f g h i j k l m n o p", " ")
	dir := t.TempDir()
	clean := 0
	for n := range 60 {
		change := func(seed int) []byte {
			list := append([]string(nil), base...)
			list[seed%len(list)] += "x"
			if seed%3 == 0 {
				at := (seed / 2) % len(list)
				list = append(list[:at], list[at+1:]...)
			}
			return []byte(strings.Join(list, "\n") + "\n")
		}
		b, o, h := []byte(strings.Join(base, "\n")+"\n"), change(n*7+1), change(n*11+3)
		got, ok := Merge(b, o, h)
		if !ok {
			continue
		}
		clean++
		for name, content := range map[string][]byte{"base": b, "ours": o, "theirs": h} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), git, "merge-file", "-p", "ours", "base", "theirs")
		cmd.Dir = dir
		if want, err := cmd.Output(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Merge(%q, %q, %q) = %q; git says %q, %v", b, o, h, got, want, err)
		}
	}
	if clean < 20 {
		t.Errorf("%d merges were clean; want enough to compare", clean)
	}
}

func TestUnified(t *testing.T) {
	t.Parallel()
	hunks, added, removed := Unified([]byte("1\n2\n"), []byte("1\ntwo"))
	if want := "@@ -1,2 +1,2 @@\n 1\n-2\n+two\n\\ No newline at end of file\n"; string(hunks) != want || added != 1 || removed != 1 {
		t.Errorf("Unified() = %q, %d, %d; want %q, 1, 1", hunks, added, removed, want)
	}
	if hunks, added, removed := Unified([]byte("1"), []byte("1")); hunks != nil || added+removed != 0 {
		t.Errorf("Unified() of one text = %q, %d, %d; want nothing", hunks, added, removed)
	}
}
