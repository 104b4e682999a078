package serve

import (
	"context"
	"errors"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// A user attaches to a Holder's terminal by methods that only a Holder has: the output is not
// masked on a user's own terminal, and so it does not leave this machine.
//
//	pty/attach  is answered when the user is not attached any more; see Attached
//	pty/output  is a notification for the attached client: bytes for its terminal
//	pty/input   types bytes as they are; requests keep their order
//	pty/detach  ends the pty/attach of the same client
//
// One client is attached at a time. The next one replaces it: a user whose connection hangs
// comes back on another.

// AttachedEvent says why a client is not attached any more.
type AttachedEvent string

// Why a client is not attached any more.
const (
	AttachDetached AttachedEvent = "detached" // it has asked for that
	AttachReplaced AttachedEvent = "replaced" // by another client
	AttachEnded    AttachedEvent = "ended"    // the program has
)

// Attached is the answer to pty/attach.
type Attached struct {
	Event   AttachedEvent `json:"event"`
	Restore []byte        `json:"restore,omitempty"` // resets the user's terminal

	// How the program has ended. Error is set instead if that is not known.
	Reason        string         `json:"reason,omitempty"`
	ExitCode      *int           `json:"exitCode,omitempty"`
	Signal        int            `json:"signal,omitempty"`
	Killed        string         `json:"killed,omitempty"`
	WorkspaceLost bool           `json:"workspaceLost,omitempty"`
	Notes         []string       `json:"notes,omitempty"`
	Ports         []sandbox.Port `json:"ports,omitempty"`
	Error         *Error         `json:"error,omitempty"`
}

// AttachedOutput holds the parameters of pty/output.
type AttachedOutput struct {
	Data []byte `json:"data"`
}

// Attachable is a terminal that a user can attach to.
type Attachable interface {
	Terminal
	Write(p []byte) (int, error)
	Attach(show func(ctx context.Context, p []byte) error) (detach func() []byte)
}

// attachment is the client that is attached.
type attachment struct {
	p     *peer
	leave context.CancelCauseFunc
}

var (
	errDetached = errors.New("detached")
	errReplaced = errors.New("another client has attached")
)

// attachMethods adds the methods to those of h.
func (h *Holder) attachMethods() {
	h.methods["pty/attach"] = h.counted(method{do: with(h.doAttach)})
	h.methods["pty/input"] = h.counted(method{do: with(h.doInput), order: terminalOrder})
	h.methods["pty/detach"] = h.counted(method{do: with(h.doDetach)})
}

func (h *Holder) doAttach(ctx context.Context, p *peer, q resizePTY) (any, error) {
	t, err := p.terminals.get(q.Terminal)
	if err != nil {
		return nil, err
	}
	size, err := q.size()
	if err != nil {
		return nil, err
	}
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	detached := h.attach(&attachment{p, leave})
	defer detached()
	h.fit(ctx, t, size)
	detach := h.console.Attach(func(seen context.Context, b []byte) error {
		told, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		stop := context.AfterFunc(seen, func() { cancel(context.Cause(seen)) })
		defer stop()
		return p.out.notify(told, "pty/output", AttachedOutput{b})
	})
	h.redraw(ctx, t, size)
	select {
	case <-t.Done():
	case <-ctx.Done():
	}
	a := Attached{Event: AttachEnded, Restore: detach()}
	select {
	case <-t.Done():
		a.ended(ctx, t)
		return a, nil
	default:
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errDetached):
		a.Event = AttachDetached
	case errors.Is(cause, errReplaced):
		a.Event = AttachReplaced
	default:
		return nil, cause
	}
	return a, nil
}

// attach makes a the client that is attached. The function that it returns is called when a is
// not any more.
func (h *Holder) attach(a *attachment) (over func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.attached != nil {
		h.attached.leave(errReplaced)
	}
	h.attached = a
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.attached == a {
			h.attached = nil
		}
	}
}

// fit gives the terminal the size of the client's. A terminal of another size is better than
// none.
func (h *Holder) fit(ctx context.Context, t Terminal, size screen.Size) {
	if t.Screen().Size != size {
		_ = t.Resize(ctx, size)
	}
}

// redrawPause is how long a program has to notice a change of the size.
const redrawPause = 50 * time.Millisecond

// redraw has a program that uses the whole screen draw it again, with its colours: it does so
// when the size changes, even for a moment.
func (h *Holder) redraw(ctx context.Context, t Terminal, size screen.Size) {
	if !t.Screen().Alternate || size.Rows < 2 {
		return
	}
	_ = t.Resize(ctx, screen.Size{Cols: size.Cols, Rows: size.Rows - 1})
	select {
	case <-time.After(redrawPause):
	case <-t.Done():
	case <-ctx.Done():
	}
	_ = t.Resize(context.WithoutCancel(ctx), size)
}

// ended fills in how the program has ended.
func (a *Attached) ended(ctx context.Context, t Terminal) {
	res, err := t.Wait()
	a.Notes = notesOf(res)
	a.WorkspaceLost, a.Ports = res.WorkspaceLost, res.Ports
	if err != nil {
		a.Error = answerable(ctx, err)
		return
	}
	a.Reason, a.Signal, a.Killed = string(res.Reason), res.Signal, res.Killed
	if res.Reason == "exited" {
		a.ExitCode = &res.Code
	}
}

// notesOf is what a user should know of a result besides how the command has ended.
func notesOf(res sandbox.Result) []string {
	notes := res.Network.Text()
	for _, f := range res.Full {
		notes = append(notes, f.String())
	}
	return notes
}

type inputPTY struct {
	Terminal string `json:"terminal"`
	Data     []byte `json:"data"`
}

func (h *Holder) doInput(_ context.Context, p *peer, q inputPTY) (any, error) {
	if _, err := p.terminals.get(q.Terminal); err != nil {
		return nil, err
	}
	_, err := h.console.Write(q.Data)
	return nil, err
}

func (h *Holder) doDetach(_ context.Context, p *peer, q onTerminal) (any, error) {
	if _, err := p.terminals.get(q.Terminal); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.attached != nil && h.attached.p == p {
		h.attached.leave(errDetached)
	}
	return nil, nil //nolint:nilnil // the answer has no fields
}
