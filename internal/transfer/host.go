package transfer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
)

// Tree is a directory of this machine and what of it does not take part in
// transfers.
type Tree struct {
	Root *os.Root
	// Leave reports whether a name stays out in both directions: credentials. nil:
	// none does.
	Leave func(name string) bool
	// Clean returns what of a file's content went into the session, and whether it is
	// such a file: credentials were taken out of it. nil: of none.
	Clean func(name string, content []byte) ([]byte, bool)
}

// maxCleaned bounds a file that Clean is asked of.
const maxCleaned = 1 << 20 // bytes

// leaves asks of a name and of the directories that it lies in.
func (t Tree) leaves(name string) bool {
	if t.Leave == nil {
		return false
	}
	for ; name != "." && name != "/"; name = path.Dir(name) {
		if t.Leave(name) {
			return true
		}
	}
	return false
}

// sameMode compares permissions. Windows has none to compare.
func sameMode(a, b fs.FileMode) bool { return runtime.GOOS == "windows" || a.Perm() == b.Perm() }

// Is reports whether what is at e's name is like e, and whether there is anything. Nothing is
// like what is Other.
func (t Tree) Is(e Entry) (same, exists bool, err error) { return t.is(e) }

// is reports whether what is at e's name is like e, and whether there is anything.
func (t Tree) is(e Entry) (same, exists bool, err error) {
	name := filepath.FromSlash(e.Name)
	info, err := t.Root.Lstat(name)
	if missing(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	switch {
	case e.Kind == Dir:
		return info.IsDir(), true, nil
	case e.Kind == Link && info.Mode()&fs.ModeSymlink != 0:
		target, err := t.Root.Readlink(name)
		return filepath.ToSlash(target) == e.Target, true, err
	case e.Kind == File && info.Mode().IsRegular() && sameMode(info.Mode(), e.Mode):
		sum, size, err := t.sum(e.Name, info, e.Size)
		return err == nil && size == e.Size && e.Sum != nil && sum == *e.Sum, true, err
	}
	return false, true, nil
}

// sum hashes a file as it went into the session. It reads nothing of a file that is
// not of the wanted size.
func (t Tree) sum(name string, info fs.FileInfo, want int64) (Sum, int64, error) {
	var cleaned bool
	if t.Clean != nil {
		_, cleaned = t.Clean(name, nil)
	}
	if !cleaned && info.Size() != want {
		return Sum{}, info.Size(), nil
	}
	return t.content(name)
}

// content hashes a file as a session gets it.
func (t Tree) content(name string) (Sum, int64, error) {
	f, err := openRegular(t.Root, name)
	if err != nil {
		return Sum{}, 0, err
	}
	defer f.Close()
	cleaned := false
	if t.Clean != nil {
		_, cleaned = t.Clean(name, nil)
	}
	if cleaned {
		b, err := io.ReadAll(io.LimitReader(f, maxCleaned))
		b, _ = t.Clean(name, b)
		return sha256.Sum256(b), int64(len(b)), err
	}
	return sumOf(f)
}

// sumOf hashes a stream and counts it.
func sumOf(r io.Reader) (Sum, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return Sum(h.Sum(nil)), n, err
}

// missing reports whether an error says that there is nothing of a name.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || isNotDir(err)
}

// openRegular opens a file that was a regular one: it may have become a FIFO since,
// and opening must not wait for a writer.
func openRegular(root *os.Root, name string) (*os.File, error) {
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file any more", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// walked is a directory as fs.WalkDir reads it. What was a directory may have become a FIFO since:
// opening does not wait for a writer.
type walked struct{ root *os.Root }

// Open implements fs.FS.
func (w walked) Open(name string) (fs.File, error) {
	return w.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|openFlags, 0)
}

// zeros are what is not written but left as a hole: a file that the session keeps in
// no space takes none here.
var zeros [64 << 10]byte

// copySparse copies content to a new file through buf, hashes it, and leaves holes
// for what is zero.
func copySparse(f *os.File, content io.Reader, buf []byte) (Sum, error) {
	h := sha256.New()
	var size int64
	hole := false // the end of the file so far is one
	for {
		n, err := fill(content, buf)
		h.Write(buf[:n])
		if n > 0 {
			if hole = bytes.Equal(buf[:n], zeros[:n]); !hole {
				if _, err := f.WriteAt(buf[:n], size); err != nil {
					return Sum{}, err
				}
			}
			size += int64(n)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Sum{}, err
		}
	}
	if hole {
		if err := f.Truncate(size); err != nil {
			return Sum{}, err
		}
	}
	return Sum(h.Sum(nil)), nil
}

// fill reads until buf is full or the reader has an error.
func fill(r io.Reader, buf []byte) (int, error) {
	n := 0
	for n < len(buf) {
		m, err := r.Read(buf[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
