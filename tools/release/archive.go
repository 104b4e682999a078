package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"slices"
)

// documents go into every archive and package.
var documents = []string{"README.md", "SECURITY.md", "CHANGELOG.md", "LICENSE"}

// archive packs the program and its documents, in a directory of their own.
func (r *release) archive(b build) (err error) {
	dir := "sandboxbash_" + r.version + "_" + b.os + "_" + b.arch
	files := map[string]string{b.program(): b.binary}
	order := []string{b.program()}
	for _, name := range documents {
		files[name], order = name, append(order, name)
	}
	name := r.name(b.os, b.arch) + ".tar.gz"
	if b.os == "windows" {
		name = r.name(b.os, b.arch) + ".zip"
	}
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if b.os == "windows" {
		return r.zip(out, dir, order, files)
	}
	zw, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(zw)
	for _, name := range order {
		content, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		if err := r.put(tw, path.Join(dir, name), modeOf(name), content); err != nil {
			return err
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

func modeOf(name string) int64 {
	if slices.Contains(documents, name) {
		return 0o644
	}
	return 0o755
}

// put adds a file that belongs to uid 0 and has the commit's time.
func (r *release) put(tw *tar.Writer, name string, mode int64, content []byte) error {
	err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: r.time, Format: tar.FormatUSTAR})
	if err != nil {
		return err
	}
	_, err = tw.Write(content)
	return err
}

func (r *release) zip(out io.Writer, dir string, order []string, files map[string]string) error {
	zw := zip.NewWriter(out)
	for _, name := range order {
		content, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: path.Join(dir, name), Method: zip.Deflate, Modified: r.time}
		h.SetMode(os.FileMode(modeOf(name)))
		w, err := zw.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return zw.Close()
}
