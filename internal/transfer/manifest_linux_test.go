package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestManifest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"a": "text", "a-b": "", "a.d/b": "x", "d/e/": "", "d/ünï\n\xff": "x", "l -> /etc": "", "large": strings.Repeat("x", 3*len(zeros)+1)})
	if err := errors.Join(os.Chmod(filepath.Join(dir, "a"), 0o751), syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Manifest(&b, dir, DefaultLimits); err != nil {
		t.Fatal(err)
	}
	got, err := ParseManifest(b.Bytes(), DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(scanned(t, dir), func(e Entry) bool { return e.Kind == Other })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for n := range b.Len() {
		if _, err := ParseManifest(b.Bytes()[:n], DefaultLimits); err == nil {
			t.Fatalf("the first %d of %d bytes are a manifest", n, b.Len())
		}
	}
	few := DefaultLimits
	few.Entries = 3
	if err := Manifest(io.Discard, dir, few); err == nil {
		t.Error("more files than the limit are not an error")
	}
	if _, err := ParseManifest(b.Bytes(), few); err == nil {
		t.Error("more files than the limit are read")
	}
	few = DefaultLimits
	few.Bytes = 1000
	if err := Manifest(io.Discard, dir, few); err == nil {
		t.Error("larger files than the limit are not an error")
	}
	if err := Manifest(io.Discard, dir+"/none", DefaultLimits); err == nil || !errors.As(err, new(MissingError)) {
		t.Errorf("Manifest() of nothing = %v", err)
	}
}

// Names of a manifest are a session's.
func TestParseManifestHostile(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"../x"}, {"/x"}, {"a//b"}, {"."}, {""}, {"a\x00b"}, {"a", "a"}, {strings.Repeat("a", 256)}, {strings.Repeat("a/", 300) + "a"}} {
		b := []byte(stateVersion)
		for _, name := range names {
			b = Entry{Name: name, Kind: Dir}.append(b)
		}
		if s, err := ParseManifest(append(b, manifestEnd...), DefaultLimits); err == nil {
			t.Errorf("ParseManifest(%.20q) = %v; want an error", names, s)
		}
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"a": "1", "d/b": "2", "out -> /etc": "", "in -> d": "", "n\nl": "3"})
	var out bytes.Buffer
	asked := []string{"d/b", "a", "none", "out/passwd", "in/b", "../x", "/etc/passwd", "out", "d", "n\nl"}
	if err := Pick(&out, dir, strings.NewReader(strings.Join(asked, "\x00")+"\x00")); err != nil {
		t.Fatal(err)
	}
	var got []string
	archive := tar.NewReader(&out)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, h.Name)
	}
	if diff := cmp.Diff([]string{"d/b", "a", "n\nl"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
