package sink

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/filelock"
)

// A State says whether an artifact is complete.
type State string

// The states of an artifact.
const (
	Complete   State = "complete"
	Incomplete State = "incomplete"
	Writing    State = "writing" // what was written so far can be read
)

// Info describes a stored artifact.
type Info struct {
	Session string
	ID      string
	Name    string // of the file: <id>.bash.log, or <id>.bash-original.log
	Bytes   int64
	Written time.Time // when it was last written
	State   State
	Cause   string // why it is incomplete
}

// List returns the artifacts of a session, of all sessions if it is "", ordered
// by session and id. An unknown session has none.
func (s *Store) List(session string) ([]Info, error) {
	top, err := s.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("artifact store: %w", err)
	}
	defer top.Close()
	sessions := []string{session}
	if session == "" {
		if sessions, err = readNames(top); err != nil {
			return nil, fmt.Errorf("artifact store: %w", err)
		}
	}
	var out []Info
	for _, name := range sessions {
		root, err := openSession(top, name)
		if err != nil {
			continue // not the directory of a session
		}
		infos, err := list(root, name)
		err = errors.Join(err, root.Close())
		if err != nil {
			return nil, fmt.Errorf("artifacts of session %s: %w", name, err)
		}
		out = append(out, infos...)
	}
	slices.SortFunc(out, func(a, b Info) int {
		na, _ := parseID(a.ID)
		nb, _ := parseID(b.ID)
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(na, nb), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

func openSession(top *os.Root, name string) (*os.Root, error) {
	if !validSession(name) {
		return nil, ErrNotFound
	}
	return openDir(top, name)
}

func list(root *os.Root, session string) ([]Info, error) {
	names, err := readNames(root)
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, name := range names {
		if _, ok := idOf(name); !ok {
			continue
		}
		f, info, err := openArtifact(root, session, name)
		if err != nil {
			continue // removed meanwhile, or not a regular file
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

// openArtifact opens a file of a session and describes it.
func openArtifact(root *os.Root, session, name string) (*os.File, Info, error) {
	id, _ := idOf(name)
	info := Info{Session: session, ID: strconv.FormatInt(id, 10), Name: name}
	// Read the state first: an artifact that becomes complete after that can be read whole.
	info.State, info.Cause = stateOf(root, name)
	f, err := openRegular(root, name, os.O_RDONLY)
	if err != nil {
		return nil, info, err
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, info, errors.Join(err, f.Close())
	}
	info.Bytes, info.Written = fi.Size(), fi.ModTime()
	return f, info, nil
}

func stateOf(root *os.Root, name string) (State, string) {
	f, err := openRegular(root, name+partialSuffix, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return Complete, ""
	}
	if err != nil {
		return Incomplete, causeOf(err)
	}
	defer f.Close()
	if filelock.Locked(f) {
		return Writing, ""
	}
	text, err := io.ReadAll(io.LimitReader(f, partialSize))
	cause := strings.TrimSpace(string(text))
	if err != nil || cause == "" {
		cause = "its writer ended before the command did"
	}
	return Incomplete, cause
}

// StoredArtifact is an open artifact. It must be closed. If the artifact is still being
// written, each read sees what has been written by then.
type StoredArtifact struct {
	Info
	f *os.File
}

// Open opens an artifact. Session and id are names, not paths. It returns ErrNotFound if
// the artifact does not exist, and for anything but a session's name and a decimal
// number.
func (s *Store) Open(session, id string) (*StoredArtifact, error) {
	notFound := fmt.Errorf("artifact %q of session %q: %w", id, session, ErrNotFound)
	if _, ok := parseID(id); !ok {
		return nil, notFound
	}
	top, err := s.open()
	if _, ok := errors.AsType[*ForeignDirError](err); ok {
		return nil, fmt.Errorf("artifact store: %w", err)
	}
	if err != nil {
		return nil, notFound
	}
	defer top.Close()
	root, err := openSession(top, session)
	if err != nil {
		return nil, notFound
	}
	defer root.Close()
	for _, suffix := range []string{logSuffix, originalSuffix} {
		if f, info, err := openArtifact(root, session, id+suffix); err == nil {
			return &StoredArtifact{info, f}, nil
		}
	}
	return nil, notFound
}

// Path returns the file of an artifact.
func (s *Store) Path(i Info) string { return filepath.Join(s.dir, i.Session, i.Name) }

// Original reports whether an artifact is the original of an output that a minimizer has shortened.
func (i Info) Original() bool { return strings.HasSuffix(i.Name, originalSuffix) }

// Close closes the file.
func (a *StoredArtifact) Close() error { return a.f.Close() }

// CopyBytes writes the bytes in the range [from, to), counted from 0; to < 0 means the
// end. A range beyond the end is shorter, or empty.
func (a *StoredArtifact) CopyBytes(w io.Writer, from, to int64) error {
	n := int64(1)<<62 - 1
	if to >= 0 {
		n = max(0, to-from)
	}
	_, err := io.Copy(w, io.NewSectionReader(a.f, from, n))
	return err
}

// maxLine bounds the memory for a line, in bytes. Grep searches a longer line in pieces
// of this size, which all have the line's number.
const maxLine = 64 << 10

// CopyLines writes the lines in the range [from, to], counted from 1; to <= 0 means the
// last line. A range beyond the end is shorter, or empty.
func (a *StoredArtifact) CopyLines(w io.Writer, from, to int64) error {
	return a.eachPiece(func(line int64, piece []byte) error {
		switch {
		case line < from:
			return nil
		case to > 0 && line > to:
			return io.EOF
		}
		_, err := w.Write(piece)
		return err
	})
}

// Lines returns the number of lines; a last one without a line end counts.
func (a *StoredArtifact) Lines() (n int64, err error) {
	err = a.eachPiece(func(line int64, _ []byte) error {
		n = line
		return nil
	})
	return n, err
}

// Grep calls found for every line that re matches, with its number and its text without
// the line end. The text is valid during the call. Grep returns the first error of found,
// and nil if that is io.EOF.
func (a *StoredArtifact) Grep(re *regexp.Regexp, found func(line int64, text []byte) error) error {
	return a.eachPiece(func(line int64, piece []byte) error {
		text := bytes.TrimSuffix(bytes.TrimSuffix(piece, newline), []byte{'\r'})
		if !re.Match(text) {
			return nil
		}
		return found(line, text)
	})
}

// eachPiece calls do for each line, line end included, or each part of maxLine
// bytes of a longer one, with the number of the line.
func (a *StoredArtifact) eachPiece(do func(line int64, piece []byte) error) error {
	r := bufio.NewReaderSize(io.NewSectionReader(a.f, 0, 1<<62-1), maxLine)
	for line := int64(1); ; {
		piece, err := r.ReadSlice('\n')
		if len(piece) > 0 {
			if stop := do(line, piece); errors.Is(stop, io.EOF) {
				return nil
			} else if stop != nil {
				return stop
			}
		}
		switch {
		case err == nil:
			line++
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// Remove removes an artifact. It returns ErrBusy for one that is being written.
func (s *Store) Remove(session, id string) error {
	a, err := s.Open(session, id)
	if err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return err
	}
	if a.State == Writing {
		return fmt.Errorf("artifact %s of session %s: %w", id, session, ErrBusy)
	}
	return s.inSession(session, func(root *os.Root) error {
		for _, suffix := range []string{logSuffix, originalSuffix} {
			if err := removeFiles(root, id+suffix); err != nil {
				return fmt.Errorf("artifact %s of session %s: %w", id, session, err)
			}
		}
		return nil
	})
}

// removeFiles removes an artifact's file and then its mark. If it is interrupted the
// artifact counts as incomplete.
func removeFiles(root *os.Root, name string) error {
	for _, n := range []string{name, name + partialSuffix} {
		if err := root.Remove(n); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (s *Store) inSession(session string, do func(*os.Root) error) error {
	top, err := s.open()
	if err != nil {
		return err
	}
	defer top.Close()
	root, err := openSession(top, session)
	if err != nil {
		return err
	}
	defer root.Close()
	return do(root)
}

// GC removes the artifacts that were last written longer ago than the store's
// retention, and the directories of sessions that have no artifacts left and have not
// been used for as long. It returns the artifacts that it has removed.
func (s *Store) GC(now time.Time) ([]Info, error) {
	infos, err := s.List("")
	if err != nil {
		return nil, err
	}
	var removed []Info
	var errs []error
	for _, info := range infos {
		if info.State == Writing || now.Sub(info.Written) <= s.opts.Retention {
			continue
		}
		err := s.inSession(info.Session, func(root *os.Root) error { return removeFiles(root, info.Name) })
		if err != nil {
			errs = append(errs, fmt.Errorf("artifact %s of session %s: %w", info.ID, info.Session, err))
			continue
		}
		removed = append(removed, info)
	}
	return removed, errors.Join(append(errs, s.removeEmpty(now))...)
}

// removeEmpty removes the directories of sessions that hold nothing but an old
// counter.
func (s *Store) removeEmpty(now time.Time) error {
	top, err := s.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	sessions, err := readNames(top)
	if err != nil {
		return err
	}
	for _, session := range sessions {
		if err := removeCounter(top, session, now.Add(-s.opts.Retention)); err != nil {
			return err
		}
	}
	return nil
}

// removeCounter removes a session's directory if it holds nothing but a counter
// last used before then.
func removeCounter(top *os.Root, session string, then time.Time) error {
	root, err := openSession(top, session)
	if err != nil {
		return nil //nolint:nilerr // not the directory of a session
	}
	names, err := readNames(root)
	counter, statErr := root.Lstat(counterName)
	idle := err == nil && statErr == nil && len(names) == 1 && counter.ModTime().Before(then)
	if idle {
		err = root.Remove(counterName)
	}
	if err = errors.Join(err, root.Close()); err == nil && idle {
		err = top.Remove(session)
	}
	if err != nil {
		return fmt.Errorf("artifacts of session %s: %w", session, err)
	}
	return nil
}

// Forget removes the counter of a session that has ended and has no artifacts. Artifacts
// stay until the store's retention is over.
func (s *Store) Forget(session string) error {
	top, err := s.open()
	if _, foreign := errors.AsType[*ForeignDirError](err); foreign || errors.Is(err, fs.ErrNotExist) {
		return nil // the session has no directory
	}
	if err != nil {
		return err
	}
	defer top.Close()
	return removeCounter(top, session, time.Now().Add(time.Hour))
}
