package transfer

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"
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

	archive *tar.Writer
}

// NewPacker returns a Packer that writes to w.
func NewPacker(w io.Writer) *Packer { return &Packer{archive: tar.NewWriter(w)} }

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

// Tree packs what is in a directory.
func (t *Packer) Tree(dir string) error { return t.below(dir, "") }

// Named packs a file or a directory under its own name.
func (t *Packer) Named(src string) error {
	abs, err := filepath.Abs(src)
	if err != nil {
		return err
	}
	info, err := os.Stat(abs)
	if err != nil {
		t.Err = err
		return err
	}
	if info.IsDir() {
		return t.below(abs, filepath.Base(abs))
	}
	if !info.Mode().IsRegular() {
		t.Err = fmt.Errorf("%s is neither a regular file nor a directory", abs)
		return t.Err
	}
	root, err := os.OpenRoot(filepath.Dir(abs))
	if err != nil {
		return err
	}
	defer root.Close()
	return t.file(root, filepath.Base(abs), filepath.Base(abs))
}

func (t *Packer) below(dir, prefix string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Err = err
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			t.Err = cmp.Or(t.Err, err)
			return err
		}
		if IsCredential(name) {
			t.Left = append(t.Left, name)
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return t.entry(root, name, path.Join(prefix, name), info)
	})
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
			return err
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
		t.Err = cmp.Or(t.Err, err)
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: it is not a regular file any more", name)
	}
	var content io.Reader = f
	size := info.Size()
	if isGitConfig(name) {
		b, err := io.ReadAll(io.LimitReader(f, maxGitConfig))
		if err != nil {
			return err
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
	if _, err := io.CopyN(to, content, size); err != nil {
		return fmt.Errorf("%s: it changed while it was read: %w", name, err)
	}
	t.note(Entry{
		Name: as, Kind: File, Mode: info.Mode().Perm(), Size: size, Sum: new(Sum(sum.Sum(nil))),
	})
	return nil
}
