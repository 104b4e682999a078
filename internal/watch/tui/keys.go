package tui

import (
	"fmt"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"

	"github.com/sandboxbash/sandboxbash/internal/watch"
)

// event takes a key, or another size of the terminal.
func (m *model) event(e tcell.Event) {
	switch e := e.(type) {
	case *tcell.EventResize:
		m.scr.Sync()
	case *tcell.EventKey:
		m.key(e)
	}
}

func (m *model) key(e *tcell.EventKey) {
	m.message = ""
	switch {
	case e.Key() == tcell.KeyCtrlC:
		m.quit = true
	case e.Key() == tcell.KeyCtrlL:
		m.scr.Sync()
	case m.prompt != nil:
		m.answer(e)
	case m.help:
		m.help = false
	case e.Key() == tcell.KeyRune && m.letter(e.Rune()):
	case m.inside:
		m.inSession(e)
	default:
		m.inList(e)
	}
}

// letter takes the keys that mean the same everywhere, and reports whether it is one.
func (m *model) letter(r rune) bool {
	switch r {
	case 'q':
		m.quit = true
	case '?':
		m.help = true
	case '/':
		m.prompt = &prompt{text: "filter: ", input: m.filter, typed: true, yes: func(m *model, text string) { m.filter = text; m.arrange() }}
	case 'r':
		m.o.Hub.Refresh()
		if m.open != "" && m.view == changes {
			m.compare()
		}
	case ']', 'J':
		m.move(1)
	case '[', 'K':
		m.move(-1)
	case 'a', 's', 'n', 'p':
		m.control(r)
	default:
		return false
	}
	return true
}

// page is how many rows a page has.
func (m *model) page() int {
	_, height := m.scr.Size()
	return max(1, height-6)
}

func (m *model) inList(e *tcell.EventKey) {
	switch e.Key() {
	case tcell.KeyUp:
		m.move(-1)
	case tcell.KeyDown:
		m.move(1)
	case tcell.KeyPgUp:
		m.move(-m.page())
	case tcell.KeyPgDn:
		m.move(m.page())
	case tcell.KeyHome:
		m.move(-len(m.list))
	case tcell.KeyEnd:
		m.move(len(m.list))
	case tcell.KeyEnter, tcell.KeyRight:
		if m.chosenAt() >= 0 {
			m.enter(m.chosen)
		}
	case tcell.KeyEscape:
		if m.filter != "" {
			m.filter = ""
			m.arrange()
		}
	case tcell.KeyRune:
		switch e.Rune() {
		case 'j':
			m.move(1)
		case 'k':
			m.move(-1)
		}
	}
}

func (m *model) inSession(e *tcell.EventKey) {
	l := m.shown()
	switch e.Key() {
	case tcell.KeyEscape, tcell.KeyLeft, tcell.KeyBackspace, tcell.KeyBackspace2:
		m.leave()
	case tcell.KeyTab:
		m.turn((m.view + 1) % views)
	case tcell.KeyBacktab:
		m.turn((m.view + views - 1) % views)
	case tcell.KeyUp:
		m.scroll(l, 1)
	case tcell.KeyDown:
		m.scroll(l, -1)
	case tcell.KeyPgUp:
		m.scroll(l, m.page())
	case tcell.KeyPgDn:
		m.scroll(l, -m.page())
	case tcell.KeyHome:
		m.scroll(l, maxLines*10)
	case tcell.KeyEnd:
		m.scroll(l, -maxLines*10)
	case tcell.KeyEnter:
		if m.view == terminals && m.o.Control != nil {
			m.control('a')
		}
	case tcell.KeyRune:
		switch r := e.Rune(); {
		case r >= '1' && r < '1'+rune(views):
			m.turn(view(r - '1'))
		case r == 'f':
			l.scroll = 0
		case r == 'j':
			m.scroll(l, -1)
		case r == 'k':
			m.scroll(l, 1)
		}
	}
}

// turn shows another view.
func (m *model) turn(v view) {
	m.view = v
	if v == changes && len(m.diff.lines) == 0 {
		m.compare()
	}
}

// shown is the text of the view.
func (m *model) shown() *log {
	switch m.view { //nolint:exhaustive // the others have none
	case connections:
		return &m.net
	case changes:
		return &m.diff
	}
	return &m.log
}

func (m *model) scroll(l *log, by int) {
	if m.view == terminals {
		m.term = min(max(m.term+map[bool]int{true: -1, false: 1}[by > 0], 0), max(0, len(m.order)-1))
		return
	}
	l.scroll = max(0, l.scroll+by) // draw bounds it
}

// answer takes a key of the answer to a question.
func (m *model) answer(e *tcell.EventKey) {
	p := m.prompt
	done := func(yes bool) {
		m.prompt = nil
		if yes {
			p.yes(m, p.input)
		}
	}
	switch {
	case e.Key() == tcell.KeyEscape:
		done(false)
	case !p.typed:
		done(e.Key() == tcell.KeyRune && (e.Rune() == 'y' || e.Rune() == 'Y'))
	case e.Key() == tcell.KeyEnter:
		done(true)
	case e.Key() == tcell.KeyBackspace || e.Key() == tcell.KeyBackspace2:
		_, size := utf8.DecodeLastRuneInString(p.input)
		p.input = p.input[:len(p.input)-size]
	case e.Key() == tcell.KeyCtrlU:
		p.input = ""
	case e.Key() == tcell.KeyRune && len(p.input) < 200:
		p.input += string(e.Rune())
	}
}

// control asks whether to do something, and does it on a yes.
func (m *model) control(r rune) {
	id := m.chosen
	s, ok := m.sessions[id]
	switch {
	case m.o.Control == nil:
		m.say("this is read-only; `sandboxbash watch --control` can attach, stop, allow and apply", watch.Warning)
		return
	case !ok || s.State == watch.Stopped:
		m.say("there is no session to do that with", watch.Warning)
		return
	case m.asking:
		m.say("one thing at a time: the last one is not done", watch.Warning)
		return
	}
	c := m.o.Control
	switch r {
	case 'a':
		m.attach(s)
	case 's':
		n := len(s.Running)
		for _, j := range s.Jobs {
			if j.Ended.IsZero() {
				n++
			}
		}
		m.confirm(fmt.Sprintf("Stop %s? %d running; what is not applied is gone.", s.Name, n), func(ctx ctxt) (string, error) { return c.Stop(ctx, id) })
	case 'n':
		m.prompt = &prompt{text: "allow " + s.Name + " to reach (HOST, HOST:PORT, @PRESET): ", typed: true, yes: func(m *model, rule string) {
			if rule != "" {
				m.confirm("Allow "+s.Name+" to reach "+rule+"?", func(ctx ctxt) (string, error) { return c.Allow(ctx, id, rule) })
			}
		}}
	case 'p':
		m.apply(s)
	}
}

// confirm asks, and does it on a yes.
func (m *model) confirm(text string, do func(ctxt) (string, error)) {
	m.prompt = &prompt{text: text + " [y/N] ", yes: func(m *model, _ string) {
		m.say("working…", watch.Quiet)
		m.later(func() func(*model) {
			ctx, cancel := asking()
			defer cancel()
			said, err := do(ctx)
			return func(m *model) {
				m.o.Hub.Refresh()
				if err != nil {
					m.fail(err)
					return
				}
				m.say(oneLine(said), watch.Good)
			}
		})
	}}
}

// apply shows what would be applied before it asks.
func (m *model) apply(s watch.Summary) {
	if m.o.Ask == nil {
		return
	}
	m.enter(s.ID)
	m.view = changes
	m.diff = log{}
	m.say("comparing the workspace…", watch.Quiet)
	m.later(func() func(*model) {
		ctx, cancel := asking()
		defer cancel()
		c, err := m.o.Ask.Changes(ctx, s.ID)
		return func(m *model) {
			if err != nil {
				m.fail(err)
				return
			}
			m.diff = log{}
			m.diff.changes(c)
			m.diff.scroll = max(0, len(m.diff.lines)-1)
			if len(c.Files) == 0 {
				m.say("nothing has changed", watch.Plain)
				return
			}
			m.message = ""
			m.confirm(fmt.Sprintf("Apply %s to %s?", count(len(c.Files), "change"), c.Dir), func(ctx ctxt) (string, error) {
				return m.o.Control.Apply(ctx, s.ID)
			})
		}
	})
}

// attach gives the terminal away until the user comes back.
func (m *model) attach(s watch.Summary) {
	terminal, what := "", "Open a shell in "+s.Name+"?"
	if m.inside && m.view == terminals && m.term < len(m.order) {
		if t := m.terms[m.order[m.term]]; t.Writable && t.End == "" {
			terminal, what = t.ID, "Attach to "+t.ID+"?"
		}
	}
	m.prompt = &prompt{text: what + " What you type is not checked. [y/N] ", yes: func(m *model, _ string) {
		if err := m.scr.Suspend(); err != nil {
			m.fail(err)
			return
		}
		err := m.o.Attach(s.ID, terminal)
		if again := m.scr.Resume(); again != nil {
			m.quit = true
			return
		}
		m.scr.Sync()
		if err != nil {
			m.fail(err)
		}
	}}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
