package auditcmd

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

// A listing shows records of the log, and later those that were appended since.
type listing struct {
	*commands

	log     *audit.Reader
	wanted  func(audit.Record) bool
	session bool // it is of one session: its rows fit 80 columns

	rows   []audit.Record
	at     map[string]int          // of intents, in rows
	begun  map[string]audit.Record // intents that were printed
	widths []int                   // of columns; nil before the header
	ended  bool                    // the end of the session was found
}

func (a *commands) list(wanted func(audit.Record) bool) *listing {
	return &listing{commands: a, log: audit.NewReader(a.cfg.AuditDir()), wanted: wanted, begun: map[string]audit.Record{}}
}

// read prints what is new.
func (l *listing) read() error {
	l.rows, l.at = nil, map[string]int{}
	err := l.log.Each(func(r audit.Record, _ audit.Problem, line []byte) error {
		if !l.cfg.JSON {
			l.take(r)
		}
		if !l.wanted(r) {
			return nil
		}
		l.ended = l.ended || r.Kind == audit.SessionStop || r.Kind == audit.Reaped
		if !l.cfg.JSON {
			return nil
		}
		_, err := stdio.PastMasks(l.streams.Stdout).Write(append(l.secrets.Known().ScrubJSON(line), '\n'))
		return err
	}, nil)
	if err != nil || l.cfg.JSON {
		return noLog(err)
	}
	return l.print()
}

// take makes a row of a record. An outcome ends the row of its intent or, if that was printed, is another one.
func (l *listing) take(r audit.Record) {
	if r.Kind == audit.Outcome {
		if i, waits := l.at[r.ID]; waits {
			r.Command, r.Policy, r.Time = l.rows[i].Command, l.rows[i].Policy, l.rows[i].Time
			l.rows[i] = r
			return
		}
		if intent, printed := l.begun[r.ID]; printed {
			delete(l.begun, r.ID)
			r.Command, r.Policy = intent.Command, intent.Policy
			l.rows = append(l.rows, r)
			return
		}
	}
	connection := r.Kind == audit.Connection || r.Kind == audit.Answer
	if !l.wanted(r) || l.session && connection { // session network shows these
		return
	}
	if r.Kind == audit.Intent {
		l.at[r.ID] = len(l.rows)
	}
	l.rows = append(l.rows, r)
}

const (
	shownCommand = 80 // how much of a command a row shows at most, in characters
	rowWidth     = 80 // of the rows of one session
	leastCommand = 20 // of a command, in the rows of one session
	gap          = "  "
)

// print prints the rows. A column stays as wide as it was once.
func (l *listing) print() error {
	var lines [][]string
	if l.widths == nil {
		head := []string{"TIME", "SESSION", "WHAT", "END", "WHERE", "COMMAND"}
		l.widths = []int{len(time.DateTime), 0, 0, 0, 0}
		if l.session {
			head = []string{"TIME", "WHAT", "END", "COMMAND"}
			l.widths = []int{len(shortTime), len("terminal"), len("timed-out")}
		}
		lines = append(lines, head)
	}
	for _, r := range l.rows {
		if l.session {
			lines = append(lines, l.shortCells(r))
		} else {
			lines = append(lines, l.cells(r))
		}
		if r.Kind == audit.Intent {
			l.begun[r.ID] = r
		}
	}
	for _, cells := range lines {
		for i := range l.widths {
			l.widths[i] = max(l.widths[i], utf8.RuneCountInString(cells[i]))
		}
	}
	var b strings.Builder
	for _, cells := range lines {
		left := rowWidth
		for i, width := range l.widths {
			fmt.Fprintf(&b, "%-*s%s", width, cells[i], gap)
			left -= width + len(gap)
		}
		text := cells[len(cells)-1]
		if l.session {
			text = cut(text, max(left, leastCommand))
		}
		b.WriteString(cut(text, shownCommand) + "\n")
	}
	_, err := io.WriteString(l.streams.Stdout, b.String())
	return err
}

// cells are the columns of a record, its command in full.
func (l *listing) cells(r audit.Record) []string {
	what := string(r.Kind)
	if r.Kind == audit.Intent || r.Kind == audit.Outcome {
		what = r.Mode
	}
	command := strings.Join(strings.Fields(l.streams.Name(stdio.OneLine(r.Command))), " ")
	return []string{
		r.Time.Local().Format(time.DateTime), l.streams.Safe(r.Session), l.streams.Safe(what), l.streams.Safe(end(r)), l.streams.Safe(r.Where),
		cmp.Or(command, l.streams.Safe(r.Job)),
	}
}

const shortTime = "01-02 15:04:05"

// shortCells are those of a record of a session that is known.
func (l *listing) shortCells(r audit.Record) []string {
	c := l.cells(r)
	what, how := strings.TrimPrefix(c[2], "session-"), c[3]
	switch {
	case r.Kind == audit.Intent && alive(r.PID):
		how = "running"
	case r.Kind == audit.Intent:
		how = "unknown"
	case r.Kind == audit.Denied:
		how = "by " + strings.TrimPrefix(how, "denied by ")
	}
	return []string{r.Time.Local().Format(shortTime), what, how, c[5]}
}

// cut is the start of a text that is longer than width characters.
func cut(text string, width int) string {
	if all := []rune(text); len(all) > width {
		return string(all[:width-1]) + "…"
	}
	return text
}
