package transfer

import (
	"archive/tar"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
)

// ErrTooLarge is returned for a tree that exceeds its limit.
var ErrTooLarge = errors.New("it is too large")

// Placing is a tree that Placed packs.
type Placing struct {
	FS    fs.FS
	Name  string // "." for all of it
	Limit int64  // bytes
}

// Placed packs a tree under another name: all can read it, and no command can write it.
// Links that lead out of the tree are left out.
func (t *Packer) Placed(tree Placing, as string) error {
	left := tree.Limit
	return fs.WalkDir(tree.FS, tree.Name, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return t.noted(err)
		}
		rel, err := filepath.Rel(tree.Name, name)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: path.Join(as, filepath.ToSlash(rel)), Mode: 0o555, Format: tar.FormatPAX}
		switch {
		case d.IsDir():
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, h.Name+"/", 0o755
			return t.archive.WriteHeader(h)
		case d.Type()&fs.ModeSymlink != 0:
			target, err := fs.ReadLink(tree.FS, name)
			inside := path.Join(path.Dir(filepath.ToSlash(rel)), filepath.ToSlash(target))
			if err != nil || filepath.IsAbs(target) || !filepath.IsLocal(inside) {
				t.Left = append(t.Left, name)
				return nil //nolint:nilerr // a link that cannot be followed is as good as none
			}
			h.Typeflag, h.Linkname = tar.TypeSymlink, filepath.ToSlash(target)
			return t.archive.WriteHeader(h)
		case d.Type().IsRegular():
			return t.placedFile(tree.FS, name, h, &left)
		}
		return nil
	})
}

func (t *Packer) placedFile(tree fs.FS, name string, h *tar.Header, left *int64) error {
	f, err := tree.Open(name)
	if err != nil {
		return t.noted(err)
	}
	defer func() { _ = f.Close() }() // of what is only read
	info, err := regularNow(f, name)
	if err != nil {
		return t.noted(err)
	}
	if *left -= info.Size(); *left < 0 {
		return t.noted(ErrTooLarge)
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if info.Mode().Perm()&0o111 == 0 {
		h.Mode = 0o444
	}
	if err := t.archive.WriteHeader(h); err != nil {
		return err
	}
	return t.content(t.archive, name, f, info.Size())
}
