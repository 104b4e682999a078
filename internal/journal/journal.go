// Package journal keeps, for each session, what has happened in it: commands with their ends and receipts, output
// with its times, transfers, connections, checkpoints, decisions of the policy. Every process that uses the session
// appends to the same journal. It is the source for watching, for replay and for the record of what was done.
//
//	DIR/SESSION/session             who the session is, as JSON; written once
//	DIR/SESSION/00000001.journal    records; the largest number is the current segment
//	DIR/SESSION/lock                held while a writer appends; says up to where the current segment is whole
//
// Files have mode 0600 in directories of mode 0700. A segment is a sequence of frames:
//
//	0x1e  type  length (uvarint)  CRC-32C (4 bytes, little-endian, of type, length and body)  body
//
// A body of type 'r' is a Record as JSON. A body of type 'o' is output, as bytes:
//
//	stream and flags (1 byte)  time (uvarint, µs)  id of the command  [skipped (uvarint)]  data
//
// # Writing
//
// A Writer never makes its caller wait: it has a queue of bounded size and one goroutine. What does not fit, or cannot
// be written, is counted, and the next record that can be written says how much is missing (Lost, or Record.Skipped
// for output). A process that is killed loses what it had not yet written, which is what the last 25 ms brought.
// Records are not synced to the disk: a failure of the machine can lose more.
//
// Writers take the lock for each batch. If one is killed while it writes, the next writer removes the torn frame and
// records that it did (Torn). The first part of a command's output is kept whole; after that, a flood is sampled, and its end
// is kept: see Options.Output.
//
// # Reading
//
// A Reader takes no lock, and never sees a part of a record. It reads from the oldest record or from near the end,
// returns io.EOF when there is nothing more at the moment, and continues when it is called again. A Watch says when
// that is worth while; it does nothing while nothing happens.
//
// The package knows records, not sessions: its caller fills them in, with secrets masked. Output is kept as the bytes that
// were written, so that a reader must make it safe before it shows it.
package journal

import (
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/audit"
)

// DefaultDir returns the default directory of the journals, below the user's state directory.
func DefaultDir(state string) string { return filepath.Join(state, "sandboxbash", "journal") }

// Kind is the kind of a record.
type Kind string

// Kinds.
const (
	Start        Kind = "start"         // a command or a transfer is about to start
	End          Kind = "end"           // it has ended, or it did not start; its Start has the same ID
	Output       Kind = "output"        // of a command
	Resize       Kind = "resize"        // a terminal has another size
	Denied       Kind = "denied"        // a policy has refused a command; there is no Start
	SessionStart Kind = "session-start" // with an Error, the start failed
	SessionStop  Kind = "session-stop"  // a session was stopped
	Reaped       Kind = "reaped"        // the remains of a session were removed
	Connection   Kind = "connection"    // a connection or a request of the session has ended, or was refused
	Answer       Kind = "answer"        // a person, or a client, has answered whether the session may reach something
	JobEnd       Kind = "job-end"       // a job has ended; each process that learns of it may record it
	Checkpoint   Kind = "checkpoint"    // a checkpoint of the workspace was made, restored or removed
)

// Kinds of records about the journal itself.
const (
	Lost Kind = "lost" // records that a writer could not write; Lost says how many
	Torn Kind = "torn" // Bytes of the journal could not be read: a writer was killed, or the disk has damaged them
	Cut  Kind = "cut"  // what was here was removed at the size limit; a Reader makes this record
)

// Stream is where output comes from.
type Stream byte

// Streams.
const (
	Stdout   Stream = 1
	Stderr   Stream = 2
	Terminal Stream = 3 // what a terminal showed; never what was typed
)

// String returns "stdout", "stderr" or "terminal".
func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case Terminal:
		return "terminal"
	}
	return "unknown"
}

// Record is one entry. Its Kind determines which fields are set. Fields that audit.Record has too mean the same.
type Record struct {
	Session string    `json:"-"` // set by the Reader
	Time    time.Time `json:"time"`
	Kind    Kind      `json:"kind"`

	ID string `json:"id,omitempty"` // of a command or a transfer
	// Writer identifies the process that wrote a Start, and that will write the End. It is the text that
	// sandbox.ProcessGone takes.
	Writer string `json:"writer,omitempty"`
	Mode   string `json:"mode,omitempty"`  // "command", "terminal" or "job"; "push" or "pull"
	Where  string `json:"where,omitempty"` // "container", or "client": in the client's terminal
	// Command is the first MaxCommand bytes of the command's text; Size is its length.
	Command string        `json:"command,omitempty"`
	Size    int           `json:"size,omitempty"`
	Dir     string        `json:"dir,omitempty"`
	Policy  *audit.Policy `json:"policy,omitempty"` // nil: there was none

	Reason   string          `json:"reason,omitempty"` // how it ended; "" with an Error
	Code     *int            `json:"exitCode,omitempty"`
	Signal   int             `json:"signal,omitempty"`
	Error    *audit.Failure  `json:"error,omitempty"`
	Receipt  json.RawMessage `json:"receipt,omitempty"`
	Artifact *audit.Artifact `json:"artifact,omitempty"`
	Job      string          `json:"job,omitempty"`    // id of the job that it became, or that has ended
	JobTag   string          `json:"jobTag,omitempty"` // unique name of that job; ids are used again
	Masked   int64           `json:"masked,omitempty"` // secrets masked in its output

	// Network is what a Connection or an Answer was for: a sandbox.Connection or a sandbox.NetworkDecision.
	Network json.RawMessage `json:"network,omitempty"`
	// Checkpoint is what has happened to a checkpoint, in the form that the caller gives it.
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`

	Cols int `json:"cols,omitempty"` // of a terminal, in a Start and a Resize
	Rows int `json:"rows,omitempty"`

	Lost  int64 `json:"lost,omitempty"`  // of Lost: records
	Bytes int64 `json:"bytes,omitempty"` // of Torn

	// Stream, Data and Skipped are those of Output.
	Stream Stream `json:"-"`
	Data   []byte `json:"-"` // as written, with secrets masked; the caller may keep it
	// Skipped is how many bytes of this stream are left out right before Data, which may be empty. The whole output, if it
	// is kept, is the Artifact of the End.
	Skipped int64 `json:"-"`
}

// MaxCommand is how many bytes of a command's text a record holds at most.
const MaxCommand = 64 << 10

// Session is who a journal is about.
type Session struct {
	ID        string    `json:"id"`
	Name      string    `json:"name,omitempty"`
	Image     string    `json:"image,omitempty"`
	Profile   string    `json:"profile,omitempty"`
	Network   string    `json:"network,omitempty"`
	Workspace string    `json:"workspace,omitempty"` // as in --workspace
	Created   time.Time `json:"created,omitzero"`

	// Modified and Bytes are set by Dir: when the last record was written, and how large the journal is.
	Modified time.Time `json:"-"`
	Bytes    int64     `json:"-"`
}
