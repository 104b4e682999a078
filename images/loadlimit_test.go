package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// sparse is a tar of one sparse file in GNU's format: 512 bytes that stand for size.
func sparse(t *testing.T, size int64) []byte {
	t.Helper()
	hdr := make([]byte, 512)
	octal := func(at, n int, v int64) { copy(hdr[at:at+n], fmt.Sprintf("%0*o\x00", n-1, v)) }
	copy(hdr, "hole")
	octal(100, 8, 0o644)
	octal(108, 8, 0)
	octal(116, 8, 0)
	octal(124, 12, 0) // bytes in the archive
	octal(136, 12, 0)
	hdr[156] = 'S'
	copy(hdr[257:], "ustar  \x00")
	octal(386, 12, size) // one empty fragment, at the end
	octal(398, 12, 0)
	octal(483, 12, size)
	copy(hdr[148:156], "        ")
	var sum int64
	for _, b := range hdr {
		sum += int64(b)
	}
	copy(hdr[148:156], fmt.Sprintf("%06o\x00 ", sum))
	data := append(hdr, make([]byte, 1024)...)
	if got, err := tar.NewReader(bytes.NewReader(data)).Next(); err != nil || got.Size != size {
		t.Fatalf("the sparse file reads as %+v, %v; want %d bytes", got, err, size)
	}
	return data
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	if _, err := zw.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// dockerArchive is a docker-archive with these layers.
func dockerArchive(t *testing.T, layers ...[]byte) []byte {
	t.Helper()
	files := []file{{"c.json", "{}"}}
	var names []string
	for i, layer := range layers {
		name := fmt.Sprintf("%d/layer.tar", i)
		names = append(names, `"./`+name+`"`)
		files = append(files, file{name, string(layer)})
	}
	return archive(t, append(files, file{"manifest.json", `[{"Config":"c.json","RepoTags":["app:1"],"Layers":[` + strings.Join(names, ",") + `]}]`}))
}

// An archive that unpacks to more than the limit never reaches the engine, however
// small it is itself.
func TestLoadLimit(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	half := archive(t, []file{{"f", strings.Repeat("x", limit/2)}})
	for _, tt := range []struct {
		name string
		data []byte
		want bool // it is loaded
	}{
		{"a root file system at the limit", archive(t, []file{{"f", strings.Repeat("x", limit-512)}}), true},
		{"one byte more", archive(t, []file{{"f", strings.Repeat("x", limit-511)}}), false},
		{"two files", archive(t, []file{{"f", strings.Repeat("x", limit/2)}, {"g", strings.Repeat("x", limit/2)}}), false},
		{"empty files", archive(t, slices.Repeat([]file{{"f", ""}}, limit/512)), true},
		{"too many empty files", archive(t, slices.Repeat([]file{{"f", ""}}, limit/512+1)), false},
		{"a sparse file of 4 GiB", sparse(t, 4<<30), false},
		{"a sparse file below the limit", sparse(t, limit/2), true},
		{"zeros in gzip", gzipped(t, archive(t, []file{{"f", string(make([]byte, 2*limit))}})), false},
		{"an image of small layers", dockerArchive(t, archive(t, []file{{"f", "x"}}), archive(t, []file{{"g", "y"}})), true},
		{"a sparse file in a layer", dockerArchive(t, sparse(t, 4<<30)), false},
		{"a sparse file in a compressed layer", dockerArchive(t, gzipped(t, sparse(t, 4<<30))), false},
		{"layers that are too large together", dockerArchive(t, gzipped(t, half), gzipped(t, half)), false},
		{"one of those layers", dockerArchive(t, gzipped(t, half)), true},
		{"a file that is not a layer", archive(t, []file{{"manifest.json", `[{"Config":"c","Layers":[]}]`}, {"other.tar", string(sparse(t, 4<<30))}}), true},
		{"a layer that is not a tar", dockerArchive(t, []byte("layer")), true},
		{"a layer in another compression", dockerArchive(t, []byte("\x28\xb5\x2f\xfd...")), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eng := newFake()
			r := resolver(t, eng)
			r.maxUnpacked = limit
			_, err := r.Load(t.Context(), store(t, tt.data, "plain"), "", nil)
			if (err == nil) != tt.want || (eng.Loaded() != nil) != tt.want {
				t.Fatalf("Load() = %v, and %d bytes reached the engine; want success %v", err, len(eng.Loaded()), tt.want)
			}
			if err == nil {
				return
			}
			_, source := errors.AsType[*SourceError](err)
			if !source || !strings.Contains(err.Error(), "unpacks to more than 65536 bytes") || !strings.Contains(err.Error(), "remove large and sparse files") {
				t.Errorf("Load() = %v; want a *SourceError that says the limit and what to do", err)
			}
		})
	}
}

// A header whose size is close to the largest number does not wrap the sum.
func TestUnpackedDoesNotOverflow(t *testing.T) {
	t.Parallel()
	u := unpacked{limit: maxUnpacked}
	for range 3 {
		if err := u.add(&tar.Header{Size: 1<<63 - 1}); err == nil {
			t.Fatalf("add(1<<63 - 1) = nil with %d bytes counted; want an error", u.bytes)
		}
	}
	if err := u.add(&tar.Header{Size: maxUnpacked - 4*512}); err != nil {
		t.Errorf("add() = %v for what is left; want nil", err)
	}
}

// Documents of an archive are read into memory, so that their sizes are bounded too.
func TestLoadDocumentLimits(t *testing.T) {
	t.Parallel()
	manifest := func(n int) file { return file{"manifest.json", `[{"Config":"c"}]` + strings.Repeat(" ", n-16)} }
	blobs := func(n int) []file {
		return append(slices.Repeat([]file{{"blobs/sha256/a", "{" + strings.Repeat(" ", maxManifest-1)}}, n), manifest(16))
	}
	for _, tt := range []struct {
		name    string
		files   []file
		wantErr string
	}{
		{"the largest manifest", []file{manifest(maxManifest)}, ""},
		{"a larger one", []file{manifest(maxManifest + 1)}, "its manifest.json has 4194305 bytes"},
		{"blobs within the limit", blobs(maxDocuments/maxManifest - 1), ""},
		{"blobs beyond it", blobs(maxDocuments/maxManifest + 1), "its manifests have more than 67108864 bytes together"},
		{"a large blob is a layer", []file{{"blobs/sha256/a", "{" + strings.Repeat(" ", maxManifest)}, manifest(16)}, ""},
	} {
		_, err := scan(store(t, archive(t, tt.files), "plain"), maxUnpacked)
		if (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("%s: scan() = %v; want %q", tt.name, err, tt.wantErr)
		}
	}
}
