package transfer

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Packer packs files of this machine into a tar stream for a session. Symbolic links
// are packed as such; sockets, devices and FIFOs are left out. It is for one goroutine.
type Packer struct {
	// Left names what was left out because it looks like credentials, by its path in
	// what was packed.
	Left []string
	// Err is the first error of this machine's files, as opposed to one of the stream.
	Err error
	// Packed has what was packed, as the session gets it, if Record is set. At most
	// one entry more than DefaultLimits allows is kept.
	Packed []Entry
	Record bool
	// Stamps are how the files in Packed were found on this machine, if Record is set.
	Stamps Index
	// Skip says what of a directory is not packed; nil: all is. It may be set anew for
	// each source.
	Skip Skip
	// Files and Size are how many files were packed, and how large they are together.
	Files int
	Size  int64
	// Parts are the sizes of the files and directories right in what was packed.
	Parts map[string]int64

	archive *tar.Writer
	held    held
	begun   time.Time // when the first file was looked at
}

// NewPacker returns a Packer that writes to w.
func NewPacker(w io.Writer) *Packer {
	return &Packer{archive: tar.NewWriter(w), Stamps: Index{}, Parts: map[string]int64{}, begun: time.Now()}
}

// Close ends the stream. It does not close the writer.
func (t *Packer) Close() error { return t.archive.Close() }

// note records what was packed.
func (t *Packer) note(e Entry) {
	if t.Record && len(t.Packed) <= DefaultLimits.Entries {
		e.Name = path.Clean(e.Name)
		t.Packed = append(t.Packed, e)
	}
}

// Bytes packs a file that only its owner may read.
func (t *Packer) Bytes(name string, content []byte) error {
	err := t.archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o600})
	if err == nil {
		_, err = t.archive.Write(content)
	}
	return err
}

// Content packs a file with a content of that many bytes.
func (t *Packer) Content(name string, content io.Reader, size int64) error {
	err := t.archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, Format: tar.FormatPAX})
	if err == nil {
		err = t.content(t.archive, name, content, size)
	}
	return err
}

// Tree packs what is in a directory.
func (t *Packer) Tree(dir string) error { return t.below(dir, "") }

// Named packs a file or a directory under its own name.
func (t *Packer) Named(src string) error {
	abs, err := filepath.Abs(src)
	if err != nil {
		return t.noted(err)
	}
	return t.As(abs, filepath.Base(abs))
}

// As packs a file or a directory under another name; "" packs what is in a directory.
func (t *Packer) As(src, as string) error {
	abs, err := filepath.Abs(src)
	if err != nil {
		return t.noted(err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return t.noted(err)
	}
	if info.IsDir() {
		return t.below(abs, as)
	}
	if !info.Mode().IsRegular() {
		return t.noted(fmt.Errorf("%s is neither a regular file nor a directory", abs))
	}
	root, err := os.OpenRoot(filepath.Dir(abs))
	if err != nil {
		return t.noted(err)
	}
	defer root.Close()
	return t.file(root, filepath.Base(abs), as)
}

func (t *Packer) below(dir, prefix string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return t.noted(err)
	}
	defer root.Close()
	t.held = nil
	return fs.WalkDir(walked{root}, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return t.noted(err)
		}
		unwanted, all := t.Skip.of(name, d.IsDir())
		if unwanted && all {
			return skip(d)
		}
		if !unwanted && IsCredential(name) {
			t.Left = append(t.Left, name)
			return skip(d)
		}
		info, err := d.Info()
		if err != nil {
			return t.noted(err)
		}
		if unwanted {
			if d.IsDir() {
				t.held.hold(Entry{Name: name, Kind: Dir, Mode: info.Mode().Perm()})
			}
			return nil
		}
		for _, dir := range t.held.above(name) {
			if err := t.directory(path.Join(prefix, dir.Name), dir.Mode); err != nil {
				return err
			}
		}
		return t.entry(root, name, path.Join(prefix, name), info)
	})
}

// directory packs a directory that is packed only because something in it is.
func (t *Packer) directory(as string, mode fs.FileMode) error {
	t.note(Entry{Name: as, Kind: Dir, Mode: mode})
	return t.archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: as + "/", Mode: int64(mode), Format: tar.FormatPAX})
}

// Names packs the files and links of a directory that have one of the names. What is neither
// any more, or has gone, is left out.
func (t *Packer) Names(dir string, names []string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return t.noted(err)
	}
	defer root.Close()
	for _, name := range names {
		info, err := root.Lstat(filepath.FromSlash(name))
		if missing(err) || err == nil && kindOf(info) != File && kindOf(info) != Link {
			continue
		}
		if err != nil {
			return t.noted(err)
		}
		if err := t.entry(root, name, name, info); err != nil {
			return err
		}
	}
	return nil
}

func (t *Packer) entry(root *os.Root, name, as string, info fs.FileInfo) error {
	h := &tar.Header{Name: as, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		if as == "." || as == "" {
			return nil
		}
		h.Typeflag, h.Name = tar.TypeDir, as+"/"
		t.note(Entry{Name: as, Kind: Dir, Mode: info.Mode().Perm()})
		return t.archive.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		if err != nil {
			return t.noted(err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, filepath.ToSlash(target)
		t.note(Entry{Name: as, Kind: Link, Mode: info.Mode().Perm(), Target: h.Linkname})
		return t.archive.WriteHeader(h)
	case info.Mode().IsRegular():
		return t.file(root, name, as)
	}
	return nil
}

func (t *Packer) file(root *os.Root, name, as string) error {
	// It may have become a FIFO since: opening must not wait for a writer.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return t.noted(err)
	}
	defer f.Close()
	info, err := regularNow(f, name)
	if err != nil {
		return t.noted(err)
	}
	var content io.Reader = f
	size := info.Size()
	if isGitConfig(name) {
		b, err := io.ReadAll(io.LimitReader(f, maxGitConfig))
		if err != nil {
			return t.noted(err)
		}
		clean := cleanGitConfig(b)
		if len(clean) != len(b) {
			t.Left = append(t.Left, name+" (credentials in it)")
		}
		content, size = bytes.NewReader(clean), int64(len(clean))
	}
	err = t.archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: as, Size: size, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX,
	})
	if err != nil {
		return err
	}
	sum := sha256.New()
	to := io.Writer(t.archive)
	if t.Record {
		to = io.MultiWriter(t.archive, sum)
	}
	if err := t.content(to, name, content, size); err != nil {
		return err
	}
	t.Files++
	t.Size += size
	part, _, _ := strings.Cut(name, "/")
	t.Parts[part] += size
	e := Entry{Name: as, Kind: File, Mode: info.Mode().Perm(), Size: size, Sum: new(Sum(sum.Sum(nil)))}
	if t.Record && len(t.Packed) <= DefaultLimits.Entries {
		t.Stamps.add(path.Clean(as), info, e, t.begun)
	}
	t.note(e)
	return nil
}

// regularNow returns what an open file is. It may have become something else since it was
// found.
func regularNow(f fs.File, name string) (fs.FileInfo, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: it is not a regular file any more", name)
	}
	return info, err
}

// content packs as many bytes of a file as its header says. An error of the stream is not one of
// the file, and keeps its words.
func (t *Packer) content(to io.Writer, name string, f io.Reader, size int64) error {
	from := &source{r: f}
	_, err := io.CopyN(to, from, size)
	if err != nil && from.err != nil {
		return t.noted(fmt.Errorf("%s: it changed while it was read: %w", name, err))
	}
	return err
}

// noted keeps the first error of this machine's files.
func (t *Packer) noted(err error) error {
	if t.Err == nil {
		t.Err = err
	}
	return err
}

// source is a reader that keeps its error.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (n int, err error) {
	n, s.err = s.r.Read(p)
	return n, s.err
}
