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

	"github.com/sandboxbash/sandboxbash/internal/filelock"
)

// Options of a Log. Zero values are defaults.
type Options struct {
	// FileBytes is the size at which the log begins its next file; 0: 64 MiB.
	FileBytes int64
	// Retention is how long files are kept after their last record; 0: for ever.
	Retention time.Duration
	// Patience is how long Append waits for another process's lock; 0: 2 s.
	Patience time.Duration
}

// Log is the log in one directory: the current file audit.jsonl, and older files
// audit-N.jsonl, which are never written to again. Files have mode 0600 in a directory
// of mode 0700. Any number of processes may append to a log, and a Log is safe for
// concurrent use.
//
// When Append returns, the record has been synced to the disk. A failure of the machine
// can cut off only a record whose Append has not returned.
type Log struct {
	dir  string
	opts Options

	mu     sync.Mutex // held through an Append
	root   *os.Root
	lock   *os.File
	file   *os.File // audit.jsonl, if this process has it open; else nil
	size   int64    // of file, up to the end of the record that last describes
	last   position
	missed int64 // records that could not be written
}

// position is the number and the hash of the last record of a chain.
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

// Open opens the log in dir, which it creates if necessary. The mode of an existing dir
// is not changed; Open refuses a dir that users other than this one and root can write
// to. The caller must Close the log.
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
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if err := checkOwner(root); err != nil {
		return nil, fmt.Errorf("audit log: %s %w", dir, errors.Join(err, root.Close()))
	}
	lock, err := root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", errors.Join(err, root.Close()))
	}
	return &Log{dir: dir, opts: o, root: root, lock: lock}, nil
}

// Close closes the files of the log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.lock.Close(), l.root.Close())
	if l.file != nil {
		err = errors.Join(err, l.file.Close())
	}
	return err
}

// Append adds a record, and syncs it to the disk before it returns. After an error the
// record is not in the log, and the next one that is says how many are missing. Append
// does nothing for a JobEnd of a job whose end the log already has.
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
		if known, err := l.known(r); known || err != nil {
			return err
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

// ErrBusy means that another process held the log's lock for longer than Options.Patience.
var ErrBusy = errors.New("another process holds it")

// lockPause is the pause between two attempts to get the lock.
const lockPause = time.Millisecond

// locked calls do while this process holds the lock.
func (l *Log) locked(do func() error) error {
	if err := waitForLock(l.lock, l.opts.Patience); err != nil {
		return err
	}
	return errors.Join(do(), filelock.Unlock(l.lock))
}

func waitForLock(lock *os.File, patience time.Duration) error {
	for until := time.Now().Add(patience); ; time.Sleep(lockPause) {
		ok, err := filelock.TryLock(lock)
		switch {
		case err != nil:
			return fmt.Errorf("lock: %w", err)
		case ok:
			return nil
		case time.Now().After(until):
			return ErrBusy
		}
	}
}

// catchUp finds the end of the log. Other processes may have added records since, and
// one of them may have left half a line.
func (l *Log) catchUp() error {
	if l.file != nil {
		now, err := l.root.Stat(currentName)
		own, ownErr := l.file.Stat()
		if err == nil && ownErr == nil && os.SameFile(now, own) && own.Size() == l.size {
			return nil
		}
		_ = l.file.Close() // every record is synced already
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

// adopt makes f the current file, and repairs its end if necessary.
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

// mend continues the log after a line that is not a record. The line stays; the next
// record says that it was cut off (Torn) or damaged.
func (l *Log) mend(line string, whole bool) error {
	before, err := l.lastGood()
	if err != nil {
		return err
	}
	l.last = position{before.seq, Hash([]byte(line))}
	if whole {
		return l.write(Record{Kind: Damaged})
	}
	// The line end and the record are one write: if only the line end were written, the
	// line would look damaged instead of cut off.
	return l.writeBehind("\n", Record{Kind: Torn})
}

// lastGood returns the position of the last line that is a record.
func (l *Log) lastGood() (position, error) {
	var at position
	err := lines(io.NewSectionReader(l.file, 0, l.size), func(_ int, line []byte, _ bool) error {
		if r, err := parse(line); err == nil {
			at = position{r.Seq, Hash(line)}
		}
		return nil
	})
	if err == nil && at.seq == 0 { // the bad line is the first of this file
		at, _, err = l.lastSealed()
	}
	return at, err
}

// begin writes the first record of a file that follows a sealed one. The log's first
// file has no such record.
func (l *Log) begin() error {
	before, name, err := l.lastSealed()
	l.last = before
	if err != nil {
		return err
	}
	if err := syncDir(l.root); err != nil { // the file's name must be on the disk too
		return err
	}
	if name == "" {
		return nil
	}
	return l.write(Record{Kind: Segment, File: name})
}

// lastSealed returns the position at the end of the last sealed file, and its name,
// which is "" if there is none.
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
		return position{}, name, fmt.Errorf("the last line of %s is not a record: see `sandboxbash audit verify`", name)
	}
	return position{r.Seq, Hash(line)}, name, nil
}

// endOf returns the last line of a file, without its line end.
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
	sealed, err := sealedFiles(l.root)
	if err != nil {
		return err
	}
	n := 0
	if len(sealed) > 0 {
		n = sealedNumber(sealed[len(sealed)-1])
	}
	_ = l.file.Close() // every record is synced already
	l.file = nil
	// If the rename fails, the log continues in the same file, and the next record tries
	// again: losing records would be worse.
	_ = l.root.Rename(currentName, fmt.Sprintf("%s%08d%s", sealedPrefix, n+1, sealedSuffix))
	if err := l.catchUp(); err != nil {
		return err
	}
	return l.expire(sealed)
}

// expire removes files that are past their retention, and records that in the log.
func (l *Log) expire(sealed []string) error {
	if l.opts.Retention <= 0 {
		return nil
	}
	var old []string
	head := ""
	for _, name := range sealed {
		info, err := l.root.Stat(name)
		if err != nil || time.Since(info.ModTime()) < l.opts.Retention {
			break // files are removed oldest first, without gaps
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
	// The record comes first: a file that is missing without one looks like tampering.
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
func (l *Log) write(r Record) error { return l.writeBehind("", r) }

func (l *Log) writeBehind(end string, r Record) error {
	r.Seq, r.Prev, r.Time, r.PID = l.last.seq+1, l.last.hash, time.Now().UTC(), os.Getpid()
	line, err := r.line()
	if err != nil {
		return err
	}
	if err := l.put(append([]byte(end), line...)); err != nil {
		return err
	}
	l.last = position{r.Seq, Hash(line[:len(line)-1])}
	return nil
}

// put appends all of b or nothing, and syncs it to the disk.
func (l *Log) put(b []byte) error {
	n, err := l.file.Write(b)
	if err == nil {
		err = l.file.Sync()
	}
	if err == nil {
		l.size += int64(n)
		return nil
	}
	if n > 0 {
		// Remove the part that was written. If that fails, the next writer mends the
		// log.
		if cut := l.file.Truncate(l.size); cut != nil {
			err = errors.Join(err, cut, l.file.Close())
			l.file = nil
		}
	}
	return err
}

// sealedFiles returns the names of the sealed files, ordered by number.
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

// sealedNumber returns the number in the name of a sealed file, or 0 for any other name.
func sealedNumber(name string) int {
	text, prefixed := strings.CutPrefix(name, sealedPrefix)
	text, suffixed := strings.CutSuffix(text, sealedSuffix)
	n, err := strconv.Atoi(text)
	if !prefixed || !suffixed || err != nil || n < 1 {
		return 0
	}
	return n
}

// DefaultDir returns the default directory of a log, below the user's state directory.
func DefaultDir(state string) string { return filepath.Join(state, "sandboxbash", "audit") }
