package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"time"
)

// image writes an archive that docker load takes: the program, a place for its
// files, and nothing else. Mount the socket of an engine into it.
func (r *release) image(b build) (err error) {
	binary, err := os.ReadFile(b.binary)
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	for _, dir := range []struct {
		name string
		mode int64
	}{{"tmp/", 0o1777}, {"state/", 0o1777}, {"usr/", 0o755}, {"usr/bin/", 0o755}, {"work/", 0o1777}} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name, Mode: dir.mode, ModTime: r.time, Format: tar.FormatUSTAR}); err != nil {
			return err
		}
	}
	if err := errors.Join(r.put(tw, "usr/bin/sandboxbash", 0o755, binary), tw.Close()); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": b.arch, "os": "linux", "created": r.time.Format(time.RFC3339),
		"config": map[string]any{
			"Entrypoint": []string{"/usr/bin/sandboxbash"}, "WorkingDir": "/work",
			"Env":    []string{"PATH=/usr/bin", "HOME=/state", "XDG_STATE_HOME=/state", "XDG_CACHE_HOME=/state"},
			"Labels": map[string]string{"org.opencontainers.image.version": r.version, "org.opencontainers.image.source": "https://github.com/sandboxbash/sandboxbash"},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer.Bytes())}},
		"history": []map[string]string{{"created": r.time.Format(time.RFC3339), "created_by": "make release"}},
	})
	if err != nil {
		return err
	}
	layerName, configName := digest(layer.Bytes())+"/layer.tar", digest(config)+".json"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": []string{"sandboxbash:" + r.version}, "Layers": []string{layerName},
	}})
	if err != nil {
		return err
	}
	out, err := os.Create(r.name("image", b.arch) + ".tar")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	tw = tar.NewWriter(out)
	return errors.Join(
		r.put(tw, layerName, 0o644, layer.Bytes()), r.put(tw, configName, 0o644, config),
		r.put(tw, "manifest.json", 0o644, manifest), tw.Close())
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
