package wire

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Hello is the runner's first frame.
type Hello struct {
	Version uint64
	PID     int // of the runner, in the container
	Bash    bool
	Shell   bool // a POSIX sh
}

// Open is the host's first frame.
type Open struct {
	Version uint64
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
}

// Taken asks for standard input: for StdinWindow bytes when the command has started,
// and then for as many as it has taken. The host never has more than StdinWindow bytes
// under way, and none for a command that has not started.
type Taken struct {
	Seq   uint64
	Bytes uint64 // that may be sent beside those of earlier ones
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
}

// Rung says how far the runner had to go to end a command.
type Rung uint64

// Rungs, from none to all.
const (
	RungNone  Rung = iota // nothing was asked
	RungTerm              // SIGTERM was enough
	RungKill              // SIGKILL, and nothing is left
	RungStuck             // something survived SIGKILL
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
	// 0 if the kernel does not tell.
	Processes uint64
	// Stdout and Stderr count the bytes sent for this command.
	Stdout uint64
	Stderr uint64
}

// Failure says why a command was not started.
type Failure uint64

// Failures. Errno is set with those marked so.
const (
	FailOther      Failure = iota // Errno
	FailDirMissing                // the working directory does not exist
	FailDirNotDir                 // it is no directory
	FailDirDenied                 // Errno: the session's user may not enter it
	FailNoShell                   // the image has no such shell
	FailTooBig                    // arguments and environment exceed execve's limit
	FailResources                 // Errno: the container is at its pids or memory limit
	FailBusy                      // every slot of the session is taken, or Exclusive and one is
	FailRequest                   // the request was not understood
	FailJobs                      // Errno: the session cannot keep another job
	FailJobLimit                  // as many jobs run as may
)

// Failed says that the command was not started.
type Failed struct {
	Seq     uint64
	Failure Failure
	Errno   int // Linux errno, or 0
	Detail  string
}

// encoder appends fields; decoder takes them off in the same order.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int)     { e.b = binary.AppendVarint(e.b, int64(v)) }

func (e *encoder) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) bytes(v []byte) {
	e.uint(uint64(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) string(v string) {
	e.uint(uint64(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) strings(v []string) {
	e.uint(uint64(len(v)))
	for _, s := range v {
		e.string(s)
	}
}

// decoder remembers its first error; after it every field is zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrFrame, what)
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("bad number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int {
	v, n := binary.Varint(d.b)
	if n <= 0 || int64(int(v)) != v {
		d.fail("bad number")
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

func (d *decoder) bool() bool {
	if len(d.b) == 0 || d.b[0] > 1 {
		d.fail("bad boolean")
		return false
	}
	v := d.b[0] == 1
	d.b = d.b[1:]
	return v
}

// bytes returns a part of the decoder's memory.
func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail("length beyond the end")
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string { return string(d.bytes()) }

func (d *decoder) strings() []string {
	n := d.uint()
	if n > uint64(len(d.b)) { // each takes a byte at least
		d.fail("count beyond the end")
		return nil
	}
	if n == 0 {
		return nil
	}
	v := make([]string, 0, n)
	for range n {
		v = append(v, d.string())
	}
	return v
}

func (d *decoder) duration() time.Duration { return time.Duration(d.int()) }

func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("trailing bytes")
	}
	return d.err
}

// Append appends the message's encoding to dst.
func (m Hello) Append(dst []byte) []byte {
	e := encoder{dst}
	e.string(Magic)
	e.uint(m.Version)
	e.int(m.PID)
	e.bool(m.Bash)
	e.bool(m.Shell)
	return e.b
}

// ParseHello decodes a Hello. Of a peer with another Version only the Version
// is decoded.
func ParseHello(b []byte) (Hello, error) {
	d := decoder{b: b}
	if d.string() != Magic {
		d.fail("not a runner")
		return Hello{}, d.err
	}
	m := Hello{Version: d.uint()}
	if m.Version != Version {
		return m, d.err
	}
	m.PID, m.Bash, m.Shell = d.int(), d.bool(), d.bool()
	return m, d.end()
}

// Append appends the message's encoding to dst.
func (m Open) Append(dst []byte) []byte {
	e := encoder{dst}
	e.uint(m.Version)
	e.int(int(m.Lease))
	return e.b
}

// ParseOpen decodes an Open.
func ParseOpen(b []byte) (Open, error) {
	d := decoder{b: b}
	m := Open{Version: d.uint(), Lease: d.duration()}
	return m, d.end()
}

// Append appends the message's encoding to dst.
func (m Request) Append(dst []byte) []byte {
	e := encoder{dst}
	e.uint(m.Seq)
	e.string(m.Path)
	e.string(m.Shell)
	e.bytes(m.Script)
	e.strings(m.Args)
	e.strings(m.Env)
	e.string(m.Dir)
	e.uint(uint64(m.UID))
	e.uint(uint64(m.GID))
	e.bool(m.Merged)
	e.bool(m.Stdin)
	e.bool(m.Exclusive)
	e.job(m.Job)
	return e.b
}

// ParseRequest decodes a Request. Its Script is a part of b.
func ParseRequest(b []byte) (Request, error) {
	d := decoder{b: b}
	m := Request{
		Seq: d.uint(), Path: d.string(), Shell: d.string(), Script: d.bytes(),
		Args: d.strings(), Env: d.strings(), Dir: d.string(),
		UID: uint32(d.uint()), GID: uint32(d.uint()),
		Merged: d.bool(), Stdin: d.bool(), Exclusive: d.bool(), Job: d.job(),
	}
	return m, d.end()
}

// Append appends the message's encoding to dst.
func (m Taken) Append(dst []byte) []byte {
	e := encoder{dst}
	e.uint(m.Seq)
	e.uint(m.Bytes)
	return e.b
}

// ParseTaken decodes a Taken.
func ParseTaken(b []byte) (Taken, error) {
	d := decoder{b: b}
	m := Taken{Seq: d.uint(), Bytes: d.uint()}
	return m, d.end()
}

// Append appends the message's encoding to dst.
func (m Kill) Append(dst []byte) []byte {
	e := encoder{dst}
	e.uint(m.Seq)
	e.int(int(m.Grace))
	return e.b
}

// ParseKill decodes a Kill.
func ParseKill(b []byte) (Kill, error) {
	d := decoder{b: b}
	m := Kill{Seq: d.uint(), Grace: d.duration()}
	return m, d.end()
}

// Append appends the message's encoding to dst.
func (m Exit) Append(dst []byte) []byte {
	e := encoder{dst}
	e.uint(m.Seq)
	e.int(m.Code)
	e.int(m.Signal)
	e.uint(uint64(m.Rung))
	e.bool(m.OOM)
	e.uint(m.Left)
	e.int(int(m.CPU))
	e.uint(m.MaxRSS)
	e.uint(m.Processes)
	e.uint(m.Stdout)
	e.uint(m.Stderr)
	return e.b
}

// ParseExit decodes an Exit.
func ParseExit(b []byte) (Exit, error) {
	d := decoder{b: b}
	m := Exit{
		Seq: d.uint(), Code: d.int(), Signal: d.int(), Rung: Rung(d.uint()),
		OOM: d.bool(), Left: d.uint(), CPU: d.duration(), MaxRSS: d.uint(),
		Processes: d.uint(), Stdout: d.uint(), Stderr: d.uint(),
	}
	return m, d.end()
}

// Append appends the message's encoding to dst.
func (m Failed) Append(dst []byte) []byte {
	e := encoder{dst}
	e.uint(m.Seq)
	e.uint(uint64(m.Failure))
	e.int(m.Errno)
	e.string(m.Detail)
	return e.b
}

// ParseFailed decodes a Failed.
func ParseFailed(b []byte) (Failed, error) {
	d := decoder{b: b}
	m := Failed{Seq: d.uint(), Failure: Failure(d.uint()), Errno: d.int(), Detail: d.string()}
	return m, d.end()
}
