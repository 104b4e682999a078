package runcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// An Attachment is this user's connection to a terminal that a process of its own keeps. Write
// types bytes. Kill ends the terminal's program, and Detach leaves it to itself: Wait returns soon
// after them.
type Attachment interface {
	Write(p []byte) (int, error)
	Resize(ctx context.Context, size screen.Size) error
	Kill()
	Detach()
	Wait() (Parting, error)
}

// Parting is how an attachment has ended.
type Parting struct {
	Result  sandbox.Result // of the program, if it has ended
	Left    string         // else why the user has left it: a line to show
	Restore []byte         // resets the user's terminal
	Notes   []string
}

// Label names a terminal to its user.
type Label struct {
	Session string // its name
	ID      string // of the terminal
}

// Console is the terminal that this process was started on, which a user attaches with.
type Console struct {
	a      *Runner
	own    *console
	kill   *killKeys
	detach *detachKeys
	window time.Duration // how long a held key waits for the next one
}

// Console returns this process's terminal. The error says that there is none, or that keys of the
// configuration do not exist.
func (a *Runner) Console() (*Console, error) {
	own, ok := a.console()
	if !ok {
		return nil, errNoConsole
	}
	kill, err := newKillKeys(a.cfg.PTY.KillKeys)
	if err != nil {
		return nil, err
	}
	detach, err := newDetachKeys(a.cfg.PTY.DetachKeys)
	if err != nil {
		return nil, err
	}
	return &Console{a, own, kill, detach, detachWindow}, nil
}

var errNoConsole = exit.Misuse("run a script in the session with `sandboxbash session exec`, or keep a program on a terminal with `sandboxbash pty start`",
	"standard input and output are not a terminal to attach")

// Size is that of the terminal.
func (c *Console) Size() screen.Size { return c.own.size() }

// Dial attaches a user whose terminal shows what is written to live.
type Dial func(ctx context.Context, size screen.Size, live *stdio.Writer) (Attachment, error)

// Attach gives the terminal to a program until it ends or the user detaches, and reports that.
func (c *Console) Attach(ctx context.Context, at Label, dial Dial) error {
	a := c.a
	tell := func(format string, args ...any) {
		if !a.cfg.Silent() {
			fmt.Fprintf(a.streams.Stderr, "sandboxbash: %s\n", a.streams.Safe(fmt.Sprintf(format, args...)))
		}
	}
	how := ""
	if keys := c.detach.String(); keys != "" {
		how = "; detach with " + keys
	}
	tell("attached to %s (%s)%s", at.Session, at.ID, how)
	p, err := c.attach(ctx, dial)
	if err != nil {
		return a.Finish(context.WithoutCancel(ctx), p.Result, err)
	}
	for _, n := range p.Notes {
		a.notes.Add(n)
	}
	if p.Left != "" {
		tell("%s; `sandboxbash pty attach %s` comes back", p.Left, at.ID)
		return nil
	}
	if code, ok := p.Result.ExitCode(); ok && p.Result.Reason == exec.Exited {
		tell("ended, exit status %d", code)
	}
	return a.Finish(ctx, p.Result, nil)
}

// resetAll is for a terminal whose program cannot be asked any more what it has changed.
const resetAll = "\x1b[?1049l\x1b[?25h\x1b[?1l\x1b>\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[<u\x0f\x1b(B\x1b[?7h\x1b[m"

// attach returns when the terminal is as it was.
func (c *Console) attach(ctx context.Context, dial Dial) (Parting, error) {
	run, end := context.WithCancelCause(ctx)
	defer end(nil)
	live := stdio.NewWriter(run, c.own.out, func() { end(exit.ErrHangup) })
	defer live.Close()
	if err := c.own.raw(c.a.streams); err != nil {
		return Parting{}, err
	}
	defer c.own.restore()
	far, err := dial(run, c.own.size(), live)
	if err != nil {
		return Parting{}, err
	}
	stop := context.AfterFunc(run, func() {
		if errors.Is(context.Cause(run), exit.ErrHangup) { // the user is cut off, and may come back
			far.Detach()
			return
		}
		far.Kill()
	})
	defer stop()
	over := make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() { c.a.guarded(func() { c.pump(far, over) }) })
	helpers.Go(func() { c.a.guarded(func() { watchSize(over, func() { _ = far.Resize(run, c.own.size()) }) }) })
	p, err := far.Wait()
	close(over)
	helpers.Wait()
	soon, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	_, _ = live.Flush(soon) // a person who has stopped the terminal does not hold up its end
	switch {
	case err != nil:
		_, _ = c.own.out.WriteString(resetAll)
	case p.Left != "":
		p.Restore = append(p.Restore, '\r', '\n') // the program's line has not ended
		fallthrough
	default:
		_, _ = c.own.out.Write(p.Restore)
	}
	return p, err
}

// pump types what is typed here until the attachment is over, or keys were pressed that end it.
func (c *Console) pump(far Attachment, over <-chan struct{}) {
	pieces := make(chan []byte)
	var reading sync.WaitGroup
	defer reading.Wait() // it ends with over
	reading.Go(func() { c.a.guarded(func() { readKeys(c.own.in, pieces, over) }) })
	expired := time.NewTimer(time.Hour)
	defer expired.Stop()
	expired.Stop()
	for {
		var pass []byte
		select {
		case <-over:
			return
		case <-expired.C:
			pass = c.detach.expire()
		case p, ok := <-pieces:
			if !ok { // the terminal has gone, and its user with it
				far.Detach()
				return
			}
			if c.kill.pressed(p, time.Now()) {
				far.Kill()
				return
			}
			var leave bool
			if pass, leave = c.detach.take(p); leave {
				far.Detach()
				return
			}
			expired.Reset(c.window)
		}
		if len(pass) == 0 {
			continue
		}
		if _, err := far.Write(pass); err != nil {
			return
		}
	}
}

// readKeys sends what is typed until over. It closes pieces when the terminal has gone.
func readKeys(in *os.File, pieces chan<- []byte, over <-chan struct{}) {
	for readable(in, over) {
		buf := make([]byte, 4<<10)
		n, err := in.Read(buf)
		if n > 0 {
			select {
			case pieces <- buf[:n]:
			case <-over:
				return
			}
		}
		if err != nil {
			close(pieces)
			return
		}
	}
}

// detachWindow is how long the first of the detach keys waits for the next one. Until then it is
// not typed: a shell that is left has not got half of what was meant for its user's program.
const detachWindow = 500 * time.Millisecond

// detachKeys look for the keys that leave a terminal. Like kill keys, they count only if nothing
// else comes with them: what is pasted does not detach.
type detachKeys struct {
	names []string
	forms [][]string // of each key
	held  []byte     // the first keys, while the next one is waited for
	next  int        // the key that is waited for
}

// newDetachKeys takes names as docker does, with commas, or with spaces.
func newDetachKeys(names string) (*detachKeys, error) {
	d := &detachKeys{}
	for name := range strings.FieldsFuncSeq(names, func(r rune) bool { return r == ',' || r == ' ' }) {
		d.names = append(d.names, name)
	}
	if len(d.names) == 1 && d.names[0] == noKeys {
		return &detachKeys{}, nil
	}
	for _, name := range d.names {
		forms, err := keyForms(name)
		if err != nil {
			return nil, exit.Misuse("correct --detach-keys, as in 'ctrl-p,ctrl-q' or 'ctrl-]', or switch them off with none", "%v", err)
		}
		d.forms = append(d.forms, forms)
	}
	return d, nil
}

// String names the keys to the user; "" if there are none.
func (d *detachKeys) String() string { return strings.Join(d.names, " ") }

// take takes what was typed. It returns what of it, and of what was held, is to be typed now, or
// that the user leaves.
func (d *detachKeys) take(p []byte) (pass []byte, leave bool) {
	if len(d.forms) == 0 {
		return p, false
	}
	if len(d.held) > 0 && !d.all(p, d.next) {
		pass = d.expire()
	}
	if !d.all(p, d.next) {
		return append(pass, p...), false
	}
	d.held = append(d.held, p...)
	for typed := string(p); typed != ""; d.next++ {
		typed = typed[keyAt(d.forms[d.next], typed):]
	}
	if d.next < len(d.forms) {
		return pass, false
	}
	d.expire()
	return pass, true
}

// all reports whether what was typed is nothing but the keys from one on.
func (d *detachKeys) all(p []byte, from int) bool {
	typed := string(p)
	for ; typed != "" && from < len(d.forms); from++ {
		n := keyAt(d.forms[from], typed)
		if n == 0 {
			return false
		}
		typed = typed[n:]
	}
	return typed == ""
}

// expire returns what was held: it was meant for the program.
func (d *detachKeys) expire() []byte {
	held := d.held
	d.held, d.next = nil, 0
	return held
}
