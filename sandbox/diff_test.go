package sandbox

import (
	"archive/tar"
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiffer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{
		"same": "x", "content": "x", "longer": "x", "mode": "x", "gone": "x", "gonedir/a/b": "x", "dir/f": "x", "kind": "x", "link -> same": "", "relink -> same": "",
		".env": "secret", ".ssh/id_rsa": "secret", ".git/config": "[http]\n\textraheader = secret\n\tproxy = p\n", "samelinked/": "",
	})
	d, err := newDiffer(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.root.Close()
	archive := pack(
		t,
		regular_("same", "x"), regular_("content", "y"), regular_("longer", "xx"), entry{tar.Header{Name: "mode", Typeflag: tar.TypeReg, Mode: 0o755}, "x"},
		regular_("new", "x"), regular_("dir/new", "x"), regular_("dir/f", "x"), entry{tar.Header{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o700}, ""},
		entry{tar.Header{Name: "kind/", Typeflag: tar.TypeDir, Mode: 0o755}, ""}, symlink("link", "same"), symlink("relink", "content"),
		entry{tar.Header{Name: ".git/", Typeflag: tar.TypeDir, Mode: 0o755}, ""}, regular_(".git/config", "[http]\n\tproxy = p\n"),
		regular_(".env", "not compared"), symlink("samelinked", "/etc"), entry{tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}, ""},
	)
	if err := readTar(bytes.NewReader(archive), d.entry); err != nil {
		t.Fatal(err)
	}
	got, err := d.finish()
	if err != nil {
		t.Fatal(err)
	}
	want := []Change{
		{"content", "modified"},
		{"dir/new", "added"},
		{"gone", "deleted"},
		{"gonedir", "deleted"},
		{"kind", "type"},
		{"longer", "modified"},
		{"mode", "modified"},
		{"new", "added"},
		{"relink", "modified"},
		{"samelinked", "type"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("finish() (-want +got):\n%s", diff)
	}
}
