package checkpoint

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Materialize writes the files of a checkpoint into an empty directory. What the checkpoint does not cover is not there.
// The store is only read.
func Materialize(args []string) error {
	var a wire.MaterializeArgs
	if err := wire.ParseArgs(args, &a); err != nil {
		return err
	}
	id, err := strconv.ParseUint(a.ID, 10, 64)
	if err != nil {
		return fmt.Errorf("not a checkpoint: %q", a.ID)
	}
	s, err := open(a.Store, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer s.close()
	if Interrupted(a.Store) {
		return errors.New("an undo is under way, or was interrupted: run a command in the session first")
	}
	step := s.state.Step
	if id > 0 {
		c, err := s.find(id)
		if err != nil {
			return err
		}
		step = c.Step
	}
	all, err := s.between(step, s.state.Step, nil)
	if err != nil {
		return err
	}
	return asUser(a.UID, a.GID, func() error {
		return withTree(a.Dir, func(t *tree) error {
			list, err := names(t.top, make([]byte, 32<<10))
			if err != nil {
				return err
			}
			if len(list) > 0 {
				return fmt.Errorf("%s is not empty", a.Dir)
			}
			return s.materialize(t, sorted(all, false))
		})
	})
}

// materialize makes the entries of a state, which since has changed so.
func (s *store) materialize(t *tree, since []change) error {
	var p plan // of the directories
	add := func(e *entry) error {
		if !e.left.covered() && (e.kind != dir || e.left != leftUnread) {
			return nil
		}
		if err := s.make(t, e); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if e.kind == dir {
			p.changes = append(p.changes, change{now: *e})
		}
		return nil
	}
	var links []entry
	take := func(e *entry) error {
		switch {
		case e.kind == none:
			return nil
		case e.leader != "":
			links = append(links, *e)
			return nil
		}
		return add(e)
	}
	next := func(until *entry) error {
		for len(since) > 0 && (until == nil || before(since[0].name(), until.name)) {
			if err := take(&since[0].was); err != nil {
				return err
			}
			since = since[1:]
		}
		return nil
	}
	var entries []entry
	err := aside(func() error { // the store is not the user's
		return s.eachEntry(func(e entry) error {
			entries = append(entries, e)
			return nil
		})
	})
	if err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		if err := next(e); err != nil {
			return err
		}
		if len(since) > 0 && since[0].name() == e.name {
			e = &since[0].was
			since = since[1:]
		}
		if err := take(e); err != nil {
			return err
		}
	}
	if err := next(nil); err != nil {
		return err
	}
	for i := range links {
		if err := add(&links[i]); err != nil {
			return err
		}
	}
	t.setDirs(&p)
	if len(p.left) > 0 {
		return fmt.Errorf("%s: %s", p.left[0].Path, p.left[0].Why)
	}
	return nil
}

// make makes one entry of a state in an empty directory.
func (s *store) make(t *tree, e *entry) error {
	switch {
	case e.name == "":
		return nil
	case e.kind == dir:
		return t.mkdir(e.name)
	}
	fd, base, err := t.place(e.name)
	if err != nil {
		return err
	}
	if e.leader == "" {
		return s.stageOne(fd, base, e)
	}
	to, err := unix.Dup(fd) // place closes it
	if err != nil {
		return err
	}
	defer unix.Close(to)
	from, name, err := t.place(e.leader)
	if err != nil {
		return err
	}
	return unix.Linkat(from, name, to, base, 0)
}
