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
	Label   string        // a name for people
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

// Detached says that the command is a job now and its runner no longer serves this host:
// nothing follows. If ID is "", the command could not be handed over, for the reason in
// Failure, and goes on as before.
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

// Ending says why a job ended.
type Ending uint64

// Endings.
const (
	EndedItself   Ending = iota // or by a signal that was not the runner's
	EndedTimeout                // killed at its timeout
	EndedByDemand               // killed on demand
)

// JobStart is a runner's record of a job that has started.
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
	NoRoom    []NoRoom      // as in an Exit
}

// MaxRecord bounds a sealed record in bytes.
const MaxRecord = 4 << 10

// MaxJobText bounds a job's Owner and its Label, in bytes each.
const MaxJobText = 1 << 10

// ErrSeal reports a record that was not written by this session's runners.
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

func (m *JobStart) fields(c *codec) {
	c.string(&m.ID)
	c.string(&m.Tag)
	c.string(&m.Owner)
	c.string(&m.Label)
	c.int(&m.PID)
	c.int(&m.Runner)
	c.time(&m.Started)
	c.duration(&m.Timeout)
}

func (m *JobEnd) fields(c *codec) {
	c.string(&m.ID)
	c.string(&m.Tag)
	number(c, &m.Ending)
	c.int(&m.Code)
	c.int(&m.Signal)
	number(c, &m.Rung)
	c.bool(&m.OOM)
	c.uint(&m.Left)
	c.duration(&m.CPU)
	c.uint(&m.MaxRSS)
	c.uint(&m.Processes)
	c.duration(&m.Elapsed)
	c.time(&m.Ended)
	c.duration(&m.Clock)
	c.uint(&m.Written)
	c.uint(&m.Kept)
	c.bool(&m.Full)
	if c.since(5) {
		rooms(c, &m.NoRoom)
	}
}

// Seal encodes the record so that only a holder of the key could have made it.
func (m JobStart) Seal(key []byte) []byte { return seal(key, sealStart, encode(nil, &m)) }

// OpenJobStart decodes a sealed record. It returns ErrSeal for one that was not
// sealed with the key.
func OpenJobStart(key, b []byte) (m JobStart, err error) {
	body, err := unseal(key, sealStart, b)
	if err != nil {
		return m, err
	}
	err = decode(body, &m)
	return m, err
}

// Seal encodes the record so that only a holder of the key could have made it.
func (m JobEnd) Seal(key []byte) []byte { return seal(key, sealEnd, encode(nil, &m)) }

// OpenJobEnd decodes a sealed record. It returns ErrSeal for one that was not
// sealed with the key.
func OpenJobEnd(key, b []byte) (m JobEnd, err error) {
	body, err := unseal(key, sealEnd, b)
	if err != nil {
		return m, err
	}
	err = decode(body, &m)
	return m, err
}

// ReadJobEnd decodes a sealed record without checking the seal, for decisions that need
// no proof, such as when a job may be forgotten.
func ReadJobEnd(b []byte) (m JobEnd, err error) {
	if len(b) < sha256.Size {
		return m, fmt.Errorf("%w: short record", ErrFrame)
	}
	err = decode(b[sha256.Size:], &m)
	return m, err
}

// fields copies the key: the request's memory is released.
func (m *Job) fields(c *codec) {
	c.bool(&m.Background)
	c.string(&m.Tag)
	c.string(&m.Owner)
	c.string(&m.Label)
	c.duration(&m.Timeout)
	c.duration(&m.Grace)
	c.uint(&m.Cap)
	c.uint(&m.Most)
	m.Keep.fields(c)
	key := string(m.Key)
	c.string(&key)
	if !c.reading {
		return
	}
	m.Key = []byte(key)
	if len(m.Tag) > MaxJobText || len(m.Owner) > MaxJobText || len(m.Label) > MaxJobText || len(m.Key) == 0 {
		c.fail("bad job")
	}
}

func (m *Detach) fields(c *codec) { c.uint(&m.Seq) }

func (m *Detached) fields(c *codec) {
	c.uint(&m.Seq)
	c.string(&m.ID)
	c.int(&m.PID)
	c.uint(&m.Stdout)
	c.uint(&m.Stderr)
	number(c, &m.Failure)
	c.int(&m.Errno)
	c.string(&m.Detail)
}

// Append appends the message's encoding to dst.
func (m Detach) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseDetach decodes a Detach.
func ParseDetach(b []byte) (m Detach, err error) {
	err = decode(b, &m)
	return m, err
}

// Append appends the message's encoding to dst.
func (m Detached) Append(dst []byte) []byte { return encode(dst, &m) }

// ParseDetached decodes a Detached.
func ParseDetached(b []byte) (m Detached, err error) {
	err = decode(b, &m)
	return m, err
}
