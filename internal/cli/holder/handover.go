package holder

import (
	"bufio"
	"encoding/json"
	"io"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// Handover is what every holder reads from its starter, as a line of JSON on its standard input:
// nothing of it is in the holder's arguments, in its environment or in a file. Each kind of holder
// adds its own fields.
type Handover struct {
	Environ []string `json:"environ"`
	Flags   []string `json:"flags"`
}

// NetworkHandover is what the holder of a session's network reads from its starter.
type NetworkHandover struct {
	Handover

	// Secrets are the values of the configured secrets, by name: the holder has no sources of its own.
	Secrets map[string]string `json:"secrets"`
}

// ReadHandover reads a handover of at most limit bytes from in into h, and returns the reader of
// what the starter sends after it. The error is about wrong use, and names the command that starts
// such a holder.
func ReadHandover(in io.Reader, limit int64, h any, command string) (*bufio.Reader, error) {
	r := bufio.NewReader(io.LimitReader(in, limit))
	if err := ReadLine(r, h); err != nil {
		return nil, exit.Misuse("run `sandboxbash "+command+"`, which starts this process", "there is no handover on standard input: %v", err)
	}
	return r, nil
}

// ReadLine reads a line of JSON into v.
func ReadLine(r *bufio.Reader, v any) error {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// Answer is the line that a holder writes when what it holds has started, or with an Error that
// says why it has not. The starter of a terminal that has read it writes one more byte: without
// that byte no process knows of the terminal, and its holder ends it.
type Answer struct {
	Terminal *Row     `json:"terminal,omitempty"` // that has started; nil of a network
	Notes    []string `json:"notes,omitempty"`
	Error    *Failure `json:"error,omitempty"`
}

// Failure is a holder's error, and what the command that started the holder makes of it.
type Failure struct { //nolint:errname // it is a message of the protocol
	Message string       `json:"message"`
	Status  int          `json:"status"`
	Outcome exec.Outcome `json:"outcome"`
	Cause   string       `json:"cause"`
	Todo    string       `json:"todo"`
}

// NewFailure returns the Failure for err, with its secrets masked by scrub.
func NewFailure(err error, scrub func(string) string) *Failure {
	v := exit.Judge(err)
	return &Failure{Message: scrub(exit.Words(err)), Status: v.Status, Outcome: v.Outcome, Cause: v.Cause, Todo: v.Todo}
}

func (e *Failure) Error() string { return e.Message }

// Verdict returns the verdict of the holder.
func (e *Failure) Verdict() exit.Verdict {
	return exit.Verdict{Status: e.Status, Outcome: e.Outcome, Cause: e.Cause, Todo: e.Todo}
}
