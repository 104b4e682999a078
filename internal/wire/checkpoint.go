package wire

import "time"

// CheckpointDir is where a session keeps its checkpoints: a directory of uid 0 in the volume of its jobs,
// which outlives a reset. Package checkpoint says what is in it.
const CheckpointDir = JobsDir + "/undo"

// What a CheckpointAsk can ask for.
const (
	CheckpointInit    = "init"    // make the store, and the first checkpoint
	CheckpointTake    = "take"    // make a checkpoint of what is there now
	CheckpointList    = "list"    // answer with the checkpoints
	CheckpointUndo    = "undo"    // go back by Steps
	CheckpointRedo    = "redo"    // go forward by Steps
	CheckpointRestore = "restore" // make the files, or those at Paths, as they were at ID
	CheckpointDiff    = "diff"    // answer with what differs between ID and To
	CheckpointRead    = "read"    // answer with the contents of Sums, one behind the other
)

// CheckpointAsk is what VerbCheckpoint reads.
type CheckpointAsk struct {
	Do       string
	Settings CheckpointSettings // with CheckpointInit; with CheckpointTake for a session that has none yet
	Name     string             // with CheckpointTake
	ID, To   uint64             // checkpoints; as To, 0 is what is there now
	Steps    uint64
	Paths    []string // relative to the directory; none: all
	DryRun   bool     // answer with what would change, and change nothing
	Force    bool     // although something runs that has files open
	Sums     []string // of contents, 32 bytes each
}

// CheckpointSettings are those of a session's checkpoints. They are kept with them.
type CheckpointSettings struct {
	UID, GID  uint32
	Dir       string // absolute
	Automatic bool   // a checkpoint after each command that has changed something
	Disk      uint64 // bytes that all contents may take
	MaxFile   uint64 // bytes; the content of a larger file is not kept
	Exclude   []string
	Gitignore bool
}

// CheckpointCommand is a command that ran before a checkpoint.
type CheckpointCommand struct {
	ID   string // the host's
	Text string // its start, secrets masked
}

// Checkpoint is one former state.
type Checkpoint struct {
	ID, Parent uint64 // Parent: the one before it, 0 for none
	Step       uint64 // where it is in the log of changes
	Name, Why  string
	Time       time.Time
	Commands   []CheckpointCommand

	Added, Modified, Deleted uint64 // files and links
	Bytes                    uint64 // of contents that were new
	Uncertain                []string
}

// CheckpointGap is a path that checkpoints do not cover, or that was not restored.
type CheckpointGap struct{ Path, Why string }

// CheckpointHolder is a process that has something of the directory open.
type CheckpointHolder struct {
	PID     int
	Command string
	Files   []string
}

// CheckpointState is what is known of all checkpoints of a session.
type CheckpointState struct {
	Settings CheckpointSettings
	List     []Checkpoint // oldest first
	Current  uint64       // the one that the directory was like at the last look
	Redo     []uint64     // the last one is redone first
	Next     uint64       // the next ID
	Step     uint64       // the last one of the log
	Head     uint64       // the number of the manifest
	Used     uint64       // bytes of contents
	Dropped  uint64       // checkpoints that made room for later ones
	Off      string       // why none are made automatically although they are asked for
	Rest     time.Time    // no automatic one before this
	Entries  uint64       // files, directories and links

	Uncovered      []CheckpointGap // the first ones
	UncoveredCount uint64
}

// CheckpointEntry is what is at a path.
type CheckpointEntry struct {
	Kind   string // "f", "d" or "l"; "" for nothing
	Mode   uint64
	Size   uint64
	Sum    string // of a file's content; "" if it is not kept
	Target string
}

// CheckpointChange is a path that differs between two states.
type CheckpointChange struct {
	Path     string
	Was, Now CheckpointEntry
}

// Why a CheckpointAnswer is a refusal.
const (
	CheckpointNone  = "none"  // the session has no checkpoints
	CheckpointGone  = "gone"  // there is no such checkpoint, or nothing to undo or redo
	CheckpointOpen  = "open"  // something runs that has files open, or a command runs
	CheckpointFull  = "full"  // the contents are more than may be kept
	CheckpointWrong = "wrong" // the directory cannot have checkpoints
)

// CheckpointAnswer is the answer of VerbCheckpoint, but for the contents of CheckpointRead.
type CheckpointAnswer struct {
	Refused string // "" if it is done
	Text    string // why
	State   CheckpointState
	Made    uint64 // the checkpoint that was made, 0 for none
	From    uint64 // with undo, redo, restore: the checkpoint before
	To      uint64
	Changes []CheckpointChange
	Left    []CheckpointGap
	Holders []CheckpointHolder
	Pending []CheckpointCommand // since the last checkpoint
}

// MaterializeArgs are the arguments of VerbMaterialize.
type MaterializeArgs struct {
	UID, GID uint32
	Store    string // a directory like CheckpointDir
	ID       string // of a checkpoint, in decimal; 0: the newest state
	Dir      string // empty, of that user
}

func (a *MaterializeArgs) words(l *argList) {
	l.user(&a.UID, &a.GID)
	l.string(&a.Store)
	l.string(&a.ID)
	l.string(&a.Dir)
}

// list visits a list of messages.
func list[T any, P interface {
	*T
	message
}](c *codec, all *[]T) {
	n := uint64(len(*all))
	c.uint(&n)
	if c.reading {
		*all = nil
		if n > uint64(len(c.b)) { // each takes a byte at least
			c.fail("count beyond the end")
			return
		}
	}
	for i := uint64(0); i < n && c.err == nil; i++ {
		if c.reading {
			*all = append(*all, *new(T))
		}
		P(&(*all)[i]).fields(c)
	}
}

func (c *codec) uints(v *[]uint64) {
	n := uint64(len(*v))
	c.uint(&n)
	if c.reading {
		*v = nil
		if n > uint64(len(c.b)) {
			c.fail("count beyond the end")
			return
		}
	}
	for i := uint64(0); i < n && c.err == nil; i++ {
		if c.reading {
			*v = append(*v, 0)
		}
		c.uint(&(*v)[i])
	}
}

func (m *CheckpointAsk) fields(c *codec) {
	c.string(&m.Do)
	m.Settings.fields(c)
	c.string(&m.Name)
	c.uint(&m.ID)
	c.uint(&m.To)
	c.uint(&m.Steps)
	c.strings(&m.Paths)
	c.bool(&m.DryRun)
	c.bool(&m.Force)
	c.strings(&m.Sums)
}

func (m *CheckpointSettings) fields(c *codec) {
	number(c, &m.UID)
	number(c, &m.GID)
	c.string(&m.Dir)
	c.bool(&m.Automatic)
	c.uint(&m.Disk)
	c.uint(&m.MaxFile)
	c.strings(&m.Exclude)
	c.bool(&m.Gitignore)
}

func (m *CheckpointCommand) fields(c *codec) {
	c.string(&m.ID)
	c.string(&m.Text)
}

func (m *Checkpoint) fields(c *codec) {
	c.uint(&m.ID)
	c.uint(&m.Parent)
	c.uint(&m.Step)
	c.string(&m.Name)
	c.string(&m.Why)
	c.time(&m.Time)
	list(c, &m.Commands)
	c.uint(&m.Added)
	c.uint(&m.Modified)
	c.uint(&m.Deleted)
	c.uint(&m.Bytes)
	c.strings(&m.Uncertain)
}

func (m *CheckpointGap) fields(c *codec) {
	c.string(&m.Path)
	c.string(&m.Why)
}

func (m *CheckpointHolder) fields(c *codec) {
	c.int(&m.PID)
	c.string(&m.Command)
	c.strings(&m.Files)
}

func (m *CheckpointState) fields(c *codec) {
	m.Settings.fields(c)
	list(c, &m.List)
	c.uint(&m.Current)
	c.uints(&m.Redo)
	c.uint(&m.Next)
	c.uint(&m.Step)
	c.uint(&m.Head)
	c.uint(&m.Used)
	c.uint(&m.Dropped)
	c.string(&m.Off)
	c.time(&m.Rest)
	c.uint(&m.Entries)
	list(c, &m.Uncovered)
	c.uint(&m.UncoveredCount)
}

func (m *CheckpointEntry) fields(c *codec) {
	c.string(&m.Kind)
	c.uint(&m.Mode)
	c.uint(&m.Size)
	c.string(&m.Sum)
	c.string(&m.Target)
}

func (m *CheckpointChange) fields(c *codec) {
	c.string(&m.Path)
	m.Was.fields(c)
	m.Now.fields(c)
}

func (m *CheckpointAnswer) fields(c *codec) {
	c.string(&m.Refused)
	c.string(&m.Text)
	m.State.fields(c)
	c.uint(&m.Made)
	c.uint(&m.From)
	c.uint(&m.To)
	list(c, &m.Changes)
	list(c, &m.Left)
	list(c, &m.Holders)
	list(c, &m.Pending)
}

// Append appends the message's encoding to dst.
func (m CheckpointAsk) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseCheckpointAsk decodes a CheckpointAsk.
func ParseCheckpointAsk(b []byte) (m CheckpointAsk, err error) {
	err = decode(b, &m)
	return m, err
}

// Append appends the message's encoding to dst.
func (m CheckpointState) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseCheckpointState decodes a CheckpointState.
func ParseCheckpointState(b []byte) (m CheckpointState, err error) {
	err = decode(b, &m)
	return m, err
}

// Append appends the message's encoding to dst.
func (m CheckpointAnswer) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseCheckpointAnswer decodes a CheckpointAnswer.
func ParseCheckpointAnswer(b []byte) (m CheckpointAnswer, err error) {
	err = decode(b, &m)
	return m, err
}

// Append appends the message's encoding to dst.
func (m CheckpointCommand) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseCheckpointCommand decodes a CheckpointCommand.
func ParseCheckpointCommand(b []byte) (m CheckpointCommand, err error) {
	err = decode(b, &m)
	return m, err
}
