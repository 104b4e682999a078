package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is placed is for all to read and for no command to write, and no link in it
// leads out.
func TestPlaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	top := filepath.Join(dir, "top")
	err := errors.Join(
		os.MkdirAll(filepath.Join(top, "bin"), 0o700),
		os.WriteFile(filepath.Join(top, "a.txt"), []byte("hello"), 0o600),
		os.WriteFile(filepath.Join(top, "bin", "run"), []byte("#!"), 0o4700),
		os.WriteFile(filepath.Join(dir, "secret"), []byte("no"), 0o644),
		os.Symlink("../a.txt", filepath.Join(top, "bin", "in")),
		os.Symlink("../../secret", filepath.Join(top, "bin", "out")),
		os.Symlink("/etc/passwd", filepath.Join(top, "bin", "abs")),
	)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, test := range []struct {
		name  string
		limit int64
		want  []string
		err   error
	}{
		{".", 7, []string{"5 as/ 755", "0 as/a.txt 444 hello", "5 as/bin/ 755", "2 as/bin/in 555 ../a.txt", "0 as/bin/run 555 #!"}, nil},
		{"a.txt", 5, []string{"0 as 444 hello"}, nil},
		{"bin/in", 5, []string{"0 as 444 hello"}, nil}, // what the link leads to
		{".", 6, []string{"5 as/ 755", "0 as/a.txt 444 hello", "5 as/bin/ 755", "2 as/bin/in 555 ../a.txt"}, ErrTooLarge},
		{"none", 6, nil, os.ErrNotExist},
	} {
		var b bytes.Buffer
		out := NewPacker(&b)
		err := out.Placed(Placing{FS: root.FS(), Name: test.name, Limit: test.limit}, "as")
		if !errors.Is(err, test.err) || !errors.Is(out.Err, test.err) {
			t.Errorf("Placed(%s, %d) = %v, noted %v; want %v", test.name, test.limit, err, out.Err, test.err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, entries(t, &b)); diff != "" {
			t.Errorf("Placed(%s, %d) (-want +got):\n%s", test.name, test.limit, diff)
		}
	}
	if err := NewPacker(io.Discard).Placed(Placing{FS: root.FS(), Name: "bin/out", Limit: 9}, "as"); err == nil {
		t.Error("a link that leads out was placed")
	}
}

// entries writes the entries of an archive down.
func entries(t *testing.T, r io.Reader) []string {
	t.Helper()
	var all []string
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%c %s %o", h.Typeflag, h.Name, h.Mode)
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(content) + h.Linkname; text != "" {
			line += " " + text
		}
		all = append(all, line)
	}
}
