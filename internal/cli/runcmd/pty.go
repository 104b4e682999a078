package runcmd

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// console is the terminal that this process was started on, while a command has
// it. It is put back as it was once, whatever happens.
type console struct {
	in, out *os.File
	state   *term.State
	once    sync.Once
}

// console returns this process's own terminal, or false if it has none. With
// --json the result has standard output, and the terminal is behind standard
// error.
func (a *Runner) console() (*console, bool) {
	in, ok := a.streams.Stdin.(*os.File)
	if !ok || !stdio.IsTerminal(in) {
		return nil, false
	}
	w := a.streams.RawStdout
	if a.cfg.JSON && !stdio.IsTerminal(w) {
		w = a.streams.RawStderr
	}
	out, ok := w.(*os.File)
	if !ok || !stdio.IsTerminal(out) {
		return nil, false
	}
	return &console{in: in, out: out}, true
}

// raw hands every key on as it is. The app puts the terminal back if it ends in
// another way than by the function that calls this.
func (c *console) raw(s *stdio.Streams) error {
	state, err := term.MakeRaw(int(c.in.Fd()))
	if err != nil {
		return err
	}
	c.state = state
	s.AtExit(c.restore)
	return nil
}

// restore may be called at any time and more than once.
func (c *console) restore() {
	c.once.Do(func() {
		if c.state != nil {
			_ = term.Restore(int(c.in.Fd()), c.state)
		}
	})
}

func (c *console) size() screen.Size {
	cols, rows, err := term.GetSize(int(c.out.Fd()))
	if err != nil {
		return screen.DefaultSize
	}
	return screen.Size{Cols: cols, Rows: rows}
}

// runOnConsole runs the command on this process's own terminal, lets go of the
// session and reports the result.
func (a *Runner) runOnConsole(ctx context.Context, session *sandbox.Session, release func(), command sandbox.Command, own *console) error {
	keys, err := newKillKeys(a.cfg.PTY.KillKeys)
	if err != nil {
		release()
		return err
	}
	res, err := a.onConsole(ctx, session, command, own, keys)
	release()
	return a.Finish(ctx, res, err)
}

// onConsole returns when the terminal is as it was.
func (a *Runner) onConsole(ctx context.Context, session *sandbox.Session, command sandbox.Command, own *console, keys *killKeys) (sandbox.Result, error) {
	none := sandbox.Result{Session: session.ID()}
	if a.cfg.PTY.Unattended {
		command.Env = append(Unattended(), command.Env...)
	}
	run, end := context.WithCancelCause(ctx)
	defer end(nil)
	live := stdio.NewWriter(run, own.out, func() { end(exit.ErrBrokenPipe) })
	defer live.Close()
	if err := own.raw(a.streams); err != nil {
		return none, err
	}
	defer own.restore()
	t, err := session.Terminal(run, command, sandbox.TerminalOptions{Size: own.size(), Terms: []string{a.env.Getenv("TERM")}, Live: live})
	if err != nil {
		return none, err
	}
	over := make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() { a.guarded(func() { pump(t, own.in, keys, over) }) })
	helpers.Go(func() { a.guarded(func() { watchSize(over, func() { _ = t.Resize(run, own.size()) }) }) })
	res, err := t.Wait()
	close(over)
	helpers.Wait()
	soon, cancel := context.WithCancel(ctx)
	cancel()
	_, _ = live.Flush(soon) // a person who has stopped his terminal does not hold up its end
	_, _ = own.out.Write(t.Restore())
	return res, err
}

// guarded makes a goroutine's call. If it panics the terminal is put back first:
// no deferred call of another goroutine is made then.
func (a *Runner) guarded(do func()) {
	returned := false
	defer func() {
		if !returned {
			a.streams.RestoreTerminal()
		}
	}()
	do()
	returned = true
}

// pump types what is typed here, byte for byte, until the command is over or the
// keys that end it have been pressed.
func pump(t *sandbox.Terminal, in *os.File, keys *killKeys, over <-chan struct{}) {
	buf := make([]byte, 4<<10)
	for readable(in, over) {
		n, err := in.Read(buf)
		if n > 0 {
			if keys.pressed(buf[:n], time.Now()) {
				t.Kill()
				return
			}
			if _, err := t.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil { // the terminal has gone, and its reader with it
			t.Kill()
			return
		}
	}
}

// Unattended are the variables that keep commands from waiting for a person,
// without those that would keep them from being on a terminal at all.
func Unattended() []string {
	env := tool.NonInteractive()
	for _, name := range []string{"TERM", "GPG_TTY", "NO_COLOR", "PYTHONUNBUFFERED"} {
		delete(env, name)
	}
	return env.List()
}

// killWindow is the longest time between two kill keys: a double click's.
const killWindow = 400 * time.Millisecond

// killKeys look for keys that end a command. They are still typed, but the last of them. Keys
// count only if each comes by itself: a terminal sends one press in one piece, and what is pasted
// in another.
type killKeys struct {
	forms [][]string // of each key, the ways in which terminals send it
	next  int        // the key that is waited for
	last  time.Time  // when the one before was pressed
}

// noKeys switches kill keys off.
const noKeys = "none"

func newKillKeys(names string) (*killKeys, error) {
	k := &killKeys{}
	if strings.TrimSpace(names) == noKeys {
		return k, nil
	}
	for name := range strings.FieldsSeq(names) {
		forms, err := keyForms(name)
		if err != nil {
			return nil, exit.Misuse("correct --kill-keys, as in 'esc esc' or 'ctrl-]', or switch them off with none", "%v", err)
		}
		k.forms = append(k.forms, forms)
	}
	return k, nil
}

// keyForms are the ways in which terminals send a key, the longest first: one may begin with
// another.
func keyForms(name string) ([]string, error) {
	legacy, err := screen.New(screen.DefaultSize).Keys(name)
	if err != nil {
		return nil, err
	}
	modern := screen.New(screen.DefaultSize) // as a program may set the terminal to
	_, _ = modern.Write([]byte("\x1b[>1u"))
	kitty, err := modern.Keys(name)
	if err != nil {
		return nil, err
	}
	forms := []string{string(legacy), string(kitty)}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	return forms, nil
}

// keyAt returns how long one of a key's forms is at the start of what was typed, 0 if none is.
func keyAt(forms []string, typed string) int {
	for _, form := range forms {
		if strings.HasPrefix(typed, form) {
			return len(form)
		}
	}
	return 0
}

// pressed takes what was typed and reports whether the last key was in it.
func (k *killKeys) pressed(p []byte, now time.Time) bool {
	if len(k.forms) == 0 {
		return false
	}
	if now.Sub(k.last) > killWindow {
		k.next = 0
	}
	typed := string(p)
	for typed != "" {
		n := keyAt(k.forms[k.next], typed)
		if n == 0 {
			k.next = 0
			return false
		}
		typed = typed[n:]
		k.next, k.last = k.next+1, now
		if k.next == len(k.forms) {
			k.next = 0
			return typed == ""
		}
	}
	return false
}
