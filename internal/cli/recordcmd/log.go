package recordcmd

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/sink"
)

// printer prints a recording as a shell session that a person reads.
type printer struct {
	streams *stdio.Streams
	secrets *sink.Secrets
	out     *bufio.Writer
	day     string // of what was printed last
}

func (p *printer) print(rec *recording) error {
	head := rec.title() + "  " + rec.session.ID
	if rec.session.Image != "" {
		head += "  image " + rec.session.Image
	}
	p.line(stdio.Bold, p.streams.Safe(head))
	for _, i := range rec.items {
		p.item(i)
	}
	return p.out.Flush()
}

// line prints a line. Errors are those of the Flush.
func (p *printer) line(c stdio.Colour, text string) {
	_, _ = p.out.WriteString(p.streams.Paint(p.streams.Stdout, c, text) + "\n")
}

func (p *printer) item(i *item) {
	at := i.Time.Local()
	if day := at.Format(time.DateOnly); day != p.day && !i.Time.IsZero() {
		p.day = day
		p.line(stdio.Faint, "--- "+day)
	}
	clock := at.Format(time.TimeOnly)
	if !i.isCommand() {
		if text := i.about(); text != "" {
			c := stdio.Faint
			if i.isTransfer() {
				text += " [" + i.outcome() + "]"
				if i.failed() {
					c = stdio.Red
				}
			}
			p.line(c, clock+" # "+p.streams.Safe(text))
		}
		return
	}
	prompt := clock + " "
	if i.Dir != "" {
		prompt += p.streams.Safe(i.Dir) + " "
	}
	switch {
	case i.Mode == "terminal":
		prompt += "(terminal) "
	case i.Where == "client":
		prompt += "(client) "
	}
	command := p.streams.Clean(i.Command)
	if i.Command == "" {
		command = "(its start is not in the journal any more)"
	} else if i.Size > len(i.Command) {
		command += "…"
	}
	for n, line := range strings.Split(strings.TrimRight(command, "\n"), "\n") {
		if n == 0 {
			_, _ = p.out.WriteString(p.streams.Paint(p.streams.Stdout, stdio.Faint, prompt) + p.streams.Paint(p.streams.Stdout, stdio.Bold, "$ "+line) + "\n")
		} else {
			p.line(stdio.Bold, "> "+line)
		}
	}
	for _, part := range i.parts(p.secrets) {
		if part.skipped > 0 {
			p.line(stdio.Yellow, leftOut(part.skipped))
			continue
		}
		_, _ = p.out.WriteString(part.text)
		if !strings.HasSuffix(part.text, "\n") {
			_, _ = p.out.WriteString("\n")
		}
	}
	c, text := stdio.Faint, i.outcome()
	if i.failed() {
		c = stdio.Red
	}
	if end := i.ending(); end != nil && end.Artifact != nil {
		text += ", whole output: artifact " + end.Artifact.ID
	}
	p.line(c, "["+p.streams.Safe(text)+"]")
}

// jsonRecord is a record as --json prints it.
type jsonRecord struct {
	Session string `json:"session"`
	journal.Record

	Stream  string  `json:"stream,omitempty"`
	Text    *string `json:"text,omitempty"` // output, if it is UTF-8
	Data    []byte  `json:"data,omitempty"` // output that is not, as base64
	Skipped int64   `json:"skipped,omitempty"`
}

// printJSON prints the records as they are, one per line, command by command.
func printJSON(w io.Writer, rec *recording) error {
	enc := json.NewEncoder(w)
	for _, i := range rec.items {
		list := append([]journal.Record{i.Record}, i.output...)
		if i.end != nil {
			list = append(list, *i.end)
		}
		for _, r := range list {
			if r.Kind == journal.Start && r.Mode == "" {
				continue // it is made up for output without a start
			}
			one := jsonRecord{Session: rec.session.ID, Record: r, Skipped: r.Skipped}
			if r.Kind == journal.Output {
				one.Stream = r.Stream.String()
				if text := string(r.Data); utf8.ValidString(text) {
					one.Text = &text
				} else {
					one.Data = r.Data
				}
			}
			if err := enc.Encode(one); err != nil {
				return err
			}
		}
	}
	return nil
}
