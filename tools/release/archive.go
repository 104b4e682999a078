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
	"strings"
)

// documents go into every archive and package, as well as what is in docs.
var documents = []string{"README.md", "SECURITY.md", "CHANGELOG.md", "LICENSE"}

// file is a file of an archive or a package.
type file struct {
	name    string // slash-separated
	mode    int64
	content []byte
}

// archive packs the program, its documents and the pages of its manual, in a directory of their own.
func (r *release) archive(b build) (err error) {
	program, err := os.ReadFile(b.binary)
	if err != nil {
		return err
	}
	files := []file{{b.program(), 0o755, program}}
	for _, name := range documents {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files = append(files, file{name, 0o644, content})
	}
	docs, err := docs()
	if err != nil {
		return err
	}
	manual, err := r.manual()
	if err != nil {
		return err
	}
	files = slices.Concat(files, docs, manual)
	dir := "sandboxbash_" + r.version + "_" + b.os + "_" + b.arch
	for i := range files {
		files[i].name = path.Join(dir, files[i].name)
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
		return r.zip(out, files)
	}
	zw, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(zw)
	for _, f := range files {
		if err := r.put(tw, f.name, f.mode, f.content); err != nil {
			return err
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

// docs are the files of docs but for its programs, so that the documents' links work.
func docs() ([]file, error) {
	names, err := output("git", "ls-files", "docs/*.md", "docs/*.svg", "docs/*.json", "docs/guide")
	if err != nil {
		return nil, err
	}
	var files []file
	for name := range strings.FieldsSeq(names) {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o644, content})
	}
	return files, nil
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

func (r *release) zip(out io.Writer, files []file) error {
	zw := zip.NewWriter(out)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.time}
		h.SetMode(os.FileMode(f.mode))
		w, err := zw.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return zw.Close()
}
