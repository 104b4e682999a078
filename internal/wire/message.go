package wire

import (
	"fmt"
	"time"
)

// Hello is the runner's first frame. It comes before anything from the host.
type Hello struct {
	Version uint64
	PID     int // of the runner, in the container
	// Bash and Shell say whether the image has bash and a POSIX sh. No host uses them:
	// a Request for a shell that is missing is answered by FailNoShell.
	Bash  bool
	Shell bool
	// Features name what this runner can do besides what its Version says. A host uses
	// no feature that is not there.
	Features []string
}

// Known returns an error unless a host of this Version can speak with the runner.
func (m Hello) Known() error {
	if m.Version < OldestVersion || m.Version > Version {
		return fmt.Errorf("%w: the session's runner speaks version %d of the protocol, this program %d to %d: "+
			"use the program that started the session, or start another session", ErrFrame, m.Version, OldestVersion, Version)
	}
	return nil
}

// Open is the host's first frame, the answer to Hello.
type Open struct {
	Version uint64 // that of the Hello
	// Lease is how long the runner lives on without a frame from the host.
	Lease time.Duration
}

// Request asks the runner to run one command.
type Request struct {
	Seq uint64 // repeated by every answer; grows by one with each request
	// Path is the program. Empty stands for the shell named by Shell.
	Path  string
	Shell string // "bash" or "sh"
	// Script is the shell's program text; without a Path only.
	Script []byte
	// Args follow the program's own name, with a shell as $1 and so on.
	Args []string
	Env  []string // the whole environment, K=V
	Dir  string   // absolute
	UID  uint32
	GID  uint32
	// Merged makes one pipe of standard output and standard error, which
	// keeps their true order; all of it arrives as TypeStdout.
	Merged bool
	Stdin  bool // a standard input follows; otherwise it is /dev/null
	// Exclusive refuses to start while any other command runs in the session.
	Exclusive bool
	Job       *Job // nil: the command ends with its host
	// Watch are file systems to look at if the command fails: see Exit.NoRoom.
	Watch []string
}

// Taken asks for standard input: for StdinWindow bytes when the command has started, and
// then for as many as the command has read. The host never has more than StdinWindow
// bytes under way, and none before the command has started.
type Taken struct {
	Seq   uint64
	Bytes uint64 // that may be sent in addition to those of earlier ones
}

// StdinWindow is how many bytes of standard input may be under way between the
// host and a command that does not read: the runner keeps them in memory, so
// that a Kill behind them is seen.
const StdinWindow = 256 << 10

// Kill asks the runner to end the command Seq. It does nothing if that command
// has ended.
type Kill struct {
	Seq   uint64
	Grace time.Duration // from SIGTERM to SIGKILL
	// Interrupt has the process group get SIGINT first, and SIGTERM a Grace later.
	Interrupt bool
	// TimedOut says that the command is killed because its time is over. A job's record needs
	// to say so if the host's kill and the hand-over cross.
	TimedOut bool
}

// Rung says how far the runner had to go to end a command.
type Rung uint64

// Rungs. Their numbers are in records of jobs.
const (
	RungNone  Rung = iota // nothing was asked
	RungTerm              // SIGTERM was enough
	RungKill              // SIGKILL, and nothing is left
	RungStuck             // something survived SIGKILL
	RungInt               // SIGINT was enough
)

// Exit says that the command has ended and what it used.
type Exit struct {
	Seq    uint64
	Code   int    // exit code; 0 when signalled
	Signal int    // the signal that ended the leader, or 0
	Rung   Rung   // how it was ended, if the host asked
	OOM    bool   // the container's count of OOM kills rose meanwhile
	Left   uint64 // processes of the command that live on
	// CPU is user and system time of the leader and of every descendant that
	// has been waited for. MaxRSS is the largest of one process, in bytes; the
	// kernel counts that of the runner for a process that has just been forked.
	CPU    time.Duration
	MaxRSS uint64
	// Processes is how many processes and threads have begun in the session from
	// the start to the end: those of the command, and of whatever else ran there.
	// 0 if the kernel does not provide it.
	Processes uint64
	// Stdout and Stderr count the bytes sent for this command.
	Stdout uint64
	Stderr uint64
	NoRoom []NoRoom // of what was to be watched, and of all that is in memory
}

// Failure says why a command was not started.
type Failure uint64

// Failures. Errno is set with those marked so.
const (
	FailOther      Failure = iota // Errno
	FailDirMissing                // the working directory does not exist
	FailDirNotDir                 // it is not a directory
	FailDirDenied                 // Errno: the session's user may not enter it
	FailNoShell                   // the image has no such shell
	FailTooBig                    // arguments and environment exceed execve's limit
	FailResources                 // Errno: the container is at its pids or memory limit
	FailBusy                      // every slot of the session is taken; with Exclusive, any slot
	FailRequest                   // the request was not understood
	FailJobs                      // Errno: the session cannot keep another job
	FailJobLimit                  // the limit of running jobs is reached
)

// Failed says that the command was not started.
type Failed struct {
	Seq     uint64
	Failure Failure
	Errno   int // Linux errno, or 0
	Detail  string
}

func (m *Hello) fields(c *codec) {
	magic := Magic
	if c.string(&magic); magic != Magic {
		c.fail("not a runner")
		return
	}
	c.uint(&m.Version)
	if m.Version < OldestVersion || m.Version > Version {
		return // its other fields may be different ones
	}
	c.int(&m.PID)
	c.bool(&m.Bash)
	c.bool(&m.Shell)
	if c.since(5) {
		c.strings(&m.Features)
	}
}

func (m *Open) fields(c *codec) {
	c.uint(&m.Version)
	c.duration(&m.Lease)
}

func (m *Request) fields(c *codec) {
	c.uint(&m.Seq)
	c.string(&m.Path)
	c.string(&m.Shell)
	c.bytes(&m.Script)
	c.strings(&m.Args)
	c.strings(&m.Env)
	c.string(&m.Dir)
	number(c, &m.UID)
	number(c, &m.GID)
	c.bool(&m.Merged)
	c.bool(&m.Stdin)
	c.bool(&m.Exclusive)
	isJob := m.Job != nil
	c.bool(&isJob)
	if isJob && c.reading {
		m.Job = &Job{}
	}
	if isJob {
		m.Job.fields(c)
	}
	if c.since(5) {
		c.strings(&m.Watch)
	}
}

func (m *Taken) fields(c *codec) {
	c.uint(&m.Seq)
	c.uint(&m.Bytes)
}

func (m *Kill) fields(c *codec) {
	c.uint(&m.Seq)
	c.duration(&m.Grace)
	if c.since(5) {
		c.bool(&m.Interrupt)
	}
	if c.since(5) && (c.reading || m.TimedOut) { // the first hosts of version 5 do not send it
		c.bool(&m.TimedOut)
	}
}

func (m *Exit) fields(c *codec) {
	c.uint(&m.Seq)
	c.int(&m.Code)
	c.int(&m.Signal)
	number(c, &m.Rung)
	c.bool(&m.OOM)
	c.uint(&m.Left)
	c.duration(&m.CPU)
	c.uint(&m.MaxRSS)
	c.uint(&m.Processes)
	c.uint(&m.Stdout)
	c.uint(&m.Stderr)
	if c.since(5) {
		rooms(c, &m.NoRoom)
	}
}

func (m *Failed) fields(c *codec) {
	c.uint(&m.Seq)
	number(c, &m.Failure)
	c.int(&m.Errno)
	c.string(&m.Detail)
}

// Append appends the message's encoding to dst.
func (m Hello) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseHello decodes a Hello. Only its Version is decoded if that is not between
// OldestVersion and Version.
func ParseHello(b []byte) (m Hello, err error) {
	err = decode(b, &m)
	return m, err
}

// Append appends the message's encoding to dst.
func (m Open) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseOpen decodes an Open.
func ParseOpen(b []byte) (m Open, err error) {
	err = decode(b, &m)
	return m, err
}

// Append appends the message's encoding to dst.
func (m Request) Append(dst []byte) []byte { return encode(dst, &m) }

// AppendFor is Append for a runner that speaks the version.
func (m Request) AppendFor(version uint64, dst []byte) []byte { return encodeFor(version, dst, &m) }

// ParseRequest decodes a Request. Its Script is a part of b.
func ParseRequest(b []byte) (m Request, err error) {
	err = decode(b, &m)
	return m, err
}

// Append appends the message's encoding to dst.
func (m Taken) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseTaken decodes a Taken.
func ParseTaken(b []byte) (m Taken, err error) {
	err = decode(b, &m)
	return m, err
}

// Append appends the message's encoding to dst.
func (m Kill) Append(dst []byte) []byte { return encode(dst, &m) }

// AppendFor is Append for a runner that speaks the version.
func (m Kill) AppendFor(version uint64, dst []byte) []byte { return encodeFor(version, dst, &m) }

// ParseKill decodes a Kill.
func ParseKill(b []byte) (m Kill, err error) {
	err = decode(b, &m)
	return m, err
}

// Append appends the message's encoding to dst.
func (m Exit) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseExit decodes an Exit.
func ParseExit(b []byte) (m Exit, err error) {
	err = decode(b, &m)
	return m, err
}

// Append appends the message's encoding to dst.
func (m Failed) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseFailed decodes a Failed.
func ParseFailed(b []byte) (m Failed, err error) {
	err = decode(b, &m)
	return m, err
}
