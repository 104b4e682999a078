package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"
)

// JobsDir is where a session keeps its jobs: a disk volume of uid 0, which
// commands can read and not write.
const JobsDir = "/run/jobs"

// JobOutput is the file that a job's output goes to, in the session.
func JobOutput(id string) string { return JobsDir + "/" + id + ".log" }

// Job makes a command one that may go on without its host: what it writes goes
// to a file of the session too, from its first byte on, before the host gets it.
type Job struct {
	// Background hands the command over as soon as it has started. Otherwise a
	// Detach does, and without one it is a command like any other.
	Background bool
	// Tag names this job for good: an id is used again when its job is removed.
	Tag     string
	Owner   string
	Label   string        // what people know it by
	Timeout time.Duration // from the start; the runner keeps it after the hand-over; 0: none
	Grace   time.Duration // from SIGTERM to SIGKILL
	Cap     uint64        // bytes of output that are kept; what exceeds them is counted
	Most    uint64        // how many jobs may run in the session; 0: any number
	Keep    JobKeep       // how long jobs of the session that have ended take up an id
	Key     []byte        // what the runner seals the job's records with
}

// Detach asks the runner to hand the command Seq over. It does nothing if that
// command has ended: its Exit is then the answer.
type Detach struct{ Seq uint64 }

// Detached says that the command is a job now, and the runner this host's no
// longer: nothing follows. Or it says why that could not be, and the command goes
// on as before; then ID is "".
type Detached struct {
	Seq uint64
	ID  string // bg_1, bg_2, …
	PID int    // of the leader, and its process group
	// Stdout and Stderr count the bytes that were sent before.
	Stdout  uint64
	Stderr  uint64
	Failure Failure
	Errno   int
	Detail  string
}

// Ending says by whose will a job ended.
type Ending uint64

// Endings.
const (
	EndedItself   Ending = iota // or by somebody's signal
	EndedTimeout                // killed at its timeout
	EndedByDemand               // killed on demand
)

// JobStart is a runner's record of a job that has begun.
type JobStart struct {
	ID      string
	Tag     string
	Owner   string
	Label   string
	PID     int           // of the leader; 0 while it is being started
	Runner  int           // the process that keeps the job
	Started time.Time     // by the engine's clock, to the nanosecond
	Timeout time.Duration // 0: none
}

// JobEnd is a runner's record of a job that has ended.
type JobEnd struct {
	ID     string
	Tag    string
	Ending Ending
	Code   int
	Signal int
	Rung   Rung
	OOM    bool
	Left   uint64
	CPU    time.Duration
	MaxRSS uint64
	// Processes is as in an Exit.
	Processes uint64
	Elapsed   time.Duration
	Ended     time.Time
	Clock     time.Duration // since the machine's boot: for measuring what came later
	Written   uint64        // bytes of output
	Kept      uint64        // bytes of those that are in the file: the first
	Full      bool          // the rest is missing because there was no room on the disk
}

// MaxRecord bounds a sealed record in bytes.
const MaxRecord = 4 << 10

// MaxJobText bounds a job's Owner and its Label, in bytes each.
const MaxJobText = 1 << 10

// ErrSeal reports a record that this session's runners have not written.
var ErrSeal = errors.New("the record's seal is wrong")

// Records of different kinds are sealed differently, so that none passes for
// another.
const (
	sealStart = 's'
	sealEnd   = 'e'
)

func seal(key []byte, kind byte, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte{kind})
	mac.Write(body)
	return append(mac.Sum(nil), body...)
}

func unseal(key []byte, kind byte, b []byte) ([]byte, error) {
	if len(key) == 0 || len(b) < sha256.Size || len(b) > MaxRecord {
		return nil, ErrSeal
	}
	body := b[sha256.Size:]
	if !hmac.Equal(seal(key, kind, body)[:sha256.Size], b[:sha256.Size]) {
		return nil, ErrSeal
	}
	return body, nil
}

// Seal encodes the record so that only who has the key could have made it.
func (m JobStart) Seal(key []byte) []byte {
	e := encoder{}
	e.string(m.ID)
	e.string(m.Tag)
	e.string(m.Owner)
	e.string(m.Label)
	e.int(m.PID)
	e.int(m.Runner)
	e.time(m.Started)
	e.int(int(m.Timeout))
	return seal(key, sealStart, e.b)
}

// OpenJobStart decodes a sealed record. It returns ErrSeal for one that was not
// sealed with the key.
func OpenJobStart(key, b []byte) (JobStart, error) {
	body, err := unseal(key, sealStart, b)
	if err != nil {
		return JobStart{}, err
	}
	d := decoder{b: body}
	m := JobStart{
		ID: d.string(), Tag: d.string(), Owner: d.string(), Label: d.string(),
		PID: d.int(), Runner: d.int(), Started: d.time(), Timeout: d.duration(),
	}
	return m, d.end()
}

// Seal encodes the record so that only who has the key could have made it.
func (m JobEnd) Seal(key []byte) []byte {
	e := encoder{}
	e.string(m.ID)
	e.string(m.Tag)
	e.uint(uint64(m.Ending))
	e.int(m.Code)
	e.int(m.Signal)
	e.uint(uint64(m.Rung))
	e.bool(m.OOM)
	e.uint(m.Left)
	e.int(int(m.CPU))
	e.uint(m.MaxRSS)
	e.uint(m.Processes)
	e.int(int(m.Elapsed))
	e.time(m.Ended)
	e.int(int(m.Clock))
	e.uint(m.Written)
	e.uint(m.Kept)
	e.bool(m.Full)
	return seal(key, sealEnd, e.b)
}

// OpenJobEnd decodes a sealed record. It returns ErrSeal for one that was not
// sealed with the key.
func OpenJobEnd(key, b []byte) (JobEnd, error) {
	body, err := unseal(key, sealEnd, b)
	if err != nil {
		return JobEnd{}, err
	}
	return parseJobEnd(body)
}

// ReadJobEnd decodes a sealed record on trust: for what needs no proof, such as
// when a job may be forgotten.
func ReadJobEnd(b []byte) (JobEnd, error) {
	if len(b) < sha256.Size {
		return JobEnd{}, fmt.Errorf("%w: short record", ErrFrame)
	}
	return parseJobEnd(b[sha256.Size:])
}

func parseJobEnd(body []byte) (JobEnd, error) {
	d := decoder{b: body}
	m := JobEnd{
		ID: d.string(), Tag: d.string(), Ending: Ending(d.uint()), Code: d.int(), Signal: d.int(), Rung: Rung(d.uint()),
		OOM: d.bool(), Left: d.uint(), CPU: d.duration(), MaxRSS: d.uint(), Processes: d.uint(), Elapsed: d.duration(), Ended: d.time(),
		Clock: d.duration(), Written: d.uint(), Kept: d.uint(), Full: d.bool(),
	}
	return m, d.end()
}

func (e *encoder) time(t time.Time) { e.int(int(t.UnixNano())) }

func (d *decoder) time() time.Time { return time.Unix(0, int64(d.int())).UTC() }

func (e *encoder) job(m *Job) {
	e.bool(m != nil)
	if m == nil {
		return
	}
	e.bool(m.Background)
	e.string(m.Tag)
	e.string(m.Owner)
	e.string(m.Label)
	e.int(int(m.Timeout))
	e.int(int(m.Grace))
	e.uint(m.Cap)
	e.uint(m.Most)
	e.keep(m.Keep)
	e.bytes(m.Key)
}

// job copies the key: the request's memory is let go.
func (d *decoder) job() *Job {
	if !d.bool() {
		return nil
	}
	m := &Job{
		Background: d.bool(), Tag: d.string(), Owner: d.string(), Label: d.string(),
		Timeout: d.duration(), Grace: d.duration(), Cap: d.uint(), Most: d.uint(), Keep: d.keep(), Key: []byte(d.string()),
	}
	if len(m.Tag) > MaxJobText || len(m.Owner) > MaxJobText || len(m.Label) > MaxJobText || len(m.Key) == 0 {
		d.fail("bad job")
	}
	return m
}

// Append appends the message's encoding to dst.
func (m Detach) Append(dst []byte) []byte {
	e := encoder{dst}
	e.uint(m.Seq)
	return e.b
}

// ParseDetach decodes a Detach.
func ParseDetach(b []byte) (Detach, error) {
	d := decoder{b: b}
	m := Detach{Seq: d.uint()}
	return m, d.end()
}

// Append appends the message's encoding to dst.
func (m Detached) Append(dst []byte) []byte {
	e := encoder{dst}
	e.uint(m.Seq)
	e.string(m.ID)
	e.int(m.PID)
	e.uint(m.Stdout)
	e.uint(m.Stderr)
	e.uint(uint64(m.Failure))
	e.int(m.Errno)
	e.string(m.Detail)
	return e.b
}

// ParseDetached decodes a Detached.
func ParseDetached(b []byte) (Detached, error) {
	d := decoder{b: b}
	m := Detached{
		Seq: d.uint(), ID: d.string(), PID: d.int(), Stdout: d.uint(), Stderr: d.uint(),
		Failure: Failure(d.uint()), Errno: d.int(), Detail: d.string(),
	}
	return m, d.end()
}
