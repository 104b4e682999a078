// Package ociarchive has the parts of a docker-archive, the form in which every engine
// loads images: a tar with the layers of images, their configurations, and a
// manifest.json that names them.
package ociarchive

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// ManifestName is the path of the manifest in an archive.
const ManifestName = "manifest.json"

// Epoch is the time of everything that we put into an image, so that equal content has
// equal bytes.
var Epoch = time.Unix(0, 0).UTC()

// Manifest describes one image. The file ManifestName is a JSON array of them. Config and
// Layers are paths in the archive; the layers are in the order in which they are unpacked.
type Manifest struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}

// Digest returns the digest of b as OCI writes it: "sha256:" and 64 hex digits.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// WriteFile adds a regular file of uid 0 to tw, with the time Epoch. mode has permission
// bits.
func WriteFile(tw *tar.Writer, name string, mode int64, data []byte) error {
	hdr := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: Epoch, Format: tar.FormatPAX}
	if err := tw.WriteHeader(hdr); err != nil {
		return err
	}
	_, err := tw.Write(data)
	return err
}
