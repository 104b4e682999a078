package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options of a Log. Zero values are defaults.
type Options struct {
	// FileBytes is how large a file becomes before the next is begun; 0: 64 MiB.
	FileBytes int64
	// Retention is how long files are kept after their last record; 0: for ever.
	Retention time.Duration
	// Patience is how long another process may hold the log; 0: 2 s.
	Patience time.Duration
}

// Log is the log in one directory: audit.jsonl, and behind it audit-N.jsonl, which
// are never written to again. Files are 0600 in a directory 0700. Any number of
// processes may append to it, and a Log may be used concurrently.
//
// A record is in the file, not on the disk, when Append returns: it outlives the
// process, not a failure of the machine's power.
type Log struct {
	dir  string
	opts Options

	mu     sync.Mutex // held through an Append
	root   *os.Root
	lock   *os.File
	file   *os.File // audit.jsonl as this process knows it; nil if it does not
	size   int64    // of file, behind the last record that head is of
	last   position
	missed int64 // records that could not be written
}

// position is where a chain stands.
type position struct {
	seq  uint64
	hash string
}

const (
	currentName  = "audit.jsonl"
	lockName     = "lock"
	sealedPrefix = "audit-"
	sealedSuffix = ".jsonl"
)

// Open opens the log in dir, which is made if it is not there. Close it.
func Open(dir string, o Options) (*Log, error) {
	if o.FileBytes <= 0 {
		o.FileBytes = 64 << 20
	}
	if o.Patience <= 0 {
		o.Patience = 2 * time.Second
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // of what was there before
		return nil, fmt.Errorf("audit log: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	lock, err := root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", errors.Join(err, root.Close()))
	}
	return &Log{dir: dir, opts: o, root: root, lock: lock}, nil
}

// Close lets go of the log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.lock.Close(), l.root.Close())
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	return err
}

// Append adds a record. An error means that it is not in the log; the next one
// says how many are missing.
func (l *Log) Append(r Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.locked(func() error {
		if err := l.catchUp(); err != nil {
			return err
		}
		if l.size >= l.opts.FileBytes {
			if err := l.rotate(); err != nil {
				return err
			}
		}
		r.Missed = l.missed
		return l.write(r)
	})
	if err != nil {
		l.missed++
		return fmt.Errorf("audit log in %s: %w", l.dir, err)
	}
	l.missed = 0
	return nil
}

// ErrBusy means that another process holds the log.
var ErrBusy = errors.New("another process holds it")

// lockPause is between two tries to get the lock.
const lockPause = time.Millisecond

// locked holds the other processes off.
func (l *Log) locked(do func() error) error {
	for until := time.Now().Add(l.opts.Patience); ; time.Sleep(lockPause) {
		ok, err := tryLock(l.lock)
		switch {
		case err != nil:
			return fmt.Errorf("lock: %w", err)
		case ok:
			return errors.Join(do(), unlock(l.lock))
		case time.Now().After(until):
			return ErrBusy
		}
	}
}

// catchUp finds the end of the log: what other processes have added since, and what
// one of them has left half written.
func (l *Log) catchUp() error {
	if l.file != nil {
		now, err := l.root.Stat(currentName)
		own, ownErr := l.file.Stat()
		if err == nil && ownErr == nil && os.SameFile(now, own) && own.Size() == l.size {
			return nil
		}
		_ = l.file.Close() // nothing is written that was not
		l.file = nil
	}
	f, err := l.root.OpenFile(currentName, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if err := l.adopt(f); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// adopt makes f the current file.
func (l *Log) adopt(f *os.File) error {
	tail, size, err := lastLine(f)
	if err != nil {
		return err
	}
	l.file, l.size = f, size
	if size == 0 {
		return l.begin()
	}
	line, whole := strings.CutSuffix(string(tail), "\n")
	if r, err := parse([]byte(line)); err == nil && whole {
		l.last = position{r.Seq, Hash([]byte(line))}
		return nil
	}
	return l.mend(line, whole)
}

// mend closes a line that somebody has begun and not ended, or has damaged: it
// stays, and the record behind it says so.
func (l *Log) mend(line string, whole bool) error {
	if !whole {
		if err := l.put([]byte("\n")); err != nil {
			return err
		}
	}
	seq, err := l.lastSeq()
	if err == nil && seq == 0 { // it is the first line
		var before position
		before, _, err = l.lastSealed()
		seq = before.seq
	}
	if err != nil {
		return err
	}
	l.last = position{seq, Hash([]byte(line))}
	return l.write(Record{Kind: Torn})
}

// lastSeq looks for the number of the last good record, from the begin of the file.
func (l *Log) lastSeq() (uint64, error) {
	var seq uint64
	_, err := lines(io.NewSectionReader(l.file, 0, l.size), func(_ int, line []byte) error {
		if r, err := parse(line); err == nil {
			seq = r.Seq
		}
		return nil
	})
	return seq, err
}

// begin writes the first record of a file whose predecessor has been sealed. The
// first file of all begins with whatever comes.
func (l *Log) begin() error {
	before, name, err := l.lastSealed()
	l.last = before
	if err != nil || name == "" {
		return err
	}
	return l.write(Record{Kind: Segment, File: name})
}

// lastSealed is where the chain stands at the end of the last sealed file; the name
// is "" if there is none.
func (l *Log) lastSealed() (position, string, error) {
	sealed, err := sealedFiles(l.root)
	if err != nil || len(sealed) == 0 {
		return position{0, first}, "", err
	}
	name := sealed[len(sealed)-1]
	line, err := l.endOf(name)
	if err != nil {
		return position{}, name, err
	}
	r, err := parse(line)
	if err != nil {
		return position{}, name, fmt.Errorf("%s ends with no record: see `sandboxbash audit verify`", name)
	}
	return position{r.Seq, Hash(line)}, name, nil
}

// endOf is the last line of a file, without its end.
func (l *Log) endOf(name string) ([]byte, error) {
	f, err := l.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tail, _, err := lastLine(f)
	return bytes.TrimSuffix(tail, []byte("\n")), err
}

// rotate seals the current file and begins the next.
func (l *Log) rotate() error {
	if err := l.file.Sync(); err != nil {
		return err
	}
	sealed, err := sealedFiles(l.root)
	if err != nil {
		return err
	}
	n := 0
	if len(sealed) > 0 {
		n = sealedNumber(sealed[len(sealed)-1])
	}
	if err := l.root.Rename(currentName, fmt.Sprintf("%s%08d%s", sealedPrefix, n+1, sealedSuffix)); err != nil {
		return err
	}
	_ = l.file.Close() // it was synced
	l.file = nil
	if err := l.catchUp(); err != nil {
		return err
	}
	return l.expire(sealed)
}

// expire removes files that are past their retention, and says so in the log.
func (l *Log) expire(sealed []string) error {
	if l.opts.Retention <= 0 {
		return nil
	}
	var old []string
	head := ""
	for _, name := range sealed {
		info, err := l.root.Stat(name)
		if err != nil || time.Since(info.ModTime()) < l.opts.Retention {
			break // none is removed that has an older one before it
		}
		line, err := l.endOf(name)
		if err != nil {
			return err
		}
		old, head = append(old, name), Hash(line)
	}
	if len(old) == 0 {
		return nil
	}
	// Said first: what is gone without a word looks like somebody's doing.
	if err := l.write(Record{Kind: Retention, Removed: old, RemovedHead: head}); err != nil {
		return err
	}
	for _, name := range old {
		if err := l.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// write adds a record to the current file.
func (l *Log) write(r Record) error {
	r.Seq, r.Prev, r.Time, r.PID = l.last.seq+1, l.last.hash, time.Now().UTC(), os.Getpid()
	line, err := r.line()
	if err != nil {
		return err
	}
	if err := l.put(line); err != nil {
		return err
	}
	l.last = position{r.Seq, Hash(line[:len(line)-1])}
	return nil
}

// put appends bytes, all or none.
func (l *Log) put(b []byte) error {
	n, err := l.file.Write(b)
	if err == nil {
		l.size += int64(n)
		return nil
	}
	if n > 0 {
		// A part of a line is no use to anyone. If it cannot be taken back, whoever is
		// next mends it.
		if cut := l.file.Truncate(l.size); cut != nil {
			err = errors.Join(err, cut, l.file.Close())
			l.file = nil
		}
	}
	return err
}

// sealedFiles lists the files that are never written to again, by their numbers.
func sealedFiles(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return sealedNumber(name) == 0 })
	slices.SortFunc(names, func(a, b string) int { return sealedNumber(a) - sealedNumber(b) })
	return names, nil
}

// sealedNumber is the number in a sealed file's name; 0 for any other.
func sealedNumber(name string) int {
	text, prefixed := strings.CutPrefix(name, sealedPrefix)
	text, suffixed := strings.CutSuffix(text, sealedSuffix)
	n, err := strconv.Atoi(text)
	if !prefixed || !suffixed || err != nil || n < 1 {
		return 0
	}
	return n
}

// DefaultDir is where a log is kept below the user's state directory.
func DefaultDir(state string) string { return filepath.Join(state, "sandboxbash", "audit") }
