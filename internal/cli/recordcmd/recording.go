package recordcmd

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// recording is what a journal holds, with the records of each command put together.
type recording struct {
	session journal.Session
	items   []*item // in the order of their starts
}

// item is a command or a transfer, or something else that has happened.
type item struct {
	journal.Record // its Start, or the only record of it

	end    *journal.Record  // nil: none is in the journal
	output []journal.Record // Output and Resize, in order
	last   time.Time        // of its last record
}

// load reads a journal to its present end.
func load(d *journal.Dir, s journal.Session) (*recording, error) {
	r, err := d.Reader(s.ID)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // it was only read
	rec := &recording{session: s}
	byID := map[string]*item{}
	last := s.Created
	for {
		one, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if one.Time.IsZero() { // the reader has made it
			one.Time = last
		}
		last = one.Time
		rec.add(one, byID)
	}
	slices.SortStableFunc(rec.items, func(a, b *item) int { return a.Time.Compare(b.Time) })
	return rec, nil
}

func (rec *recording) add(one journal.Record, byID map[string]*item) {
	of := byID[one.ID]
	switch one.Kind { //nolint:exhaustive // the others stand alone
	case journal.Output, journal.Resize:
		if of == nil { // its start was removed at the size limit
			of = &item{Record: journal.Record{Kind: journal.Start, Time: one.Time, ID: one.ID}}
			byID[one.ID] = of
			rec.items = append(rec.items, of)
		}
		of.output, of.last = append(of.output, one), one.Time
		return
	case journal.End:
		if of != nil {
			of.end, of.last = &one, one.Time
			return
		}
	}
	of = &item{Record: one, last: one.Time}
	if one.Kind == journal.Start {
		byID[one.ID] = of
	}
	rec.items = append(rec.items, of)
}

// isCommand reports whether the item is a command, also one that was denied.
func (i *item) isCommand() bool {
	return (i.Kind == journal.Start || i.Kind == journal.End) && !i.isTransfer() || i.Kind == journal.Denied
}

func (i *item) isTransfer() bool {
	return i.Mode == string(sandbox.ModePush) || i.Mode == string(sandbox.ModePull)
}

// keep leaves what has begun since a time, and the last n commands with all that came after the first of them; 0: all.
func (rec *recording) keep(since time.Time, n int) {
	rec.items = slices.DeleteFunc(rec.items, func(i *item) bool { return i.Time.Before(since) })
	if n <= 0 {
		return
	}
	for at, i := range slices.Backward(rec.items) {
		if i.isCommand() {
			if n--; n == 0 {
				rec.items = rec.items[at:]
				return
			}
		}
	}
}

// part is a piece of output as text for a reader, or a number of bytes that are left out.
type part struct {
	text    string
	skipped int64
}

// maxText bounds the text of one part, in bytes; more is cut in its middle.
const maxText = 8 << 20

// parts makes a command's output safe to show: without escape sequences, each line as it was left, secrets masked.
func (i *item) parts(secrets *sink.Secrets) (list []part) {
	var run [][]byte
	terminal := false
	flush := func() {
		if text := safeText(run, terminal, secrets); text != "" {
			list = append(list, part{text: text})
		}
		run = nil
	}
	for _, r := range i.output {
		if r.Skipped > 0 {
			flush()
			list = append(list, part{skipped: r.Skipped})
		}
		terminal = terminal || r.Stream == journal.Terminal
		if len(r.Data) > 0 {
			run = append(run, r.Data)
		}
	}
	flush()
	return list
}

func safeText(run [][]byte, terminal bool, secrets *sink.Secrets) string {
	if len(run) == 0 {
		return ""
	}
	text := sink.Text{Return: sink.RewindReturn, Invisible: sink.ShowInvisible}
	if terminal {
		text.Return = sink.NewlineReturn
	}
	out, err := sink.New(sink.Options{Streams: sink.Merged, Window: sink.Window{Whole: maxText}, Artifact: sink.Never, Text: text}, nil, secrets)
	if err != nil {
		return "" // the options are right
	}
	for _, p := range run {
		_, _ = out.Stdout().Write(p) // never fails
	}
	return out.Close().Stdout.Text()
}

// leftOut says how much is left out.
func leftOut(n int64) string { return fmt.Sprintf("[%d bytes are left out here]", n) }

// failed reports whether the item did not go well.
func (i *item) failed() bool {
	end := i.ending()
	switch {
	case i.Kind == journal.Denied:
		return true
	case end == nil:
		return false
	}
	return end.Error != nil || end.Code != nil && *end.Code != 0 || end.Reason != "" && end.Code == nil && end.Reason != string(exec.HandedOver) && !i.isTransfer()
}

// ending is the record that says how the item has ended, nil if there is none.
func (i *item) ending() *journal.Record {
	if i.end == nil && (i.Kind == journal.End || i.Kind == journal.JobEnd) {
		return &i.Record
	}
	return i.end
}

// outcome is how the item has ended, in a few words.
func (i *item) outcome() string {
	if i.Kind == journal.Denied {
		if i.Policy != nil {
			return strings.TrimSuffix("denied by "+i.Policy.Rule+": "+i.Policy.Reason, ": ")
		}
		return "denied"
	}
	end := i.ending()
	if end == nil {
		if sandbox.ProcessGone(i.Writer) {
			return "end unknown: the process that ran it has gone"
		}
		return "running"
	}
	text := end.Reason
	switch {
	case end.Error != nil:
		text = end.Error.Outcome + " (" + end.Error.Cause + ")"
		if end.Error.Message != "" {
			text += ": " + end.Error.Message
		}
	case end.Code != nil:
		text = fmt.Sprintf("exit %d", *end.Code)
	case end.Reason == string(exec.HandedOver):
		return "goes on as job " + end.Job
	case end.Signal != 0 && end.Reason == string(exec.Signalled):
		text = exit.SignalName(end.Signal)
	}
	if took := i.took(); took > 0 {
		text += ", " + took.String()
	}
	return text
}

// took is how long the item took, 0 if that is not known.
func (i *item) took() time.Duration {
	if i.end == nil {
		return 0
	}
	d := i.end.Time.Sub(i.Time)
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// about says what happened, for an item that is not a command; "" if that is nothing to show.
func (i *item) about() string {
	switch i.Kind {
	case journal.Start, journal.End:
		if i.isTransfer() {
			verb := map[string]string{string(sandbox.ModePush): "copied in", string(sandbox.ModePull): "copied out"}[i.Mode]
			return verb + ": " + i.Command
		}
		return ""
	case journal.SessionStart:
		if i.Error != nil {
			return "the session did not start: " + i.Error.Message
		}
		return "the session has started"
	case journal.SessionStop:
		return "the session was stopped"
	case journal.Reaped:
		return "the remains of the session were removed"
	case journal.Connection:
		return i.connection()
	case journal.Answer:
		return i.answer()
	case journal.Checkpoint:
		var c sandbox.CheckpointChange
		_ = json.Unmarshal(i.Record.Checkpoint, &c)
		text := strings.Join(strings.Fields("checkpoint "+c.ID+" "+c.Action), " ")
		if c.Name != "" {
			text += ": " + c.Name
		}
		return text
	case journal.JobEnd:
		return "job " + i.Job + " has ended: " + i.outcome()
	case journal.Lost:
		return fmt.Sprintf("%d records are missing here: they could not be written", i.Record.Lost)
	case journal.Torn:
		return fmt.Sprintf("%d bytes of the journal are missing here: a process was killed while it wrote, or the disk has damaged them", i.Bytes)
	case journal.Cut:
		return "older records were removed at the size limit"
	case journal.Output, journal.Resize, journal.Denied:
	}
	return ""
}

func (i *item) connection() string {
	var c sandbox.Connection
	_ = json.Unmarshal(i.Network, &c)
	to := fmt.Sprintf("%s:%d", c.Host, c.Port)
	if c.Method != "" {
		to = c.Method + " " + c.Host + c.Path
	}
	if !c.Allowed {
		return "network: refused " + to + ": " + cmp.Or(c.Why, c.Rule)
	}
	text := "network: " + to
	if c.Status != 0 {
		text += fmt.Sprintf(": %d", c.Status)
	}
	return text
}

func (i *item) answer() string {
	var d sandbox.NetworkDecision
	_ = json.Unmarshal(i.Network, &d)
	return fmt.Sprintf("network: may it reach %s:%d? %s, by %s", d.Host, d.Port, d.Answer, d.By)
}

// title names the recording.
func (rec *recording) title() string {
	return "session " + cmp.Or(rec.session.Name, sandbox.ShortID(rec.session.ID))
}
