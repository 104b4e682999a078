package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/ociarchive"
)

// file is an entry of a test's archive.
type file struct{ name, content string }

func archive(t *testing.T, files []file) []byte {
	t.Helper()
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for _, f := range files {
		if err := ociarchive.WriteFile(tw, f.name, 0o644, []byte(f.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func ociFiles(arch string) []file {
	layer := "layer"
	config := `{"architecture":"` + arch + `","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`
	manifest := `{"config":{"digest":"` + ociarchive.Digest([]byte(config)) + `"},"layers":[{"digest":"` + ociarchive.Digest([]byte(layer)) + `"}]}`
	index := `{"manifests":[{"digest":"` + ociarchive.Digest([]byte(manifest)) + `","annotations":{"org.opencontainers.image.ref.name":"app:1"}}]}`
	blob := func(s string) file { return file{"blobs/sha256/" + ociarchive.Digest([]byte(s))[7:], s} }
	return []file{{"oci-layout", "{}"}, {"index.json", index}, blob(manifest), blob(config), blob(layer)}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	docker := []file{{"manifest.json", `[{"Config":"c.json","RepoTags":["app:1"],"Layers":["l.tar"]}]`}, {"c.json", "{}"}, {"l.tar", "x"}, {"repositories", "{}"}}
	tests := []struct {
		name     string
		data     []byte
		ref      string
		wantTags []string // of the archive that reaches the engine; nil is a root file system
		wantErr  string
	}{
		{"docker-archive", archive(t, docker), "", []string{"app:1"}, ""},
		{"renamed", archive(t, docker), "mine:2", []string{"mine:2"}, ""},
		{"OCI layout", archive(t, ociFiles("amd64")), "", []string{"app:1"}, ""},
		{"OCI layout renamed", archive(t, ociFiles("amd64")), "mine", []string{"mine:latest"}, ""},
		{"OCI layout of another machine", archive(t, ociFiles("arm64")), "", nil, "no image for linux/amd64"},
		{"root file system", archive(t, []file{{"bin/sh", "x"}}), "root:1", nil, ""},
		{"reserved", archive(t, []file{{"manifest.json", `[{"Config":"c","RepoTags":["sandboxbash/runner:1"]}]`}}), "", nil, "reserved"},
		{"the last manifest counts", archive(t, append(slices.Clone(docker), file{"./manifest.json", `[{"RepoTags":["sandboxbash/runner:1"]}]`})), "", nil, "reserved"},
		{"two for one name", archive(t, []file{{"manifest.json", `[{},{}]`}}), "mine", nil, "holds 2 images"},
		{"bad manifest", archive(t, []file{{"manifest.json", `{`}}), "", nil, "manifest.json"},
		{"lost blob", archive(t, ociFiles("amd64")[:2]), "", nil, "lacks the blob"},
		{"no tar", []byte(strings.Repeat("hello ", 200)), "", nil, "not a tar archive"},
		{"empty", nil, "", nil, "not a tar archive"},
		{"xz", []byte("\xfd7zXZ\x00..."), "", nil, "decompress it first"},
		{"bad name", archive(t, docker), "A", nil, "not a valid reference"},
	}
	for _, tt := range tests {
		for _, compressed := range []string{"plain", "gzip"} {
			tt := tt // one of the two changes it
			t.Run(tt.name+"/"+compressed, func(t *testing.T) {
				t.Parallel()
				if tt.name == "xz" && compressed == "gzip" {
					tt.wantErr = "not a tar archive"
				}
				eng := newFake()
				_, err := resolver(t, eng).Load(t.Context(), store(t, tt.data, compressed), tt.ref, nil)
				if (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("Load() = %v; want %q", err, tt.wantErr)
				}
				if err == nil {
					checkLoaded(t, eng.Loaded(), tt.wantTags)
				}
			})
		}
	}
}

func store(t *testing.T, data []byte, compressed string) string {
	t.Helper()
	if compressed == "gzip" {
		var b bytes.Buffer
		zw := gzip.NewWriter(&b)
		_, _ = zw.Write(data)
		_ = zw.Close()
		data = b.Bytes()
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func checkLoaded(t *testing.T, data []byte, wantTags []string) {
	t.Helper()
	files := make(map[string][]byte)
	for tr := tar.NewReader(bytes.NewReader(data)); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[hdr.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
	if wantTags == nil {
		if string(files["bin/sh"]) != "x" {
			t.Errorf("the engine got the files %v; want bin/sh", files)
		}
		return
	}
	var manifest []ociarchive.Manifest
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	m := manifest[0]
	if !slices.Equal(m.RepoTags, wantTags) || len(m.Layers) != 1 || files[m.Layers[0]] == nil || files[m.Config] == nil {
		t.Errorf("the engine got %+v; want tags %v, and its files there", m, wantTags)
	}
	for _, name := range []string{"repositories", "index.json", "oci-layout"} {
		if files[name] != nil {
			t.Errorf("the engine got %s, which may say otherwise than the manifest", name)
		}
	}
}

func TestBuildContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"Dockerfile": "FROM scratch", ".dockerignore": "*.log\nsecret\n!keep.log\nDockerfile\n", "a.txt": "a", "b.log": "b", "keep.log": "k", "secret/key": "s", "sub/c.txt": "c",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ignored, err := readIgnored(dir, dockerfile)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := writeContext(&out, dir, ignored); err != nil {
		t.Fatal(err)
	}
	var got []string
	for tr := tar.NewReader(&out); ; {
		hdr, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, hdr.Name)
	}
	want := []string{".dockerignore", "Dockerfile", "a.txt", "keep.log", "sub/", "sub/c.txt"}
	if !slices.Equal(got, want) {
		t.Errorf("writeContext() = %v; want %v", got, want)
	}
}
