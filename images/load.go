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
	"github.com/sandboxbash/sandboxbash/internal/ociarchive"
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

// Is reports whether target is engine.ErrSource.
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
		return r.importFile(ctx, file, engine.ImageConfig{Ref: name, OS: "linux", Arch: arch, Labels: imageLabels()})
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
func rename(manifest []ociarchive.Manifest, name string) error {
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
	if u.bytes += blockSize; hdr.Size > u.limit-u.bytes {
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
// The layers are tars in the tar; scan has counted them only as they are packed. A layer
// counts as often as images name it, because each time it is unpacked again. docker save
// writes a layer that it has written already as a link to that. A layer that the archive
// lacks may be on the engine; what is not a tar is left for the engine to refuse.
func checkLayers(file string, manifest []ociarchive.Manifest, limit int64) error {
	times := make(map[string]int64) // how often each file is unpacked
	for _, m := range manifest {
		for _, name := range m.Layers {
			times[inArchive(name)]++
		}
	}
	sum := unpacked{limit: limit}
	for range maxLayerLinks + 1 {
		links, err := addLayers(&sum, file, times)
		if err != nil || len(links) == 0 {
			return err
		}
		times = links
	}
	return fmt.Errorf("its layers are links to links: at most %d lead to a layer", maxLayerLinks)
}

// maxLayerLinks is how many links may lead to a layer. docker save writes one. Each costs
// another reading of the archive.
const maxLayerLinks = 3

// inArchive returns a path in an archive in the form in which paths are compared.
func inArchive(name string) string { return path.Clean("/" + name) }

// addLayers adds what the given files of an archive unpack to. It returns those that are
// links, as the files that they lead to.
func addLayers(sum *unpacked, file string, times map[string]int64) (links map[string]int64, err error) {
	f, err := openTar(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	links = make(map[string]int64)
	for tr := tar.NewReader(f); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return links, nil
		}
		if err != nil {
			return nil, noEOF(err)
		}
		name := inArchive(hdr.Name)
		n := times[name]
		switch {
		case hdr.Typeflag == tar.TypeSymlink && n == 0:
			for layer := range times {
				if strings.HasPrefix(layer, name+"/") {
					return nil, fmt.Errorf("its layer %s is in a directory that is a link", layer[1:])
				}
			}
			continue
		case n == 0 || hdr.Typeflag == tar.TypeDir:
			continue
		case hdr.Typeflag == tar.TypeLink:
			name = inArchive(hdr.Linkname)
		case hdr.Typeflag == tar.TypeSymlink && path.IsAbs(hdr.Linkname):
			name = inArchive(hdr.Linkname)
		case hdr.Typeflag == tar.TypeSymlink:
			name = path.Join(path.Dir(name), hdr.Linkname)
		default:
			one := unpacked{limit: sum.limit}
			if err := addLayer(&one, tr); err != nil {
				return nil, err
			}
			if one.bytes > (sum.limit-sum.bytes)/n {
				return nil, &tooLargeError{sum.limit}
			}
			sum.bytes += one.bytes * n
			continue
		}
		links[name] = min(links[name]+n, sum.limit)
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
	mark := endMark{r: f}
	for tr, n := tar.NewReader(&mark), 0; ; n++ {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) && n > 0 {
			return documents, mark.check(limit)
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
		head := make([]byte, min(hdr.Size, 1))
		if _, err := io.ReadFull(tr, head); err != nil {
			return nil, noEOF(err)
		}
		if blob && string(head) != "{" {
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

// An endMark reads a tar and looks for the blocks of zeros at its end. A tar.Reader takes an
// archive for whole if it was cut off between two files.
type endMark struct {
	r     io.Reader
	zeros int // at the end of what was read, up to a block
}

func (m *endMark) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	zeros := n - len(bytes.TrimRight(p[:n], "\x00"))
	if zeros == n {
		zeros = min(m.zeros+n, blockSize)
	}
	m.zeros = zeros
	return n, err
}

// check is called at the end of the archive. It reads what follows, at most limit bytes:
// gzip checks its sum at the end of the stream, which is behind the end of the archive.
func (m *endMark) check(limit int64) error {
	if m.zeros < blockSize {
		return errors.New("it was cut off: it lacks the mark that ends a tar archive")
	}
	switch _, err := io.CopyN(io.Discard, m.r, limit); {
	case err == nil:
		return &tooLargeError{limit}
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil
	default:
		return fmt.Errorf("it is damaged: %w", err)
	}
}

// blockSize is the unit of a tar archive, in bytes.
const blockSize = 512

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// rewrite copies an archive as a docker-archive with the given manifest, which
// every engine loads; indexes that would say otherwise are left out.
func rewrite(w io.Writer, file string, manifest []ociarchive.Manifest) error {
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
	return errors.Join(ociarchive.WriteFile(tw, "manifest.json", 0o644, data), tw.Close())
}
