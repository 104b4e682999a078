package tui

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/gdamore/tcell/v2"

	"github.com/sandboxbash/sandboxbash/internal/watch"
)

// Sizes of the screen.
const (
	wide     = 110 // columns from which the list stands next to a session
	listCols = 40
	smallest = 20 // columns
)

var plain = tcell.StyleDefault

// toneStyle is the style of a tone: the terminal's own colours, which fit its background. Words say the same.
func toneStyle(t watch.Tone) tcell.Style {
	switch t {
	case watch.Good:
		return plain.Foreground(tcell.ColorGreen)
	case watch.Bad:
		return plain.Foreground(tcell.ColorMaroon)
	case watch.Warning:
		return plain.Foreground(tcell.ColorOlive)
	case watch.Quiet:
		return plain.Dim(true)
	}
	return plain
}

func stateTone(s watch.State) watch.Tone {
	switch s {
	case watch.Running:
		return watch.Good
	case watch.Paused, watch.Kept:
		return watch.Warning
	case watch.Stopped, watch.Unknown:
		return watch.Quiet
	case watch.Idle:
	}
	return watch.Plain
}

// area is a part of the screen.
type area struct{ x, y, w, h int }

// put writes a text at a column of a row of an area, cut to the area, and returns the next column.
func (m *model) put(a area, x, y int, text string, style tcell.Style) int {
	if y < 0 || y >= a.h || x >= a.w {
		return x
	}
	text = ansi.Truncate(text, a.w-x, "…")
	at := a.x + x
	for text != "" {
		rest, width := m.scr.Put(at, a.y+y, text, style)
		if rest == text {
			break
		}
		text, at = rest, at+max(width, 0)
	}
	return at - a.x
}

// fill writes a text and fills the rest of its row.
func (m *model) fill(a area, y int, text string, style tcell.Style) {
	for x := m.put(a, 0, y, text, style); x < a.w; x++ {
		m.scr.Put(a.x+x, a.y+y, " ", style)
	}
}

// draw draws everything; what is on the screen already is not sent again.
func (m *model) draw() {
	width, height := m.scr.Size()
	m.scr.Clear()
	m.scr.HideCursor()
	all := area{0, 0, width, height}
	if width < smallest || height < 5 {
		m.put(all, 0, 0, "too small", plain)
		m.scr.Show()
		return
	}
	m.bar(all)
	body := area{0, 1, width, height - 2}
	if m.problem != "" && height > 7 {
		m.put(body, 0, 0, "the engine does not answer: "+oneLine(m.problem), toneStyle(watch.Warning))
		body.y, body.h = body.y+1, body.h-1
	}
	switch {
	case m.help:
		m.helpText(body)
	case width >= wide && m.open != "":
		m.listOf(area{body.x, body.y, listCols, body.h}, true)
		for y := range body.h {
			m.scr.Put(listCols, body.y+y, "│", plain.Dim(true))
		}
		m.session(area{listCols + 2, body.y, width - listCols - 2, body.h})
	case m.open != "":
		m.session(body)
	default:
		m.listOf(body, width < 60)
	}
	m.lastLine(area{0, height - 1, width, 1})
	m.scr.Show()
}

func (m *model) bar(all area) {
	running := 0
	for _, s := range m.list {
		if s.State == watch.Running {
			running++
		}
	}
	style := plain.Reverse(true)
	m.fill(all, 0, " sandboxbash watch", style.Bold(true))
	mode := "read-only"
	if m.o.Control != nil {
		mode = "can control"
	}
	right := fmt.Sprintf("%s, %d running · %s ", count(len(m.list), "session"), running, mode)
	if all.w < 60 {
		right = mode + " "
	}
	m.put(all, max(19, all.w-ansi.StringWidth(right)), 0, right, style)
}

// listOf draws the list of sessions.
func (m *model) listOf(a area, narrow bool) {
	if len(m.list) == 0 {
		text := "No session has a journal yet. Start one with `sandboxbash session start`."
		if m.filter != "" {
			text = "No session matches " + m.filter + "; Esc shows all."
		}
		for y, part := range strings.Split(ansi.Wordwrap(text, a.w-2, ""), "\n") {
			m.put(a, 1, y+1, part, plain.Dim(true))
		}
		return
	}
	now := m.now()
	nameCols := min(24, max(12, a.w/4))
	endCols := 16
	commandCols := a.w - nameCols - endCols - 18
	if narrow {
		nameCols = a.w - 16
	}
	head := fmt.Sprintf(" %-*s %-8s", nameCols, "NAME", "STATE")
	if !narrow {
		head += fmt.Sprintf(" %-*s %-*s", commandCols, "LAST COMMAND", endCols, "ENDED")
	}
	m.put(a, 0, 0, head+" AGE", plain.Bold(true))
	rows := area{a.x, a.y + 1, a.w, a.h - 1}
	at := m.chosenAt()
	m.top = max(0, min(m.top, at, len(m.list)-rows.h))
	if at >= m.top+rows.h {
		m.top = at - rows.h + 1
	}
	for y := 0; y < rows.h && m.top+y < len(m.list); y++ {
		s := m.list[m.top+y]
		style := plain
		mark := " "
		if s.ID == m.chosen {
			style, mark = style.Reverse(!m.inside).Bold(true), "▸"
			m.fill(rows, y, "", style)
		}
		of := func(t watch.Tone) tcell.Style {
			if s.ID == m.chosen {
				return style
			}
			return toneStyle(t)
		}
		cell := func(x, width int, text string, t watch.Tone) {
			m.put(area{rows.x + x, rows.y, min(width, rows.w-x), rows.h}, 0, y, text, of(t))
		}
		cell(0, 1, mark, watch.Plain)
		cell(1, nameCols, s.Name, watch.Plain)
		x := nameCols + 2
		cell(x, 8, string(s.State), stateTone(s.State))
		x += 9
		if !narrow {
			last := s.Last
			if last == "" && s.NoJournal {
				last = "(no journal)"
			}
			cell(x, commandCols, last, watch.Plain)
			end := s.LastEnd
			if end == "" && s.Last != "" && len(s.Running) > 0 {
				end = "runs " + age(s.Running[len(s.Running)-1].Started, now)
			}
			cell(x+commandCols+1, endCols, end, s.LastTone)
			x += commandCols + endCols + 2
		}
		cell(x, 5, age(s.Active, now), watch.Quiet)
	}
}

// session draws the session that is open.
func (m *model) session(a area) {
	s := m.sessions[m.open]
	x := m.put(a, 0, 0, " "+s.Name, plain.Bold(true))
	x = m.put(a, x+2, 0, string(s.State), toneStyle(stateTone(s.State)))
	var facts []string
	for _, f := range []string{s.Image, s.Profile, s.Workspace} {
		if f != "" {
			facts = append(facts, f)
		}
	}
	if s.Network != "" {
		facts = append(facts, "network "+s.Network)
	}
	m.put(a, x+2, 0, strings.Join(facts, " · "), plain.Dim(true))
	x = 1
	for v := range views {
		text := fmt.Sprintf("%d %s", v+1, viewNames[v])
		if a.w < 60 {
			text = fmt.Sprintf("%d %s", v+1, viewNames[v][:3])
		}
		if n := m.badge(v, s); n > 0 {
			text += fmt.Sprintf(" %d", n)
		}
		style := plain.Dim(true)
		if v == m.view {
			style = plain.Bold(true).Underline(true)
		}
		x = m.put(a, x, 1, text, style) + 2
	}
	body := area{a.x + 1, a.y + 2, a.w - 1, a.h - 2}
	switch m.view {
	case terminals:
		m.terminal(body)
	case jobs:
		m.jobs(body, s)
	case output, connections, changes, views:
		m.text(body)
	}
}

// badge is the number behind the name of a view.
func (m *model) badge(v view, s watch.Summary) (n int) {
	switch v { //nolint:exhaustive // the others have none
	case terminals:
		for _, id := range m.order {
			if m.terms[id].End == "" {
				n++
			}
		}
	case jobs:
		for _, j := range s.Jobs {
			if j.Ended.IsZero() {
				n++
			}
		}
	case connections:
		return s.Refused
	}
	return n
}

func (m *model) text(a area) {
	l := m.shown()
	if len(l.lines) == 0 {
		texts := map[view]string{output: "Nothing has happened yet.", connections: "This session has not tried to connect to anything.", changes: "The engine is not asked here."}
		m.put(a, 0, 1, texts[m.view], plain.Dim(true))
		return
	}
	for y, r := range l.window(a.w, a.h) {
		style := toneStyle(r.tone)
		if r.head {
			style = plain.Bold(true)
		}
		m.put(a, 0, y, r.text, style)
	}
	if l.scroll > 0 && m.view != changes {
		text := fmt.Sprintf(" %d more below · f follows ", l.scroll)
		m.put(a, max(0, a.w-ansi.StringWidth(text)-1), a.h-1, text, plain.Reverse(true))
	}
}

func (m *model) terminal(a area) {
	if len(m.order) == 0 {
		m.put(a, 0, 1, "No terminal is open in this session.", plain.Dim(true))
		return
	}
	t := m.terms[m.order[min(m.term, len(m.order)-1)]]
	state, tone := "runs", watch.Good
	if t.End != "" {
		state, tone = t.End, watch.Quiet
	}
	name := t.Command
	if t.Title != "" {
		name = t.Title
	}
	x := m.put(a, 0, 0, fmt.Sprintf("%d of %d: %s", m.term+1, len(m.order), name), plain.Bold(true))
	m.put(a, x+2, 0, fmt.Sprintf("%s · %dx%d", state, t.Cols, t.Rows), toneStyle(tone))
	if t.Unseen {
		m.put(a, 0, 2, "What it shows is not recorded: set journal.terminals to true.", plain.Dim(true))
		return
	}
	from := 0 // a screen that is too high is shown from the cursor up
	if rows := a.h - 2; len(t.Lines) > rows {
		from = max(0, min(t.Cursor.Row-rows+1, len(t.Lines)-rows))
	}
	body := area{a.x, a.y + 2, a.w, a.h - 2}
	for y := 0; y < body.h && from+y < len(t.Lines); y++ {
		m.put(body, 0, y, t.Lines[from+y], plain)
		if t.Cursor.Visible && t.End == "" && t.Cursor.Row == from+y && t.Cursor.Col < body.w {
			text, _, _ := m.scr.Get(body.x+t.Cursor.Col, body.y+y)
			if text == "" {
				text = " "
			}
			m.scr.Put(body.x+t.Cursor.Col, body.y+y, text, plain.Reverse(true))
		}
	}
}

func (m *model) jobs(a area, s watch.Summary) {
	if len(s.Jobs) == 0 {
		m.put(a, 0, 1, "No command of this session goes on in the background.", plain.Dim(true))
		return
	}
	m.put(a, 0, 0, fmt.Sprintf("%-8s %-16s %-6s %s", "JOB", "STATE", "BEGAN", "COMMAND"), plain.Bold(true))
	for i := range s.Jobs {
		j := s.Jobs[len(s.Jobs)-1-i]
		state, tone := "runs", watch.Good
		if !j.Ended.IsZero() {
			state, tone = j.End, j.Tone
		}
		m.put(a, 0, i+1, j.ID, plain)
		m.put(area{a.x, a.y, min(a.w, 25), a.h}, 9, i+1, state, toneStyle(tone))
		m.put(a, 26, i+1, age(j.Started, m.now()), plain.Dim(true))
		m.put(a, 33, i+1, j.Text, plain)
	}
}

// lastLine draws a question, a message or the keys.
func (m *model) lastLine(a area) {
	switch {
	case m.prompt != nil:
		x := m.put(a, 0, 0, m.prompt.text+m.prompt.input, plain.Bold(true))
		m.scr.ShowCursor(a.x+min(x, a.w-1), a.y)
		return
	case m.message != "":
		m.put(a, 0, 0, m.message, toneStyle(m.tone))
		return
	}
	keys := "↑↓ choose · Enter open · / filter · ? help · q quit"
	if m.inside {
		keys = "1-5 views · ↑↓ scroll · f follow · [ ] session · Esc back · ? help · q quit"
	}
	if m.o.Control != nil {
		keys = strings.Replace(keys, " · ? help", " · a s n p control · ? help", 1)
	}
	m.put(a, 0, 0, keys, plain.Dim(true))
}

func (m *model) helpText(a area) {
	rows := [][2]string{
		{"↑ ↓ j k", "choose a session; scroll; choose a terminal"},
		{"Enter →", "open the session"},
		{"Esc ←", "back to the list"},
		{"[ ]", "previous and next session"},
		{"1 … 5, Tab", "output, terminals, jobs, network, changes"},
		{"f End", "follow the newest output"},
		{"/", "filter the sessions"},
		{"r", "ask the engine again"},
		{"q Ctrl-C", "quit; sessions go on"},
	}
	if m.o.Control != nil {
		rows = append(rows, [2]string{"a", "attach: open a shell, or a terminal in that view"}, [2]string{"s", "stop the session"}, [2]string{"n", "allow a host"}, [2]string{"p", "apply the changes"})
	}
	for y, r := range rows {
		m.put(a, 2, y+1, r[0], plain.Bold(true))
		m.put(a, 15, y+1, r[1], plain)
	}
}
