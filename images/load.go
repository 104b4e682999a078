package images

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/sandboxbash/sandboxbash/engine"
)

// maxManifest bounds the JSON files of an archive that are read into memory;
// an archive with a larger one is refused. The OCI distribution specification
// lets a registry refuse manifests above 4 MiB.
const maxManifest = 4 << 20

// maxDocuments bounds them together; an archive beyond it is refused.
const maxDocuments = 64 << 20

// Load puts the image of an archive file on the engine. The file is a
// docker-archive or OCI layout in a tar, or the tar of a root file system, each
// plain or compressed with gzip; its content decides which. ref names the image;
// empty, the archive's own names are used, and a root file system gets none. An
// archive may hold several images if ref is empty.
func (r *Resolver) Load(ctx context.Context, file, ref string, progress func(engine.Progress)) ([]engine.Image, error) {
	name, err := optionalRef(ref)
	if err != nil {
		return nil, err
	}
	info, err := r.engine.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", file, err)
	}
	list, err := r.load(ctx, file, name, info.Arch, orQuiet(progress))
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", file, err)
	}
	return list, nil
}

func (r *Resolver) load(ctx context.Context, file, name, arch string, progress func(engine.Progress)) ([]engine.Image, error) {
	documents, err := scan(file)
	if err != nil {
		return nil, err
	}
	if documents["manifest.json"] == nil && documents["oci-layout"] == nil {
		return r.importFile(ctx, file, engine.ImageConfig{Ref: name, OS: "linux", Arch: arch, Labels: roleLabels(roleImage)})
	}
	manifest, err := archiveContents(documents, arch)
	if err != nil {
		return nil, err
	}
	if err := rename(manifest, name); err != nil {
		return nil, err
	}
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pw.CloseWithError(rewrite(pw, file, manifest))
	}()
	refs, err := r.engine.LoadImages(ctx, pr, progress)
	pr.CloseWithError(errors.New("the engine stopped reading"))
	<-done
	if err != nil {
		return nil, err
	}
	var list []engine.Image
	for _, ref := range refs {
		img, err := r.engine.Image(ctx, ref)
		if err != nil {
			return nil, err
		}
		list = append(list, img)
	}
	return list, nil
}

func (r *Resolver) importFile(ctx context.Context, file string, cfg engine.ImageConfig) ([]engine.Image, error) {
	f, err := openTar(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	id, err := r.engine.ImportImage(ctx, f, cfg)
	if err != nil {
		return nil, err
	}
	img, err := r.engine.Image(ctx, string(id))
	return []engine.Image{img}, err
}

// rename gives the archive's images their names. Archives cannot bring an image
// under a name whose content we rely on.
func rename(manifest []archiveManifest, name string) error {
	if name != "" {
		if len(manifest) != 1 {
			return fmt.Errorf("the archive holds %d images, and one name was given: leave it out to use theirs", len(manifest))
		}
		manifest[0].RepoTags = []string{name}
		return nil
	}
	for _, m := range manifest {
		for _, tag := range m.RepoTags {
			if _, err := makeRef(tag); err != nil {
				return err
			}
		}
	}
	return nil
}

// tarFile is an open archive, decompressed.
type tarFile struct {
	io.Reader
	file *os.File
}

func (f tarFile) Close() error { return f.file.Close() }

func openTar(file string) (tarFile, error) {
	f, err := os.Open(file)
	if err != nil {
		return tarFile{}, err
	}
	br := bufio.NewReaderSize(f, 256<<10)
	magic, _ := br.Peek(6) // a short file is found out by the tar reader
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}): // RFC 1952
		zr, err := gzip.NewReader(br)
		if err != nil {
			return tarFile{}, errors.Join(err, f.Close())
		}
		return tarFile{zr, f}, nil
	case bytes.HasPrefix(magic, []byte("\xfd7zXZ\x00")), bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}), bytes.HasPrefix(magic, []byte("BZh")):
		return tarFile{}, errors.Join(errors.New("it is compressed with xz, zstd or bzip2: decompress it first (gzip is understood)"), f.Close())
	}
	return tarFile{br, f}, nil
}

// scan reads the small JSON documents of an archive by their paths; files of a
// root file system are looked at by name alone.
func scan(file string) (map[string][]byte, error) {
	f, err := openTar(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	documents := make(map[string][]byte)
	var sum int
	for tr, n := tar.NewReader(f), 0; ; n++ {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) && n > 0 {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("it is not a tar archive, or it is damaged: %w", noEOF(err))
		}
		name := path.Clean(hdr.Name)
		blob := strings.HasPrefix(name, "blobs/sha256/")
		if hdr.Typeflag != tar.TypeReg || !blob && name != "manifest.json" && name != "index.json" && name != "oci-layout" {
			continue
		}
		if hdr.Size > maxManifest {
			if !blob {
				return nil, fmt.Errorf("its %s has %d bytes; at most %d are read", name, hdr.Size, maxManifest)
			}
			continue
		}
		head := make([]byte, 1)
		if _, err := io.ReadFull(tr, head); err != nil || blob && head[0] != '{' {
			continue // a layer
		}
		rest, err := io.ReadAll(tr)
		if err != nil {
			return nil, noEOF(err)
		}
		if sum += len(rest) + 1; sum > maxDocuments {
			return nil, fmt.Errorf("its manifests have more than %d bytes together", maxDocuments)
		}
		documents[name] = append(head, rest...)
	}
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// rewrite copies an archive as a docker-archive with the given manifest, which
// every engine loads; indexes that would say otherwise are left out.
func rewrite(w io.Writer, file string, manifest []archiveManifest) error {
	f, err := openTar(file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	tw := tar.NewWriter(w)
	for tr := tar.NewReader(f); ; {
		hdr, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		switch path.Clean(hdr.Name) {
		case "manifest.json", "repositories", "index.json", "oci-layout":
			continue
		}
		hdr.Format = tar.FormatUnknown
		if err := tw.WriteHeader(hdr); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return err
		}
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	return errors.Join(writeFile(tw, "manifest.json", 0o644, data), tw.Close())
}
