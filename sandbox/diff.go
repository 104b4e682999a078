package sandbox

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// differ compares a tar stream with a directory of the host.
type differ struct {
	root    *os.Root
	seen    map[string]bool
	changes []Change
}

func newDiffer(dir string) (*differ, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &differ{root: root, seen: map[string]bool{}}, nil
}

func (d *differ) note(name, kind string) {
	d.changes = append(d.changes, Change{Path: name, Kind: kind})
}

func (d *differ) entry(h *tar.Header, content io.Reader) error {
	if isCredential(h.Name) || h.Name == "." {
		return nil
	}
	d.seen[h.Name] = true
	info, err := d.root.Lstat(h.Name)
	if errors.Is(err, fs.ErrNotExist) {
		d.note(h.Name, "added")
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case h.Typeflag == tar.TypeDir && info.IsDir():
		return nil
	case h.Typeflag == tar.TypeSymlink && info.Mode()&fs.ModeSymlink != 0:
		target, err := d.root.Readlink(h.Name)
		if err == nil && filepath.ToSlash(target) != h.Linkname {
			d.note(h.Name, "modified")
		}
		return err
	case h.Typeflag == tar.TypeReg && info.Mode().IsRegular():
		same, err := d.same(h, info, content)
		if err == nil && !same {
			d.note(h.Name, "modified")
		}
		return err
	default:
		d.note(h.Name, "type")
		return nil
	}
}

// same compares a regular file by mode and content.
func (d *differ) same(h *tar.Header, info fs.FileInfo, content io.Reader) (bool, error) {
	if fs.FileMode(h.Mode).Perm() != info.Mode().Perm() {
		return false, nil
	}
	if isGitConfig(h.Name) {
		b, err := d.root.ReadFile(h.Name)
		if err != nil {
			return false, err
		}
		theirs, err := io.ReadAll(io.LimitReader(content, maxGitConfig))
		return bytes.Equal(theirs, cleanGitConfig(b)), err
	}
	if h.Size != info.Size() {
		return false, nil
	}
	f, err := d.root.Open(h.Name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	theirs, err := hashOf(content)
	if err != nil {
		return false, err
	}
	mine, err := hashOf(f)
	return theirs == mine, err
}

// finish adds what the session no longer has, and sorts.
func (d *differ) finish() ([]Change, error) {
	err := fs.WalkDir(d.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if isCredential(name) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		known := e.IsDir() || e.Type().IsRegular() || e.Type()&fs.ModeSymlink != 0
		if name != "." && known && !d.seen[name] {
			d.note(name, "deleted")
			if e.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
	slices.SortFunc(d.changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return d.changes, err
}
