package shells

import (
	"os"
	"path/filepath"
	"testing"
)

// The shells of this machine are found, each under the name that people know and without links.
func TestFind(t *testing.T) {
	t.Parallel()
	found := Find()
	sh, ok := found["sh"]
	if !ok {
		t.Fatal("Find() has no sh")
	}
	for name, s := range found {
		if filepath.Base(s.Name) != name || !filepath.IsAbs(s.Name) {
			t.Errorf("%s has the name %s; want an absolute path of that name", name, s.Name)
		}
		if direct, err := filepath.EvalSymlinks(s.File); direct != s.File || err != nil {
			t.Errorf("%s is %s, which leads to %s, %v; want a path without links", name, s.File, direct, err)
		}
		first, err := os.Stat(s.Name)
		second, err2 := os.Stat(s.File)
		if err != nil || err2 != nil || !os.SameFile(first, second) {
			t.Errorf("%s and %s: %v, %v; want one file", s.Name, s.File, err, err2)
		}
	}
	if sh.Name != "/bin/sh" {
		t.Errorf("sh is %s; want that of /bin, the first directory", sh.Name)
	}
}

// A shell is a file that can be run. The first directory that has one decides, and the PATH
// never does.
func TestFindIn(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	file := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	file("plain/sh", 0o755)
	file("second/sh", 0o755)
	file("closed/sh", 0o644)
	link(at("none"), "dangling/sh")
	link("sh", "circle/sh")
	link(at("plain"), "directory/sh")
	link("../plain/sh", "linked/sh")
	t.Setenv("PATH", at("plain"))
	for _, row := range []struct {
		name string
		dirs []string
		want Shell
	}{
		{"none", []string{at("empty")}, Shell{}},
		{"plain", []string{at("plain")}, Shell{at("plain/sh"), at("plain/sh")}},
		{"two", []string{at("second"), at("plain")}, Shell{at("second/sh"), at("second/sh")}},
		{"a link", []string{at("linked")}, Shell{at("linked/sh"), at("plain/sh")}},
		{"a file that cannot be run", []string{at("closed"), at("plain")}, Shell{at("plain/sh"), at("plain/sh")}},
		{"a link to nothing", []string{at("dangling"), at("plain")}, Shell{at("plain/sh"), at("plain/sh")}},
		{"a link to itself", []string{at("circle"), at("plain")}, Shell{at("plain/sh"), at("plain/sh")}},
		{"a link to a directory", []string{at("directory"), at("plain")}, Shell{at("plain/sh"), at("plain/sh")}},
	} {
		got := findIn(row.dirs)
		if got["sh"] != row.want || len(got) > 1 {
			t.Errorf("%s: findIn() = %+v; want %+v", row.name, got, row.want)
		}
	}
}
