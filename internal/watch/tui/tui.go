// Package tui shows sessions in a terminal: a list, and what one of them does. It draws when something has changed, and
// does nothing else.
package tui

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/sandboxbash/sandboxbash/internal/watch"
)

// Options of Run. Hub and Screen are required.
type Options struct {
	Hub     *watch.Hub
	Screen  tcell.Screen     // initialised by Run, which also ends it
	Ask     watch.Asker      // nil: changes are not shown
	Control watch.Controller // nil: nothing can be done
	// Attach gives the terminal to a shell in a session or, if terminal is not "", to that terminal of it, until the
	// user leaves it. It is called with Control alone.
	Attach  func(session, terminal string) error
	Session string             // to begin with; "": the list
	Words   func(error) string // says for a person what an error means
}

// framePause is what is between two drawings of updates at least.
const framePause = 33 * time.Millisecond

// view is one of a session's.
type view int

const (
	output view = iota
	terminals
	jobs
	connections
	changes
	views // how many there are
)

var viewNames = [views]string{"Output", "Terminals", "Jobs", "Network", "Changes"}

// model is what is shown.
type model struct {
	o   Options
	scr tcell.Screen
	sub *watch.Subscription
	now func() time.Time

	sessions map[string]watch.Summary
	list     []watch.Summary // in the order of the list, filtered
	chosen   string          // id, in the list
	moved    bool            // the user has chosen it
	top      int             // first row of the list that is shown
	filter   string
	problem  string

	open   string // id of the session that is shown; "": none is
	inside bool   // keys are for it, and not for the list
	view   view
	log    log
	net    log
	diff   log
	terms  map[string]watch.Terminal
	order  []string
	term   int // index in order

	prompt  *prompt // nil: no question
	message string  // of the last line; "": keys
	tone    watch.Tone
	help    bool
	asking  bool // an answer of the engine is awaited
	answers chan func(*model)
	quit    bool
}

// prompt is a question in the last line.
type prompt struct {
	text  string
	input string
	typed bool // a text is asked for, and not a yes
	yes   func(m *model, input string)
}

// Run shows sessions until the user quits or ctx ends. The terminal is then as it was.
func Run(ctx context.Context, o Options) error {
	if err := o.Screen.Init(); err != nil {
		return err
	}
	defer o.Screen.Fini()
	m := newModel(o)
	defer m.sub.Close()
	if o.Session != "" {
		m.enter(o.Session)
	}
	return m.run(ctx)
}

func newModel(o Options) *model {
	return &model{
		o: o, scr: o.Screen, sub: o.Hub.Subscribe(), now: time.Now, sessions: map[string]watch.Summary{}, terms: map[string]watch.Terminal{},
		answers: make(chan func(*model), 4),
	}
}

func (m *model) run(ctx context.Context) error {
	events, quit := make(chan tcell.Event, 16), make(chan struct{})
	go m.scr.ChannelEvents(events, quit) // it ends with quit, or with the screen
	defer close(quit)
	var frame, tick <-chan time.Time // nil: nothing waits
	changed := m.sub.Changed()
	m.draw()
	for !m.quit {
		if tick == nil && m.ticks() {
			tick = time.After(time.Second)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e, ok := <-events:
			if !ok {
				return nil // the terminal has gone
			}
			m.event(e)
		case <-changed:
			m.take(m.sub.Next())
			changed, frame = nil, time.After(framePause)
		case <-frame:
			changed, frame = m.sub.Changed(), nil
			continue
		case do := <-m.answers:
			do(m)
		case <-tick:
			tick = nil
		}
		m.draw()
	}
	return nil
}

// ticks reports whether a time that is shown changes by itself.
func (m *model) ticks() bool {
	for _, s := range m.sessions {
		if s.State == watch.Running {
			return true
		}
	}
	return false
}

// take takes what is new.
func (m *model) take(u watch.Update) {
	for _, s := range u.Sessions {
		m.sessions[s.ID] = s
	}
	if u.ProblemNew {
		m.problem = u.Problem
	}
	if len(u.Sessions) > 0 {
		m.arrange()
	}
	for _, d := range u.Details {
		if d.Session == m.open {
			m.detail(d)
		}
	}
}

// arrange makes the list. Sessions keep their places while they work: those that have ended are last, and the newest of
// the others is first.
func (m *model) arrange() {
	m.list = m.list[:0]
	for _, s := range m.sessions {
		text := strings.ToLower(strings.Join([]string{s.Name, s.ID, s.Image, s.Last, string(s.State)}, " "))
		if strings.Contains(text, strings.ToLower(m.filter)) {
			m.list = append(m.list, s)
		}
	}
	rank := func(s watch.Summary) int {
		if s.State == watch.Stopped || s.State == watch.Kept {
			return 1
		}
		return 0
	}
	slices.SortFunc(m.list, func(a, b watch.Summary) int {
		return cmp.Or(rank(a)-rank(b), b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	if (m.chosenAt() < 0 || !m.moved) && len(m.list) > 0 {
		m.chosen = m.list[0].ID
	}
}

// chosenAt is the index of the chosen session, -1 if there is none.
func (m *model) chosenAt() int {
	return slices.IndexFunc(m.list, func(s watch.Summary) bool { return s.ID == m.chosen })
}

// move chooses another session.
func (m *model) move(by int) {
	if len(m.list) == 0 {
		return
	}
	m.moved = true
	m.chosen = m.list[min(max(m.chosenAt()+by, 0), len(m.list)-1)].ID
	if m.open != "" {
		m.show(m.chosen)
	}
}

// enter shows a session, and gives it the keys.
func (m *model) enter(id string) {
	m.chosen, m.moved, m.inside = id, true, true
	m.show(id)
}

// show shows a session.
func (m *model) show(id string) {
	if m.open == id {
		return
	}
	m.open, m.term = id, 0
	m.reset()
	m.diff = log{}
	m.sub.Focus(id)
	if m.view == changes {
		m.compare()
	}
}

// leave goes back to the list.
func (m *model) leave() {
	m.inside, m.open = false, ""
	m.sub.Focus()
	m.reset()
}

func (m *model) reset() {
	m.log, m.net = log{}, log{}
	m.terms, m.order = map[string]watch.Terminal{}, nil
}

// detail takes what is new of the session that is shown.
func (m *model) detail(d watch.Detail) {
	if d.Reset {
		m.reset()
	}
	if d.Gap {
		text, tone := "What was before is not shown here.", watch.Quiet
		if !d.Reset {
			text, tone = "This terminal was too slow for some of the output. It goes on here.", watch.Warning
		}
		m.log.line(text, tone)
	}
	for _, i := range d.Items {
		m.log.item(i)
	}
	for _, i := range d.Network {
		m.net.connection(i)
	}
	for _, t := range d.Terminals {
		m.terms[t.ID] = t
	}
	if d.Order != nil {
		m.order = d.Order
		m.term = min(m.term, max(0, len(m.order)-1))
	}
}

// later asks something in the background, and then does with the answer what it returns.
func (m *model) later(ask func() func(*model)) {
	m.asking = true
	answers := m.answers
	go func() {
		do := ask()
		answers <- func(m *model) {
			m.asking = false
			do(m)
		}
	}()
}

// askTime bounds one question to the engine, or one thing to do.
const askTime = 2 * time.Minute

func asking() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), askTime)
}

// say shows a message in the last line, until the next key.
func (m *model) say(text string, tone watch.Tone) { m.message, m.tone = text, tone }

func (m *model) fail(err error) { m.say(oneLine(m.o.Words(err)), watch.Bad) }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// compare asks what the session has changed.
func (m *model) compare() {
	id := m.open
	if m.o.Ask == nil || m.asking || id == "" {
		return
	}
	m.diff = log{}
	m.diff.line("Comparing the workspace…", watch.Quiet)
	m.later(func() func(*model) {
		ctx, cancel := asking()
		defer cancel()
		c, err := m.o.Ask.Changes(ctx, id)
		return func(m *model) {
			if m.open != id {
				return
			}
			m.diff = log{}
			if err != nil {
				m.diff.line(oneLine(m.o.Words(err)), watch.Warning)
				return
			}
			m.diff.changes(c)
			m.diff.scroll = max(0, len(m.diff.lines)-1) // from the start
		}
	})
}
