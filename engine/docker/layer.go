package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// epoch is the time of everything we put into an image: equal content gives
// equal bytes.
var epoch = time.Unix(0, 0).UTC()

// smallImage is an image of one small layer. Its content address is known before any
// engine has it, so an image that has our name or our labels cannot pass for it.
type smallImage struct {
	ref    string
	arch   string
	labels map[string]string
	layer  []byte // tar
}

// imageConfig is the part of the OCI image configuration that we set.
type imageConfig struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       struct {
		Labels map[string]string `json:"Labels,omitempty"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []struct {
		Created   time.Time `json:"created"`
		CreatedBy string    `json:"created_by"`
	} `json:"history"`
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// config returns the image's configuration; its digest is the image ID.
func (s smallImage) config() ([]byte, error) {
	cfg := imageConfig{Created: epoch, Architecture: s.arch, OS: "linux"}
	cfg.Config.Labels = s.labels
	cfg.RootFS.Type = "layers"
	cfg.RootFS.DiffIDs = []string{digestOf(s.layer)}
	cfg.History = append(cfg.History, struct {
		Created   time.Time `json:"created"`
		CreatedBy string    `json:"created_by"`
	}{epoch, "sandboxbash"})
	return json.Marshal(cfg)
}

// ensure returns the image's ID on the engine. It loads the image if it is missing.
func (s smallImage) ensure(ctx context.Context, eng images) (engine.ImageID, error) {
	cfg, err := s.config()
	if err != nil {
		return "", fmt.Errorf("image %s: %w", s.ref, err)
	}
	id := digestOf(cfg)
	img, err := eng.Image(ctx, id)
	if err == nil || !errors.Is(err, engine.ErrNotFound) {
		return img.ID, err
	}
	archive, err := s.archive(cfg)
	if err != nil {
		return "", fmt.Errorf("image %s: %w", s.ref, err)
	}
	if _, err := eng.LoadImages(ctx, bytes.NewReader(archive), nil); err != nil {
		return "", fmt.Errorf("image %s: %w", s.ref, err)
	}
	img, err = eng.Image(ctx, id)
	if errors.Is(err, engine.ErrNotFound) {
		// This engine addresses images by manifest. The name is that of the image that
		// this call has just loaded.
		img, err = eng.Image(ctx, s.ref)
	}
	return img.ID, err
}

// archive returns the image in docker-archive form, which every engine loads.
func (s smallImage) archive(cfg []byte) ([]byte, error) {
	cfgName := digestOf(cfg)[len("sha256:"):] + ".json"
	manifest, err := json.Marshal([]archiveManifest{{Config: cfgName, RepoTags: []string{s.ref}, Layers: []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		data []byte
	}{{"layer.tar", s.layer}, {cfgName, cfg}, {"manifest.json", manifest}} {
		if err := writeFile(tw, f.name, 0o644, f.data); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// archiveManifest is an entry of manifest.json in a docker-archive.
type archiveManifest struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}

func writeFile(tw *tar.Writer, name string, mode int64, data []byte) error {
	hdr := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: epoch, Format: tar.FormatPAX}
	if err := tw.WriteHeader(hdr); err != nil {
		return err
	}
	_, err := tw.Write(data)
	return err
}
