package transfer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestState(t *testing.T) {
	t.Parallel()
	s := stateOf(t, regular("b", "x"), directory("d", 0o700), regular("d/f", "y"), symlink("d/l", "../b"), regular("d-e", ""), regular("b", "z"))
	got, err := ParseState(s.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got); diff != "" || len(s) != 5 {
		t.Errorf("ParseState(Append()) of %d (-want +got):\n%s", len(s), diff)
	}
	if e, ok := got.Find("b"); !ok || !e.Same(stateOf(t, regular("b", "z"))[0]) {
		t.Errorf("Find(b) = %v, %t; want the last", e, ok)
	}
	below := got.Below("d")
	if len(below) != 2 || below[0].Name != "f" || below[1].Name != "l" {
		t.Errorf("Below(d) = %v", below)
	}
	if again := below.Under("d"); again[0].Name != "d/f" || below[0].Name != "f" {
		t.Errorf("Under(d) = %v, of %v", again, below)
	}
	if len(got.Below("none")) != 0 || len(got.Below(".")) != 5 {
		t.Error("Below of none, or of all")
	}
}

func FuzzParseState(f *testing.F) {
	f.Add([]byte(stateVersion))
	f.Add(State{{Name: "a", Kind: Dir}, {Name: "b", Kind: Link, Target: "x"}, {Name: "c", Kind: File, Sum: &Sum{}}}.Append(nil))
	f.Add([]byte(stateVersion + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseState(b)
		if err != nil {
			return
		}
		again, err := ParseState(s.Append(nil))
		if err != nil || !bytes.Equal(again.Append(nil), s.Append(nil)) {
			t.Errorf("ParseState(Append(%v)) = %v, %v", s, again, err)
		}
	})
}

// compare compares an archive with a directory.
func compare(t *testing.T, dir string, base State, archive []byte) []Change {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	c := Compare(Tree{
		Root:  root,
		Leave: func(name string) bool { return filepath.Base(name) == ".env" || filepath.Base(name) == ".ssh" },
		Clean: func(name string, b []byte) ([]byte, bool) {
			return bytes.ReplaceAll(b, []byte("secret"), nil), name == ".git/config"
		},
	}, base)
	if err := Read(bytes.NewReader(archive), DefaultLimits, c.Take); err != nil {
		t.Fatal(err)
	}
	got, err := c.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestCompare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{
		"same": "x", "content": "x", "longer": "x", "mode": "x", "gone": "x", "gonedir/a/b": "x", "dir/f": "x", "kind": "x", "link -> same": "", "relink -> same": "",
		".env": "secret", ".ssh/id_rsa": "secret", ".git/config": "a secret b", "samelinked/": "",
	})
	archive := pack(
		t,
		regular("same", "x"), regular("content", "y"), regular("longer", "xx"), entry{regular("mode", "").Header, "x"},
		directory("dir", 0o700), regular("new", "x"), regular("dir/new", "x"), regular("dir/f", "x"),
		directory("kind", 0o755), symlink("link", "same"), symlink("relink", "content"),
		regular(".git/config", "a  b"), regular(".env", "not compared"), regular(".ssh/known_hosts", "neither"), symlink("samelinked", "/etc"),
	)
	if err := os.Chmod(filepath.Join(dir, "mode"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := []Change{
		{"content", "modified", ""},
		{"dir/new", "added", ""},
		{"gone", "deleted", ""},
		{"gonedir", "deleted", ""},
		{"kind", "type", ""},
		{"longer", "modified", ""},
		{"mode", "modified", ""},
		{"new", "added", ""},
		{"relink", "modified", ""},
		{"samelinked", "type", ""},
	}
	if diff := cmp.Diff(want, compare(t, dir, nil, archive)); diff != "" {
		t.Errorf("without a base (-want +got):\n%s", diff)
	}
}

// With what both had in common it is known who has changed what.
func TestCompareSides(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{
		"same": "0", "theirs": "0", "ours": "1", "both": "1", "alike": "2", "gone there": "0", "gone there, changed": "1", "own": "1", "own too": "1",
		"tree/f": "0", ".git/config": "secret0",
	})
	base := stateOf(t, regular("same", "0"), regular("theirs", "0"), regular("ours", "0"), regular("both", "0"), regular("alike", "0"),
		regular("gone there", "0"), regular("gone there, changed", "0"), regular("gone here", "0"), regular("gone here, changed", "0"),
		directory("tree", 0o755), regular("tree/f", "0"), directory(".git", 0o755), regular(".git/config", "0"))
	archive := pack(t, regular("same", "0"), regular("theirs", "2"), regular("ours", "0"), regular("both", "2"), regular("alike", "2"),
		regular("gone here", "0"), regular("gone here, changed", "2"), regular("own too", "2"), regular("new", "2"), regular(".git/config", "evil"))
	want := []Change{
		{".git/config", "modified", Session},
		{"both", "modified", Both},
		{"gone here", "deleted", Here},
		{"gone here, changed", "modified", Both},
		{"gone there", "deleted", Session},
		{"gone there, changed", "deleted", Both},
		{"new", "added", Session},
		{"ours", "modified", Here},
		{"own", "added", Here},
		{"own too", "modified", Both},
		{"theirs", "modified", Session},
		{"tree", "deleted", Session},
	}
	if diff := cmp.Diff(want, compare(t, dir, base, archive)); diff != "" {
		t.Errorf("with a base (-want +got):\n%s", diff)
	}
}
