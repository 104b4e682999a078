// Package stdio writes to the streams of the process: with secrets masked, safe for
// terminals, inert for CI runners, and without letting a slow reader hold up a command.
package stdio

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/sandboxbash/sandboxbash/sink"
)

// Streams are standard input, output and error of one call of the program. What is
// printed has its secrets masked, and is not a command to a CI runner that reads it.
type Streams struct {
	Stdin  io.Reader
	Stdout io.Writer // RawStdout, guarded and with secrets masked
	Stderr io.Writer // RawStderr, guarded and with secrets masked

	RawStdout, RawStderr io.Writer // of this process

	masks func() *sink.Secrets // what is secret by now
	kinds sink.Runners         // that Guard was last called with

	colours func(w io.Writer) bool  // nil before SetColours: none are shown
	waiting atomic.Pointer[Waiting] // the wait that is shown; nil if there is none

	mu    sync.Mutex
	atEnd func() // guarded by mu; puts this process's terminal back; nil unless it was changed
}

// New returns streams that are masked by what masks returns, and not guarded.
func New(stdin io.Reader, stdout, stderr io.Writer, masks func() *sink.Secrets) *Streams {
	s := &Streams{Stdin: stdin, RawStdout: stdout, RawStderr: stderr, masks: masks}
	s.Guard(0)
	return s
}

// Listing is standard output for what --quiet leaves out, nil if quiet.
func (s *Streams) Listing(quiet bool) io.Writer {
	if quiet {
		return nil
	}
	return s.Stdout
}

// AtExit has restore called when this call ends, however it does: it puts this
// process's terminal back.
func (s *Streams) AtExit(restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.atEnd = restore
}

// RestoreTerminal undoes what may have been done to this process's terminal. It
// may be called from any goroutine.
func (s *Streams) RestoreTerminal() {
	s.mu.Lock()
	restore := s.atEnd
	s.mu.Unlock()
	if restore != nil {
		restore()
	}
}

// Scrub masks what is known of secrets in a text that is to be printed.
func (s *Streams) Scrub(text string) string {
	if text == "" {
		return text
	}
	return s.masks().Scrub(text)
}

// Clean makes a text that is to be printed safe for a terminal, and masks what
// is known of secrets in it: parts of it may be secret.
func (s *Streams) Clean(text string) string {
	var b strings.Builder
	masks := s.masks()
	t := sink.NewSafeText(&b, sink.Text{Return: sink.NewlineReturn, Invisible: sink.ShowInvisible}, masks)
	_, _ = t.Write([]byte(masks.Scrub(text)))
	_ = t.Close()
	return b.String()
}

// Name does that to the name of a file or the like, and shows what would otherwise be
// gone from it: two names never look the same by something that is not printable.
func (s *Streams) Name(text string) string {
	quoted := strconv.Quote(s.Scrub(text))
	inner := strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if inner == strings.ReplaceAll(text, `\`, `\\`) {
		return text
	}
	return s.Clean(inner)
}

// Names does that to each.
func (s *Streams) Names(list []string) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = s.Name(n)
	}
	return out
}

// Safe does the same to a text that is part of a line: it stays in it.
func (s *Streams) Safe(text string) string {
	return strings.ReplaceAll(s.Clean(text), "\n", " ")
}

// Table prints aligned columns, in one write. On a terminal its head and the states in it have
// colours.
func (s *Streams) Table(head string, rows func(io.Writer)) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	rows(w)
	_ = w.Flush() // a Builder never fails
	_, err := io.WriteString(s.Stdout, s.paintTable(s.Stdout, b.String()))
	return err
}

// Fields prints what is known of one thing: a name and a value a line. What has
// no value is left out.
func (s *Streams) Fields(rows [][2]string) error {
	w := tabwriter.NewWriter(s.Stdout, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", row[0], s.Name(row[1]))
		}
	}
	return w.Flush()
}

// Age writes how long ago something was, in its largest unit.
func Age(since, now time.Time) string {
	d := max(now.Sub(since), 0)
	switch {
	case since.Unix() <= 0: // made reproducibly: it has no time
		return "-"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// Fit shortens a text at its end to so many characters.
func Fit(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return text
}

// OneLine makes a script fit a table.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
