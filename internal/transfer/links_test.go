package transfer

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPlainTarget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, target string
		want         bool
	}{
		{"l", "a", true},
		{"l", "./a//b/.", true},
		{"d/l", "../a", true},
		{"d/e/l", "../../a", true},
		{"l", ".", true},
		{"d/l", "..", true},
		{"l", "...", true},
		{"l", "a..", true},
		{"l", "", false},
		{"l", "..", false},
		{"d/l", "../..", false},
		{"d/l", "../../a", false},
		{"l", "/etc", false},
		{"l", "//etc", false},
		{"l", "a/..", false}, // where a leads is not known
		{"d/l", "a/../b", false},
		{"d/l", ".././..", false},
	} {
		if got := plainTarget(tt.name, tt.target); got != tt.want {
			t.Errorf("plainTarget(%q, %q) = %t; want %t", tt.name, tt.target, got, tt.want)
		}
	}
}

// links are what a directory's links lead to that lead out of it, followed as the
// kernel does.
func leadOut(t *testing.T, dir string) []string {
	t.Helper()
	top, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return err
		}
		to, err := filepath.EvalSymlinks(file)
		if err == nil && to != top && !strings.HasPrefix(to, top+"/") {
			rel, _ := filepath.Rel(dir, file)
			out = append(out, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// No link that is made leads out: by chains, by links before and behind it, by the
// user's own links.
func TestInboxLinks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		entries []entry
		left    []string
	}{
		{"the reported one", []entry{symlink("l", "."), symlink("e", "l/l/l/l/../../../../etc/passwd")}, []string{"e"}},
		{"the link comes later", []entry{symlink("e", "z/../../secret"), symlink("z", ".")}, []string{"e"}},
		{"nothing is there yet", []entry{symlink("e", "z/../../secret")}, []string{"e"}},
		{"a chain", []entry{symlink("a", "b"), symlink("b", "c"), symlink("c", "d/.."), directory("d", 0o755)}, []string{"c"}},
		{"up from below", []entry{directory("d", 0o755), directory("d/e", 0o755), symlink("d/e/up", "../../x"), symlink("d/up", "../.."), symlink("x", "d/up")}, []string{"d/e/up", "d/up", "x"}},
		{"by the user's link", []entry{symlink("e", "out/secret"), symlink("f", "in/x")}, []string{"e"}},
		{"by two of the user's", []entry{symlink("e", "near/secret"), symlink("g", "e")}, []string{"e", "g"}},
		{"by a link to the user's", []entry{symlink("a", "b/out/x"), symlink("b", ".")}, []string{"a"}},
		{"absolute", []entry{symlink("e", "/etc/passwd"), symlink("f", "//etc/passwd")}, []string{"e", "f"}},
		{"a circle", []entry{symlink("e", "f"), symlink("f", "e")}, []string{"e", "f"}},
		{"long chain", func() (all []entry) {
			for i := range 50 {
				all = append(all, symlink(fmt.Sprintf("c%02d", i), fmt.Sprintf("c%02d", i+1)))
			}
			return all
		}(), []string{"c00", "c01", "c02", "c03", "c04", "c05", "c06", "c07", "c08"}},
		{"good ones", []entry{directory("d", 0o755), symlink("d/l", "../a"), symlink("m", "d/l"), symlink("n", "in/../none"), symlink("dangling", "none")}, []string{"n"}},
		{"the user's link replaced", []entry{directory("in", 0o755), symlink("e", "in/f")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			dir := filepath.Join(outer, "here")
			plant(t, outer, map[string]string{"secret": "mine", "here/out -> ..": "", "here/near -> far": "", "here/far -> ../": "", "here/in -> real": "", "here/real/x": ""})
			own := leadOut(t, dir)
			report, err := unpack(bytes.NewReader(pack(t, tt.entries...)), dir, Options{Force: true})
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, l := range report.LeftOut {
				left = append(left, l.Name)
			}
			if !slices.Equal(left, tt.left) {
				t.Errorf("left out %q; want %q", left, tt.left)
			}
			if out := leadOut(t, dir); !slices.Equal(out, own) {
				t.Errorf("lead out: %q; the user's own are %q", out, own)
			}
		})
	}
}

// FuzzLinks makes trees of links, directories and files over a few names, in two
// transfers with removals between them, over links of the user's that stay inside:
// none may ever lead out.
func FuzzLinks(f *testing.F) {
	f.Add([]byte("lb.b.b/e"))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	f.Add([]byte("\x02\x00\x01\x01\x02\x02\x03\x03\x04\x04abcdefghijklmnop"))
	f.Fuzz(func(t *testing.T, script []byte) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "x", "here")
		plant(t, outer, map[string]string{"secret": "mine", "x/a": "mine", "x/here/u -> a": ""})
		next := func() int {
			if len(script) == 0 {
				return 0
			}
			b := script[0]
			script = script[1:]
			return int(b)
		}
		names := []string{"a", "b", "c", "a/a", "a/b", "b/a", "b/c", "a/b/c"}
		parts := []string{"a", "b", "c", "..", "u", "..", "."}
		base := State(nil)
		for range 3 {
			all := map[string]entry{}
			for range 1 + next()%8 {
				name := names[next()%len(names)]
				switch next() % 4 {
				case 0:
					all[name] = directory(name, 0o755)
				case 1:
					all[name] = regular(name, "x")
				default:
					var to []string
					for range 1 + next()%6 {
						to = append(to, parts[next()%len(parts)])
					}
					all[name] = symlink(name, strings.Join(to, "/"))
				}
			}
			for name := range all { // what is below no directory cannot be
				for up := path.Dir(name); up != "."; up = path.Dir(up) {
					all[up] = directory(up, 0o755)
				}
			}
			var entries []entry
			for _, name := range slices.Sorted(maps.Keys(all)) {
				entries = append(entries, all[name])
			}
			report, err := unpack(bytes.NewReader(pack(t, entries...)), dir, Options{Force: true, Base: base})
			if err == nil {
				base = report.State
			}
			if out := leadOut(t, dir); len(out) > 0 {
				t.Fatalf("%q lead out", out)
			}
			if next()%3 == 0 {
				_ = os.RemoveAll(filepath.Join(dir, names[next()%len(names)])) // the user's own
			}
		}
		if b, err := os.ReadFile(filepath.Join(outer, "secret")); err != nil || string(b) != "mine" {
			t.Errorf("secret is %q, %v", b, err)
		}
		onlyKnown(t, outer)
	})
}

// onlyKnown checks what lies next to the directory of FuzzLinks.
func onlyKnown(t *testing.T, outer string) {
	t.Helper()
	for name := range tree(t, outer) {
		if name != "." && name != "secret" && name != "x" && name != "x/a" && name != "x/here" && !strings.HasPrefix(name, "x/here/") {
			t.Errorf("%s was made outside", name)
		}
	}
}
