package sink

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/filelock"
)

// StoreOptions bound the size of a store. Zero means the default.
type StoreOptions struct {
	ArtifactBytes int64         // of one artifact; default 1 GiB
	SessionBytes  int64         // of all artifacts of a session; default 4 GiB
	TotalBytes    int64         // of all artifacts; default 20 GiB
	Retention     time.Duration // since an artifact was last written; default 14 days
}

// Store keeps artifacts in <dir>/<session>/<id>.bash.log, files 0600 in
// directories 0700. It follows no symbolic link below dir. Any number of
// processes may use one directory. A Store may be used concurrently.
//
// While an artifact is being written there is also <id>.bash.log.partial, which its
// writer has locked. If that file exists without a lock the artifact is incomplete.
type Store struct {
	dir  string
	opts StoreOptions

	mu      sync.Mutex
	total   int64     // guarded by mu; bytes of all artifacts at totalAt
	totalAt time.Time // guarded by mu
}

// NewStore returns a store in dir. The directory is made with the first artifact.
func NewStore(dir string, opts StoreOptions) (*Store, error) {
	if dir == "" {
		return nil, errors.New("artifact store: the directory is empty")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("artifact store: %w", err)
	}
	for _, n := range []int64{opts.ArtifactBytes, opts.SessionBytes, opts.TotalBytes, int64(opts.Retention)} {
		if n < 0 {
			return nil, errors.New("artifact store: quotas and retention must not be negative")
		}
	}
	def := func(n *int64, v int64) {
		if *n == 0 {
			*n = v
		}
	}
	def(&opts.ArtifactBytes, 1<<30)
	def(&opts.SessionBytes, 4<<30)
	def(&opts.TotalBytes, 20<<30)
	def((*int64)(&opts.Retention), int64(14*24*time.Hour))
	return &Store{dir: abs, opts: opts}, nil
}

const (
	logSuffix      = ".bash.log"
	originalSuffix = ".bash-original.log"
	partialSuffix  = ".partial"
	counterName    = "next" // holds the next id of a session, in decimal
)

// ErrNotFound is returned for a name that no artifact has, and for one that no artifact could
// have.
var ErrNotFound = errors.New("artifact not found")

// ErrBusy means that an artifact is being written.
var ErrBusy = errors.New("artifact is being written")

// validSession reports whether a session's name can be that of a directory of the store.
func validSession(name string) bool {
	if name == "" || len(name) > 128 || !isAlnum(name[0]) {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !isAlnum(c) && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// parseID reads an artifact's id: a decimal number without leading zeros.
func parseID(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == s
}

// idOf returns the id of the artifact that a file name belongs to.
func idOf(name string) (int64, bool) {
	id, rest, ok := strings.Cut(name, ".")
	if !ok || "."+rest != logSuffix && "."+rest != originalSuffix {
		return 0, false
	}
	return parseID(id)
}

// Session returns the writing side of a session's artifacts. It touches no file. It must
// be closed.
func (s *Store) Session(name string) (*Session, error) {
	if !validSession(name) {
		return nil, fmt.Errorf("artifact store: session %q: use letters, digits, '-' and '_', at most 128, a letter or digit first", name)
	}
	return &Session{store: s, name: name}, nil
}

// Session is the writing side of a session's artifacts. It may be used
// concurrently; a nil Session stores nothing.
type Session struct {
	store *Store
	name  string

	mu      sync.Mutex
	root    *os.Root // guarded by mu; nil until first used
	counter *os.File // guarded by mu; with root
	floor   int64    // guarded by mu; no smaller id is given out
}

// Close closes the session's directory. The Session can be used again.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeLocked()
}

func (s *Session) closeLocked() error {
	if s.root == nil {
		return nil
	}
	err := errors.Join(s.counter.Close(), s.root.Close())
	s.root, s.counter = nil, nil
	return err
}

// openLocked opens the session's directory, and makes it if necessary.
func (s *Session) openLocked() error {
	if s.root != nil {
		return nil
	}
	if err := checkPath(s.store.dir); err != nil { // make nothing in a directory of another user
		return err
	}
	if err := os.MkdirAll(s.store.dir, 0o700); err != nil {
		return err
	}
	top, err := s.store.open()
	if err != nil {
		return err
	}
	defer top.Close()
	if err := top.Mkdir(s.name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	root, err := openDir(top, s.name)
	if err != nil {
		return err
	}
	counter, err := openCounter(root)
	if err != nil {
		return errors.Join(err, root.Close())
	}
	s.root, s.counter, s.floor = root, counter, 0
	names, err := readNames(root)
	if err != nil {
		return errors.Join(err, s.closeLocked())
	}
	for _, name := range names {
		if id, ok := idOf(name); ok {
			s.floor = max(s.floor, id+1)
		}
	}
	return nil
}

// ForeignDirError refuses a store's directory because another user could have made or
// could exchange it or one above it. Such a user could read what is stored, or replace
// what is read.
type ForeignDirError struct {
	Path string
	What string // what is wrong; it continues a sentence that starts with Path
}

func (e *ForeignDirError) Error() string {
	return fmt.Sprintf("%s %s: keep artifacts in a directory of your own (artifacts.dir)", e.Path, e.What)
}

// open opens the store's directory, if it belongs to this user.
func (s *Store) open() (*os.Root, error) {
	if err := checkPath(s.dir); err != nil {
		return nil, err
	}
	top, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	info, err := top.Stat(".") // it may have been exchanged in between
	if err == nil {
		err = ownDir(s.dir, info)
	}
	if err != nil {
		return nil, errors.Join(err, top.Close())
	}
	return top, nil
}

// openDir opens a directory of top that another user cannot have chosen: it must not be a
// symbolic link, and others must not be able to write to it.
func openDir(top *os.Root, name string) (*os.Root, error) {
	before, err := top.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", name)
	}
	root, err := top.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	after, err := root.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s was replaced", name)
	}
	if err == nil && after.Mode().Perm()&0o077 != 0 {
		if err = root.Chmod(".", 0o700); err == nil {
			after, err = root.Stat(".")
		}
	}
	if err == nil {
		err = ownDir(name, after)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

func openCounter(root *os.Root) (*os.File, error) {
	f, err := root.OpenFile(counterName, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return openRegular(root, counterName, os.O_RDWR)
	}
	return f, err
}

// openRegular opens a regular file of root. It follows no symbolic link.
func openRegular(root *os.Root, name string, flag int) (*os.File, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := root.OpenFile(name, flag, 0)
	if err != nil {
		return nil, err
	}
	after, err := f.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%s was replaced", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func readNames(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// next takes the session's next id. No other process gets the same one.
func (s *Session) next() (id int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openLocked(); err != nil {
		return 0, err
	}
	if err := filelock.Lock(s.counter); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, filelock.Unlock(s.counter)) }()
	var digits [20]byte // fits any int64
	n, err := s.counter.ReadAt(digits[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	id = s.floor
	if stored, ok := parseID(strings.TrimSpace(string(digits[:n]))); ok {
		id = max(id, stored)
	}
	_, err = s.counter.WriteAt(strconv.AppendInt(nil, id+1, 10), 0) // never fewer digits than the file has
	if err == nil {
		s.floor = id + 1
	}
	return id, err
}

// create makes a file of the session. If the directory was removed meanwhile, it makes
// that again.
func (s *Session) create(name string) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for try := 0; ; try++ {
		if err := s.openLocked(); err != nil {
			return nil, err
		}
		f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil || try > 0 || !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		_ = s.closeLocked() // the directory is gone
	}
}

// remove removes a file of the session.
func (s *Session) remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.openLocked(); err != nil {
		return err
	}
	return s.root.Remove(name)
}

// holds reports whether name is still the file f.
func (s *Session) holds(name string, f *os.File) bool {
	want, err := f.Stat()
	if err != nil {
		return false
	}
	got, err := os.Lstat(s.path(name))
	return err == nil && os.SameFile(got, want)
}

func (s *Session) path(name string) string { return filepath.Join(s.store.dir, s.name, name) }

// Quotas are checked before every grant of this many bytes, so that each of several
// writers can exceed them by one grant.
const grant = 64 << 20

// totalFresh is how long the sum of all artifacts is used before it is computed again.
const totalFresh = 5 * time.Second

// grant returns how many bytes a writer may write before it asks again, or the cause if a
// quota is used up.
func (s *Session) grant() (int64, string) {
	o := s.store.opts
	used, err := usage(s.store.dir, s.name)
	if err != nil {
		return 0, causeOf(err)
	}
	if used >= o.SessionBytes {
		return 0, fmt.Sprintf("the session's quota of %s is used up", FormatBytes(o.SessionBytes))
	}
	total, err := s.store.usage()
	if err != nil {
		return 0, causeOf(err)
	}
	if total >= o.TotalBytes {
		return 0, fmt.Sprintf("the store's quota of %s is used up", FormatBytes(o.TotalBytes))
	}
	n := min(grant, o.SessionBytes-used, o.TotalBytes-total)
	s.store.mu.Lock()
	s.store.total += n
	s.store.mu.Unlock()
	return n, ""
}

// usage returns the bytes of all artifacts, as of a few seconds ago at most.
func (s *Store) usage() (int64, error) {
	s.mu.Lock()
	total, at := s.total, s.totalAt
	s.mu.Unlock()
	if !at.IsZero() && time.Since(at) < totalFresh && total < s.opts.TotalBytes-grant {
		return total, nil
	}
	total, err := usage(s.dir, ".")
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total, s.totalAt = total, time.Now()
	return total, nil
}

// usage sums the sizes of the artifacts below dir/name.
func usage(dir, name string) (total int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), name, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if _, ok := idOf(d.Name()); !ok {
			return nil
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total, err
}
