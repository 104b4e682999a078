package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
)

// FileContent is a file of a session with its content, secrets included.
type FileContent struct {
	Path    string // absolute
	Exists  bool
	Mode    fs.FileMode
	Content []byte
}

// ErrFileChanged is returned by EditFile if the file has changed while the edit was made. Nothing was
// written.
var ErrFileChanged = errors.New("the file has changed meanwhile")

// EditFile replaces the content of a file of the session, or makes the file. It calls change with the
// file as it is and writes what change returns, with the file's permissions, unless the file is
// another one by then: then the error is ErrFileChanged. Missing directories are made. Nothing is
// written if change fails, or returns what was there. If there is something else than a file of at
// most so many bytes, the error is an *InputError.
func (s *Session) EditFile(ctx context.Context, to string, most int64, change func(FileContent) ([]byte, error)) error {
	inside := s.inside(to)
	if strings.HasSuffix(to, "/") || inside == s.info.labels.Workspace.Target {
		return badInput("path", "%s is a directory: name a file", inside)
	}
	was, sum, err := s.fileContent(ctx, inside, most)
	if err != nil {
		return err
	}
	now, err := change(was)
	if err != nil || was.Exists && bytes.Equal(was.Content, now) {
		return err
	}
	return s.observeTransfer(ctx, ModePush, "-", inside, func() error {
		size := int64(len(now))
		if !was.Exists {
			err := s.writeFile(ctx, to, inside, bytes.NewReader(now), size)
			if err != nil {
				err = s.explain("write "+inside, err)
			}
			return err
		}
		name, sumNow := path.Base(inside), transfer.Sum(sha256.Sum256(now))
		d := transfer.Delta{
			Name: name,
			Was:  transfer.Entry{Name: name, Kind: transfer.File, Mode: was.Mode, Size: int64(len(was.Content)), Sum: &sum},
			Now:  transfer.Entry{Name: name, Kind: transfer.File, Mode: was.Mode, Size: size, Sum: &sumNow},
		}
		verdicts, err := s.update(ctx, path.Dir(inside), []transfer.Delta{d}, func(t *transfer.Packer) error {
			return t.Content(name, bytes.NewReader(now), size)
		})
		switch {
		case err != nil:
			return s.explain("write "+inside, err)
		case verdicts[0] != transfer.Taken && verdicts[0] != transfer.Alike:
			return fmt.Errorf("%s: %w", inside, ErrFileChanged)
		}
		return nil
	})
}

// fileContent reads a file of the session.
func (s *Session) fileContent(ctx context.Context, inside string, most int64) (FileContent, transfer.Sum, error) {
	f := FileContent{Path: inside}
	err := s.receive(ctx, inside, func(e transfer.Entry, r io.Reader) error {
		switch {
		case e.Kind == transfer.Dir:
			return badInput("path", "%s is a directory: name a file", inside)
		case e.Kind != transfer.File:
			return badInput("path", "%s is not a plain file", inside)
		case e.Size > most:
			return badInput("path", "%s has %d bytes, more than %d", inside, e.Size, most)
		}
		f.Exists, f.Mode = true, e.Mode.Perm()
		var err error
		f.Content, err = io.ReadAll(r)
		return err
	})
	if _, missing := errors.AsType[missingError](err); missing {
		return f, transfer.Sum{}, nil
	}
	if err != nil {
		if _, ours := errors.AsType[*InputError](err); !ours {
			err = s.explain("read "+inside, err)
		}
		return f, transfer.Sum{}, err
	}
	return f, sha256.Sum256(f.Content), nil
}

// ReadLines writes lines of a file of the session to out: count of them from the line first on, which is
// at least 1. It reads no further than it must. The error is that of out, or an *InputError if there is
// no plain file. It reports how many lines it has seen, and whether the file ends there.
func (s *Session) ReadLines(ctx context.Context, src string, first, count int64, out io.Writer) (seen int64, end bool, err error) {
	inside := s.inside(src)
	l := &lineRange{first: first, last: first + count - 1, out: out, line: 1}
	err = s.observeTransfer(ctx, ModePull, inside, "-", func() error {
		err := s.receive(ctx, inside, func(e transfer.Entry, r io.Reader) error {
			switch {
			case e.Kind == transfer.Dir:
				return badInput("path", "%s is a directory: list it with ls", inside)
			case e.Kind != transfer.File:
				return badInput("path", "%s is not a plain file", inside)
			}
			_, err := io.Copy(l, r)
			return err
		})
		if errors.Is(err, errLinesRead) {
			return nil
		}
		end = err == nil
		if _, missing := errors.AsType[missingError](err); missing {
			return badInput("path", "%s: there is no such file", inside)
		}
		if _, ours := errors.AsType[*InputError](err); err != nil && !ours && l.failed == nil {
			err = s.explain("read "+inside, err)
		}
		return err
	})
	seen = l.line - 1
	if l.open {
		seen++
	}
	return seen, end, err
}

// errLinesRead ends a transfer whose rest is not wanted.
var errLinesRead = errors.New("all wanted lines were read")

// lineRange passes a range of lines on.
type lineRange struct {
	first, last int64
	line        int64 // that the next byte belongs to
	open        bool  // something of it was seen
	out         io.Writer
	failed      error // of out
}

func (l *lineRange) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		if l.line > l.last {
			return total - len(p), errLinesRead
		}
		n, whole := len(p), false
		if at := bytes.IndexByte(p, '\n'); at >= 0 {
			n, whole = at+1, true
		}
		if l.line >= l.first {
			if _, l.failed = l.out.Write(p[:n]); l.failed != nil {
				return total - len(p), l.failed
			}
		}
		p, l.open = p[n:], !whole
		if whole {
			l.line++
		}
	}
	return total, nil
}
