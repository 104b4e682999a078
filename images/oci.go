package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/distribution/reference"
	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sandboxbash/sandboxbash/internal/ociarchive"
)

// archiveContents returns the images of an archive, as the manifest of a docker-archive.
// It describes an OCI layout that way too: its blobs are files like any other.
func archiveContents(documents map[string][]byte, arch string) ([]ociarchive.Manifest, error) {
	if data := documents["manifest.json"]; data != nil {
		var manifest []ociarchive.Manifest
		if err := json.Unmarshal(data, &manifest); err != nil {
			return nil, fmt.Errorf("its manifest.json: %w", err)
		}
		if len(manifest) == 0 {
			return nil, errors.New("its manifest.json names no image")
		}
		return manifest, nil
	}
	if documents["index.json"] == nil {
		return nil, errors.New("it is an OCI layout, but has no index.json")
	}
	var index imagespec.Index
	if err := json.Unmarshal(documents["index.json"], &index); err != nil {
		return nil, fmt.Errorf("its index.json: %w", err)
	}
	var list []ociarchive.Manifest
	for _, d := range index.Manifests {
		m, err := ociManifest(documents, d, arch, 0)
		if err != nil {
			return nil, err
		}
		if m != nil {
			list = append(list, *m)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("it holds no image for linux/%s", arch)
	}
	return list, nil
}

// ociManifest follows a descriptor to an image for linux/arch, through indexes if need
// be. It returns nil for an image of another platform.
func ociManifest(documents map[string][]byte, d imagespec.Descriptor, arch string, depth int) (*ociarchive.Manifest, error) {
	const maxDepth = 4 // indexes within indexes; they may point at each other
	if p := d.Platform; p != nil && (p.OS != "linux" || p.Architecture != arch) || depth > maxDepth {
		return nil, nil
	}
	var doc struct {
		Manifests []imagespec.Descriptor `json:"manifests"`
		Config    imagespec.Descriptor   `json:"config"`
		Layers    []imagespec.Descriptor `json:"layers"`
	}
	if err := readBlob(documents, d, &doc); err != nil {
		return nil, err
	}
	for _, below := range doc.Manifests {
		m, err := ociManifest(documents, below, arch, depth+1)
		if err != nil || m != nil {
			if m != nil {
				m.RepoTags = append(m.RepoTags, tagOf(d)...)
			}
			return m, err
		}
	}
	if doc.Manifests != nil {
		return nil, nil
	}
	var cfg imagespec.Image
	if err := readBlob(documents, doc.Config, &cfg); err != nil {
		return nil, err
	}
	if cfg.OS != "linux" || cfg.Architecture != arch {
		return nil, nil
	}
	m := &ociarchive.Manifest{Config: blobPath(doc.Config), RepoTags: tagOf(d)}
	for _, l := range doc.Layers {
		if strings.HasSuffix(l.MediaType, "+zstd") {
			return nil, errors.New("its layers are compressed with zstd, which older engines do not read: save it again with gzip")
		}
		m.Layers = append(m.Layers, blobPath(l))
	}
	return m, nil
}

func blobPath(d imagespec.Descriptor) string {
	return path.Join("blobs", d.Digest.Algorithm().String(), d.Digest.Encoded())
}

func readBlob(documents map[string][]byte, d imagespec.Descriptor, v any) error {
	if err := d.Digest.Validate(); err != nil {
		return fmt.Errorf("its index: %w", err)
	}
	data := documents[blobPath(d)]
	if data == nil {
		return fmt.Errorf("it lacks the blob %s", d.Digest)
	}
	if ociarchive.Digest(data) != d.Digest.String() {
		return fmt.Errorf("its blob %s has another content", d.Digest)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("its blob %s: %w", d.Digest, err)
	}
	return nil
}

// tagOf returns the names that an index gives an image: containerd's annotation, or
// OCI's own if that is a whole name and not only a tag.
func tagOf(d imagespec.Descriptor) []string {
	for _, key := range []string{"io.containerd.image.name", imagespec.AnnotationRefName} {
		named, err := reference.ParseNormalizedNamed(d.Annotations[key])
		if err == nil && strings.ContainsAny(d.Annotations[key], ":/") && !strings.Contains(d.Annotations[key], "@") {
			return []string{reference.FamiliarString(reference.TagNameOnly(named))}
		}
	}
	return nil
}
