package transfer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// An apply writes all that is new into a directory of its own, below the target and so on
// its file system, before it changes anything. Then it writes a journal of its steps, and
// does them: what is replaced or removed is moved into that directory, never overwritten,
// and what is new is put where nothing is. So at every moment all that the user had is in
// its place or aside. A step that fails undoes those before it. After a process that was
// killed the journal says what to undo, at the next apply: see docs/adr/0048.

// applyDir is the directory where an apply keeps what is new and what was replaced.
const applyDir = ".sandboxbash-apply"

// Names in applyDir, besides those of newName and oldName.
const (
	applyLock    = applyDir + "/lock"
	applyJournal = applyDir + "/journal"
	applyDone    = applyDir + "/done" // all steps have been done: nothing is to be undone
)

// What a step does.
const (
	doRemove = "remove" // moves a file or link aside
	doRmdir  = "rmdir"  // moves an empty directory aside
	doMkdir  = "mkdir"
	doPut    = "put" // puts a file or link in its place; what was there is moved aside
	doMode   = "mode"
)

// stepOrder is the order of the steps: what goes makes room for what comes.
var stepOrder = map[string]int{doRemove: 0, doRmdir: 1, doMkdir: 2, doPut: 3, doMode: 4}

// step is one step of an apply.
type step struct {
	Do   string
	Name string
	Mode fs.FileMode // that is to be
	Was  fs.FileMode // of doMode
	Had  bool        // of doPut: something is replaced
	Link bool        // of doPut
	Must bool        // of doRmdir: something else takes its place
	// Target and Sum are of what is put.
	Target string
	Sum    Sum

	info fs.FileInfo // of what was there when the plan was made
}

// order sorts steps: directories are removed from below, files are put before links.
func order(a, b step) int {
	if c := cmp.Compare(stepOrder[a.Do], stepOrder[b.Do]); c != 0 {
		return c
	}
	if a.Link != b.Link {
		if b.Link {
			return -1
		}
		return 1
	}
	if a.Do == doRmdir {
		return cmp.Compare(b.Name, a.Name)
	}
	return cmp.Compare(a.Name, b.Name)
}

func newName(i int) string { return applyDir + "/n" + strconv.Itoa(i) }
func oldName(i int) string { return applyDir + "/o" + strconv.Itoa(i) }

// stage is the directory of an apply, and the lock on it.
type stage struct {
	root *os.Root
	lock *os.File
	keep bool // something of the user's is in it, and could not be put back
}

// openStage makes the directory, takes its lock, and undoes what an interrupted apply has
// done.
func openStage(root *os.Root) (*stage, error) {
	if !haveLocks {
		return nil, errors.New("changes cannot be applied on this system, which has no lock that ends with its process; pull them")
	}
	for range 100 { // another process may remove it at each turn
		s, err := tryStage(root)
		if s == nil && err == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := s.recover(); err != nil {
			s.keep = true
			return nil, errors.Join(fmt.Errorf("an apply that was interrupted cannot be undone: %w", err), s.close())
		}
		return s, s.clean()
	}
	return nil, ErrBusy
}

// tryStage returns nil if the directory was removed meanwhile.
func tryStage(root *os.Root) (*stage, error) {
	if err := root.Mkdir(applyDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err := root.Lstat(applyDir)
	if missing(err) {
		return nil, nil
	}
	if err != nil || !info.IsDir() {
		return nil, cmp.Or(err, fmt.Errorf("%s is in the way: it is not a directory", applyDir))
	}
	f, err := root.OpenFile(applyLock, os.O_RDWR|os.O_CREATE, 0o600)
	if missing(err) {
		return nil, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("another user's apply is under way in this directory, or was interrupted; apply again when they have: %w", err)
	}
	if err != nil {
		return nil, err
	}
	if !tryLock(f) {
		return nil, errors.Join(ErrBusy, f.Close())
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if now, err := root.Lstat(applyLock); err != nil || !os.SameFile(mine, now) {
		return nil, f.Close()
	}
	return &stage{root: root, lock: f}, nil
}

// close removes the directory, unless something of the user's is in it. The lock is closed first: on NFS and
// FUSE a file that is open stays in its directory under another name. If another apply has taken the
// directory by then, it is left to it.
func (s *stage) close() error {
	if s.keep {
		return closeLocked(s.lock)
	}
	err := s.clean()
	if err == nil {
		err = s.root.Remove(applyLock)
	}
	if err = errors.Join(err, closeLocked(s.lock)); err != nil {
		return err
	}
	if err := s.root.Remove(applyDir); err != nil && !errors.Is(err, fs.ErrExist) && !missing(err) {
		return err
	}
	return nil
}

// clean removes all but the lock. The journal goes before what it speaks of, and what says
// that it is done goes last.
func (s *stage) clean() error {
	for _, name := range []string{applyJournal, applyJournal + ".new"} {
		if err := s.root.Remove(name); err != nil && !missing(err) {
			return err
		}
	}
	list, err := fs.ReadDir(s.root.FS(), applyDir)
	if err != nil {
		return err
	}
	for _, d := range list {
		if name := applyDir + "/" + d.Name(); name != applyLock {
			if err := s.root.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// journalStep is a step as the journal has it: a name is bytes, and text need not be.
type journalStep struct {
	Do, Name, Target []byte
	Mode, Was        fs.FileMode
	Had, Link        bool
	Sum              Sum
}

func (s *stage) writeJournal(steps []step) error {
	list := make([]journalStep, len(steps))
	for i, t := range steps {
		list[i] = journalStep{[]byte(t.Do), []byte(t.Name), []byte(t.Target), t.Mode, t.Was, t.Had, t.Link, t.Sum}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	f, err := s.root.OpenFile(applyJournal+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return s.root.Rename(applyJournal+".new", applyJournal)
}

// recover undoes what the journal of an interrupted apply says.
func (s *stage) recover() error {
	if _, err := s.root.Lstat(applyDone); err == nil {
		return nil
	}
	f, err := openRegular(s.root, applyJournal)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	var list []journalStep
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("%s: %w", applyJournal, err)
	}
	steps := make([]step, len(list))
	for i, t := range list {
		name := string(t.Name)
		if !filepath.IsLocal(filepath.FromSlash(name)) || Repository(name) {
			return fmt.Errorf("%s names %s, which no apply writes", applyJournal, shown(name))
		}
		steps[i] = step{Do: string(t.Do), Name: name, Target: string(t.Target), Mode: t.Mode, Was: t.Was, Had: t.Had, Link: t.Link, Sum: t.Sum}
	}
	return s.undo(steps)
}

// undo undoes steps, the last one first. It goes on after an error, and overwrites nothing.
// What is undone already stays as it is: a process may be killed while it undoes.
func (s *stage) undo(steps []step) error {
	var errs []error
	for i, t := range slices.Backward(steps) {
		if err := s.undoStep(i, t); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", shown(t.Name), err))
		}
	}
	return errors.Join(errs...)
}

func (s *stage) undoStep(i int, t step) error {
	name := filepath.FromSlash(t.Name)
	switch t.Do {
	case doPut:
		if err := s.takeBack(i, t, name); err != nil {
			return err
		}
		return s.putBack(i, name)
	case doRemove, doRmdir:
		return s.putBack(i, name)
	case doMkdir:
		if info, err := s.root.Lstat(name); err == nil && info.IsDir() {
			_ = s.root.Remove(name) // with something of the user's in it, it stays
		}
	case doMode:
		info, err := s.root.Lstat(name)
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm() == t.Mode.Perm() {
			return s.root.Chmod(name, t.Was.Perm())
		}
	}
	return nil
}

// takeBack removes what a step has put in its place, if the user has not changed it since.
func (s *stage) takeBack(i int, t step, name string) error {
	there, err := s.root.Lstat(name)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if mine, err := s.root.Lstat(newName(i)); err == nil && !os.SameFile(mine, there) {
		return nil // it was not put there yet
	}
	if was, err := s.root.Lstat(oldName(i)); t.Had && (missing(err) || err == nil && os.SameFile(was, there)) {
		return nil // it was put back already
	}
	same, _, err := Tree{Root: s.root}.is(t.entry(there))
	if err != nil {
		return err
	}
	if !same && !t.Had {
		return nil // the user has changed it since, and nothing of theirs is aside
	}
	if !same {
		return fmt.Errorf("it was changed since; what it was before is %s: move that where you want it, and remove %s", oldName(i), applyDir)
	}
	return s.root.Remove(name)
}

// entry is what a step has put.
func (t step) entry(info fs.FileInfo) Entry {
	if t.Link {
		return Entry{Name: t.Name, Kind: Link, Target: t.Target}
	}
	return Entry{Name: t.Name, Kind: File, Mode: t.Mode, Size: info.Size(), Sum: &t.Sum}
}

// putBack puts what was moved aside in its place.
func (s *stage) putBack(i int, name string) error {
	was, err := s.root.Lstat(oldName(i))
	if missing(err) {
		return nil
	}
	if there, err := s.root.Lstat(name); err == nil && os.SameFile(was, there) {
		return s.root.Remove(oldName(i)) // place was interrupted after its link
	}
	return s.place(oldName(i), name)
}

// place moves something to a name at which nothing may be.
func (s *stage) place(from, name string) error {
	err := s.root.Link(from, name)
	switch {
	case err == nil:
		return s.root.Remove(from)
	case errors.Is(err, fs.ErrExist):
		return err
	}
	// It is a directory, or the file system has no links.
	if _, err := s.root.Lstat(name); err == nil {
		return &fs.PathError{Op: "rename", Path: name, Err: fs.ErrExist}
	}
	return s.root.Rename(from, name)
}

// aside moves what is at a name aside. It must be what the plan has seen.
func (s *stage) aside(i int, t step, name string) error {
	if err := s.root.Rename(name, oldName(i)); err != nil {
		if missing(err) {
			return errMoved
		}
		return err
	}
	return s.unmoved(i, t)
}

// unmoved reports errMoved for something aside that is not what the plan has seen.
func (s *stage) unmoved(i int, t step) error {
	info, err := s.root.Lstat(oldName(i))
	if err != nil {
		return err
	}
	if t.info == nil || !os.SameFile(t.info, info) || t.info.Mode() != info.Mode() {
		return errMoved
	}
	if t.Do == doRmdir {
		list, err := fs.ReadDir(s.root.FS(), oldName(i))
		if err == nil && len(list) > 0 {
			err = errMoved
		}
		return err
	}
	if t.info.Size() != info.Size() || !t.info.ModTime().Equal(info.ModTime()) {
		return errMoved
	}
	return nil
}

// do does one step.
func (s *stage) do(i int, t step) error {
	name := filepath.FromSlash(t.Name)
	switch t.Do {
	case doRemove, doRmdir:
		return s.aside(i, t, name)
	case doMkdir:
		if err := s.root.Mkdir(name, 0o700); err != nil {
			return err
		}
		return s.root.Chmod(name, t.Mode.Perm())
	case doPut:
		if t.Had {
			if err := s.aside(i, t, name); err != nil {
				return err
			}
		}
		return s.place(newName(i), name)
	case doMode:
		info, err := s.root.Lstat(name)
		if err != nil || !os.SameFile(info, t.info) || !info.ModTime().Equal(t.info.ModTime()) {
			return errMoved
		}
		return s.root.Chmod(name, t.Mode.Perm())
	}
	return fs.ErrInvalid
}

// Stage takes the content of a file that Plan named in Fetch. It must be the content that
// the plan was made for.
func (a *Apply) Stage(name string, content io.Reader) error {
	i, ok := a.at[name]
	if !ok {
		return errors.New("it was not asked for")
	}
	want, _ := a.theirs.Find(name)
	if err := a.write(i, content); err != nil {
		return err
	}
	if want.Sum == nil || a.steps[i].Sum != *want.Sum {
		return errors.New("it was changed in the session meanwhile: try again")
	}
	return nil
}

// Merge takes the content of a file that Plan named in Merge.
func (a *Apply) Merge(name string, content []byte) error {
	return a.write(a.at[name], bytes.NewReader(content))
}

// write lays the content of a file aside.
func (a *Apply) write(i int, content io.Reader) error {
	f, err := a.tree.Root.OpenFile(newName(i), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	a.steps[i].Sum, err = copySparse(f, content, make([]byte, len(zeros)))
	if err == nil {
		err = f.Chmod(a.steps[i].Mode.Perm())
	}
	return errors.Join(err, f.Close())
}

// Commit does what was planned. After an error everything is as it was, unless the error
// says that something could not be put back.
func (a *Apply) Commit() error {
	s := a.stage
	for i, t := range a.steps {
		if t.Do != doPut {
			continue
		}
		if t.Link {
			if err := a.tree.Root.Symlink(filepath.FromSlash(t.Target), newName(i)); err != nil {
				return err
			}
		} else if _, err := a.tree.Root.Lstat(newName(i)); err != nil {
			return fmt.Errorf("%s: its content has not arrived: %w", shown(t.Name), err)
		}
	}
	if len(a.steps) == 0 {
		return nil
	}
	if err := s.writeJournal(a.steps); err != nil {
		return err
	}
	if err := a.run(); err != nil {
		return err
	}
	f, err := a.tree.Root.OpenFile(applyDone, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return a.back(len(a.steps), err)
	}
	return nil
}

// run does all steps, and looks at the end whether a program of the user's has written to
// what was moved aside.
func (a *Apply) run() error {
	for i, t := range a.steps {
		if err := a.stage.do(i, t); err != nil {
			n := i + 1
			if t.Do == doMkdir {
				n = i // what is there is the user's
			}
			return a.back(n, fmt.Errorf("%s: %w", shown(t.Name), err))
		}
	}
	for i, t := range a.steps {
		if t.Do == doRemove || t.Do == doRmdir || t.Do == doPut && t.Had {
			if err := a.stage.unmoved(i, t); err != nil {
				return a.back(len(a.steps), fmt.Errorf("%s: %w", shown(t.Name), err))
			}
		}
	}
	return nil
}

// back undoes the first n steps after an error.
func (a *Apply) back(n int, err error) error {
	if undone := a.stage.undo(a.steps[:n]); undone != nil {
		a.stage.keep = true
		return errors.Join(err, fmt.Errorf("not all was put back, what is missing is in %s: %w", applyDir, undone))
	}
	return err
}
