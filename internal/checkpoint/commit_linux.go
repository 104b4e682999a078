package checkpoint

import (
	"errors"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

const (
	newHead  = "head.new"
	newDelta = "delta.new"
)

// maxCheckpoints bounds how many are kept.
const maxCheckpoints = 1000

// never is the abort of a scan that nothing gives up.
func never() bool { return false }

// look scans the directory. The caller must call commit or discard, unless there is an error.
func (s *store) look(abort func() bool) (*taking, error) { return s.lookAt(abort, false) }

// lookAt is look. Unbounded, contents may take more than they should for a moment: they are those of a restore.
func (s *store) lookAt(abort func() bool, unbounded bool) (t *taking, err error) {
	set := s.state.Settings
	t = &taking{s: s, uid: set.UID, rules: rules{globs: parseGlobs(set.Exclude)}, abort: abort, limit: int64(set.Disk)}
	if unbounded || t.limit == 0 {
		t.limit = math.MaxInt64
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.discard(t))
		}
	}()
	for i, name := range []string{newHead, newDelta} {
		if s.spare[i], err = os.OpenFile(s.path(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return t, err
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return t, err
	}
	t.mounts = mountsBelow(set.Dir, mounts)
	if err := t.open(); err != nil {
		return t, err
	}
	err = asUser(set.UID, set.GID, func() error {
		t.forced = writtenFiles(set.UID)
		top, err := openTop(set.Dir)
		if err != nil {
			return err
		}
		defer unix.Close(top)
		if t.old == nil && set.Disk > 0 {
			if err := fits(top, set); err != nil {
				return err
			}
		}
		return t.scan(top)
	})
	return t, err
}

// discard forgets a scan. The contents that it has stored stay for the next one.
func (s *store) discard(t *taking) error {
	t.close()
	for _, f := range s.spare {
		if f != nil {
			f.Close()
		}
	}
	s.spare = [2]*os.File{}
	err := errors.Join(ignoreMissing(os.Remove(s.path(newHead))), ignoreMissing(os.Remove(s.path(newDelta))))
	if stored := s.stored.Swap(0); stored > 0 {
		next := s.state
		next.Used += uint64(stored)
		err = errors.Join(err, s.commit(next))
	}
	return err
}

// changes are those that a scan has found.
func (t *taking) changes() (all []change, err error) {
	if t.deltaFile == nil || t.old == nil {
		return nil, nil
	}
	err = readChanges(t.s.path(newDelta), func(c change) { all = append(all, c) })
	return all, err
}

// record makes a scan the newest recorded state. If it has found changes it becomes a checkpoint, if there is a why.
func (s *store) record(t *taking, why, name string) (made *wire.Checkpoint, err error) {
	first := s.state.Head == 0
	if !first && (t.headFile == nil || t.significant == 0 && t.read == 0) {
		return nil, s.discard(t)
	}
	t.close()
	next := s.state
	next.List, next.Redo = slices.Clone(next.List), slices.Clone(next.Redo)
	next.Head++
	if err := os.Rename(s.path(newHead), s.path(numbered("head", next.Head))); err != nil {
		return nil, err
	}
	if t.count > 0 {
		next.Step++
		if err := os.Rename(s.path(newDelta), s.path(numbered("delta", next.Step))); err != nil {
			return nil, err
		}
	} else if err := os.Remove(s.path(newDelta)); err != nil {
		return nil, err
	}
	stored := s.stored.Swap(0)
	next.Used += uint64(stored)
	next.Entries, next.Uncovered, next.UncoveredCount = t.entries, t.uncovered, t.uncoveredN
	if why != "" && (first || t.significant > 0) {
		c := t.made
		c.ID, c.Parent, c.Step = next.Next, next.Current, next.Step
		c.Name, c.Why, c.Time, c.Bytes = name, why, time.Now().UTC(), uint64(stored)
		c.Commands = s.pending(true)
		next.List, next.Current, next.Redo, next.Next = append(next.List, c), c.ID, nil, next.Next+1
		made = &c
	}
	old := s.state.Head
	if err := s.commit(next); err != nil {
		return nil, err
	}
	if old > 0 {
		_ = os.Remove(s.path(numbered("head", old)))
	}
	return made, s.trim()
}

// take makes a checkpoint of what is there now. It returns nil if nothing has changed.
func (s *store) take(why, name string, abort func() bool) (*wire.Checkpoint, error) {
	for {
		t, err := s.look(abort)
		if r, ok := errors.AsType[refusal](err); ok && r.code == wire.CheckpointFull && t.old != nil {
			dropped, trimErr := s.drop()
			if trimErr != nil {
				return nil, trimErr
			}
			if dropped {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		made, err := s.record(t, why, name)
		if err == nil && made == nil && !abort() { // what has ended since has changed nothing
			s.pending(true)
		}
		return made, err
	}
}

// trim drops the oldest checkpoints until the others have room.
func (s *store) trim() error {
	for len(s.state.List) > maxCheckpoints || s.state.Settings.Disk > 0 && s.state.Used > s.state.Settings.Disk {
		dropped, err := s.drop()
		if err != nil || !dropped {
			return err
		}
	}
	return nil
}

// drop drops some of the oldest checkpoints, and the contents that no other needs. It returns false if only the
// current one is left.
func (s *store) drop() (bool, error) {
	next := s.state
	next.List, next.Redo = slices.Clone(next.List), slices.Clone(next.Redo)
	slices.SortStableFunc(next.List, func(a, b wire.Checkpoint) int { return int(a.Step) - int(b.Step) })
	n := 0
	for most := max(1, len(next.List)/8); n < most && n < len(next.List) && next.List[n].ID != next.Current; n++ {
		id := next.List[n].ID
		next.Redo = slices.DeleteFunc(next.Redo, func(r uint64) bool { return r == id })
	}
	if n == 0 {
		return false, nil
	}
	next.List = slices.Clone(next.List[n:])
	slices.SortFunc(next.List, func(a, b wire.Checkpoint) int { return int(a.ID) - int(b.ID) })
	next.Dropped += uint64(n)
	if err := s.commit(next); err != nil {
		return false, err
	}
	if err := s.tidy(); err != nil {
		return false, err
	}
	return true, s.sweep()
}

// sweep removes the contents that no state has, and counts the others.
func (s *store) sweep() error {
	needed := map[sum]struct{}{}
	need := func(e *entry) {
		if e.known() {
			needed[e.sum] = struct{}{}
		}
	}
	err := s.eachEntry(func(e entry) error {
		need(&e)
		return nil
	})
	if err == nil {
		err = s.eachChange(s.firstStep(), s.state.Step, func(c change) {
			need(&c.was)
			need(&c.now)
		})
	}
	if err != nil {
		return err
	}
	var used int64
	err = s.eachObject(func(path string, size int64) error {
		if of, ok := sumOf(path); ok {
			if _, ok := needed[of]; ok {
				used += disk(size)
				return nil
			}
		}
		return ignoreMissing(os.Remove(path))
	})
	if err != nil {
		return err
	}
	s.stored.Store(0)
	next := s.state
	next.Used = uint64(used)
	return s.commit(next)
}

// fits returns a refusal if the files of a directory are more than its first checkpoint may keep.
func fits(top int, set wire.CheckpointSettings) error {
	limit := int64(set.Disk)
	total, files, err := size(top, int64(set.MaxFile), 0)
	if err == nil && total > limit {
		return refuse(wire.CheckpointFull, "its %d files are %s, and checkpoint.disk is %s", files, sizeText(total), sizeText(limit))
	}
	return err
}

func size(fd int, maxFile int64, depth int) (total, files int64, err error) {
	if depth > maxDepth {
		return 0, 0, nil // the scan says so
	}
	list, err := names(fd, make([]byte, 32<<10))
	if err != nil {
		return 0, 0, err
	}
	for _, name := range list {
		var st unix.Stat_t
		if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			files++
			if maxFile == 0 || st.Size <= maxFile {
				total += min(disk(st.Size), st.Blocks*512)
			}
		case unix.S_IFDIR:
			sub, err := openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
			if err != nil {
				continue
			}
			t, n, err := size(sub, maxFile, depth+1)
			unix.Close(sub)
			if err != nil {
				return 0, 0, err
			}
			total, files = total+t, files+n
		}
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return 0, 0, err
	}
	return total, files, nil
}
