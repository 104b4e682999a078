package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"time"
)

// event is a line of the history: what was asked, what was answered, what was done
// to the engine, and what has really happened, as seen from outside.
type event struct {
	At      int64  `json:"at"` // milliseconds from the start
	Type    string `json:"type"`
	Op      int    `json:"op,omitempty"`
	Session string `json:"session,omitempty"` // of a fault: the one that it hits; "" is all

	// Of invoke.
	Kind    string `json:"kind,omitempty"`    // command, call or job
	Code    int    `json:"code,omitempty"`    // what it will exit with
	Life    int64  `json:"life,omitempty"`    // milliseconds that it takes by itself
	Timeout int64  `json:"timeout,omitempty"` // milliseconds; 0: none
	Cancel  int64  `json:"cancel,omitempty"`  // milliseconds after which the client cancels; 0: never

	// Of outcome and end.
	Outcome  string `json:"outcome,omitempty"`
	Cause    string `json:"cause,omitempty"`
	ExitCode *int   `json:"exitCode,omitempty"`
	Output   string `json:"output,omitempty"`
	Alive    int    `json:"alive,omitempty"`  // how many of its processes lived when its end was reported
	Killed   string `json:"killed,omitempty"` // how far the kill ladder went
	Text     string `json:"text,omitempty"`

	// Of fault and healed.
	Fault string `json:"fault,omitempty"`
	ID    int    `json:"id,omitempty"` // the same of a fault and its end

	// Of fact.
	Ran      int `json:"ran,omitempty"`
	Finished int `json:"finished,omitempty"`

	// Of session, at the end.
	Works   bool `json:"works,omitempty"`
	Running bool `json:"running,omitempty"` // by the engine's word
}

// Types of events.
const (
	invoke  = "invoke"  // a command is asked for
	outcome = "outcome" // the program has answered; for a job: whether it was accepted
	ended   = "end"     // how a job has ended
	fault   = "fault"   // something is done to it
	healed  = "healed"  // and is over
	fact    = "fact"    // how often a command has begun and has come to its end
	last    = "session" // what a session is when all is over
)

// lostClient is the outcome of a command whose client was killed before it could
// say any.
const lostClient = "client-killed"

// accepted is the outcome of a job that has begun.
const accepted = "accepted"

// history records events. It is safe for concurrent use.
type history struct {
	begin time.Time

	mu     sync.Mutex
	file   *os.File
	enc    *json.Encoder // guarded by mu
	events []event       // guarded by mu
	ops    int           // guarded by mu
	faults int           // guarded by mu
	err    error         // guarded by mu; the first of writing
}

func newHistory(path string) (*history, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &history{begin: time.Now(), file: file, enc: json.NewEncoder(file)}, nil
}

// add records an event, now.
func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.At = time.Since(h.begin).Milliseconds()
	h.events = append(h.events, e)
	if err := h.enc.Encode(e); err != nil && h.err == nil {
		h.err = err
	}
}

// op numbers a command.
func (h *history) op() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops++
	return h.ops
}

// hurt records a fault and returns how to record its end.
func (h *history) hurt(what, session string) func() {
	h.mu.Lock()
	h.faults++
	id := h.faults
	h.mu.Unlock()
	h.add(event{Type: fault, Fault: what, Session: session, ID: id})
	return func() { h.add(event{Type: healed, Fault: what, Session: session, ID: id}) }
}

// close returns all events.
func (h *history) close() ([]event, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.file.Close()
	if h.err != nil {
		err = h.err
	}
	return h.events, err
}

// readHistory reads what a run has recorded.
func readHistory(path string) ([]event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []event
	for dec := json.NewDecoder(bufio.NewReader(file)); dec.More(); {
		var e event
		if err := dec.Decode(&e); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}
