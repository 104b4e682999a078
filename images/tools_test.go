package images

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

func TestHostWithRef(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ tools, want, unknown string }{
		{"", "host", ""},
		{"go", "host+go", ""},
		{"node go gcc go", "host+gcc+go+node", ""},
		{"go emacs", "", "emacs"},
		{"../x", "", "../x"},
	} {
		got, err := HostWithRef(strings.Fields(row.tools))
		bad, _ := errors.AsType[*ToolError](err)
		if got != row.want || (bad != nil) != (row.unknown != "") || bad != nil && (bad.Name != row.unknown || !errors.Is(err, engine.ErrImage) || !strings.Contains(err.Error(), "gcc, go, java")) {
			t.Errorf("HostWithRef(%s) = %q, %v; want %q, without %q", row.tools, got, err, row.want, row.unknown)
		}
	}
}

// A reference with tools is read in one form, and is not a name for another image.
func TestHostReferences(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]string{"host": "host", "host+go": "host+go", "host+node+go": "host+go+node", "host+go+go": "host+go"} {
		if got, err := parseRef(ref); err != nil || got.name != want || !isHost(got.name) {
			t.Errorf("parseRef(%s) = %+v, %v; want %s", ref, got, err, want)
		}
		if name, err := makeRef(ref); err == nil {
			t.Errorf("makeRef(%s) = %q; want an error", ref, name)
		}
	}
	for _, ref := range []string{"host+", "host+emacs", "host++go"} {
		if got, err := parseRef(ref); err == nil {
			t.Errorf("parseRef(%s) = %+v; want an error", ref, got)
		}
	}
	if got, err := parseRef("hosted"); err != nil || isHost(got.name) {
		t.Errorf("parseRef(hosted) = %+v, %v; want a name", got, err)
	}
}

// Each tool of this machine runs from the files that were taken, and nothing was taken from elsewhere.
func TestTools(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("a snapshot is of a linux machine")
	}
	for _, row := range []struct {
		tool  string
		wants []string // any of each
	}{
		{"go", []string{"/usr/local/go/bin/go|/usr/lib/go*/bin/go", "/usr/local/go/src/runtime/runtime.go|/usr/share/go*/src/runtime/runtime.go", "/usr/local/go/pkg/tool/*/compile|/usr/lib/go*/pkg/tool/*/compile"}},
		{"gcc", []string{"/usr/bin/gcc", "/usr/bin/as", "/usr/bin/ld", "/usr/include/stdio.h", "/usr/lib/*/crt1.o", "/usr/lib/gcc/*/*/cc1"}},
		{"node", []string{"/usr/bin/node|/usr/local/bin/node", "/usr/lib/node_modules/npm/package.json|/usr/local/lib/node_modules/npm/package.json|/usr/share/nodejs/npm/package.json"}},
		{"java", []string{"/usr/bin/java|/usr/local/bin/java", "/usr/lib/jvm/*/lib/modules|/opt/*/lib/modules"}},
	} {
		t.Run(row.tool, func(t *testing.T) {
			t.Parallel()
			if paths, _ := hostTools[row.tool].programsOf(); paths[hostTools[row.tool].programs[0]] == "" {
				t.Skipf("%s is not on this machine", row.tool)
			}
			snap, err := newSnapshot(t.Context(), []string{row.tool})
			if err != nil {
				t.Fatal(err)
			}
			if snap.tools[row.tool] < 1<<20 {
				t.Errorf("the sizes are %v; want %s with more than a mebibyte", snap.tools, row.tool)
			}
			paths := slices.Collect(maps.Keys(snap.entries))
			for _, want := range row.wants {
				if !slices.ContainsFunc(paths, func(path string) bool {
					return slices.ContainsFunc(strings.Split(want, "|"), func(pattern string) bool {
						ok, _ := filepath.Match(pattern, path)
						return ok
					})
				}) {
					t.Errorf("the snapshot lacks %s", want)
				}
			}
			for path, e := range snap.entries {
				outside := strings.HasPrefix(path, "/var/") || strings.HasPrefix(path, "/root/") || strings.HasPrefix(path, "/home/")
				if !e.made && outside {
					t.Errorf("the snapshot has %s of this machine", path)
				}
			}
		})
	}
}

func TestToolsThatAreNotHere(t *testing.T) {
	home := t.TempDir()
	bin := filepath.Join(home, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("rustc"); err == nil {
		if _, elsewhere := hostTools["rust"].programsOf(); elsewhere == "" {
			t.Skip("this machine has rust for all users")
		}
	}
	t.Setenv("PATH", bin)
	c := collector{tree: newTree(), linker: newLinker(runtime.GOARCH)}
	installed := debianOf(t, nil)
	err := c.addTool("rust", installed)
	if bad, ok := errors.AsType[*HostError](err); !ok || !strings.Contains(err.Error(), "there is no rustc on this machine") {
		t.Errorf("addTool() of what is not here = %v, %v", bad, err)
	}
	if err := os.WriteFile(filepath.Join(bin, "rustc"), []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	err = c.addTool("rust", installed)
	if _, ok := errors.AsType[*HostError](err); !ok || !strings.Contains(err.Error(), bin) || !strings.Contains(err.Error(), "lies where no files are taken from") {
		t.Errorf("addTool() of what lies in a home = %v", err)
	}
	if len(c.tree.entries) > 0 {
		t.Errorf("the tree has %d entries; want none", len(c.tree.entries))
	}
	// A program that no package has brought, and whose files are not known.
	if _, _, err := (hostTool{}).files("ruby", "/usr/bin/ruby", nil, installed); err == nil || !strings.Contains(err.Error(), "belongs to no package of dpkg") {
		t.Errorf("files() = %v; want an error", err)
	}
}

// Archives of Go, Java and Node lie in directories of their own. What else is there stays out.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	root := writeAll(t, map[string][]byte{"VERSION": nil, "release": nil})
	for _, dir := range []string{"src/runtime", "lib", "bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(root, "bin", "x")
	if got := goFiles(program); got != nil {
		t.Errorf("goFiles() of another directory = %q", got)
	}
	if got := javaFiles(program); got != nil {
		t.Errorf("javaFiles() of another directory = %q", got)
	}
	for _, file := range []string{"src/runtime/runtime.go", "lib/modules"} {
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := goFiles(program); !slices.Contains(got, filepath.Join(root, "src")) || slices.Contains(got, root) {
		t.Errorf("goFiles() = %q; want its parts", got)
	}
	if got := javaFiles(program); !slices.Equal(got, []string{root}) {
		t.Errorf("javaFiles() = %q; want %s", got, root)
	}
	packages := filepath.Join(root, "lib", "python3.11", "site-packages")
	for _, dir := range []string{"pip", "pip-23.0.dist-info", "mine"} {
		if err := os.MkdirAll(filepath.Join(packages, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := pipFiles(program), []string{filepath.Join(packages, "pip"), filepath.Join(packages, "pip-23.0.dist-info"), program}; !slices.Equal(got, want) {
		t.Errorf("pipFiles() = %q; want %q", got, want)
	}
	if got := pipFiles("/nowhere/bin/pip3"); got != nil {
		t.Errorf("pipFiles() without pip = %q", got)
	}
	if got := nodeFiles("/usr/local/bin/node"); slices.Contains(got, "/usr/local/lib/node_modules") || slices.Contains(got, "/usr/local/lib") || !slices.Contains(got, "/usr/local/lib/node_modules/npm") {
		t.Errorf("nodeFiles() = %q; want npm, and no package of the user's", got)
	}
}

// What is made with tools is known by its label, and goes by its own reference.
func TestRemoveAndPruneWithTools(t *testing.T) {
	t.Parallel()
	s := newStocked()
	r, err := New(s, Options{Cache: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	with := func(sizes string) map[string]string {
		return map[string]string{labelMaker: r.maker(), labelTools: sizes}
	}
	plain, current := strings.Repeat("c", 64), strings.Repeat("d", 64)
	s.host("c", plain, with(""), time.Hour)
	s.host("d", current, with(`{"go":7}`), time.Hour)
	s.host("a", "old", with(`{"go":6}`), time.Hour)
	s.host("b", "of tools that were not looked at again", with(`{"gcc":1,"go":6}`), time.Hour)
	img, err := s.Image(t.Context(), hostRepo+":d")
	if err != nil || !maps.Equal(Tools(img), map[string]int64{"go": 7}) {
		t.Errorf("Tools() = %v, %v; want go", Tools(img), err)
	}
	img.Labels = map[string]string{labelTools: `{"go":7}`}
	if got := Tools(img); got != nil {
		t.Errorf("Tools() of an image that is not a snapshot = %v", got)
	}
	r.remember(stamp(), plain)
	r.remember(stamp("go"), current, "go")
	if got := r.remembered(stamp("go"), "go"); got != current {
		t.Errorf("remembered() = %q; want that with tools", got)
	}
	gone, err := r.Prune(t.Context())
	if err != nil || !slices.Equal(gone, []string{hostRepo + ":a"}) {
		t.Errorf("Prune() = %q, %v; want the older one with go alone", gone, err)
	}
	if err := r.Remove(t.Context(), "host+go"); err != nil || len(s.Refs()) != 2 {
		t.Errorf("Remove(host+go) = %v, left %q; want one fewer", err, s.Refs())
	}
	if err := r.Remove(t.Context(), "host"); err != nil || len(s.Refs()) != 0 {
		t.Errorf("Remove(host) = %v, left %q; want none", err, s.Refs())
	}
}
