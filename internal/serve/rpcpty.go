package serve

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// ptyStarted is the notification pty/started, for a command that a tool runs on a
// terminal, and the answer to pty/start.
type ptyStarted struct {
	Terminal string          `json:"terminal"`
	Session  string          `json:"session"`
	Request  json.RawMessage `json:"request,omitempty"`
}

// rpcTerminals is an empty table, whose errors name the methods of JSON-RPC.
func rpcTerminals() *terminals {
	return &terminals{start: " with pty/start", end: " with pty/end"}
}

// onTerminal holds the parameters of a request about a terminal.
type onTerminal struct {
	Terminal string `json:"terminal"`
}

// terminalOrder keeps the order of what is typed.
func terminalOrder(params json.RawMessage) (string, error) {
	var t onTerminal
	if err := json.Unmarshal(params, &t); err != nil {
		return "", nil //nolint:nilerr // the method says what is wrong
	}
	return "terminal " + t.Terminal, nil
}

func doPTYStart(ctx context.Context, p *peer, r *request) (any, error) {
	q, err := decode[struct {
		Session string `json:"session"`
		TerminalRequest
	}](r.params)
	if err != nil {
		return nil, err
	}
	s, err := p.session(ctx, q.Session)
	if err != nil {
		return nil, err
	}
	h, err := p.terminals.open(ctx, p.life, s, q.TerminalRequest)
	if err != nil {
		return nil, err
	}
	return ptyStarted{Terminal: h.id, Session: s.ID}, nil
}

// open opens a terminal that lives as long as life. If ctx ends first there is no
// terminal.
func open(ctx, life context.Context, opener Terminals, r TerminalRequest) (Terminal, error) {
	life, end := context.WithCancelCause(life)
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	t, err := opener.Open(life, r)
	if !stop() && err == nil { // cancelled: the terminal ends by itself
		_, _ = t.Wait()
		err = context.Cause(ctx)
	}
	if err != nil {
		end(err)
		return nil, err
	}
	return t, nil
}

type writePTY struct {
	Terminal string   `json:"terminal"`
	Text     string   `json:"text"`
	Keys     []string `json:"keys"`
	Paste    string   `json:"paste"`
}

func doPTYWrite(_ context.Context, p *peer, w writePTY) (any, error) {
	t, err := p.terminals.get(w.Terminal)
	if err != nil {
		return nil, err
	}
	return nil, w.into(t)
}

// into types the text or the keys, or pastes.
func (w writePTY) into(t Terminal) error {
	given := 0
	for _, is := range []bool{w.Text != "", len(w.Keys) > 0, w.Paste != ""} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return badParams("give one of text, keys and paste")
	case w.Text != "":
		return t.Type(w.Text)
	case w.Paste != "":
		return t.Paste(w.Paste)
	default:
		return t.Keys(w.Keys...)
	}
}

type resizePTY struct {
	Terminal string `json:"terminal"`
	Cols     int    `json:"cols"`
	Rows     int    `json:"rows"`
}

func (z resizePTY) size() (screen.Size, error) {
	if z.Cols < 1 || z.Rows < 1 {
		return screen.Size{}, badParams("cols and rows are required, from 1 on")
	}
	return screen.Size{Cols: z.Cols, Rows: z.Rows}, nil
}

func doPTYResize(ctx context.Context, p *peer, z resizePTY) (any, error) {
	t, err := p.terminals.get(z.Terminal)
	if err != nil {
		return nil, err
	}
	size, err := z.size()
	if err != nil {
		return nil, err
	}
	return nil, t.Resize(ctx, size)
}

// readPTY asks for the end of the output or, with From, for the output from a byte on.
type readPTY struct {
	Terminal string `json:"terminal"`
	From     *int64 `json:"from"`
}

type terminalText struct {
	Text string `json:"text"`
	// Next is the From of the next request; nil if this one had none.
	Next *int64 `json:"next,omitempty"`
	// Lost is how many bytes after From are not kept any more.
	Lost int64 `json:"lost,omitempty"`
}

func doPTYRead(_ context.Context, p *peer, r readPTY) (any, error) {
	t, err := p.terminals.get(r.Terminal)
	switch {
	case err != nil:
		return nil, err
	case r.From == nil:
		return terminalText{Text: t.Text()}, nil
	case *r.From < 0:
		return nil, badParams("from: it must not be negative")
	}
	text, begin := t.TextFrom(*r.From)
	next := begin + int64(len(text))
	return terminalText{Text: text, Next: &next, Lost: max(begin-*r.From, 0)}, nil
}

// States of a terminal's command.
const (
	ptyRunning = "running"
	ptyEnded   = "ended"
	ptyLost    = "lost" // it has ended, and it is not known how
)

// terminalJSON describes a terminal.
type terminalJSON struct {
	Terminal string    `json:"terminal"`
	Session  string    `json:"session"`
	Command  string    `json:"command,omitempty"`
	Started  time.Time `json:"started"`
	Cols     int       `json:"cols"`
	Rows     int       `json:"rows"`
	State    string    `json:"state"`
	Reason   string    `json:"reason,omitempty"` // of one that has ended
	ExitCode *int      `json:"exitCode,omitempty"`
	Signal   int       `json:"signal,omitempty"`
	Error    *Error    `json:"error,omitempty"` // of one that is lost
}

type terminalList struct {
	Terminals []terminalJSON `json:"terminals"`
}

func doPTYList(ctx context.Context, p *peer, _ struct{}) (any, error) {
	list := terminalList{Terminals: []terminalJSON{}}
	for _, h := range p.terminals.list() {
		list.Terminals = append(list.Terminals, h.describe(ctx))
	}
	return list, nil
}

func (h *heldTerminal) describe(ctx context.Context) terminalJSON {
	size := h.Screen().Size
	j := terminalJSON{
		Terminal: h.id, Session: h.session, Command: h.command, Started: h.started.UTC(), Cols: size.Cols, Rows: size.Rows,
		State: ptyRunning,
	}
	select {
	case <-h.Done():
	default:
		return j
	}
	e, err := newEnded(h)
	if err != nil {
		j.State, j.Error = ptyLost, answerable(ctx, err)
		return j
	}
	j.State, j.Reason, j.ExitCode, j.Signal = ptyEnded, e.Reason, e.ExitCode, e.Signal
	return j
}

// screenJSON is what a user would see.
type screenJSON struct {
	Cols      int      `json:"cols"`
	Rows      int      `json:"rows"`
	Lines     []string `json:"lines"`
	Cursor    cursor   `json:"cursor"`
	Alternate bool     `json:"alternate"`
	Title     string   `json:"title"`
}

type cursor struct {
	Col     int  `json:"col"` // from 0 on
	Row     int  `json:"row"` // from 0 on
	Visible bool `json:"visible"`
}

func newScreen(s screen.Snapshot) screenJSON {
	return screenJSON{
		Cols: s.Cols, Rows: s.Rows, Lines: s.Lines, Alternate: s.Alternate, Title: s.Title,
		Cursor: cursor{Col: s.Cursor.Col, Row: s.Cursor.Row, Visible: s.Cursor.Visible},
	}
}

func doPTYScreen(_ context.Context, p *peer, n onTerminal) (any, error) {
	t, err := p.terminals.get(n.Terminal)
	if err != nil {
		return nil, err
	}
	return newScreen(t.Screen()), nil
}

// waitPTY says what to wait for: the first of the given events, or any output.
type waitPTY struct {
	Terminal  string `json:"terminal"`
	Text      string `json:"text"`    // on the screen
	Pattern   string `json:"pattern"` // RE2, on the screen
	QuietMs   int64  `json:"quietMs"`
	Input     bool   `json:"input"`
	End       bool   `json:"end"`  // nothing but the end
	From      *int64 `json:"from"` // pty/read from this byte on has text
	TimeoutMs int64  `json:"timeoutMs"`
}

type waited struct {
	Event  string     `json:"event"` // "output", "quiet", "needs_input", "ended" or "timeout"
	Screen screenJSON `json:"screen"`
	// Terminal describes the terminal if it has ended.
	Terminal *terminalJSON `json:"terminal,omitempty"`
}

// Times of waiting for a terminal.
const (
	defaultWait = 30 * time.Second
	maxWait     = time.Hour
)

// milliseconds is n of them, at most the longest time.
func milliseconds(n int64, longest time.Duration) time.Duration {
	return time.Duration(min(n, longest.Milliseconds())) * time.Millisecond
}

func doPTYWait(ctx context.Context, p *peer, w waitPTY) (any, error) {
	t, err := p.terminals.get(w.Terminal)
	if err != nil {
		return nil, err
	}
	done, err := w.wait(ctx, t)
	if err != nil {
		return nil, err
	}
	if done.Event == string(sandbox.Ended) {
		d := t.describe(ctx)
		done.Terminal = &d
	}
	return done, nil
}

// watched is a terminal that is waited for.
type watched interface {
	Screen() screen.Snapshot
	TextFrom(from int64) (text string, begin int64)
	WaitFor(ctx context.Context, until sandbox.Until) (sandbox.Event, error)
}

func (w waitPTY) wait(ctx context.Context, t watched) (*waited, error) {
	until, err := w.until(t)
	if err != nil {
		return nil, err
	}
	d := milliseconds(w.TimeoutMs, maxWait)
	if d <= 0 {
		d = defaultWait
	}
	timed, cancel := context.WithTimeoutCause(ctx, d, errWaited)
	defer cancel()
	event, err := t.WaitFor(timed, until)
	switch {
	case errors.Is(err, errWaited):
		event = "timeout"
	case err != nil:
		return nil, err
	}
	return &waited{Event: string(event), Screen: newScreen(t.Screen())}, nil
}

func (w waitPTY) until(t watched) (sandbox.Until, error) {
	u := sandbox.Until{Quiet: milliseconds(w.QuietMs, maxWait), Input: w.Input}
	switch {
	case w.From != nil && (w.Text != "" || w.Pattern != "" || w.QuietMs != 0 || w.Input || w.End):
		return u, badParams("give from without another condition")
	case w.From != nil && *w.From < 0:
		return u, badParams("from: it must not be negative")
	case w.From != nil:
		u.Match = func(screen.Snapshot) bool {
			text, begin := t.TextFrom(*w.From)
			return begin+int64(len(text)) > *w.From
		}
	case w.Text != "" && w.Pattern != "":
		return u, badParams("give text or pattern, not both")
	case w.QuietMs < 0:
		return u, badParams("quietMs: it must not be negative")
	case w.Text != "":
		u.Match = func(s screen.Snapshot) bool { return strings.Contains(strings.Join(s.Lines, "\n"), w.Text) }
	case w.Pattern != "":
		re, err := regexp.Compile(w.Pattern)
		if err != nil {
			return u, badParams("pattern: %v", err)
		}
		u.Match = func(s screen.Snapshot) bool { return re.MatchString(strings.Join(s.Lines, "\n")) }
	case w.End:
		u.Match = func(screen.Snapshot) bool { return false }
	}
	return u, nil
}

// ended is how a terminal's command has ended.
type ended struct {
	Reason   string `json:"reason"`
	ExitCode *int   `json:"exitCode"`
	Signal   int    `json:"signal,omitempty"`
	Text     string `json:"text"`
	Artifact string `json:"artifact,omitempty"`
}

// doPTYEnd ends what runs on a terminal, if it has not ended, and forgets it.
func doPTYEnd(_ context.Context, p *peer, n onTerminal) (any, error) {
	t, err := p.terminals.get(n.Terminal)
	if err != nil {
		return nil, err
	}
	t.Kill()
	e, err := newEnded(t)
	p.terminals.remove(t)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func newEnded(t Terminal) (*ended, error) {
	res, err := t.Wait()
	if err != nil {
		return nil, err
	}
	e := &ended{Reason: string(res.Reason), Signal: res.Signal, Text: res.Output.Stdout.Text()}
	if res.Reason == "exited" {
		e.ExitCode = &res.Code
	}
	if res.Output.Artifact.Stored {
		e.Artifact = res.Output.Artifact.ID
	}
	return e, nil
}
