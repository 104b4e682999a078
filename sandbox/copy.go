package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Skip says of a name, relative to the directory that is copied and with slashes, that it is not
// wanted, and if it is a directory's, whether nothing below it is. It is asked of names below
// unwanted ones, too. nil wants all.
type Skip = transfer.Skip

// Source is a file or a directory of this machine that CopyIn copies.
type Source struct {
	Path string // what is in a directory, if its last element is "." or ".."
	Skip Skip   // what of a directory is not copied
}

// Copied says what CopyIn copied.
type Copied struct {
	LeftOut []string // because they look like credentials
	Files   int
	Bytes   int64
}

// CopyIn copies files and directories of this machine into the session, with the rules of cp: into to if
// that is a directory or ends in a slash, else to the name to, which only one source can have. Missing
// directories are created, and files are overwritten. A relative to starts at the workspace.
//
// If a source is missing, or to does not fit the sources, the error is an *InputError.
func (s *Session) CopyIn(ctx context.Context, from []Source, to string) (done Copied, err error) {
	var names []string
	for _, f := range from {
		names = append(names, f.Path)
	}
	err = s.observeTransfer(ctx, ModePush, strings.Join(names, " "), s.inside(to), func() error {
		if done, err = s.copyFrom(ctx, from, to); err != nil {
			err = s.explain("copy to "+s.inside(to), err)
		}
		return err
	})
	return done, err
}

// landing is where one source goes: to the name as below a directory of the session; "": what is in it.
type landing struct {
	Source

	abs string
	as  string
	dir bool // it is a directory
}

func (s *Session) copyFrom(ctx context.Context, from []Source, to string) (Copied, error) {
	inside := s.inside(to)
	into := strings.HasSuffix(to, "/") || inside == s.info.labels.Workspace.Target
	if !into {
		var err error
		if into, err = s.hasDir(ctx, inside); err != nil {
			return Copied{}, err
		}
	}
	if len(from) > 1 && !into {
		return Copied{}, badInput("path", "%s is not a directory of the session, and several sources need one: end it in a slash to have it made", inside)
	}
	list, err := land(from, into)
	if err != nil {
		return Copied{}, err
	}
	if only := &list[0]; !into && !only.dir {
		inside, only.as = path.Dir(inside), path.Base(inside)
	}
	var copied []common
	out, err := s.pack(ctx, inside, func(t *transfer.Packer) error {
		for _, l := range list {
			before := len(t.Packed)
			t.Skip = l.Skip
			if err := t.As(l.abs, l.as); err != nil {
				return err
			}
			if c, ok := l.common(inside, t.Packed[before:]); ok {
				copied = append(copied, c)
			}
		}
		return nil
	})
	if err == nil {
		err = s.addCopied(ctx, copied)
	}
	if err != nil {
		return Copied{}, err
	}
	return Copied{LeftOut: out.Left, Files: out.Files, Bytes: out.Size}, nil
}

// land says where each source goes.
func land(from []Source, into bool) ([]landing, error) {
	taken := map[string]string{}
	var list []landing
	for _, f := range from {
		info, err := os.Stat(f.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, badInput("path", "%v", err)
		}
		if err != nil {
			return nil, err
		}
		l := landing{Source: f, dir: info.IsDir()}
		if l.abs, err = filepath.Abs(f.Path); err != nil {
			return nil, err
		}
		if into && !(l.dir && IsContents(filepath.ToSlash(f.Path))) {
			l.as = filepath.Base(l.abs)
			if other, ok := taken[l.as]; ok {
				return nil, badInput("path", "%s and %s have one name: copy them one after the other", other, f.Path)
			}
			taken[l.as] = f.Path
		}
		list = append(list, l)
	}
	return list, nil
}

// IsContents reports whether a path, with slashes, stands for what is in a directory: its last element
// is "." or "..".
func IsContents(p string) bool {
	last := p[strings.LastIndexByte(p, '/')+1:]
	return last == "." || last == ".."
}

// common returns what is the same on both sides once a source was copied; false if its name is not.
func (l landing) common(inside string, packed []transfer.Entry) (common, bool) {
	switch {
	case l.as == "": // what is in a directory
		return common{l.abs, inside, packed}, true
	case l.as == filepath.Base(l.abs):
		return common{filepath.Dir(l.abs), inside, packed}, true
	}
	return common{}, false
}

// hasDir reports whether there is a directory at a path of the session.
func (s *Session) hasDir(ctx context.Context, dir string) (bool, error) {
	if strings.IndexByte(dir, 0) >= 0 {
		return false, badInput("path", "the path has a NUL byte")
	}
	err := s.take(ctx, s.info.labels.User, arriving{ // it asks for no file
		verb: wire.VerbPick, src: dir, in: "\x00", take: func(transfer.Entry, io.Reader) error { return errors.New("it was not asked for") },
	})
	if _, missing := errors.AsType[missingError](err); missing {
		return false, nil
	}
	return err == nil, err
}

// WriteFile makes a file of the session with a content of that many bytes, or replaces it. Missing
// directories are created. If there is a directory, the error is an *InputError.
func (s *Session) WriteFile(ctx context.Context, to string, content io.Reader, size int64) error {
	inside := s.inside(to)
	return s.observeTransfer(ctx, ModePush, "-", inside, func() error {
		err := s.writeFile(ctx, to, inside, content, size)
		if err != nil {
			err = s.explain("write "+inside, err)
		}
		return err
	})
}

func (s *Session) writeFile(ctx context.Context, to, inside string, content io.Reader, size int64) error {
	isDir := strings.HasSuffix(to, "/") || inside == s.info.labels.Workspace.Target
	if !isDir {
		var err error
		if isDir, err = s.hasDir(ctx, inside); err != nil {
			return err
		}
	}
	if isDir {
		return badInput("path", "%s is a directory: name the file", inside)
	}
	return s.send(ctx, path.Dir(inside), func(t *transfer.Packer) error { return t.Content(path.Base(inside), content, size) })
}

// ReadFile writes the content of a file of the session to out, and returns its size. If there is no
// file, the error is an *InputError.
func (s *Session) ReadFile(ctx context.Context, src string, out io.Writer) (size int64, err error) {
	err = s.observeTransfer(ctx, ModePull, s.inside(src), "-", func() error {
		err := s.receive(ctx, src, func(e transfer.Entry, r io.Reader) error {
			if e.Kind != transfer.File {
				return badInput("path", "%s is not a file", s.inside(src))
			}
			n, err := io.Copy(out, r)
			size += n
			return err
		})
		if err != nil {
			err = s.explain("read "+s.inside(src), err)
		}
		return err
	})
	return size, err
}
