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

// maxUnpacked bounds what an archive may unpack to: a tar of some KiB can hold a sparse
// file that fills the engine's disk. It is three times the 10 GB that AWS Lambda lets an
// image unpack to; the largest images in common use, for machine learning, have 25 GB.
const maxUnpacked = 32 << 30 // bytes

// SourceError says that the file or directory that an image was to be made of is
// missing, or cannot be used.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return e.Err.Error() }

func (e *SourceError) Unwrap() error { return e.Err }

// Is makes it an engine.ErrSource.
func (*SourceError) Is(target error) bool { return target == engine.ErrSource }

// Load puts the image of an archive file on the engine. The file is a
// docker-archive or OCI layout in a tar, or the tar of a root file system, each
// plain or compressed with gzip; its content decides which. ref names the image. If ref
// is empty, images keep the archive's names, and a root file system gets none. An
// archive may hold several images only if ref is empty. Load refuses an archive that
// unpacks to more than 32 GiB.
func (r *Resolver) Load(ctx context.Context, file, ref string, progress func(engine.Progress)) ([]engine.Image, error) {
	name, err := optionalRef(ref)
	if err != nil {
		return nil, err
	}
	list, err := r.load(ctx, file, name, orQuiet(progress))
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", file, err)
	}
	return list, nil
}

func (r *Resolver) load(ctx context.Context, file, name string, progress func(engine.Progress)) ([]engine.Image, error) {
	documents, err := scan(file, r.maxUnpacked)
	if err != nil {
		return nil, &SourceError{err}
	}
	info, err := r.engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	arch := info.Arch
	if documents["manifest.json"] == nil && documents["oci-layout"] == nil {
		return r.importFile(ctx, file, engine.ImageConfig{Ref: name, OS: "linux", Arch: arch, Labels: roleLabels(roleImage)})
	}
	manifest, err := archiveContents(documents, arch)
	if err == nil {
		err = rename(manifest, name)
	}
	if err == nil {
		err = checkLayers(file, manifest, r.maxUnpacked)
	}
	if err != nil {
		return nil, &SourceError{err}
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
	r, err := decompressed(f)
	if err != nil {
		return tarFile{}, errors.Join(err, f.Close())
	}
	return tarFile{r, f}, nil
}

// decompressed reads a stream that is plain or compressed with gzip.
func decompressed(r io.Reader) (io.Reader, error) {
	br := bufio.NewReaderSize(r, 256<<10)
	magic, _ := br.Peek(6) // the tar reader reports a stream that is too short
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}): // RFC 1952
		return gzip.NewReader(br)
	case bytes.HasPrefix(magic, []byte("\xfd7zXZ\x00")), bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}), bytes.HasPrefix(magic, []byte("BZh")):
		return nil, errors.New("it is compressed with xz, zstd or bzip2: decompress it first, or compress it with gzip")
	}
	return br, nil
}

// unpacked counts the bytes that a tar unpacks to, by its headers: sparse files count in
// full, and each entry counts a block of its own.
type unpacked struct{ bytes, limit int64 }

func (u *unpacked) add(hdr *tar.Header) error {
	const block = 512
	if u.bytes += block; hdr.Size > u.limit-u.bytes {
		return &tooLargeError{u.limit}
	}
	u.bytes += hdr.Size
	return nil
}

// tooLargeError refuses an archive that unpacks to more than a limit.
type tooLargeError struct{ limit int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("it unpacks to more than %d bytes, which is the limit: remove large and sparse files from it, or load it with the engine's own client and then use the image by its name", e.limit)
}

// checkLayers refuses an archive whose layers unpack to more than limit bytes together.
// The layers are tars in the tar; scan has counted them only as they are packed. What is
// not a tar is left for the engine to refuse.
func checkLayers(file string, manifest []archiveManifest, limit int64) error {
	layers := make(map[string]bool)
	for _, m := range manifest {
		for _, name := range m.Layers {
			layers[path.Clean(name)] = true
		}
	}
	f, err := openTar(file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	size := unpacked{limit: limit}
	for tr := tar.NewReader(f); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return noEOF(err)
		}
		if hdr.Typeflag != tar.TypeReg || !layers[path.Clean(hdr.Name)] {
			continue
		}
		if err := addLayer(&size, tr); err != nil {
			return err
		}
	}
}

func addLayer(size *unpacked, layer io.Reader) error {
	r, err := decompressed(layer)
	if err != nil {
		return nil //nolint:nilerr // the engine may know the compression
	}
	for tr := tar.NewReader(r); ; {
		hdr, err := tr.Next()
		if err != nil {
			return nil //nolint:nilerr // the end, or a layer that the engine refuses
		}
		if err := size.add(hdr); err != nil {
			return err
		}
	}
}

// scan reads the small JSON documents of an archive by their paths; files of a
// root file system are looked at by name alone. It refuses an archive that unpacks to
// more than limit bytes.
func scan(file string, limit int64) (map[string][]byte, error) {
	f, err := openTar(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	documents := make(map[string][]byte)
	var sum int
	size := unpacked{limit: limit}
	for tr, n := tar.NewReader(f), 0; ; n++ {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) && n > 0 {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("it is not a tar archive, or it is damaged: %w", noEOF(err))
		}
		if err := size.add(hdr); err != nil {
			return nil, err
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
