package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// commit does what has been decided: directories first, then files, links last.
func (b *Inbox) commit() (written int, err error) {
	var dirs []item
	for _, kind := range []Kind{Dir, File, Link} {
		for _, it := range b.items {
			if it.what != write || it.Kind != kind {
				continue
			}
			if err = b.make(it); err != nil {
				return written, fmt.Errorf("%s: %w (%d written before it)", shown(it.Name), err, written)
			}
			b.kept = true
			written++
			if kind == Dir {
				dirs = append(dirs, it)
			}
		}
	}
	b.kept = true // an empty tree is one
	// Last, and from below: one that is not to be written to had to be filled first.
	for _, d := range slices.Backward(dirs) {
		err = errors.Join(err, b.tree.Root.Chmod(filepath.FromSlash(d.Name), d.Mode.Perm()|0o700))
	}
	return written, err
}

// make makes one item.
func (b *Inbox) make(it item) error {
	root, name := b.tree.Root, filepath.FromSlash(it.Name)
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	switch it.Kind {
	case Dir:
		if info, err := root.Lstat(name); err == nil && !info.IsDir() {
			if err := root.Remove(name); err != nil {
				return err
			}
		}
		return root.MkdirAll(name, 0o755)
	case Link:
		if err := b.makeStage(); err != nil {
			return err
		}
		b.staged++
		if err := root.Symlink(filepath.FromSlash(it.Target), b.stagedName(b.staged)); err != nil {
			return err
		}
		return b.rename(b.staged, name)
	case File:
		return b.rename(it.staged, name)
	case Other:
	}
	return fs.ErrInvalid
}

// rename puts what lies aside in its place.
func (b *Inbox) rename(staged int32, name string) error {
	root, from := b.tree.Root, b.stagedName(staged)
	err := root.Rename(from, name)
	if !otherDevice(err) {
		return err
	}
	return b.across(from, name)
}

// across puts what lies aside in its place on another file system, which is mounted on a
// directory of the target. It is made next to its place first: what was there stays if that fails.
func (b *Inbox) across(from, name string) error {
	root, next := b.tree.Root, filepath.Join(filepath.Dir(name), b.stage)
	info, err := root.Lstat(from)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		var target string
		if target, err = root.Readlink(from); err == nil {
			err = root.Symlink(target, next)
		}
	} else {
		err = b.copyAcross(from, next, info.Mode().Perm())
	}
	if err == nil {
		err = root.Rename(next, name)
	}
	if err != nil {
		_ = root.Remove(next) // it may not be there
	}
	return err
}

// copyAcross copies a file to another file system.
func (b *Inbox) copyAcross(from, to string, mode fs.FileMode) error {
	src, err := openRegular(b.tree.Root, from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := b.tree.Root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = copySparse(dst, src, b.buf); err == nil {
		err = dst.Chmod(mode)
	}
	return errors.Join(err, dst.Close())
}
