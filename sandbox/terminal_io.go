package sandbox

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// readSize is how much of a terminal's output is read at once. It is more than the kernel
// buffers for a terminal, so that a flood is drawn in large pieces.
const readSize = 64 << 10 // bytes

// read takes what the terminal shows until it ends.
func (t *Terminal) read() {
	<-t.begun
	buf := make([]byte, readSize)
	for {
		n, err := t.term.Read(buf)
		if n > 0 {
			t.take(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (t *Terminal) take(p []byte) {
	if t.show(p) {
		select {
		case t.replies <- struct{}{}:
		default:
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes += int64(len(p))
	t.lastRead = time.Now()
	close(t.changed)
	t.changed = make(chan struct{})
}

// show passes output on. It reports whether this Terminal answers the queries in it.
func (t *Terminal) show(p []byte) (draws bool) {
	t.showing.Lock()
	defer t.showing.Unlock()
	if v := t.live; v != nil {
		if err := v.show(t.seen, p); err != nil {
			t.live = nil
			v.lost(err)
		}
	}
	_, _ = t.out.Stdout().Write(p) // never fails
	if !t.hurry.Load() {
		_, _ = t.screen.Write(p) // never fails
	}
	return t.live == nil
}

// viewer is a user's terminal, on which everything is shown.
type viewer struct {
	show func(ctx context.Context, p []byte) error
	lost func(err error) // called once show has failed
}

// Attach shows the terminal to a user: what it shows now, without colours, and then every byte,
// unmasked. The user's terminal answers the queries of programs. This goes on until detach is
// called, show fails, or another call of Attach, for which this show must not block any more. A
// show that blocks also blocks the command; it must return when its ctx ends.
//
// The user's terminal must have the size of this one. detach returns the bytes that reset it.
func (t *Terminal) Attach(show func(ctx context.Context, p []byte) error) (detach func() []byte) {
	v := &viewer{show: show, lost: func(error) {}}
	t.showing.Lock()
	t.live = v
	if n, _ := t.shown(); n > 0 {
		if show(t.seen, t.screen.Redraw()) != nil {
			t.live = nil
		}
	}
	t.showing.Unlock()
	t.begin()
	return func() []byte {
		t.showing.Lock()
		defer t.showing.Unlock()
		if t.live == v {
			t.live = nil
			_ = t.screen.Replies() // the user's terminal has answered these queries
		}
		return t.screen.Restore()
	}
}

// shown returns how many bytes the terminal has shown, and a channel that is closed when it
// shows more.
func (t *Terminal) shown() (int64, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes, t.changed
}

// answer sends the screen's answers to the program. It has its own goroutine, because the
// program may not read them, and that must not stop the reading of its output.
func (t *Terminal) answer(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-t.replies:
		}
		if owed := t.screen.Replies(); len(owed) > 0 {
			if _, err := t.write(owed); err != nil {
				return
			}
		}
	}
}

// Write types bytes as they are. It blocks while the program does not read and the kernel's
// buffer is full, which usually holds 4 KiB; it returns when the command ends. If the program
// reads whole lines, the kernel drops the part of a line after 4095 bytes.
func (t *Terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.lastSent = time.Now()
	t.mu.Unlock()
	n, err := t.write(p)
	t.mu.Lock()
	t.lastSent = time.Now()
	t.mu.Unlock()
	return n, err
}

func (t *Terminal) write(p []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.term.Write(p)
}

// Keys presses the named keys, as the terminal's present modes encode them. Package screen
// has the names. If the error is a *screen.KeyError, no key was pressed.
func (t *Terminal) Keys(names ...string) error {
	p, err := t.screen.Keys(names...)
	if err != nil {
		return err
	}
	_, err = t.Write(p)
	return err
}

// Type types a text, where a line feed is the enter key.
func (t *Terminal) Type(text string) error {
	_, err := t.Write(t.screen.Type(text))
	return err
}

// Paste pastes a text.
func (t *Terminal) Paste(text string) error {
	_, err := t.Write(t.screen.Paste(text))
	return err
}

// Screen returns what a person would see now, with secrets masked.
func (t *Terminal) Screen() screen.Snapshot {
	shot := t.screen.Snapshot()
	secrets := t.session.engine.opts.Secrets
	if secrets.Len() == 0 {
		return shot
	}
	shot.Title = secrets.Scrub(shot.Title)
	// A secret may be on several rows, if the line was too long for one.
	for from := 0; from < len(shot.Lines); {
		to := from + 1
		for to < len(shot.Lines) && full(shot.Lines[to-1], shot.Cols) {
			to++
		}
		whole := strings.Join(shot.Lines[from:to], "")
		if masked := secrets.Scrub(whole); masked != whole {
			copy(shot.Lines[from:to], cut(masked, to-from, shot.Cols))
		}
		from = to
	}
	return shot
}

// Restore returns the bytes that reset a user's own terminal after the command's end. There
// are none if the command has reset it itself.
func (t *Terminal) Restore() []byte { return t.screen.Restore() }

// full reports whether a row may go on in the next one.
func full(row string, cols int) bool { return utf8.RuneCountInString(row) >= cols-1 }

// cut splits a text into that many rows. The last one may be longer, because a mask and the
// secret that it replaces differ in length.
func cut(text string, rows, cols int) []string {
	lines := make([]string, 0, rows)
	for range rows - 1 {
		n := 0
		for count := 0; n < len(text) && count < cols; count++ {
			_, size := utf8.DecodeRuneInString(text[n:])
			n += size
		}
		lines = append(lines, text[:n])
		text = text[n:]
	}
	return append(lines, text)
}

// Text returns the output so far as text, as much of it as the window holds. Lines end with
// a line feed, escape sequences are removed and secrets are masked.
func (t *Terminal) Text() string {
	sub := t.out.Subscribe()
	defer sub.Close()
	update := <-sub.Updates()
	return update.Stdout
}

// TextFrom returns the output so far as text, from the byte from on, and the byte at which
// the text begins. That is a later byte if the window no longer holds from. A reader that
// continues at the end of the text misses nothing and gets nothing twice.
func (t *Terminal) TextFrom(from int64) (text string, begin int64) { return t.out.TextFrom(from) }

// Event says why a wait ended.
type Event string

// Events.
const (
	Output     Event = "output"      // the terminal shows what was waited for
	Quiet      Event = "quiet"       // nothing was shown for long enough
	NeedsInput Event = "needs_input" // the command waits for its terminal
	Ended      Event = "ended"
)

// Until says what to wait for. WaitFor returns at the first of the fields that are set. The
// zero Until waits for any output.
type Until struct {
	Match func(screen.Snapshot) bool // reports whether the screen is as wanted; called at once and after changes
	Quiet time.Duration              // no output for this long, from the call on
	Input bool                       // the command waits for input
}

const (
	// inputPoll is the pause between two questions whether the command waits for input. It
	// doubles up to maxInputPoll while nothing is shown.
	inputPoll    = 200 * time.Millisecond
	maxInputPoll = 1600 * time.Millisecond
	// inputSettle is how long a terminal must have been at rest before such a question. Typed
	// input takes time to arrive, and a program that shows its progress is not waiting, even
	// if it polls its terminal.
	inputSettle = 150 * time.Millisecond
)

// WaitFor waits until one of the conditions holds or the command has ended. The only error is
// that ctx has ended; give ctx a deadline to limit the wait.
func (t *Terminal) WaitFor(ctx context.Context, until Until) (Event, error) {
	_, changed := t.shown()
	if until.Match != nil && until.Match(t.Screen()) {
		return Output, nil
	}
	var quiet, look <-chan time.Time // never, unless asked for
	var rest, next *time.Timer
	if until.Quiet > 0 {
		rest = time.NewTimer(until.Quiet)
		defer rest.Stop()
		quiet = rest.C
	}
	pause := inputPoll
	if until.Input {
		next = time.NewTimer(pause)
		defer next.Stop()
		look = next.C
	}
	for {
		select {
		case <-t.done:
			return Ended, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-changed:
			_, changed = t.shown()
			if until.any() || until.Match != nil && until.Match(t.Screen()) {
				return Output, nil
			}
			if rest != nil {
				rest.Reset(until.Quiet)
			}
			if pause > inputPoll {
				pause = inputPoll
				next.Reset(pause)
			}
		case <-quiet:
			return Quiet, nil
		case <-look:
			if needs, err := t.needsInput(ctx); needs || err != nil {
				return NeedsInput, err
			}
			if t.atRest() {
				pause = min(2*pause, maxInputPoll)
			}
			next.Reset(pause)
		}
	}
}

func (u Until) any() bool { return u.Match == nil && u.Quiet <= 0 && !u.Input }

// needsInput asks whether the command waits for input, if the terminal is at rest.
func (t *Terminal) needsInput(ctx context.Context) (bool, error) {
	if !t.atRest() {
		return false, nil
	}
	answer, err := t.term.WaitsForInput(ctx)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return err == nil && answer == wire.TerminalWaits && t.atRest(), nil // after an error done will tell
}

func (t *Terminal) atRest() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.lastRead) >= inputSettle && time.Since(t.lastSent) >= inputSettle
}
