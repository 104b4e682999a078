package images

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
)

var sha256Digest = imagespec.DescriptorEmptyJSON.Digest.Algorithm()

// layout is an OCI layout in the making: its documents by path.
type layout map[string][]byte

// blob stores a document and returns its descriptor.
func (l layout) blob(t *testing.T, v any) imagespec.Descriptor {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	d := imagespec.Descriptor{Digest: sha256Digest.FromBytes(data)}
	l[blobPath(d)] = data
	return d
}

func (l layout) image(t *testing.T, os, arch string, layers ...string) imagespec.Descriptor {
	t.Helper()
	cfg := imagespec.Image{Platform: imagespec.Platform{OS: os, Architecture: arch}}
	m := imagespec.Manifest{Config: l.blob(t, cfg)}
	for _, layer := range layers {
		m.Layers = append(m.Layers, imagespec.Descriptor{MediaType: layer, Digest: sha256Digest.FromString(layer)})
	}
	return l.blob(t, m)
}

func (l layout) index(t *testing.T, list ...imagespec.Descriptor) imagespec.Descriptor {
	t.Helper()
	return l.blob(t, imagespec.Index{Manifests: list})
}

func named(d imagespec.Descriptor, key, name string) imagespec.Descriptor {
	d.Annotations = map[string]string{key: name}
	return d
}

func on(d imagespec.Descriptor, os, arch string) imagespec.Descriptor {
	d.Platform = &imagespec.Platform{OS: os, Architecture: arch}
	return d
}

func TestArchiveContents(t *testing.T) {
	t.Parallel()
	const gz, zstd = "application/vnd.oci.image.layer.v1.tar+gzip", "application/vnd.oci.image.layer.v1.tar+zstd"
	for _, tt := range []struct {
		name string
		make func(l layout) []imagespec.Descriptor // the index
		tags [][]string                            // of the images found
		err  string
	}{
		{"one image", func(l layout) []imagespec.Descriptor { return []imagespec.Descriptor{l.image(t, "linux", "amd64", gz)} }, [][]string{nil}, ""},
		{"named by containerd", func(l layout) []imagespec.Descriptor {
			return []imagespec.Descriptor{named(l.image(t, "linux", "amd64"), "io.containerd.image.name", "docker.io/library/app:1")}
		}, [][]string{{"app:1"}}, ""},
		{"named by its tag alone", func(l layout) []imagespec.Descriptor {
			return []imagespec.Descriptor{named(l.image(t, "linux", "amd64"), imagespec.AnnotationRefName, "latest")}
		}, [][]string{nil}, ""},
		{"named by a digest", func(l layout) []imagespec.Descriptor {
			return []imagespec.Descriptor{named(l.image(t, "linux", "amd64"), imagespec.AnnotationRefName, "app@sha256:"+strings.Repeat("a", 64))}
		}, [][]string{nil}, ""},
		{"an index of platforms", func(l layout) []imagespec.Descriptor {
			return []imagespec.Descriptor{named(l.index(t, on(l.image(t, "linux", "arm64"), "linux", "arm64"), on(l.image(t, "linux", "amd64"), "linux", "amd64")), imagespec.AnnotationRefName, "app:2")}
		}, [][]string{{"app:2"}}, ""},
		{"a platform that only the config says", func(l layout) []imagespec.Descriptor {
			return []imagespec.Descriptor{l.image(t, "linux", "arm64"), l.image(t, "linux", "amd64")}
		}, [][]string{nil}, ""},
		{"two images", func(l layout) []imagespec.Descriptor {
			return []imagespec.Descriptor{named(l.image(t, "linux", "amd64", "a"), imagespec.AnnotationRefName, "a:1"), named(l.image(t, "linux", "amd64", "b"), imagespec.AnnotationRefName, "b:1")}
		}, [][]string{{"a:1"}, {"b:1"}}, ""},
		{"another system", func(l layout) []imagespec.Descriptor { return []imagespec.Descriptor{l.image(t, "windows", "amd64")} }, nil, "it holds no image for linux/amd64"},
		{"only other platforms", func(l layout) []imagespec.Descriptor {
			return []imagespec.Descriptor{l.index(t, on(l.image(t, "linux", "amd64"), "linux", "arm64"))}
		}, nil, "it holds no image for linux/amd64"},
		{"nothing", func(layout) []imagespec.Descriptor { return nil }, nil, "it holds no image for linux/amd64"},
		{"indexes within indexes", func(l layout) []imagespec.Descriptor {
			d := l.image(t, "linux", "amd64")
			for range 4 {
				d = l.index(t, d)
			}
			return []imagespec.Descriptor{d}
		}, [][]string{nil}, ""},
		{"too many of them", func(l layout) []imagespec.Descriptor {
			d := l.image(t, "linux", "amd64")
			for range 5 {
				d = l.index(t, d)
			}
			return []imagespec.Descriptor{d}
		}, nil, "it holds no image for linux/amd64"},
		{"zstd", func(l layout) []imagespec.Descriptor {
			return []imagespec.Descriptor{l.image(t, "linux", "amd64", zstd)}
		}, nil, "save it again with gzip"},
		{"zstd for another machine", func(l layout) []imagespec.Descriptor {
			return []imagespec.Descriptor{l.image(t, "linux", "arm64", zstd), l.image(t, "linux", "amd64", gz)}
		}, [][]string{nil}, ""},
		{"a changed blob", func(l layout) []imagespec.Descriptor {
			d := l.image(t, "linux", "amd64")
			l[blobPath(d)] = []byte("{}")
			return []imagespec.Descriptor{d}
		}, nil, "has another content"},
		{"a bad digest", func(layout) []imagespec.Descriptor { return []imagespec.Descriptor{{Digest: "sha256:../../x"}} }, nil, "its index: invalid"},
		{"no JSON", func(l layout) []imagespec.Descriptor {
			d := imagespec.Descriptor{Digest: sha256Digest.FromString("x")}
			l[blobPath(d)] = []byte("x")
			return []imagespec.Descriptor{d}
		}, nil, "its blob sha256:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := layout{}
			list := tt.make(l)
			documents := maps.Clone(map[string][]byte(l))
			data, err := json.Marshal(imagespec.Index{Manifests: list})
			if err != nil {
				t.Fatal(err)
			}
			documents["index.json"] = data
			got, err := archiveContents(documents, "amd64")
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("archiveContents() = %+v, %v; want error %q", got, err, tt.err)
			}
			var tags [][]string
			for _, m := range got {
				tags = append(tags, m.RepoTags)
			}
			if !slices.EqualFunc(tags, tt.tags, slices.Equal[[]string]) {
				t.Errorf("archiveContents() has the tags %v; want %v", tags, tt.tags)
			}
		})
	}
}

// A document of a docker-archive counts before an OCI index.
func TestArchiveContentsOfDocker(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ manifest, err string }{
		{`[{"Config":"c","RepoTags":["a:1"],"Layers":["l"]}]`, ""},
		{`[]`, "names no image"},
		{`{}`, "its manifest.json"},
	} {
		got, err := archiveContents(map[string][]byte{"manifest.json": []byte(tt.manifest), "index.json": []byte("broken")}, "amd64")
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("archiveContents(%s) = %+v, %v; want %q", tt.manifest, got, err, tt.err)
		}
	}
	if _, err := archiveContents(map[string][]byte{"index.json": []byte("broken")}, "amd64"); err == nil || !strings.Contains(err.Error(), "its index.json") {
		t.Errorf("archiveContents(broken index) = %v; want its index.json", err)
	}
}
