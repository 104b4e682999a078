// Package audit keeps a log of what was run: one record per line, as JSON, each with
// the hash of the line before, so that Verify finds a record that was changed, removed
// or moved. The chain by itself cannot show that its end was cut off: for that, a
// Report.Head must have been noted elsewhere.
//
// The package knows records, not sessions: its caller fills in the records, without
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

// Kind is the kind of a record.
type Kind string

// Kinds.
const (
	Intent       Kind = "intent"        // a command, or a transfer of files, is about to start
	Outcome      Kind = "outcome"       // how it ended; its Intent has the same ID
	Denied       Kind = "denied"        // a policy has refused a command
	SessionStart Kind = "session-start" // a session was started
	SessionStop  Kind = "session-stop"  // a session was stopped
	Reaped       Kind = "reaped"        // the remains of a session were removed
	Connection   Kind = "connection"    // a connection or a request of a session has ended, or was refused
	Answer       Kind = "answer"        // a person, or a client, has answered whether a session may reach something
	JobEnd       Kind = "job-end"       // a job has ended; written by the first process that learns of it
)

// Kinds of records about the log itself.
const (
	Segment   Kind = "segment"   // the log continues here; File has the records before
	Retention Kind = "retention" // old files were removed
	Torn      Kind = "torn"      // the line before was cut off while it was written
	Damaged   Kind = "damaged"   // the line before is not a record, and was not cut off
)

// Record is one line. Append sets Seq, Prev, Time, PID and Missed.
type Record struct {
	Seq  uint64    `json:"seq"`  // 1, 2, … through all files
	Prev string    `json:"prev"` // Hash of the line before; 64 zeros in the first line
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	PID  int       `json:"pid"` // of the process that wrote the record

	ID      string `json:"id,omitempty"` // of a command
	Session string `json:"session,omitempty"`
	Mode    string `json:"mode,omitempty"`  // "command", "terminal" or "job"; "push" or "pull"
	Where   string `json:"where,omitempty"` // "container", or "client": in the client's terminal
	// Command is the first MaxCommand bytes of the command's text; Bytes is its length.
	Command string   `json:"command,omitempty"`
	Bytes   int      `json:"commandBytes,omitempty"`
	Dir     string   `json:"dir,omitempty"`
	Policy  *Policy  `json:"policy,omitempty"` // nil: there was none
	Reason  string   `json:"reason,omitempty"` // how it ended; "" with an Error
	Code    *int     `json:"exitCode,omitempty"`
	Signal  int      `json:"signal,omitempty"`
	Error   *Failure `json:"error,omitempty"`
	// Receipt is what the command has used, in the form that the caller gives it.
	Receipt  json.RawMessage `json:"receipt,omitempty"`
	Artifact *Artifact       `json:"artifact,omitempty"`
	Job      string          `json:"job,omitempty"`    // id of the job that it became, or that has ended
	JobTag   string          `json:"jobTag,omitempty"` // unique name of that job; ids are used again
	Masked   int64           `json:"masked,omitempty"` // secrets masked in its output
	// Network is what a Connection or an Answer was for, in the form that the caller gives it.
	Network json.RawMessage `json:"network,omitempty"`

	// Missed is how many records before this one could not be written.
	Missed int64 `json:"missed,omitempty"`

	File        string   `json:"file,omitempty"`        // of Segment
	Removed     []string `json:"removed,omitempty"`     // of Retention: files
	RemovedHead string   `json:"removedHead,omitempty"` // of Retention: Hash of the last line of those
}

// Policy is the policy's decision on a command.
type Policy struct {
	Verdict string `json:"verdict"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Failure is why a command has no Reason.
type Failure struct {
	Outcome string `json:"outcome"` // "not-started", "outcome-unknown", "session-lost"
	Cause   string `json:"cause"`
	Message string `json:"message,omitempty"`
}

// Artifact is the file with a command's whole output.
type Artifact struct {
	ID       string `json:"id"`
	Bytes    int64  `json:"bytes"`
	Complete bool   `json:"complete"`
}

// MaxCommand is how many bytes of a command's text a record holds at most.
const MaxCommand = 16 << 10

// maxLine bounds a line in bytes. It holds a record with every byte of its texts escaped.
const maxLine = 1 << 20

// first is the Prev of the log's first record.
var first = strings.Repeat("0", 2*sha256.Size)

// Hash returns the hash of a line, which is given without its line end.
func Hash(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// line returns the record as a line, with its line end.
func (r Record) line() ([]byte, error) {
	b, err := json.Marshal(r)
	if err == nil && len(b) > maxLine {
		err = fmt.Errorf("audit: a record of %d bytes; the limit is %d", len(b), maxLine)
	}
	return append(b, '\n'), err
}

// parse reads a record from a line.
func parse(line []byte) (Record, error) {
	var r Record
	err := json.Unmarshal(line, &r)
	if err == nil && (r.Seq == 0 || len(r.Prev) != len(first) || r.Kind == "") {
		err = fmt.Errorf("it has no seq, prev or kind")
	}
	return r, err
}
