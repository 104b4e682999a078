package transfer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Options say what an Inbox may overwrite.
type Options struct {
	Base  State // what was alike on both sides
	Force bool  // overwrite what differs from it
	Named bool  // one file, which the user has named: it replaces what is not known
	Skip  Skip  // what of a directory is not taken; nil: all is
	// Leave and Clean are those of Tree.
	Leave func(name string) bool
	Clean func(name string, content []byte) ([]byte, bool)
}

// Inbox takes a tree into a directory: Take for each entry, then Finish, and Close
// in any case. What has been taken lies aside, in a directory of its own, until
// Finish. An Inbox is not safe for concurrent use.
type Inbox struct {
	tree  Tree
	dir   string // without links
	o     Options
	items []item
	left  []Omission
	held  held
	buf   []byte

	stage  string   // the directory below the root where files lie aside; "": none yet
	lock   *os.File // held as long as stage is in use
	staged int32    // how many files have been put there
	made   []string // directories above the root that were not there, outermost first
	kept   bool     // Finish has made something: made stays
}

// item is an entry that has been taken.
type item struct {
	Entry
	staged int32 // its number among the staged files, from 1; 0 if it is not staged
	what   deed  // what is to be done with it
}

// deed is what becomes of an item.
type deed byte

const (
	keep  deed = iota // as it is here: it is alike, or the session has not changed it
	write             // make or replace it
	leave             // leave it out
)

// Omission is an entry that was left out, and why.
type Omission struct {
	Name string
	Why  Reason
}

// Reason is why something was left out.
type Reason string

// Reasons.
const (
	NotPlain   Reason = "neither file nor directory"
	LeadsOut   Reason = "a link that leads out, or may"
	RunByTools Reason = "this machine's tools would run what it says"
	Credential Reason = "it looks like credentials"
	InGit      Reason = "nothing is applied to repositories"
)

func (l Omission) String() string { return fmt.Sprintf("%s (%s)", l.Name, l.Why) }

// Open makes a directory, if it is missing, ready for a tree.
func Open(dir string, o Options) (*Inbox, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	b := &Inbox{o: o, buf: make([]byte, len(zeros))}
	if b.made, err = makeAll(dir); err != nil {
		b.unmake()
		return nil, err
	}
	if b.tree.Root, err = os.OpenRoot(dir); err == nil {
		b.dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.tree.Leave, b.tree.Clean = o.Leave, o.Clean
	return b, nil
}

// makeAll makes a directory with those above it, and returns which it has made.
func makeAll(dir string) (made []string, err error) {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil, nil
	}
	if above := filepath.Dir(dir); above != dir {
		if made, err = makeAll(above); err != nil {
			return made, err
		}
	}
	if err := os.Mkdir(dir, 0o755); err == nil {
		return append(made, dir), nil
	}
	return made, os.MkdirAll(dir, 0o755) // another may have made it meanwhile
}

// unmake removes the directories that Open has made.
func (b *Inbox) unmake() {
	for _, dir := range slices.Backward(b.made) {
		_ = os.Remove(dir) // it is not empty: it is in use
	}
	b.made = nil
}

// Close removes what lies aside, and what Open has made if nothing has come into it.
func (b *Inbox) Close() error {
	var errs []error
	if b.lock != nil {
		errs = append(errs, closeLocked(b.lock))
	}
	if b.stage != "" {
		errs = append(errs, b.tree.Root.RemoveAll(b.stage))
	}
	if b.tree.Root != nil {
		errs = append(errs, b.tree.Root.Close())
	}
	b.lock, b.stage, b.tree.Root = nil, "", nil
	if !b.kept {
		b.unmake()
	}
	return errors.Join(errs...)
}

// Take takes one entry, with the content of a file.
func (b *Inbox) Take(e Entry, content io.Reader) error {
	if !b.o.Named {
		if unwanted, all := b.o.Skip.of(e.Name, e.Kind == Dir); unwanted {
			if !all {
				b.held.hold(e)
			}
			return nil
		}
		for _, dir := range b.held.above(e.Name) {
			b.items = append(b.items, item{Entry: dir})
		}
	}
	switch {
	case e.Name == ".":
		return nil
	case e.Kind == Other:
		b.left = append(b.left, Omission{e.Name, NotPlain})
		return nil
	case e.Kind != File:
		b.items = append(b.items, item{Entry: e})
		return nil
	}
	known, _ := b.o.Base.Find(e.Name)
	if e.Size <= int64(len(b.buf)) {
		n, err := fill(content, b.buf)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		e.Sum = new(Sum(sha256.Sum256(b.buf[:n])))
		if !b.o.Named && known.Same(e) {
			b.items = append(b.items, item{Entry: e})
			return nil
		}
		return b.put(e, func(f *os.File) error {
			_, err := f.Write(b.buf[:n])
			return err
		})
	}
	return b.put(e, func(f *os.File) error {
		sum, err := copySparse(f, content, b.buf)
		b.items[len(b.items)-1].Sum = &sum
		return err
	})
}

// put lays a file aside, unless it turns out to be as it was.
func (b *Inbox) put(e Entry, fill func(*os.File) error) error {
	if err := b.makeStage(); err != nil {
		return err
	}
	b.staged++
	b.items = append(b.items, item{Entry: e, staged: b.staged})
	it := &b.items[len(b.items)-1]
	name := b.stagedName(b.staged)
	f, err := b.tree.Root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		// Permissions only: set-user-ID bits stay in the container.
		err = f.Chmod(e.Mode.Perm())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if known, ok := b.o.Base.Find(e.Name); ok && !b.o.Named && known.Same(it.Entry) {
		it.staged = 0
		return b.tree.Root.Remove(name)
	}
	return nil
}

// stagePrefix begins the name of the directory where files lie aside. It is below the
// target, which is the one place that is known to be on the same file system and
// ours to write to.
const stagePrefix = ".sandboxbash-pull-"

const lockName = "lock"

func (b *Inbox) stagedName(n int32) string { return filepath.Join(b.stage, strconv.Itoa(int(n))) }

// makeStage makes the directory where files lie aside, and removes those whose
// process is gone.
func (b *Inbox) makeStage() error {
	if b.stage != "" {
		return nil
	}
	b.removeStale()
	dir, err := os.MkdirTemp(b.dir, stagePrefix) // 0700
	if err != nil {
		return err
	}
	b.stage = filepath.Base(dir)
	b.lock, err = b.tree.Root.OpenFile(filepath.Join(b.stage, lockName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	tryLock(b.lock)
	return nil
}

func (b *Inbox) removeStale() {
	all, err := fs.ReadDir(b.tree.Root.FS(), ".")
	if err != nil {
		return // what comes next says why
	}
	for _, d := range all {
		if !d.IsDir() || !strings.HasPrefix(d.Name(), stagePrefix) {
			continue
		}
		f, err := openRegular(b.tree.Root, d.Name()+"/"+lockName)
		if err != nil {
			continue
		}
		if tryLock(f) {
			_ = b.tree.Root.RemoveAll(d.Name())
		}
		_ = f.Close() // of what was only locked
	}
}
