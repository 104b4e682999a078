package sandbox

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func FuzzTarIn(f *testing.F) {
	f.Add(pack(f, regular_("a", "x"), symlink("l", "a"), regular_("d/e", "y")))
	f.Add(pack(f, symlink("a", ".."), regular_("a/evil", "x")))
	f.Add(pack(f, regular_("../evil", "x")))
	f.Add(pack(f, symlink("a", "b"), symlink("b/x", "../.."), regular_("a/x/evil", "x")))
	f.Add(pack(f, entry{tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../x"}, ""}))
	f.Add(pack(f, entry{tar.Header{Name: "s/", Typeflag: tar.TypeDir, Mode: 0}, ""}, regular_("s/x", "")))
	f.Fuzz(func(t *testing.T, archive []byte) {
		if len(archive) > 64<<10 {
			return
		}
		outer := t.TempDir()
		dir := filepath.Join(outer, "a", "dir")
		if err := os.WriteFile(filepath.Join(outer, "precious"), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = unpack(bytes.NewReader(archive), dir)
		for name, what := range tree(t, outer) {
			path := filepath.Join(outer, name)
			switch {
			case name == "precious":
				if what != "-rw------- mine" {
					t.Errorf("precious is now %q", what)
				}
			case strings.HasPrefix(path, dir+"/"):
				if target, ok := strings.CutPrefix(what, "-> "); ok && !filepath.IsLocal(filepath.Join(filepath.Dir(strings.TrimPrefix(path, dir+"/")), target)) {
					t.Errorf("%s leads out, to %s", name, target)
				}
				if strings.ContainsAny(strings.Fields(what)[0][:1], "pSDLug") {
					t.Errorf("%s is a %s", name, what)
				}
			case name == ".", name == "a", path == dir:
			default:
				t.Errorf("%s was made outside", name)
			}
		}
	})
}
