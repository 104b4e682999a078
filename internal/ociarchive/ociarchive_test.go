package ociarchive

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// The values are those of sha256sum.
func TestDigest(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":  "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"a": "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
	} {
		if got := Digest([]byte(text)); got != want {
			t.Errorf("Digest(%q) = %s; want %s", text, got, want)
		}
	}
}

// A file of an archive has its name, content and mode, and nothing of this machine: equal
// content gives equal bytes.
func TestWriteFile(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("directory/", 30) + "file" // longer than a ustar header holds
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		tw := tar.NewWriter(out)
		if err := errors.Join(WriteFile(tw, "a", 0o755, []byte("content")), WriteFile(tw, long, 0o644, nil), tw.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("WriteFile() gave different bytes for the same files")
	}
	tr := tar.NewReader(&first)
	for _, want := range []struct {
		name, content string
		mode          int64
	}{{"a", "content", 0o755}, {long, "", 0o644}} {
		hdr, err := tr.Next()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if hdr.Name != want.name || string(content) != want.content || hdr.Mode != want.mode || err != nil {
			t.Errorf("the archive has %s with mode %o and %q, %v; want %+v", hdr.Name, hdr.Mode, content, err, want)
		}
		if hdr.Typeflag != tar.TypeReg || hdr.Uid != 0 || hdr.Gid != 0 || hdr.Uname != "" || !hdr.ModTime.Equal(Epoch) {
			t.Errorf("the archive has %s as %+v; want a regular file of uid 0 and the time %v", hdr.Name, hdr, Epoch)
		}
	}
	if _, err := tr.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the files: %v; want io.EOF", err)
	}
}

// A writer that is closed takes no file.
func TestWriteFileFails(t *testing.T) {
	t.Parallel()
	tw := tar.NewWriter(io.Discard)
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(tw, "a", 0o644, []byte("x")); !errors.Is(err, tar.ErrWriteAfterClose) {
		t.Errorf("WriteFile() to a closed archive = %v; want %v", err, tar.ErrWriteAfterClose)
	}
}

// Engines read these keys; Docker's own are in upper case.
func TestManifestKeys(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal([]Manifest{{Config: "c", RepoTags: []string{"a:1"}, Layers: []string{"l"}}})
	if want := `[{"Config":"c","RepoTags":["a:1"],"Layers":["l"]}]`; string(got) != want || err != nil {
		t.Errorf("the manifest is %s, %v; want %s", got, err, want)
	}
}
