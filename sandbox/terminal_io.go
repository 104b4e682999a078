package sandbox

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// readSize is how much of a terminal's output is taken at once: more than the
// kernel holds for one, so that a flood is drawn in large pieces.
const readSize = 64 << 10 // bytes

// read takes what the terminal shows until it ends.
func (t *Terminal) read() {
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
	if t.live != nil {
		if _, err := t.live.Write(p); err != nil {
			t.end(err) // the reader has gone
			t.live = nil
		}
	}
	_, _ = t.out.Stdout().Write(p) // never fails
	if !t.hurry.Load() {
		_, _ = t.screen.Write(p) // never fails
	}
	if t.draws {
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

// shown is how much the terminal has shown, and a channel that is closed when it
// shows more.
func (t *Terminal) shown() (int64, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes, t.changed
}

// answer writes what the screen owes the program, which may not be reading: that
// must not keep its output from being read.
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

// Write types bytes as they are. It blocks while the program does not read and
// the kernel's buffer, 4 KiB as a rule, is full; the command's end ends that. A line
// longer than 4095 bytes cannot be typed to a program that reads whole lines: the
// kernel drops the rest of it.
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

// Keys presses keys by their names, as screen.Screen.Keys has them, in the modes
// that the program has set its terminal to. A *screen.KeyError means that nothing
// was pressed.
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

// Screen is what a person would see now, with secrets masked.
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

// Restore returns what a person's own terminal has to be shown after the command's
// end so that it is as before: nothing, if the command has cleaned up.
func (t *Terminal) Restore() []byte { return t.screen.Restore() }

// full reports whether a row may go on in the next one.
func full(row string, cols int) bool { return utf8.RuneCountInString(row) >= cols-1 }

// cut makes a text that many rows of a screen again. The last one may be longer:
// a mask is not what it stands for.
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

// Text is the output so far as text, as much as the command's window holds: lines
// end with a line feed, sequences are removed, secrets masked.
func (t *Terminal) Text() string {
	sub := t.out.Subscribe()
	defer sub.Close()
	update := <-sub.Updates()
	return update.Stdout
}

// TextFrom returns the output so far as text, from a byte of it on, and the byte at
// which that begins: a later one, if the window does not hold that one any more.
// A reader that goes on at its end misses nothing, and gets nothing twice.
func (t *Terminal) TextFrom(from int64) (text string, begin int64) { return t.out.TextFrom(from) }

// Event is what a wait has ended with.
type Event string

// Events.
const (
	Output     Event = "output"      // what was waited for is there
	Quiet      Event = "quiet"       // nothing was shown for long enough
	NeedsInput Event = "needs_input" // the command waits for its terminal
	Ended      Event = "ended"
)

// Until is what to wait for: the first of those that are set. The zero Until waits
// for any output.
type Until struct {
	Match func(screen.Snapshot) bool // of the screen; asked when it has changed, and at once
	Quiet time.Duration              // without any output, from the call on
	Input bool                       // the command waits for input
}

const (
	// inputPoll is between two looks at whether a command waits for input. While
	// nothing is shown it doubles up to maxInputPoll.
	inputPoll    = 200 * time.Millisecond
	maxInputPoll = 1600 * time.Millisecond
	// inputSettle is how long a terminal must have been at rest before such a look:
	// what was typed takes its time to arrive, and a program that shows its
	// progress is not waiting, whatever it listens to.
	inputSettle = 150 * time.Millisecond
)

// WaitFor waits until something has happened. The end of the command is always
// waited for. The error is that of ctx: to wait only so long, give it a deadline.
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

// needsInput looks, once the terminal is at rest.
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
