package transfer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Files that programs of this machine run by themselves are told apart from others, whatever
// their case and wherever they lie.
func TestRunsHere(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"Makefile": true, "makefile": true, "sub/GNUmakefile": true, ".envrc": true, "deep/down/.ENVRC": true, "package.json": true,
		".vscode/tasks.json": true, ".VSCode/deep/x": true, "a/.husky/pre-commit": true, ".github/workflows/ci.yml": true, "conftest.py": true,
		"Makefile.md": false, "docs/makefile/page.md": false, ".vscode": false, "vscode/tasks.json": false, "main.go": false, "package.json.bak": false, "": false,
	} {
		if got := RunsHere(name); got != want {
			t.Errorf("RunsHere(%q) = %v; want %v", name, got, want)
		}
	}
}

func TestReadHere(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	plant(t, top, map[string]string{"dir/f": "12345", "empty": ""})
	if err := os.Symlink("f", filepath.Join(top, "dir/link")); err != nil {
		t.Fatal(err)
	}
	a, err := OpenApply(top)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	for _, tt := range []struct {
		name string
		most int64
		want string
		err  error
	}{
		{"dir/f", 5, "12345", nil},
		{"dir/f", 6, "12345", nil},
		{"dir/f", 4, "", ErrTooLarge},
		{"empty", 0, "", nil},
		{"gone", 9, "", fs.ErrNotExist},
	} {
		got, err := a.ReadHere(tt.name, tt.most)
		if !errors.Is(err, tt.err) || err == nil && string(got) != tt.want {
			t.Errorf("ReadHere(%q, %d) = %q, %v; want %q, %v", tt.name, tt.most, got, err, tt.want, tt.err)
		}
	}
	for _, name := range []string{"dir", "../outside"} {
		if got, err := a.ReadHere(name, 9); err == nil {
			t.Errorf("ReadHere(%q) = %q; want an error: it is not a regular file of the directory", name, got)
		}
	}
}

func TestTreeIs(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	plant(t, top, map[string]string{"dir/f": "12345"})
	if err := os.Symlink("f", filepath.Join(top, "dir/link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree, sums := Tree{Root: root}, scanned(t, top)
	file, _ := sums.Find("dir/f")
	link, _ := sums.Find("dir/link")
	other := func(e Entry, change func(*Entry)) Entry { change(&e); return e }
	for _, tt := range []struct {
		name         string
		e            Entry
		same, exists bool
	}{
		{"a file", file, true, true},
		{"of another content", other(file, func(e *Entry) { e.Sum = &Sum{1} }), false, true},
		{"of another size", other(file, func(e *Entry) { e.Size++ }), false, true},
		{"of an unknown content", other(file, func(e *Entry) { e.Sum = nil }), false, true},
		{"of other permissions", other(file, func(e *Entry) { e.Mode ^= 0o111 }), runtime.GOOS == "windows", true},
		{"a file that is a link", other(file, func(e *Entry) { e.Name = link.Name }), false, true},
		{"a link", link, true, true},
		{"to elsewhere", other(link, func(e *Entry) { e.Target = "g" }), false, true},
		{"a link that is a file", other(link, func(e *Entry) { e.Name = file.Name }), false, true},
		{"a directory", Entry{Name: "dir", Kind: Dir}, true, true},
		{"a directory that is a link", Entry{Name: "dir/link", Kind: Dir}, false, true},
		{"whatever is there", Entry{Name: "dir", Kind: Other}, false, true},
		{"nothing", Entry{Name: "gone", Kind: Other}, false, false},
		{"below a file", Entry{Name: "dir/f/g", Kind: Other}, false, false},
	} {
		same, exists, err := tree.Is(tt.e)
		if same != tt.same || exists != tt.exists || err != nil {
			t.Errorf("%s: Is() = %v, %v, %v; want %v, %v", tt.name, same, exists, err, tt.same, tt.exists)
		}
	}
}

// A text that both sides have changed is merged, and its permissions are: a change of one
// side counts, and the user's counts where both have made one.
func TestMergedMode(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return // it has none to merge
	}
	for _, tt := range []struct{ was, here, theirs, want fs.FileMode }{
		{0o644, 0o644, 0o755, 0o755},
		{0o644, 0o600, 0o644, 0o600},
		{0o644, 0o600, 0o755, 0o600},
		{0o644, 0o644, 0o644, 0o644},
	} {
		d := newThree(t, map[string]string{"f": "1\n2\n3\n4\n5\n"}, map[string]string{"f": "one\n2\n3\n4\n5\n"}, map[string]string{"f": "1\n2\n3\n4\nfive\n"})
		for dir, mode := range map[string]fs.FileMode{d.was: tt.was, d.here: tt.here, d.theirs: tt.theirs} {
			if err := os.Chmod(filepath.Join(dir, "f"), mode); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.apply(t, map[string]string{"f": "one\n2\n3\n4\nfive\n"}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(d.here, "f"))
		if err != nil || info.Mode().Perm() != tt.want {
			t.Errorf("was %o, here %o, in the session %o: merged as %v, %v; want %o", tt.was, tt.here, tt.theirs, info.Mode(), err, tt.want)
		}
	}
}
