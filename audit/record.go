// Package audit keeps a log of what was run: a record a line, as JSON, each with
// the hash of the one before it, so that none can be changed, taken out or moved
// without its being seen. What a chain cannot show by itself is that its end was
// cut off: for that somebody has to have noted a Head elsewhere.
//
// The package knows records, not sessions: who writes them fills them in, without
// secrets.
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Kind says what a record tells.
type Kind string

// Kinds.
const (
	Intent       Kind = "intent"        // a command is about to start
	Outcome      Kind = "outcome"       // what became of it: the record with the same ID
	Denied       Kind = "denied"        // a command that a policy has refused
	SessionStart Kind = "session-start" // a session was started
	SessionStop  Kind = "session-stop"  // a session was stopped
	Reaped       Kind = "reaped"        // what was left of a session was removed
	JobEnd       Kind = "job-end"       // a job has ended, as the first has seen who waited for it
)

// Kinds of records about the log itself.
const (
	Segment   Kind = "segment"   // the log goes on here; File has what is before
	Retention Kind = "retention" // old files were removed
	Torn      Kind = "torn"      // the line before was cut off while it was written
	Damaged   Kind = "damaged"   // the line before is no record, and was not cut off
)

// Record is one line. Seq, Prev, Time, PID and Missed are Append's.
type Record struct {
	Seq  uint64    `json:"seq"`  // 1, 2, … through all files
	Prev string    `json:"prev"` // Hash of the line before; of the first, 64 zeros
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	PID  int       `json:"pid"` // of the process that has written it

	ID      string `json:"id,omitempty"` // of a command
	Session string `json:"session,omitempty"`
	Mode    string `json:"mode,omitempty"`  // "command", "terminal" or "job"
	Where   string `json:"where,omitempty"` // "container", or "client": in the client's terminal
	// Command is its text, at most MaxCommand bytes of the Bytes that it has.
	Command string   `json:"command,omitempty"`
	Bytes   int      `json:"commandBytes,omitempty"`
	Dir     string   `json:"dir,omitempty"`
	Policy  *Policy  `json:"policy,omitempty"` // nil: there was none
	Reason  string   `json:"reason,omitempty"` // how it ended; "" with an Error
	Code    *int     `json:"exitCode,omitempty"`
	Signal  int      `json:"signal,omitempty"`
	Error   *Failure `json:"error,omitempty"`
	// Receipt is what it has used, in the form of its writer.
	Receipt  json.RawMessage `json:"receipt,omitempty"`
	Artifact *Artifact       `json:"artifact,omitempty"`
	Job      string          `json:"job,omitempty"`    // that it became, or that has ended
	JobTag   string          `json:"jobTag,omitempty"` // names that job for good: its id may be used again
	Masked   int64           `json:"masked,omitempty"` // secrets in its output

	// Missed is how many records before this one could not be written.
	Missed int64 `json:"missed,omitempty"`

	File        string   `json:"file,omitempty"`        // of Segment
	Removed     []string `json:"removed,omitempty"`     // of Retention: files
	RemovedHead string   `json:"removedHead,omitempty"` // of Retention: Hash of the last line of those
}

// Policy is what was decided of a command.
type Policy struct {
	Verdict string `json:"verdict"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Failure is why a command has no reason.
type Failure struct {
	Outcome string `json:"outcome"` // "not-started", "outcome-unknown", "session-lost"
	Cause   string `json:"cause"`
	Message string `json:"message,omitempty"`
}

// Artifact is the file that has a command's whole output.
type Artifact struct {
	ID       string `json:"id"`
	Bytes    int64  `json:"bytes"`
	Complete bool   `json:"complete"`
}

// MaxCommand bounds what a record repeats of a command, in bytes.
const MaxCommand = 16 << 10

// maxLine bounds a line in bytes: all texts of a record, with every byte escaped.
const maxLine = 1 << 20

// first is the Prev of the first record of all.
var first = strings.Repeat("0", 2*sha256.Size)

// Hash is the hash of a line, without its line end.
func Hash(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// line is the record as a line, with its end.
func (r Record) line() ([]byte, error) {
	b, err := json.Marshal(r)
	if err == nil && len(b) > maxLine {
		err = fmt.Errorf("audit: a record of %d bytes; the limit is %d", len(b), maxLine)
	}
	return append(b, '\n'), err
}

// parse reads a line.
func parse(line []byte) (Record, error) {
	var r Record
	err := json.Unmarshal(line, &r)
	if err == nil && (r.Seq == 0 || len(r.Prev) != len(first) || r.Kind == "") {
		err = fmt.Errorf("it has no seq, prev or kind")
	}
	return r, err
}
