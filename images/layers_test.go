package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/ociarchive"
)

// headers is a tar of these entries, each with the content "" or, of a regular file, that
// of contents under its name.
func headers(t *testing.T, contents map[string][]byte, list ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for _, hdr := range list {
		hdr.Mode = 0o644
		if hdr.Typeflag == tar.TypeReg {
			hdr.Size = int64(len(contents[hdr.Name]))
		}
		if err := tw.WriteHeader(&hdr); err != nil {
			t.Fatal(err)
		}
		if hdr.Typeflag == tar.TypeReg {
			if _, err := tw.Write(contents[hdr.Name]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A layer counts as often as it is unpacked, under whatever name and through whatever
// link an image names it.
func TestLoadLimitOfNamedLayers(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	layer := archive(t, []file{{"f", strings.Repeat("x", limit/4)}}) // unpacks to limit/4 + 512
	regular := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	symlink := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	hard := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
	}
	for _, tt := range []struct {
		name    string
		layers  []string
		entries []tar.Header
		want    string // part of the error; "" means that it is loaded
	}{
		{"one layer", []string{"l.tar"}, []tar.Header{regular("l.tar")}, ""},
		{"one layer three times", []string{"l.tar", "l.tar", "l.tar"}, []tar.Header{regular("l.tar")}, ""},
		{"one layer four times", slices.Repeat([]string{"l.tar"}, 4), []tar.Header{regular("l.tar")}, "unpacks to more than"},
		{"two layers twice each", []string{"l.tar", "m.tar", "l.tar", "m.tar"}, []tar.Header{regular("l.tar"), regular("m.tar")}, "unpacks to more than"},
		{"a link next to its layer", slices.Repeat([]string{"a/b"}, 4), []tar.Header{regular("a/l"), symlink("a/b", "l")}, "unpacks to more than"},
		{"in other words", []string{"l.tar", "./l.tar", "a/../l.tar", "/l.tar"}, []tar.Header{regular("./l.tar")}, "unpacks to more than"},
		{"an enormous number of times", slices.Repeat([]string{"l.tar"}, 100_000), []tar.Header{regular("l.tar")}, "unpacks to more than"},
		{"as docker save links a layer", []string{"a/layer.tar", "b/layer.tar"}, []tar.Header{regular("a/layer.tar"), symlink("b/layer.tar", "../a/layer.tar")}, ""},
		{"links to one layer", []string{"a/l", "b/l", "c/l", "d/l"}, []tar.Header{regular("a/l"), symlink("b/l", "../a/l"), hard("c/l", "a/l"), symlink("d/l", "/a/l")}, "unpacks to more than"},
		{"links before what they lead to", []string{"b", "c", "d", "e"}, []tar.Header{symlink("b", "a"), symlink("c", "a"), symlink("d", "a"), symlink("e", "a"), regular("a")}, "unpacks to more than"},
		{"links to links", []string{"b", "c", "d"}, []tar.Header{regular("a"), symlink("b", "a"), symlink("c", "b"), symlink("d", "c")}, ""},
		{"too many links to links", []string{"e"}, []tar.Header{regular("a"), symlink("b", "a"), symlink("c", "b"), symlink("d", "c"), symlink("e", "d")}, "links to links"},
		{"a link to itself", []string{"a"}, []tar.Header{symlink("a", "a")}, "links to links"},
		{"a directory that is a link", []string{"a/l"}, []tar.Header{regular("b/l"), symlink("a", "b")}, "in a directory that is a link"},
		{"another link", []string{"a/l"}, []tar.Header{regular("a/l"), symlink("a/m", "l"), symlink("b", "a")}, ""},
		{"a layer that the engine may have", []string{"none"}, []tar.Header{regular("other")}, ""},
		{"a directory", []string{"a"}, []tar.Header{{Typeflag: tar.TypeDir, Name: "a/"}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			manifest, err := json.Marshal([]ociarchive.Manifest{{Config: "c.json", RepoTags: []string{"app:1"}, Layers: tt.layers}})
			if err != nil {
				t.Fatal(err)
			}
			contents := map[string][]byte{"c.json": []byte("{}"), ociarchive.ManifestName: manifest}
			for _, hdr := range tt.entries {
				contents[hdr.Name] = layer
			}
			data := headers(t, contents, append(slices.Clone(tt.entries), regular("c.json"), regular(ociarchive.ManifestName))...)
			eng := newFake()
			r := resolver(t, eng)
			r.maxUnpacked = limit
			if len(manifest) > limit/2 { // it counts too
				r.maxUnpacked = int64(len(manifest)) + 2*limit
			}
			_, err = r.Load(t.Context(), store(t, data, "plain"), "", nil)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || (eng.Loaded() != nil) != (tt.want == "") {
				t.Errorf("Load() = %v, and %d bytes reached the engine; want %q", err, len(eng.Loaded()), tt.want)
			}
			if _, ok := errors.AsType[*SourceError](err); err != nil && !ok {
				t.Errorf("Load() = %T; want a *SourceError", err)
			}
		})
	}
}

// Wherever an archive was cut off, it is refused before the engine gets a byte: half of an
// image must not pass for one, nor for a root file system.
func TestLoadOfPartsOfArchives(t *testing.T) {
	t.Parallel()
	docker := []file{{"l.tar", "x"}, {"c.json", "{}"}, {"manifest.json", `[{"Config":"c.json","RepoTags":["app:1"],"Layers":["l.tar"]}]`}}
	for name, whole := range map[string][]byte{
		"docker-archive":   archive(t, docker),
		"OCI layout":       archive(t, ociFiles("amd64")),
		"root file system": archive(t, []file{{"bin/sh", "x"}, {"bin/true", "y"}}),
		"in gzip":          gzipped(t, archive(t, docker)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := 256 // half a block
			end := len(whole) - 2*blockSize
			if name == "in gzip" {
				step, end = 7, len(whole)
			}
			for n := 0; n < end; n += step {
				eng := newFake()
				_, err := resolver(t, eng).Load(t.Context(), store(t, whole[:n], "plain"), "app:1", nil)
				if _, ok := errors.AsType[*SourceError](err); !ok || eng.Loaded() != nil {
					t.Errorf("Load() of %d of %d bytes = %v, and %d bytes reached the engine; want a *SourceError", n, len(whole), err, len(eng.Loaded()))
				}
			}
		})
	}
}

// An archive whose sum does not fit is damaged, although all of its files can be read.
func TestLoadOfDamagedGzip(t *testing.T) {
	t.Parallel()
	data := gzipped(t, archive(t, []file{{"bin/sh", "x"}}))
	for at := len(data) - 8; at < len(data); at++ { // CRC-32 and size, RFC 1952
		bad := slices.Clone(data)
		bad[at] ^= 1
		eng := newFake()
		_, err := resolver(t, eng).Load(t.Context(), store(t, bad, "plain"), "app:1", nil)
		if !errors.Is(err, gzip.ErrChecksum) || eng.Loaded() != nil {
			t.Errorf("Load() with byte %d of %d changed = %v; want %v", at, len(data), err, gzip.ErrChecksum)
		}
	}
	eng := newFake()
	r := resolver(t, eng)
	r.maxUnpacked = 64 << 10
	behind := append(archive(t, []file{{"bin/sh", "x"}}), make([]byte, 1<<20)...)
	if _, err := r.Load(t.Context(), store(t, behind, "gzip"), "app:1", nil); err == nil || !strings.Contains(err.Error(), "unpacks to more than") {
		t.Errorf("Load() with 1 MiB behind the end = %v; want it refused", err)
	}
}

// An archive whose documents are not what their names say is refused with the reason.
func TestLoadOfArchivesThatLie(t *testing.T) {
	t.Parallel()
	swap := func(i int, content string) []file {
		files := ociFiles("amd64")
		files[i].content = content
		return files
	}
	for _, tt := range []struct {
		name  string
		files []file
		want  string
	}{
		{"an empty manifest", []file{{"manifest.json", ""}, {"bin/sh", "x"}}, "its manifest.json: unexpected end"},
		{"a manifest of another kind", []file{{"manifest.json", `{"schemaVersion":2}`}}, "its manifest.json: json:"},
		{"a manifest of no image", []file{{"manifest.json", `null`}}, "names no image"},
		{"a layout without an index", ociFiles("amd64")[:1], "has no index.json"},
		{"an empty index", swap(1, ""), "its index.json: unexpected end"},
		{"an index of no image", swap(1, `{"manifests":[]}`), "no image for linux/amd64"},
		{"an index with a bad digest", swap(1, `{"manifests":[{"digest":"sha256:00"}]}`), "invalid checksum digest"},
		{"an index with another hash", swap(1, `{"manifests":[{"digest":"md5:d41d8cd98f00b204e9800998ecf8427e"}]}`), "its index: unsupported digest algorithm"},
		{"an index that leads out of the archive", swap(1, `{"manifests":[{"digest":"../../../etc:passwd"}]}`), "its index: invalid"},
		{"a changed manifest", swap(2, `{"config":{"digest":"sha256:00"}}`), "has another content"},
		{"a changed configuration", swap(3, `{"architecture":"arm64","os":"linux"}`), "has another content"},
		{"a reserved name in a manifest", []file{{"manifest.json", `[{"RepoTags":["app:1","docker.io/sandboxbash/workspace:1"]}]`}}, "reserved"},
		{"a digest as a name", []file{{"manifest.json", `[{"RepoTags":["app@sha256:` + strings.Repeat("a", 64) + `"]}]`}}, "NAME[:TAG]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eng := newFake()
			_, err := resolver(t, eng).Load(t.Context(), store(t, archive(t, tt.files), "plain"), "", nil)
			if _, ok := errors.AsType[*SourceError](err); !ok || !strings.Contains(err.Error(), tt.want) || eng.Loaded() != nil {
				t.Errorf("Load() = %v, and %d bytes reached the engine; want an error with %q", err, len(eng.Loaded()), tt.want)
			}
		})
	}
}
