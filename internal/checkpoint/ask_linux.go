package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A Session is what this package needs of the runner.
type Session struct {
	Store string // the directory of the store
	// Hold keeps commands from being started until release is called. It returns false if one runs.
	Hold func() (release func(), ok bool)
	// Quiet returns false if a command runs. Else moved reports whether one has started since.
	Quiet func() (moved func() bool, ok bool)
}

// maxAsk bounds an encoded wire.CheckpointAsk in bytes.
const maxAsk = 8 << 20

// Answer answers one wire.CheckpointAsk.
func (s Session) Answer(in io.Reader, out io.Writer) error {
	b, err := io.ReadAll(io.LimitReader(in, maxAsk))
	if err != nil {
		return err
	}
	ask, err := wire.ParseCheckpointAsk(b)
	if err != nil {
		return err
	}
	if ask.Do == wire.CheckpointRead {
		return s.contents(ask, out)
	}
	var a wire.CheckpointAnswer
	err = s.do(ask, &a)
	if r, ok := errors.AsType[refusal](err); ok {
		a.Refused, a.Text, err = r.code, r.text, nil
	}
	if err != nil {
		return err
	}
	_, err = out.Write(a.Append(nil))
	return err
}

// begin opens the store, makes it if it is to, and finishes what was interrupted.
func (s Session) begin(ask *wire.CheckpointAsk) (*store, error) {
	makes := ask.Do == wire.CheckpointInit || ask.Do == wire.CheckpointTake
	if makes {
		if err := create(s.Store); err != nil {
			return nil, err
		}
	}
	how := unix.LOCK_EX
	st, err := open(s.Store, how)
	if err != nil {
		return nil, err
	}
	if err := st.prepare(ask, makes); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

func (s *store) prepare(ask *wire.CheckpointAsk, makes bool) error {
	switch {
	case s.state.Next > 0:
	case !makes:
		return refuse(wire.CheckpointNone, "it has no checkpoints")
	default:
		s.state.Settings, s.state.Next = ask.Settings, 1
		if err := s.commit(s.state); err != nil {
			return err
		}
	}
	if err := s.mend(); err != nil {
		return err
	}
	return s.tidy()
}

func (s Session) do(ask wire.CheckpointAsk, a *wire.CheckpointAnswer) error {
	st, err := s.begin(&ask)
	if err != nil {
		return err
	}
	defer st.close()
	defer func() { a.State = st.state }()
	switch ask.Do {
	case wire.CheckpointInit:
		err = st.init(ask, a)
	case wire.CheckpointTake:
		err = st.askTake(ask, a)
	case wire.CheckpointList:
		if st.state.Head == 0 {
			err = refuse(wire.CheckpointNone, "it has no checkpoints")
		}
		a.Pending = st.pending(false)
	case wire.CheckpointDiff:
		err = st.diff(ask, a)
	case wire.CheckpointUndo, wire.CheckpointRedo, wire.CheckpointRestore:
		err = s.back(st, ask, a)
	default:
		err = fmt.Errorf("nothing that can be done with checkpoints: %q", ask.Do)
	}
	return err
}

// init makes the first checkpoint, and has others made by themselves if that was asked for.
func (s *store) init(ask wire.CheckpointAsk, a *wire.CheckpointAnswer) error {
	made, err := s.take("start", ask.Name, never)
	if r, ok := errors.AsType[refusal](err); ok && r.code == wire.CheckpointFull {
		next := s.state
		next.Off = r.text
		return errors.Join(s.commit(next), err)
	}
	if err != nil {
		return err
	}
	if made != nil {
		a.Made = made.ID
	}
	return s.automatic(s.state.Settings.Automatic)
}

func (s *store) askTake(ask wire.CheckpointAsk, a *wire.CheckpointAnswer) error {
	why := "manual"
	if ask.Name != "" {
		for _, c := range s.state.List {
			if c.Name == ask.Name {
				return refuse(wire.CheckpointWrong, "checkpoint %d has the name %s already", c.ID, ask.Name)
			}
		}
	}
	made, err := s.take(why, ask.Name, never)
	if err != nil {
		return err
	}
	next := s.state
	if made != nil {
		a.Made = made.ID
	} else if ask.Name != "" {
		for i := range next.List {
			if c := &next.List[i]; c.ID == next.Current && c.Name == "" {
				c.Name = ask.Name
			} else if c.ID == next.Current { // it keeps its name, and the state gets another
				again := *c
				again.ID, again.Parent, again.Name, again.Why, again.Time, again.Step = next.Next, c.ID, ask.Name, why, time.Now().UTC(), next.Step
				again.Added, again.Modified, again.Deleted, again.Bytes, again.Commands = 0, 0, 0, 0, nil
				a.Made = again.ID
				next.List, next.Current, next.Next = append(next.List, again), again.ID, next.Next+1
				break
			}
		}
	}
	if next.Off != "" && next.Settings.Automatic {
		next.Off = ""
		if err := s.automatic(true); err != nil {
			return err
		}
	}
	return s.commit(next)
}

// last are the changes since the last recorded state.
func (s *store) last() ([]change, error) {
	t, err := s.look(never)
	if err != nil {
		return nil, err
	}
	all, err := t.changes()
	return all, errors.Join(err, s.discard(t))
}

func (s *store) diff(ask wire.CheckpointAsk, a *wire.CheckpointAnswer) error {
	from, err := s.find(ask.ID)
	if err != nil {
		return err
	}
	first, second := from.Step, s.state.Step
	var last []change
	if ask.To == 0 {
		last, err = s.last()
	} else {
		var to *wire.Checkpoint
		if to, err = s.find(ask.To); err == nil {
			second = to.Step
		}
	}
	if err != nil {
		return err
	}
	back := first > second
	all, err := s.between(min(first, second), max(first, second), last)
	if err != nil {
		return err
	}
	p := &plan{changes: sorted(all, back)}
	p.only(cleaned(ask.Paths))
	for _, c := range p.changes {
		a.Changes = append(a.Changes, c.wired())
	}
	return nil
}

// back undoes, redoes and restores.
func (s Session) back(st *store, ask wire.CheckpointAsk, a *wire.CheckpointAnswer) error {
	release, free := s.Hold()
	defer release()
	if !ask.DryRun {
		set := st.state.Settings
		_ = asUser(set.UID, set.GID, func() error { // what it cannot see it lists
			a.Holders = holders(set.UID, set.Dir)
			return nil
		})
		if !ask.Force && (!free || len(a.Holders) > 0) {
			if len(a.Holders) == 0 {
				return refuse(wire.CheckpointOpen, "a command is running")
			}
			return refuse(wire.CheckpointOpen, "something that runs has files of the workspace open")
		}
	}
	if ask.DryRun {
		last, err := st.last()
		if err != nil {
			return err
		}
		p, err := st.plan(ask, last, significant(last))
		if err != nil {
			return err
		}
		p.covered()
		return p.tell(a)
	}
	made, err := st.take("undo", "", never)
	if err != nil {
		return err
	}
	if made != nil {
		a.Made = made.ID
	}
	p, err := st.plan(ask, nil, false)
	if err != nil {
		return err
	}
	if err := st.apply(p); err != nil {
		return err
	}
	return p.tell(a)
}

// significant reports whether changes would be a checkpoint.
func significant(all []change) bool {
	t := taking{}
	for i := range all {
		t.counted(&all[i])
	}
	return t.significant > 0
}

func (p *plan) tell(a *wire.CheckpointAnswer) error {
	a.From, a.To, a.Left = p.from, p.to, p.left
	for i := range p.changes {
		a.Changes = append(a.Changes, p.changes[i].wired())
	}
	return nil
}

// plan returns what has to be done. unrecorded says that last would be a checkpoint of its own: the current one is
// then the one to go back to.
func (s *store) plan(ask wire.CheckpointAsk, last []change, unrecorded bool) (*plan, error) {
	p := &plan{do: ask.Do, from: s.state.Current, base: s.state.Step, made: s.state.Next}
	steps := max(1, ask.Steps)
	p.redo = append(p.redo, s.state.Redo...)
	switch ask.Do {
	case wire.CheckpointUndo:
		p.to = s.state.Current
		if unrecorded {
			steps--
			p.redo = nil
		}
		for range steps {
			c, err := s.find(p.to)
			if err != nil || c.Parent == 0 {
				return nil, refuse(wire.CheckpointGone, "there is nothing before checkpoint %d to go back to", p.to)
			}
			p.redo = append(p.redo, p.to)
			p.to = c.Parent
		}
	case wire.CheckpointRedo:
		if unrecorded || uint64(len(p.redo)) < steps {
			return nil, refuse(wire.CheckpointGone, "there is nothing to redo: `session checkpoints` lists what can be restored")
		}
		p.to = p.redo[uint64(len(p.redo))-steps]
		p.redo = p.redo[:uint64(len(p.redo))-steps]
	case wire.CheckpointRestore:
		p.to = ask.ID
	}
	to, err := s.find(p.to)
	if err != nil {
		return nil, err
	}
	if p.name = ""; ask.Do == wire.CheckpointRestore {
		p.redo = nil
	}
	all, err := s.between(to.Step, s.state.Step, last)
	if err != nil {
		return nil, err
	}
	p.changes = sorted(all, true)
	p.only(cleaned(ask.Paths))
	return p, nil
}

func cleaned(paths []string) (all []string) {
	for _, p := range paths {
		if p = path.Clean(strings.TrimPrefix(p, "/")); p != "." {
			all = append(all, p)
		} else {
			return nil
		}
	}
	return all
}

// contents writes stored contents, one behind the other.
func (s Session) contents(ask wire.CheckpointAsk, out io.Writer) error {
	st, err := open(s.Store, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer st.close()
	for _, text := range ask.Sums {
		if len(text) != sumSize {
			return errors.New("not a sum")
		}
		f, err := st.content(sum([]byte(text)))
		if err != nil {
			return err
		}
		_, err = io.Copy(out, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	// restFactor is how much longer than a scan the pause behind it is: scans take at most 5 % of a processor.
	restFactor = 20
	// quietTime is how long no command must have run before a checkpoint is made by itself.
	quietTime = 20 * time.Millisecond
)

// Snap makes a checkpoint of what commands have changed, if no command runs. It gives up as soon as one
// starts: the end of that one has Snap called again.
func (s Session) Snap() error {
	moved, ok := s.Quiet()
	if !ok {
		return nil
	}
	time.Sleep(quietTime)
	for {
		if moved() {
			return nil
		}
		st, err := open(s.Store, unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) { // the process that has it looks at the same
			return nil
		}
		if err != nil {
			return err
		}
		if wait := time.Until(st.state.Rest); wait > 0 {
			st.close()
			time.Sleep(min(wait, maxRest))
			continue
		}
		err = st.snap(moved)
		st.close()
		return err
	}
}

// maxRest bounds the pause between two scans, whatever a clock says.
const maxRest = time.Minute

func (s *store) snap(moved func() bool) error {
	if s.state.Next == 0 || s.state.Off != "" || len(s.pending(false)) == 0 {
		return nil
	}
	if err := s.mend(); err != nil {
		return err
	}
	used := processorTime()
	_, err := s.take("command", "", moved)
	next := s.state
	switch r, ok := errors.AsType[refusal](err); {
	case errors.Is(err, errGivenUp):
		err = nil
	case ok:
		next.Off, err = r.text, s.automatic(false)
	}
	next.Rest = time.Now().Add(restFactor * (processorTime() - used)).UTC()
	return errors.Join(err, s.commit(next))
}

func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Mend finishes or takes back a restore that was interrupted.
func (s Session) Mend() error {
	st, err := open(s.Store, unix.LOCK_EX)
	if _, none := errors.AsType[refusal](err); none {
		return nil
	}
	if err != nil {
		return err
	}
	defer st.close()
	if err := st.mend(); err != nil {
		return fmt.Errorf("an undo was interrupted, and cannot be finished: %w", err)
	}
	return nil
}

// Interrupted reports whether a restore is under way, or was interrupted.
func Interrupted(store string) bool {
	return unix.Access(store+"/"+journalFile, unix.F_OK) == nil
}

// Wanted reports whether a checkpoint is wanted after each command.
func Wanted(store string) bool {
	return unix.Access(store+"/"+automaticFile, unix.F_OK) == nil
}

// Note notes that a command has ended, for the next checkpoint.
func Note(store string, c wire.CheckpointCommand) error {
	f, err := os.OpenFile(store+"/"+pendingFile, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > maxPending {
		return err
	}
	_, err = fmt.Fprintf(f, "%x\n", c.Append(nil))
	return err
}
