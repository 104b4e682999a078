package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

const (
	lockFile      = "lock"
	stateFile     = "state"
	pendingFile   = "pending"
	journalFile   = "journal"
	automaticFile = "automatic"
	objectsDir    = "objects"
)

// store is an open, locked store.
type store struct {
	dir   string
	lock  *os.File
	state wire.CheckpointState

	stored atomic.Int64 // bytes of contents that were added since the state was written
	spare  [2]*os.File  // for the next manifest and the next delta
}

// create makes a store for a session that has none.
func create(at string) error {
	if err := os.MkdirAll(filepath.Join(at, objectsDir), 0o700); err != nil {
		return err
	}
	// It may be there already, of a process that was killed before it had written a state.
	return os.WriteFile(filepath.Join(at, lockFile), nil, 0o600)
}

// open opens a store and waits for its lock. The error is a refusal if there is none.
func open(at string, how int) (*store, error) {
	flags := os.O_RDWR
	if how&unix.LOCK_SH != 0 {
		flags = os.O_RDONLY
	}
	lock, err := os.OpenFile(filepath.Join(at, lockFile), flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse(wire.CheckpointNone, "it has no checkpoints")
	}
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(lock.Fd()), how)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	s := &store{dir: at, lock: lock}
	b, err := os.ReadFile(s.path(stateFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil // new
	case err == nil:
		if s.state, err = wire.ParseCheckpointState(b); err != nil {
			err = errStore
		}
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return s, nil
}

// close unlocks the store.
func (s *store) close() { s.lock.Close() }

func (s *store) path(name string) string { return filepath.Join(s.dir, name) }

func numbered(name string, n uint64) string { return name + "." + strconv.FormatUint(n, 10) }

// replace writes a file as a whole.
func (s *store) replace(name string, content []byte, sync bool) (err error) {
	f, err := os.OpenFile(s.path(name+".new"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(s.path(name+".new"), s.path(name))
}

// commit makes a state count.
func (s *store) commit(next wire.CheckpointState) error {
	if err := s.replace(stateFile, next.Append(nil), false); err != nil {
		return err
	}
	s.state = next
	return nil
}

// automatic notes for runners whether a checkpoint is wanted after each command.
func (s *store) automatic(on bool) error {
	if on {
		return os.WriteFile(s.path(automaticFile), nil, 0o600)
	}
	return ignoreMissing(os.Remove(s.path(automaticFile)))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// tidy removes what no state names: remainders of a process that was killed.
func (s *store) tidy() error {
	list, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	first := s.firstStep()
	for _, d := range list {
		name, number, ok := strings.Cut(d.Name(), ".")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 64)
		keep := err == nil && (name == "head" && n == s.state.Head || name == "delta" && n > first && n <= s.state.Step)
		if keep {
			continue
		}
		if err := ignoreMissing(os.Remove(s.path(d.Name()))); err != nil {
			return err
		}
	}
	return nil
}

// firstStep is the oldest step that there is a checkpoint of. Its delta leads to what was before, and is not needed.
func (s *store) firstStep() uint64 {
	first := s.state.Step
	for _, c := range s.state.List {
		first = min(first, c.Step)
	}
	return first
}

// find returns a checkpoint.
func (s *store) find(id uint64) (*wire.Checkpoint, error) {
	for i := range s.state.List {
		if s.state.List[i].ID == id {
			return &s.state.List[i], nil
		}
	}
	if id < s.state.Next && id > 0 {
		return nil, refuse(wire.CheckpointGone, "checkpoint %d is not kept any more", id)
	}
	return nil, refuse(wire.CheckpointGone, "there is no checkpoint %d", id)
}

func (s *store) objectPath(of sum) string {
	name := hex.EncodeToString(of[:])
	return filepath.Join(s.dir, objectsDir, name[:2], name[2:])
}

// has reports whether a content is there.
func (s *store) has(of sum, size int64) bool {
	info, err := os.Lstat(s.objectPath(of))
	return err == nil && info.Size() == size
}

// smallContent is read as a whole before it is written, so that one that is there already is not written at all.
const smallContent = 1 << 20 // bytes

// keep stores the content of a file that is size bytes long, and returns its sum and how many bytes there were.
func (s *store) keep(f *os.File, size int64, buf []byte) (of sum, n int64, err error) {
	if size <= int64(len(buf)) {
		var got int
		if got, err = io.ReadFull(f, buf[:size]); errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = nil
		}
		if err != nil {
			return of, 0, err
		}
		b := buf[:got]
		of, n = sha256.Sum256(b), int64(got)
		if s.has(of, n) {
			return of, n, nil
		}
		var st unix.Stat_t
		if sparse := unix.Fstat(int(f.Fd()), &st) == nil && st.Blocks*512 < n; !sparse {
			return of, n, s.put(of, n, func(to *os.File) error {
				_, err := to.Write(b)
				return err
			})
		}
	}
	return s.keepStream(f, size)
}

// keepStream is keep for a content that is large or has holes.
func (s *store) keepStream(f *os.File, size int64) (of sum, n int64, err error) {
	hash := sha256.New()
	tmp, err := os.CreateTemp(s.path(objectsDir), "new")
	if err != nil {
		return of, 0, err
	}
	defer func() {
		err = errors.Join(err, tmp.Close(), ignoreMissing(os.Remove(tmp.Name())))
	}()
	if n, err = copyHoles(tmp, f, size, hash); err != nil {
		return of, 0, err
	}
	hash.Sum(of[:0])
	if s.has(of, n) {
		return of, n, nil
	}
	return of, n, s.place(tmp.Name(), of, n)
}

// put stores a content.
func (s *store) put(of sum, size int64, fill func(*os.File) error) error {
	tmp, err := os.CreateTemp(s.path(objectsDir), "new")
	if err != nil {
		return err
	}
	err = errors.Join(fill(tmp), tmp.Close())
	if err == nil {
		err = s.place(tmp.Name(), of, size)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// place gives a stored content its name.
func (s *store) place(from string, of sum, size int64) error {
	to := s.objectPath(of)
	err := os.Rename(from, to)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(filepath.Dir(to), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			err = os.Rename(from, to)
		}
	}
	if err == nil {
		s.stored.Add(disk(size))
	}
	return err
}

// diskBlock is what file systems give a file at least.
const diskBlock = 4096 // bytes

// disk is what a content takes on the disk. A file with holes takes less, which is not known to be so everywhere.
func disk(size int64) int64 { return (size + diskBlock - 1) / diskBlock * diskBlock }

// content opens a stored content.
func (s *store) content(of sum) (*os.File, error) {
	f, err := os.Open(s.objectPath(of))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: a content is missing", errStore)
	}
	return f, err
}

// copyHoles copies a file with its holes, and gives all of its content to hash. It returns how long it is.
func copyHoles(to, from *os.File, size int64, hash io.Writer) (int64, error) {
	var at int64
	for at < size {
		data, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO):
			data = size
		case err != nil:
			data = at // a file system that does not know of holes
		}
		if data = min(data, size); data > at {
			if err := zeros(hash, data-at); err != nil {
				return at, err
			}
			at = data
			continue
		}
		end, err := unix.Seek(int(from.Fd()), at, unix.SEEK_HOLE)
		if err != nil || end <= at {
			end = size
		}
		end = min(end, size)
		var dst io.Writer = io.NewOffsetWriter(to, at)
		if hash != nil {
			dst = io.MultiWriter(dst, hash)
		}
		n, err := io.Copy(dst, io.NewSectionReader(from, at, end-at))
		at += n
		if err != nil {
			return at, err
		}
		if n == 0 || at < end { // it has become shorter
			break
		}
	}
	return at, to.Truncate(at)
}

var zeroBlock = make([]byte, 64<<10)

func zeros(w io.Writer, n int64) error {
	for w != nil && n > 0 {
		part := zeroBlock[:min(n, int64(len(zeroBlock)))]
		if _, err := w.Write(part); err != nil {
			return err
		}
		n -= int64(len(part))
	}
	return nil
}

// used counts what the contents take on the disk.
func (s *store) used() (int64, error) {
	var all int64
	err := s.eachObject(func(_ string, size int64) error {
		all += disk(size)
		return nil
	})
	return all, err
}

func (s *store) eachObject(do func(path string, size int64) error) error {
	return filepath.WalkDir(s.path(objectsDir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		return do(path, info.Size())
	})
}

// eachChange calls do with the changes of the steps behind from, oldest first.
func (s *store) eachChange(from, to uint64, do func(change)) error {
	for n := from + 1; n <= to; n++ {
		if err := readChanges(s.path(numbered("delta", n)), do); err != nil {
			return err
		}
	}
	return nil
}

func readChanges(path string, do func(change)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	defer f.Close()
	r := newRecordReader(f)
	for {
		b, err := r.next()
		if err != nil || b == nil {
			return err
		}
		record := fields{b: b}
		c := record.change()
		if record.err != nil {
			return record.err
		}
		do(c)
	}
}

// eachEntry calls do with each entry of the newest recorded state.
func (s *store) eachEntry(do func(entry) error) error {
	if s.state.Head == 0 {
		return nil
	}
	f, err := os.Open(s.path(numbered("head", s.state.Head)))
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	defer f.Close()
	r := newRecordReader(f)
	for {
		b, err := r.next()
		if err != nil || b == nil {
			return err
		}
		record := fields{b: b}
		e := record.entry(true)
		if record.err != nil {
			return record.err
		}
		if err := do(e); err != nil {
			return err
		}
	}
}

// between returns what differs between two states, of which the first is the older one: each path as it was and as it
// is. last are changes behind the last step, oldest first.
func (s *store) between(first, second uint64, last []change) (map[string]*change, error) {
	all := map[string]*change{}
	add := func(c change) {
		if known, ok := all[c.name()]; ok {
			known.now = c.now
			return
		}
		all[c.name()] = &c
	}
	if err := s.eachChange(first, second, add); err != nil {
		return nil, err
	}
	for _, c := range last {
		add(c)
	}
	for name, c := range all {
		if c.was.same(&c.now) {
			delete(all, name)
		}
	}
	return all, nil
}

// sorted returns changes in the order of a walk; turned around if they lead back.
func sorted(all map[string]*change, back bool) []change {
	list := make([]change, 0, len(all))
	for _, c := range all {
		if back {
			c.was, c.now = c.now, c.was
		}
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b change) int {
		switch x, y := a.name(), b.name(); {
		case x == y:
			return 0
		case before(x, y):
			return -1
		}
		return 1
	})
	return list
}

// pending returns the commands that have ended since the last checkpoint, and forgets them if asked to.
func (s *store) pending(forget bool) []wire.CheckpointCommand {
	b, err := os.ReadFile(s.path(pendingFile))
	if err != nil {
		return nil
	}
	var all []wire.CheckpointCommand
	for line := range bytes.Lines(b) {
		raw, err := hex.DecodeString(string(bytes.TrimSpace(line)))
		if err != nil {
			continue
		}
		if c, err := wire.ParseCheckpointCommand(raw); err == nil {
			all = append(all, c)
		}
	}
	if forget {
		_ = os.Remove(s.path(pendingFile))
	}
	if len(all) > maxCommands { // the first ones are what someone looks for
		all = all[:maxCommands]
	}
	return all
}

// maxCommands bounds how many commands one checkpoint names. maxPending bounds the file.
const (
	maxCommands = 64
	maxPending  = 256 << 10 // bytes
)

// sumOf reads the sum in the path of a content.
func sumOf(path string) (of sum, ok bool) {
	dir, name := filepath.Split(path)
	b, err := hex.DecodeString(filepath.Base(dir) + name)
	if err != nil || len(b) != sumSize {
		return of, false
	}
	return sum(b), true
}

func sizeText(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	v, u := float64(n), 0
	for ; v >= 1024 && u < len(units)-1; u++ {
		v /= 1024
	}
	if u == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}
