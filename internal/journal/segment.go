package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/filelock"
)

const (
	lockName      = "lock"
	sessionName   = "session"
	segmentSuffix = ".journal"
)

func segmentFile(n int) string { return fmt.Sprintf("%08d%s", n, segmentSuffix) }

// segmentNumber returns the number in the name of a segment, or 0 for any other name.
func segmentNumber(name string) int {
	text, ok := strings.CutSuffix(name, segmentSuffix)
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 1 || segmentFile(n) != name {
		return 0
	}
	return n
}

// segments returns the numbers of the segments of a journal, in order.
func segments(root *os.Root) ([]int, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, name := range names {
		if n := segmentNumber(name); n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// validSession reports whether a session's id can be the name of a directory.
func validSession(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		alnum := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alnum && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return true
}

// appender is the writing side of one session's journal. It is for one goroutine.
type appender struct {
	session string
	opts    *Options

	root *os.Root // nil while it is not open
	lock *os.File
	file *os.File // the current segment; nil: not known
	at   position // of file
	told bool     // the session file is there
}

// position is where the current segment of a journal ends.
type position struct {
	segment int
	size    int64
}

// errBusy means that another process held the lock for longer than Options.Patience.
var errBusy = errors.New("another process holds the journal's lock")

// open opens the journal in dir, which it creates if necessary.
func (a *appender) open(dir string) error {
	base, err := openBase(dir)
	if err != nil {
		return err
	}
	defer base.Close()
	if err := base.Mkdir(a.session, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	root, err := base.OpenRoot(a.session)
	if err != nil {
		return err
	}
	lock, err := root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return errors.Join(err, root.Close())
	}
	a.root, a.lock, a.at = root, lock, position{}
	return nil
}

func (a *appender) close() {
	if a.file != nil {
		_ = a.file.Close() // nothing is buffered
		a.file = nil
	}
	if a.root != nil {
		_, _ = a.lock.Close(), a.root.Close()
		a.root, a.lock = nil, nil
	}
}

// append adds frames to the journal, all of them or none.
func (a *appender) append(dir string, who *Session, frames []byte) error {
	for range 2 {
		if a.root == nil {
			if err := a.open(dir); err != nil {
				return err
			}
		}
		switch ok, err := filelock.LockFor(a.lock, a.opts.Patience); {
		case err != nil:
			return fmt.Errorf("lock: %w", err)
		case !ok:
			return errBusy
		}
		if !a.removed() {
			err := a.put(who, frames)
			return errors.Join(err, filelock.Unlock(a.lock))
		}
		a.close() // which gives the lock back
	}
	return errors.New("the journal is removed again and again")
}

// removed reports whether the journal was removed while this process had it open.
func (a *appender) removed() bool {
	own, err := a.lock.Stat()
	now, nowErr := a.root.Stat(lockName)
	return err == nil && (nowErr != nil || !os.SameFile(own, now))
}

// put adds frames while the lock is held.
func (a *appender) put(who *Session, frames []byte) error {
	if err := a.catchUp(); err != nil {
		return err
	}
	if who != nil && !a.told {
		if err := a.tell(who); err != nil {
			return err
		}
		a.told = true
	}
	if a.at.size >= a.opts.SegmentBytes {
		if err := a.rotate(); err != nil {
			return err
		}
	}
	return a.write(frames)
}

// write adds frames to the current segment, and notes how far it is whole.
func (a *appender) write(frames []byte) error {
	n, err := a.file.Write(frames)
	if err != nil {
		if n > 0 { // if this fails too, the next writer repairs it
			err = errors.Join(err, a.file.Truncate(a.at.size))
		}
		return err
	}
	a.at.size += int64(n)
	return a.note()
}

// note writes down up to where the current segment is whole.
func (a *appender) note() error {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(a.at.segment))
	binary.LittleEndian.PutUint64(b[8:], uint64(a.at.size))
	_, err := a.lock.WriteAt(b[:], 0)
	return err
}

// noted returns what the last writer has noted.
func (a *appender) noted() position {
	var b [16]byte
	if n, _ := a.lock.ReadAt(b[:], 0); n < len(b) {
		return position{}
	}
	return position{int(binary.LittleEndian.Uint64(b[:])), int64(binary.LittleEndian.Uint64(b[8:]))}
}

// catchUp finds the end of the journal: other processes may have written since, and one may have been
// killed while it did.
func (a *appender) catchUp() error {
	last := a.noted()
	if a.file == nil || last.segment != a.at.segment {
		if err := a.reopen(last.segment); err != nil {
			return err
		}
	}
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	whole := last.size
	if last.segment != a.at.segment || whole > info.Size() {
		whole = 0
	}
	a.at.size = info.Size()
	if whole == info.Size() {
		return nil
	}
	return a.repair(whole, info.Size())
}

// reopen opens the current segment, which is the one that was noted or a later one.
func (a *appender) reopen(noted int) error {
	if a.file != nil {
		_ = a.file.Close()
		a.file = nil
	}
	n := noted
	if n < 1 {
		all, err := segments(a.root)
		if err != nil {
			return err
		}
		n = 1
		if len(all) > 0 {
			n = all[len(all)-1]
		}
	}
	f, err := a.root.OpenFile(segmentFile(n), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	a.file, a.at = f, position{segment: n}
	return nil
}

// repair looks at what follows the whole part of the current segment. Whole frames stay; what a killed writer has
// written of one is removed, and a record says so.
func (a *appender) repair(from, size int64) error {
	b := make([]byte, size-from)
	if _, err := a.file.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	whole := 0
	for whole < len(b) {
		_, _, n, err := splitFrame(b[whole:])
		if err != nil {
			break
		}
		whole += n
	}
	torn := int64(len(b) - whole)
	if torn == 0 {
		return a.note()
	}
	a.at.size = from + int64(whole)
	if err := a.file.Truncate(a.at.size); err != nil {
		return err
	}
	frame, err := appendRecord(nil, &Record{Time: time.Now().UTC(), Kind: Torn, Bytes: torn})
	if err != nil {
		return err
	}
	return a.write(frame)
}

// rotate begins the next segment, and removes the oldest ones at the size limit.
func (a *appender) rotate() error {
	_ = a.file.Close()
	a.file = nil
	if err := a.reopen(a.at.segment + 1); err != nil {
		return err
	}
	if err := a.note(); err != nil {
		return err
	}
	all, err := segments(a.root)
	if err != nil {
		return err
	}
	left := a.opts.SessionBytes - a.opts.SegmentBytes // room for the new one
	for _, n := range slices.Backward(all) {
		if n >= a.at.segment {
			continue
		}
		info, err := a.root.Lstat(segmentFile(n))
		if err != nil {
			continue
		}
		if left -= info.Size(); left < 0 {
			_ = a.root.Remove(segmentFile(n)) // the next rotation tries again
		}
	}
	return nil
}

// tell writes who the session is, unless it is written down already.
func (a *appender) tell(who *Session) error {
	if _, err := a.root.Lstat(sessionName); err == nil {
		return nil
	}
	b, err := json.Marshal(who)
	if err != nil {
		return err
	}
	const part = sessionName + ".new"
	if err := a.root.WriteFile(part, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return a.root.Rename(part, sessionName)
}

// openBase opens the directory of all journals, which it creates if necessary. It refuses one that other users can
// write to.
func openBase(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	if err := audit.CheckOwner(root, "journal.dir"); err != nil {
		return nil, fmt.Errorf("%s %w", dir, errors.Join(err, root.Close()))
	}
	return root, nil
}
