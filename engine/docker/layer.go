package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/ociarchive"
)

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

// config returns the image's configuration; its digest is the image ID.
func (s smallImage) config() ([]byte, error) {
	cfg := imageConfig{Created: ociarchive.Epoch, Architecture: s.arch, OS: "linux"}
	cfg.Config.Labels = s.labels
	cfg.RootFS.Type = "layers"
	cfg.RootFS.DiffIDs = []string{ociarchive.Digest(s.layer)}
	cfg.History = append(cfg.History, struct {
		Created   time.Time `json:"created"`
		CreatedBy string    `json:"created_by"`
	}{ociarchive.Epoch, "sandboxbash"})
	return json.Marshal(cfg)
}

// ensure returns the image's ID on the engine. It loads the image if it is missing.
func (s smallImage) ensure(ctx context.Context, eng images) (engine.ImageID, error) {
	cfg, err := s.config()
	if err != nil {
		return "", fmt.Errorf("image %s: %w", s.ref, err)
	}
	id := ociarchive.Digest(cfg)
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
	cfgName := ociarchive.Digest(cfg)[len("sha256:"):] + ".json"
	manifest, err := json.Marshal([]ociarchive.Manifest{{Config: cfgName, RepoTags: []string{s.ref}, Layers: []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		data []byte
	}{{"layer.tar", s.layer}, {cfgName, cfg}, {"manifest.json", manifest}} {
		if err := ociarchive.WriteFile(tw, f.name, 0o644, f.data); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
