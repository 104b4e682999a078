package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// Home returns the home directory of the session's user.
func (s *Session) Home() string { return s.info.labels.home() }

// placedDir is where the host puts files for commands to read: on the volume that
// only uid 0 writes to. In profile dev that is every command.
const placedDir = wire.JobsDir + "/placed"

// PlacedPath returns the path that Place gives what it puts there.
func PlacedPath(at, as string) string { return path.Join(placedDir, at, as) }

// ErrTooLarge is returned by Place for more than it may copy.
var ErrTooLarge = errors.New("it is too large")

// Place copies a file or a directory of the host, name of tree, into the session
// for commands to read, and returns where they find it: PlacedPath of at, which is
// one word, and as. In profile strict no command can change it. Links that lead
// out of what is copied are left out, and so is what is no file. What is there
// already is replaced, never removed. It returns an error wrapping ErrTooLarge if
// there are more than limit bytes.
func (s *Session) Place(ctx context.Context, at, as string, tree Tree) (string, error) {
	if !filepath.IsLocal(at) || !filepath.IsLocal(as) || path.Base(at) != at || path.Base(as) != as {
		return "", badInput("path", "place: %q and %q must be names", printable(at), printable(as))
	}
	to := PlacedPath(at, as)
	_, err := s.sendAs(ctx, User{}, path.Dir(to), func(t *tarOut) error { return t.placed(tree, as) })
	if err != nil {
		return "", fmt.Errorf("session %s: place %s: %w", s.ID(), to, err)
	}
	return to, nil
}

// Tree is what Place copies. Its FS must not follow links out of itself, as that of
// an os.Root does not.
type Tree struct {
	FS    fs.FS
	Name  string // "." for all of it
	Limit int64  // bytes
}

// placed packs a tree under another name, for everybody to read and nobody to
// write.
func (t *tarOut) placed(tree Tree, as string) error {
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
				t.left = append(t.left, name)
				return nil //nolint:nilerr // a link that nobody can follow is as good as none
			}
			h.Typeflag, h.Linkname = tar.TypeSymlink, filepath.ToSlash(target)
			return t.archive.WriteHeader(h)
		case d.Type().IsRegular():
			return t.placedFile(tree.FS, name, h, &left)
		}
		return nil
	})
}

// noted keeps the first error of the host's files.
func (t *tarOut) noted(err error) error {
	if t.err == nil {
		t.err = err
	}
	return err
}

func (t *tarOut) placedFile(tree fs.FS, name string, h *tar.Header, left *int64) error {
	f, err := tree.Open(name)
	if err != nil {
		return t.noted(err)
	}
	defer func() { _ = f.Close() }() // of what is only read
	info, err := f.Stat()
	if err != nil {
		return t.noted(err)
	}
	if !info.Mode().IsRegular() {
		return t.noted(fmt.Errorf("%s: it is no regular file any more", name))
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
	if _, err := io.CopyN(t.archive, f, info.Size()); err != nil {
		return t.noted(fmt.Errorf("%s: it changed while it was read: %w", name, err))
	}
	return nil
}

// Replace makes a directory of the session a copy of one of the host. What else is
// in it is removed.
func (s *Session) Replace(ctx context.Context, src, dir string) error {
	dir = s.inside(dir)
	_, err := s.send(ctx, dir, func(*tarOut) error { return nil }) // it is there now
	if err == nil {
		_, err = s.helper(ctx, "clear", dir)
	}
	if err == nil {
		_, err = s.send(ctx, dir, func(t *tarOut) error { return t.tree(src) })
	}
	if err != nil {
		return fmt.Errorf("session %s: copy %s to %s: %w", s.ID(), src, dir, err)
	}
	return nil
}

// Ask runs a command of the program's own: its standard output, at most 4 MiB, is
// an answer and no agent's. Nothing of it is kept as an artifact. Errors are those
// of Run.
func (s *Session) Ask(ctx context.Context, c Command) ([]byte, exec.Status, error) {
	if err := c.Check(); err != nil {
		return nil, exec.Status{}, err
	}
	var out bytes.Buffer
	command := s.command(c)
	command.Stdout, command.Stderr = &limited{w: &out, left: maxHelperOutput}, io.Discard
	st, err := s.pool.Run(ctx, command)
	if err != nil {
		return nil, st, fmt.Errorf("session %s: %w", s.ID(), err)
	}
	return out.Bytes(), st, st.Write
}
