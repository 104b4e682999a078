package transfer

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// This file is the end of a transfer that is inside the session: it runs in the runner,
// with the rights of the session's user.

// MissingError is returned by Pack for a path at which there is nothing.
type MissingError struct{ Err error }

func (e MissingError) Error() string { return e.Err.Error() }
func (e MissingError) Unwrap() error { return e.Err }

// Unpack unpacks a tar stream below a directory, which it makes if need be, and returns
// the stream's hash, padding included. It replaces files, and follows no link. A stream
// without the end that tar(5) gives it was cut: it is an error.
func Unpack(dir string, in io.Reader) (Sum, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Sum{}, err
	}
	root, err := openTop(dir)
	if err != nil {
		return Sum{}, err
	}
	defer root.Close()
	sum, end := sha256.New(), &ending{}
	src := io.TeeReader(in, io.MultiWriter(sum, end))
	archive := tar.NewReader(src)
	type made struct {
		name string
		mode fs.FileMode
	}
	var dirs []made // modes are set last: a read-only one must be filled first
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Sum{}, err
		}
		if err := unpackEntry(root, h, archive); err != nil {
			return Sum{}, fmt.Errorf("%s: %w", h.Name, err)
		}
		end.entry()
		if h.Typeflag == tar.TypeDir {
			dirs = append(dirs, made{strings.Clone(unpackName(h.Name)), fs.FileMode(h.Mode).Perm() | 0o700})
		}
	}
	for _, d := range dirs {
		if err := root.Chmod(d.name, d.mode); err != nil && d.name != "." {
			return Sum{}, err
		}
	}
	if _, err := io.Copy(io.Discard, src); err != nil { // the padding behind the end
		return Sum{}, err
	}
	if !end.complete() {
		return Sum{}, fmt.Errorf("the stream was cut: %w", io.ErrUnexpectedEOF)
	}
	return Sum(sum.Sum(nil)), nil
}

// Sizes of tar(5), in bytes: an archive ends with two blocks of zeros.
const (
	tarBlock = 512
	tarEnd   = 2 * tarBlock
)

// An ending is written all bytes of a tar stream, and says whether the stream has its end.
// Package tar takes any end of the stream between two entries for the archive's.
type ending struct {
	bytes int64 // so far
	zeros int64 // of them, how many zeros came last
	last  int64 // where the last entry ended, with its padding
}

func (e *ending) Write(p []byte) (int, error) {
	e.bytes += int64(len(p))
	if rest := bytes.TrimRight(p, "\x00"); len(rest) > 0 {
		e.zeros = int64(len(p) - len(rest))
	} else {
		e.zeros += int64(len(p))
	}
	return len(p), nil
}

// entry notes that an entry has ended, of which the padding is still to be read.
func (e *ending) entry() { e.last = (e.bytes + tarBlock - 1) / tarBlock * tarBlock }

// complete reports whether nothing but zeros came after the last entry, and enough of them.
func (e *ending) complete() bool {
	after := e.bytes - e.last
	return after >= tarEnd && e.zeros >= after
}

func unpackName(name string) string { return path.Clean(strings.TrimLeft(name, "/")) }

// unpackEntry makes one entry. It replaces a file, and never follows a link.
func unpackEntry(root *os.Root, h *tar.Header, content io.Reader) error {
	name := unpackName(h.Name)
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		if err := makeParent(root, name); err != nil {
			return err
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		if err := makeParent(root, name); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		if err == nil {
			err = f.Chmod(fs.FileMode(h.Mode).Perm())
		}
		return errors.Join(err, f.Close())
	default:
		return fmt.Errorf("entries of type %q are not unpacked", h.Typeflag)
	}
}

// makeParent makes the directory of an entry, and removes what stands in the
// entry's place.
func makeParent(root *os.Root, name string) error {
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Pack packs a file or a directory into a tar stream, in lexical order. Anything but
// regular files, directories and symbolic links is left out, and so is what vanishes
// meanwhile. A file that shrinks meanwhile is an error. The error is a MissingError if
// there is nothing at the path.
func Pack(out io.Writer, top string) error {
	info, err := os.Lstat(top)
	if err != nil {
		return orMissing(err)
	}
	archive := tar.NewWriter(out)
	if !info.IsDir() {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: neither a regular file nor a directory", top)
		}
		root, err := os.OpenRoot(filepath.Dir(top))
		if err != nil {
			return err
		}
		defer root.Close()
		return errors.Join(packEntry(archive, root, filepath.Base(top)), archive.Close())
	}
	root, err := openTop(top)
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(walked{root}, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
				return nil
			}
			return err
		}
		return packEntry(archive, root, name)
	})
	return errors.Join(err, archive.Close())
}

func packEntry(archive *tar.Writer, root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return archive.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(name); err != nil {
			return nil //nolint:nilerr // it vanished or changed its kind meanwhile
		}
		return archive.WriteHeader(h)
	case info.Mode().IsRegular():
		return packRegular(archive, root, name, h)
	}
	return nil
}

func packRegular(archive *tar.Writer, root *os.Root, name string, h *tar.Header) error {
	// It may have become a FIFO since: opening must not wait for a writer.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := archive.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.CopyN(archive, f, info.Size()); err != nil {
		return fmt.Errorf("%s: it changed while it was read: %w", name, err)
	}
	return nil
}
