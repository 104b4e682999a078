package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/checkpoint"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// CheckpointRules say how the checkpoints of a session are made, and what they leave out. They are those of the session
// from its first checkpoint on.
type CheckpointRules struct {
	// Automatic has a checkpoint made after each command, job and terminal that has changed the workspace. It is made inside
	// the session once no command runs, and given up when one starts: the next checkpoint then names all of them.
	Automatic bool `json:"automatic"`
	// Disk is how many bytes all contents may take. The oldest checkpoints go first. 0 is DefaultCheckpointDisk.
	Disk int64 `json:"disk"`
	// MaxFile is the largest file whose content is kept, in bytes. 0 is DefaultCheckpointFile.
	MaxFile int64 `json:"maxFile"`
	// Exclude are patterns as in .gitignore. Gitignore also leaves out what the workspace's own files .gitignore name.
	Exclude   []string `json:"exclude"`
	Gitignore bool     `json:"gitignore"`
	// Bind allows checkpoints of a bound directory: an undo then changes the user's own files.
	Bind bool `json:"-"`
}

// Defaults of CheckpointRules.
const (
	DefaultCheckpointDisk = 1 << 30   // bytes
	DefaultCheckpointFile = 100 << 20 // bytes
)

// CheckpointCommand is a command that ran before a checkpoint.
type CheckpointCommand struct {
	ID   string `json:"id"`             // as in the audit log
	Text string `json:"text,omitempty"` // its start, secrets masked
}

// Checkpoint is a former state of a workspace.
type Checkpoint struct {
	ID   int    `json:"id"` // 1, 2, 3 and so on in its session, and never used again
	Name string `json:"name,omitempty"`
	// Why says what it was made for: "start" of the session; after a "command"; "manual"; before an "undo", of what had no
	// checkpoint so far; by a "restore".
	Why  string    `json:"why"`
	Time time.Time `json:"time"`
	// Commands are those that ended since the checkpoint before, at most 64.
	Commands []CheckpointCommand `json:"commands,omitempty"`
	Added    int                 `json:"added"` // files and links, since the one before
	Modified int                 `json:"modified"`
	Deleted  int                 `json:"deleted"`
	Bytes    int64               `json:"bytes"` // that its contents take
	// Uncertain are files that were written while they were read. The next checkpoint reads them again.
	Uncertain []string `json:"uncertain,omitempty"`
	// Current is set on the one that the workspace was like when it was last looked at.
	Current bool `json:"current,omitempty"`
}

// Uncovered is a path that checkpoints leave out, or that was not restored.
type Uncovered struct {
	Path string `json:"path"` // from the workspace
	Why  string `json:"why"`
}

// Checkpoints are those of a session.
type Checkpoints struct {
	List []Checkpoint `json:"checkpoints"` // oldest first
	Redo []int        `json:"redo"`        // what Redo goes to, first the next one
	// Rules are those that the session has. Off says why no checkpoints are made automatically although that was asked for.
	Rules   CheckpointRules `json:"rules"`
	Off     string          `json:"off,omitempty"`
	Used    int64           `json:"used"`    // bytes of contents
	Entries int             `json:"entries"` // files, directories and links of the workspace
	Dropped int             `json:"dropped"` // checkpoints that have made room for later ones
	// Uncovered are the first paths of the workspace that are left out, of UncoveredCount.
	Uncovered      []Uncovered `json:"uncovered"`
	UncoveredCount int         `json:"uncoveredCount"`
	// Pending are commands since the last checkpoint, which may have changed something.
	Pending []CheckpointCommand `json:"pending"`
}

// UndoOptions say what Undo and Redo do. The zero value goes one checkpoint back.
type UndoOptions struct {
	Steps  int  // 0 is 1
	DryRun bool // change nothing
	Force  bool // although something that runs has files of the workspace open
}

// RestoreOptions say what Restore does.
type RestoreOptions struct {
	Paths  []string // from the workspace: these alone, with what is below them; none: all
	DryRun bool
	Force  bool
}

// Undone says what Undo, Redo or Restore did, or with DryRun would do.
type Undone struct {
	From int `json:"from"` // the checkpoint before; what had none has got one
	To   int `json:"to"`
	// Files are what has changed in the workspace, sorted by path.
	Files []Change `json:"files"`
	// Left are paths that are not as they were, and why.
	Left []Uncovered `json:"left"`
	// Open are processes that had files of the workspace open.
	Open []OpenProcess `json:"open"`

	diff *CheckpointDiff
}

// Patch calls take with each changed file, as CheckpointDiff.Patch does.
func (u Undone) Patch(ctx context.Context, take func(FileDiff) error) error {
	return u.diff.Patch(ctx, take)
}

// OpenProcess is a process of a session that has files of the workspace open: its directory, its program, or others.
type OpenProcess struct {
	PID     int      `json:"pid"`
	Command string   `json:"command"`
	Files   []string `json:"files"` // from the workspace; "?": it cannot be looked into
}

// OpenError is the error of an undo while something runs that could go on with what it has read before.
type OpenError struct {
	Processes []OpenProcess // empty: a command runs that has none of the workspace's files open
	text      string
}

func (e *OpenError) Error() string { return e.text }

// ErrNoCheckpoints is the error for a session that has none.
var ErrNoCheckpoints = errors.New("it has no checkpoints")

// checkpointTime bounds one call. A call that is cut off leaves the former state or the new one.
const checkpointTime = 10 * time.Minute

// maxCheckpointAnswer bounds an answer, in bytes: some 100 for each file that has changed.
const maxCheckpointAnswer = 128 << 20

// Checkpoint makes a checkpoint of the workspace as it is, with a name for people that may be "". A workspace that has not
// changed since the last one gets no other one, unless both have a name.
func (s *Session) Checkpoint(ctx context.Context, name string) (Checkpoint, error) {
	if err := checkCheckpointName(name); err != nil {
		return Checkpoint{}, err
	}
	settings, err := s.checkpointSettings(CheckpointRules{})
	if err != nil {
		return Checkpoint{}, err
	}
	a, err := s.askCheckpoint(ctx, wire.CheckpointAsk{Do: wire.CheckpointTake, Name: name, Settings: settings})
	if err != nil {
		return Checkpoint{}, fmt.Errorf("session %s: checkpoint: %w", s.ID(), err)
	}
	return currentOf(a.State), nil
}

// checkCheckpointName refuses what could be a checkpoint's number.
func checkCheckpointName(name string) error {
	if name == "" {
		return nil
	}
	if _, err := strconv.Atoi(name); err == nil || checkName(name) != nil {
		return badInput("name", "checkpoint name %q: use up to 63 of a-z, 0-9 and -, and not a number alone", name)
	}
	return nil
}

func currentOf(state wire.CheckpointState) Checkpoint {
	for _, c := range checkpointsOf(state) {
		if c.Current {
			return c
		}
	}
	return Checkpoint{}
}

// startCheckpoints makes the first checkpoint of a new session.
func (s *Session) startCheckpoints(ctx context.Context, rules CheckpointRules) error {
	settings, err := s.checkpointSettings(rules)
	if err != nil {
		return err
	}
	_, err = s.askCheckpoint(ctx, wire.CheckpointAsk{Do: wire.CheckpointInit, Settings: settings})
	if full, ok := errors.AsType[*checkpointError](err); ok && full.code == wire.CheckpointFull {
		s.engine.mu.Lock()
		s.notes = append(s.notes, "no checkpoints are made: "+full.text+": raise it, or leave something out with checkpoint.exclude or checkpoint.max-file")
		s.engine.mu.Unlock()
		return nil
	}
	if err != nil {
		return fmt.Errorf("first checkpoint: %w", err)
	}
	return nil
}

// possible returns an error if a session cannot have checkpoints.
func (r CheckpointRules) possible(profile Profile, w Workspace) error {
	switch {
	case profile == Dev:
		return badInput("checkpoint", "a session of profile dev has no checkpoints: its commands are root and could change them: use profile strict")
	case w.Kind == WorkspaceBind && w.ReadOnly:
		return badInput("checkpoint", "the workspace is read-only: there is nothing to undo")
	case w.Kind == WorkspaceBind && !r.Bind:
		return badInput("checkpoint", "the workspace is %s itself, and an undo would change your own files: start a session with checkpoint.bind if you want that", w.Dir)
	case r.Disk < 0 || r.MaxFile < 0:
		return badInput("checkpoint", "the sizes for checkpoints must not be negative")
	}
	for _, pattern := range r.Exclude {
		if err := checkpoint.CheckGlob(pattern); err != nil {
			return badInput("checkpoint", "checkpoint.exclude %q: %v: write it as in .gitignore", pattern, err)
		}
	}
	return nil
}

func (s *Session) checkpointSettings(r CheckpointRules) (wire.CheckpointSettings, error) {
	l := s.info.labels
	if l.Checkpoints { // it was allowed at the start
		r.Bind = true
	}
	if s.reading {
		return wire.CheckpointSettings{}, badInput("session", "session %s has ended: its workspace is kept, and read-only", s.ID())
	}
	if err := r.possible(l.Profile, l.Workspace); err != nil {
		return wire.CheckpointSettings{}, err
	}
	return wire.CheckpointSettings{
		UID: l.User.UID, GID: l.User.GID, Dir: l.Workspace.Target, Automatic: r.Automatic,
		Disk: uint64(cmp.Or(r.Disk, DefaultCheckpointDisk)), MaxFile: uint64(cmp.Or(r.MaxFile, DefaultCheckpointFile)),
		Exclude: r.Exclude, Gitignore: r.Gitignore,
	}, nil
}

// checkpointError is a refusal of the runner.
type checkpointError struct{ code, text string }

func (e *checkpointError) Error() string { return e.text }

// askCheckpoint asks the runner, which keeps the checkpoints.
func (s *Session) askCheckpoint(ctx context.Context, ask wire.CheckpointAsk) (a wire.CheckpointAnswer, err error) {
	if s.info.Profile == Dev {
		return a, CheckpointRules{}.possible(Dev, Workspace{})
	}
	out, err := s.checkpointVerb(ctx, ask, maxCheckpointAnswer)
	if err != nil {
		return a, err
	}
	if a, err = wire.ParseCheckpointAnswer(out); err != nil {
		return a, fmt.Errorf("the answer about checkpoints: %w", err)
	}
	switch a.Refused {
	case "":
		return a, nil
	case wire.CheckpointNone:
		return a, ErrNoCheckpoints
	case wire.CheckpointGone:
		return a, badInput("checkpoint", "%s", a.Text)
	case wire.CheckpointOpen:
		return a, &OpenError{Processes: openProcesses(a.Holders), text: a.Text}
	default:
		return a, &checkpointError{a.Refused, a.Text}
	}
}

func (s *Session) checkpointVerb(ctx context.Context, ask wire.CheckpointAsk, most int64) ([]byte, error) {
	var out bytes.Buffer
	err := s.withSpare(ctx, func() error {
		out.Reset()
		streams := helperStreams{in: bytes.NewReader(ask.Append(nil)), out: &limited{w: &out, left: most}, timeout: checkpointTime}
		return s.helperAs(ctx, User{}, streams, wire.VerbCheckpoint.Command())
	})
	return out.Bytes(), err
}

// Checkpoints lists the checkpoints. The error is ErrNoCheckpoints if there are none.
func (s *Session) Checkpoints(ctx context.Context) (Checkpoints, error) {
	a, err := s.askCheckpoint(ctx, wire.CheckpointAsk{Do: wire.CheckpointList})
	if err != nil {
		return Checkpoints{}, fmt.Errorf("session %s: checkpoints: %w", s.ID(), err)
	}
	set := a.State.Settings
	all := Checkpoints{
		List: checkpointsOf(a.State), Redo: []int{},
		Rules: CheckpointRules{Automatic: set.Automatic, Disk: int64(set.Disk), MaxFile: int64(set.MaxFile), Exclude: set.Exclude, Gitignore: set.Gitignore},
		Off:   a.State.Off, Used: int64(a.State.Used), Entries: int(a.State.Entries), Dropped: int(a.State.Dropped),
		Uncovered: uncovered(a.State.Uncovered), UncoveredCount: int(a.State.UncoveredCount), Pending: commandsOf(a.Pending),
	}
	for i := range a.State.Redo {
		all.Redo = append(all.Redo, int(a.State.Redo[len(a.State.Redo)-1-i]))
	}
	return all, nil
}

// FindCheckpoint returns the checkpoint with a number or a name.
func (s *Session) FindCheckpoint(ctx context.Context, ref string) (Checkpoint, error) {
	all, err := s.Checkpoints(ctx)
	if err != nil {
		return Checkpoint{}, err
	}
	return all.Find(ref)
}

// Find returns the checkpoint with a number or a name.
func (c Checkpoints) Find(ref string) (Checkpoint, error) {
	for _, one := range c.List {
		if ref != "" && (one.Name == ref || strconv.Itoa(one.ID) == ref) {
			return one, nil
		}
	}
	return Checkpoint{}, badInput("checkpoint", "there is no checkpoint %q", ref)
}

func checkpointsOf(state wire.CheckpointState) []Checkpoint {
	all := []Checkpoint{}
	for _, c := range state.List {
		all = append(all, Checkpoint{
			ID: int(c.ID), Name: c.Name, Why: c.Why, Time: c.Time, Commands: commandsOf(c.Commands),
			Added: int(c.Added), Modified: int(c.Modified), Deleted: int(c.Deleted), Bytes: int64(c.Bytes),
			Uncertain: c.Uncertain, Current: c.ID == state.Current,
		})
	}
	return all
}

func commandsOf(list []wire.CheckpointCommand) []CheckpointCommand {
	all := []CheckpointCommand{}
	for _, c := range list {
		all = append(all, CheckpointCommand(c))
	}
	return all
}

func uncovered(list []wire.CheckpointGap) []Uncovered {
	all := []Uncovered{}
	for _, l := range list {
		all = append(all, Uncovered(l))
	}
	return all
}

func openProcesses(list []wire.CheckpointHolder) []OpenProcess {
	all := []OpenProcess{}
	for _, h := range list {
		all = append(all, OpenProcess(h))
	}
	return all
}

// Undo makes the workspace as it was at an earlier checkpoint. What has changed since the last one gets a checkpoint first,
// so that Redo brings it back. No command starts meanwhile. The error is an *InputError if there is nothing to
// undo, and an *OpenError if something runs that has files of the workspace open, unless Force is set. An Undo that is cut
// off, even by the end of its container, leaves the workspace as it was or as it was to be.
func (s *Session) Undo(ctx context.Context, o UndoOptions) (Undone, error) {
	return s.goBack(ctx, "undo", wire.CheckpointAsk{Do: wire.CheckpointUndo, Steps: uint64(max(0, o.Steps)), DryRun: o.DryRun, Force: o.Force})
}

// Redo takes back what Undo did, as long as nothing else has changed the workspace since. See Undo.
func (s *Session) Redo(ctx context.Context, o UndoOptions) (Undone, error) {
	return s.goBack(ctx, "redo", wire.CheckpointAsk{Do: wire.CheckpointRedo, Steps: uint64(max(0, o.Steps)), DryRun: o.DryRun, Force: o.Force})
}

// Restore makes the workspace, or some paths of it, as they were at a checkpoint. That becomes a checkpoint of its own,
// which Undo can go back behind. See Undo.
func (s *Session) Restore(ctx context.Context, id int, o RestoreOptions) (Undone, error) {
	ask := wire.CheckpointAsk{Do: wire.CheckpointRestore, ID: uint64(max(0, id)), DryRun: o.DryRun, Force: o.Force}
	for _, p := range o.Paths {
		name, err := s.under(p)
		if err != nil {
			return Undone{}, err
		}
		ask.Paths = append(ask.Paths, name)
	}
	return s.goBack(ctx, "restore", ask)
}

func (s *Session) goBack(ctx context.Context, what string, ask wire.CheckpointAsk) (Undone, error) {
	a, err := s.askCheckpoint(ctx, ask)
	if err != nil {
		return Undone{}, fmt.Errorf("session %s: %s: %w", s.ID(), what, err)
	}
	d := s.checkpointDiff(a.Changes)
	return Undone{
		From: int(a.From), To: int(a.To), Files: d.Files, Left: uncovered(a.Left), Open: openProcesses(a.Holders), diff: d,
	}, nil
}

// CheckpointNow stands for the workspace as it is, as an argument of DiffCheckpoints.
const CheckpointNow = 0

// DiffCheckpoints returns what differs between two checkpoints, or a checkpoint and the workspace as it is.
func (s *Session) DiffCheckpoints(ctx context.Context, from, to int) (*CheckpointDiff, error) {
	a, err := s.askCheckpoint(ctx, wire.CheckpointAsk{Do: wire.CheckpointDiff, ID: uint64(max(0, from)), To: uint64(max(0, to))})
	if err != nil {
		return nil, fmt.Errorf("session %s: diff: %w", s.ID(), err)
	}
	return s.checkpointDiff(a.Changes), nil
}
