package tui

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/docker/go-units"

	"github.com/sandboxbash/sandboxbash/internal/watch"
)

type ctxt = context.Context

// Bounds of a log.
const (
	maxLines = 10_000
	maxWidth = 4096 // bytes of a line; a longer one is split
)

// log is a text of lines that grows at its end. The oldest lines go.
type log struct {
	lines  []line
	scroll int    // rows between the last one and the last that is shown
	open   bool   // the last line has not ended
	of     string // the command whose output was last
	err    bool   // it was on standard error

	width int // that the lines were wrapped for
	grown int // rows since the last drawing
}

type line struct {
	text string
	tone watch.Tone
	head bool // of a command
	rows []string
}

func (l *log) add(n line) {
	l.lines = append(l.lines, n)
	l.grown++
	if len(l.lines) > maxLines+maxLines/10 {
		l.lines = append([]line(nil), l.lines[len(l.lines)-maxLines:]...)
	}
}

// line adds a whole line.
func (l *log) line(text string, tone watch.Tone) {
	l.open = false
	l.add(line{text: text, tone: tone})
}

// item adds what a session did.
func (l *log) item(i watch.Item) {
	at := i.Time.Local().Format(time.TimeOnly)
	switch i.Kind { //nolint:exhaustive // the others are lines
	case watch.ItemOutput:
		l.output(i)
		return
	case watch.ItemCommand, watch.ItemDenied:
		l.open, l.of = false, i.ID
		for n, text := range strings.Split(i.Text, "\n") {
			if n == 0 {
				text = at + " $ " + text
			} else {
				text = "         > " + text
			}
			l.add(line{text: text, head: true})
		}
	case watch.ItemEnd:
		l.open = false
		text := "└ " + i.Text
		if i.Ms > 0 {
			text += " after " + took(i.Ms)
		}
		if l.of != i.ID && i.ID != "" {
			text += " (an earlier command)"
		}
		l.line(text, i.Tone)
	default:
		l.line(at+" "+i.Text, i.Tone)
	}
}

// output adds to the line that has not ended, if it is of the same stream.
func (l *log) output(i watch.Item) {
	if l.of != i.ID || l.err != i.Stderr {
		l.open, l.of, l.err = false, i.ID, i.Stderr
	}
	if i.Rewind && l.open {
		last := &l.lines[len(l.lines)-1]
		last.text, last.rows = "", nil
	}
	tone := watch.Plain
	if i.Stderr {
		tone = watch.Bad
	}
	for part := range strings.Lines(i.Text) {
		text, ended := strings.CutSuffix(part, "\n")
		for {
			if l.open && len(l.lines[len(l.lines)-1].text) < maxWidth {
				last := &l.lines[len(l.lines)-1]
				last.text, last.rows = last.text+text[:min(len(text), maxWidth)], nil
			} else {
				l.add(line{text: text[:min(len(text), maxWidth)], tone: tone})
			}
			l.open = true
			if text = text[min(len(text), maxWidth):]; text == "" {
				break
			}
		}
		l.open = !ended
	}
}

// connection adds a connection.
func (l *log) connection(i watch.Item) {
	c := i.Connection
	verdict, tone := "refused", watch.Bad
	if c.Allowed {
		verdict, tone = "allowed", watch.Plain
	}
	to := c.Host
	if c.Port > 0 {
		to += fmt.Sprintf(":%d", c.Port)
	}
	if c.Count > 1 {
		to += fmt.Sprintf(" ×%d", c.Count)
	}
	var about []string
	for _, text := range []string{strings.TrimSpace(c.Method + " " + c.Path), i.Text, c.Why, c.Err} {
		if text != "" {
			about = append(about, text)
		}
	}
	if c.Status > 0 {
		about = append(about, fmt.Sprint(c.Status))
	}
	if i.Text == "" && c.Allowed {
		about = append(about, size(c.Sent)+" out, "+size(c.Received)+" in")
	}
	l.line(fmt.Sprintf("%s %s %s  %s", i.Time.Local().Format(time.TimeOnly), verdict, to, strings.Join(about, " · ")), tone)
	if !c.Allowed && c.Ask != "" {
		l.line("         would be allowed by "+c.Ask, watch.Quiet)
	}
}

func size(n int64) string { return units.HumanSizeWithPrecision(float64(n), 3) }

// changes adds what a session has changed.
func (l *log) changes(c watch.Changes) {
	l.line(count(len(c.Files), "file")+" changed since "+c.Dir+" was copied", watch.Quiet)
	if c.Repository != "" {
		l.line(".git: "+c.Repository, watch.Quiet)
	}
	tones := map[string]watch.Tone{"added": watch.Good, "deleted": watch.Bad, "modified": watch.Warning, "type": watch.Warning}
	for _, f := range c.Files {
		text := fmt.Sprintf("%-9s %s", f.Kind, f.Path)
		if f.Both {
			text += " (changed on this machine, too)"
		}
		l.line(text, tones[f.Kind])
	}
	if c.Patch == "" {
		return
	}
	l.line("", watch.Plain)
	for text := range strings.Lines(c.Patch) {
		text = strings.TrimSuffix(text, "\n")
		tone := watch.Plain
		switch {
		case strings.HasPrefix(text, "+++"), strings.HasPrefix(text, "---"), strings.HasPrefix(text, "@@"), strings.HasPrefix(text, "diff "):
			tone = watch.Quiet
		case strings.HasPrefix(text, "+"):
			tone = watch.Good
		case strings.HasPrefix(text, "-"):
			tone = watch.Bad
		}
		l.line(text, tone)
	}
	if c.Cut {
		l.line("There is more: `sandboxbash session diff -u` shows all of it.", watch.Quiet)
	}
}

// row is a row of the screen.
type row struct {
	text string
	tone watch.Tone
	head bool
}

// window returns the rows to show, at most height, and bounds the scrolling.
func (l *log) window(width, height int) []row {
	if width < 1 || height < 1 {
		return nil
	}
	if l.scroll > 0 { // what is shown stays where it is
		for _, n := range l.lines[max(0, len(l.lines)-l.grown):] {
			l.scroll += len(n.wrap(width))
		}
	}
	l.grown = 0
	var rows []row // the last first
	want := l.scroll + height
	for at := len(l.lines) - 1; at >= 0 && len(rows) < want; at-- {
		n := &l.lines[at]
		if l.width != width {
			n.rows = nil
		}
		if n.rows == nil {
			n.rows = n.wrap(width)
		}
		for i := len(n.rows) - 1; i >= 0; i-- {
			rows = append(rows, row{n.rows[i], n.tone, n.head})
		}
	}
	if l.width != width {
		for at := range l.lines {
			if len(l.lines)-at > want {
				l.lines[at].rows = nil
			}
		}
		l.width = width
	}
	l.scroll = max(0, min(l.scroll, len(rows)-height))
	rows = rows[min(l.scroll, len(rows)):]
	rows = rows[:min(height, len(rows))]
	out := make([]row, len(rows))
	for i, r := range rows {
		out[len(rows)-1-i] = r
	}
	return out
}

// wrap cuts a line into rows.
func (n line) wrap(width int) []string {
	text := tabs(n.text)
	if len(text) <= width {
		return []string{text}
	}
	return strings.Split(ansi.Hardwrap(text, width, true), "\n")
}

// tabs writes tabs as spaces.
func tabs(text string) string {
	if !strings.Contains(text, "\t") {
		return text
	}
	var b strings.Builder
	at := 0
	for part, rest, more := strings.Cut(text, "\t"); ; part, rest, more = strings.Cut(rest, "\t") {
		b.WriteString(part)
		at += ansi.StringWidth(part)
		if !more {
			return b.String()
		}
		n := 8 - at%8
		b.WriteString(strings.Repeat(" ", n))
		at += n
	}
}

func took(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// age writes how long ago something was.
func age(since, now time.Time) string {
	d := max(now.Sub(since), 0)
	switch {
	case since.IsZero():
		return ""
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
