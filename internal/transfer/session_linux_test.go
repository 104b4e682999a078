package transfer

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPackAndUnpack(t *testing.T) {
	t.Parallel()
	src, dst := filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "a", "dst")
	plant(t, src, map[string]string{"a": "text", "d/b": "", "d/e/": "", "d/ünï\n": "x", "link -> d": "", "dangling -> /none/x": "", ".env": "not the session's to leave out"})
	err := errors.Join(
		os.Chmod(filepath.Join(src, "a"), 0o751),
		os.Chmod(filepath.Join(src, "d", "e"), 0o500),
		syscall.Mkfifo(filepath.Join(src, "fifo"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := tree(t, src)
	delete(want, "fifo")
	want["d/e"] = "drwx------" // a directory stays writable for its owner
	var b bytes.Buffer
	if err := Pack(&b, src); err != nil {
		t.Fatal(err)
	}
	stream := append(b.Bytes(), make([]byte, 1024)...) // padding counts
	sum, err := Unpack(dst, bytes.NewReader(stream))
	if err != nil || sum != sha256.Sum256(stream) {
		t.Errorf("Unpack() = %x, %v; want %x", sum, err, sha256.Sum256(stream))
	}
	got := tree(t, dst)
	want["d/e"], got["d/e"] = "", ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(filepath.Join(dst, "d", "e")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a read-only directory: %v, %v; want it writable for its owner", info.Mode(), err)
	}
}

func TestPackOneFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"f": "text", "link -> f": ""})
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Pack(&b, filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	if got := list(t, &b); len(got) != 1 || got["f"] != "text" {
		t.Errorf("Pack(f) has %q; want f", got)
	}
	for name, missing := range map[string]bool{"none": true, "f/below": true, "fifo": false, "link": false} {
		err := Pack(&b, filepath.Join(dir, name))
		if _, ok := errors.AsType[MissingError](err); err == nil || ok != missing {
			t.Errorf("Pack(%s) = %v; want an error, a MissingError: %t", name, err, missing)
		}
	}
}

// Unpack replaces files, never writes through a link, and makes nothing outside.
func TestUnpackHostile(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		entries []entry
		want    map[string]string // below the directory: mode bits left out
		fails   bool
	}{
		{"replaces a file and a link", []entry{
			{tar.Header{Name: "old", Mode: 0o600}, "new"},
			{tar.Header{Name: "out", Mode: 0o600}, "a file now"},
		}, map[string]string{"old": "new", "out": "a file now"}, false},
		{"absolute names are below", []entry{{tar.Header{Name: "/etc/x", Mode: 0o644}, "1"}}, map[string]string{"etc/x": "1"}, false},
		{"up and out", []entry{{tar.Header{Name: "../secret", Mode: 0o644}, "1"}}, nil, true},
		{"through a link there", []entry{{tar.Header{Name: "out/secret", Mode: 0o644}, "1"}}, nil, true},
		{"through a link in the stream", []entry{
			{tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, ""},
			{tar.Header{Name: "l/secret", Mode: 0o644}, "1"},
		}, nil, true},
		{"a hard link", []entry{{tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "old"}, ""}}, nil, true},
		{"a device", []entry{{tar.Header{Name: "n", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, ""}}, nil, true},
		{"a full directory in a file's way", []entry{{tar.Header{Name: "dir", Mode: 0o644}, "1"}}, nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			plant(t, outer, map[string]string{"secret": "mine", "here/old": "old", "here/out -> ..": "", "here/dir/f": "x"})
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, e := range row.entries {
				e.Size = int64(len(e.content))
				if err := w.WriteHeader(&e.Header); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write([]byte(e.content)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := Unpack(filepath.Join(outer, "here"), &b); (err != nil) != row.fails {
				t.Errorf("Unpack() = %v; want an error: %t", err, row.fails)
			}
			if secret, err := os.ReadFile(filepath.Join(outer, "secret")); string(secret) != "mine" || err != nil {
				t.Errorf("outside there is %q, %v; want it as it was", secret, err)
			}
			for name, content := range row.want {
				path := filepath.Join(outer, "here", name)
				info, err := os.Lstat(path)
				if err != nil || info.Mode().Type() != fs.FileMode(0) {
					t.Errorf("%s: %v, %v; want a file", name, info, err)
					continue
				}
				if b, err := os.ReadFile(path); string(b) != content || err != nil {
					t.Errorf("%s has %q, %v; want %q", name, b, err, content)
				}
			}
		})
	}
}

// TestUnpackCut cuts streams at each byte: no file may seem to have arrived of which the
// stream's end has not.
func TestUnpackCut(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string][]byte{
		"nothing":         pack(t),
		"a file":          pack(t, entry{tar.Header{Name: "f", Mode: 0o644}, "some content of a file"}),
		"a block":         pack(t, entry{tar.Header{Name: "f", Mode: 0o644}, strings.Repeat("x", 512)}),
		"zeros":           pack(t, entry{tar.Header{Name: "f", Mode: 0o644}, strings.Repeat("\x00", 2000)}),
		"an empty file":   pack(t, entry{tar.Header{Name: "f", Mode: 0o644}, ""}),
		"a long name":     pack(t, entry{tar.Header{Name: strings.Repeat("n", 200), Mode: 0o644, Format: tar.FormatPAX}, "x"}),
		"a directory":     pack(t, entry{tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755}, ""}),
		"a link, no more": pack(t, entry{tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "f"}, ""}),
	} {
		dir := t.TempDir()
		if _, err := Unpack(dir, bytes.NewReader(whole)); err != nil {
			t.Errorf("%s: Unpack() = %v; want nil", name, err)
		}
		for n := range whole {
			if _, err := Unpack(dir, bytes.NewReader(whole[:n])); err == nil {
				t.Errorf("%s: Unpack(the first %d of %d bytes) = nil; want an error", name, n, len(whole))
			}
		}
		if _, err := Unpack(dir, bytes.NewReader(append(slices.Clip(whole), "more"...))); err == nil {
			t.Errorf("%s: Unpack() of a stream with more than zeros at its end = nil; want an error", name)
		}
	}
}
