package holder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/internal/serve"
)

// maxTyping is how many pieces of input may wait for a program that does not read. Write waits
// with more.
const maxTyping = 64

// leaveTime is how long a holder has to let go of a user. A kill takes up to 5 s.
const leaveTime = 15 * time.Second

// Attachment is a user's connection to a terminal. Its methods may be called concurrently.
type Attachment struct {
	c    *Client
	live io.Writer
	slot chan struct{} // a token for each piece of input that has no answer yet

	mu     sync.Mutex
	last   int          // guarded by mu; the id of the last request
	typing map[int]bool // guarded by mu; the requests that have a token

	attach int           // the id of pty/attach
	done   chan struct{} // closed when the user is not attached any more
	end    serve.Attached
	err    error
}

// Attach attaches a user to a terminal. What it shows is written to live until Wait returns. The
// caller must call Close.
func Attach(ctx context.Context, dir, id string, size screen.Size, live io.Writer) (*Attachment, error) {
	c, err := Dial(ctx, dir, id)
	if err != nil {
		return nil, err
	}
	a := &Attachment{
		c: c, live: live, slot: make(chan struct{}, maxTyping), last: c.sent, typing: map[int]bool{}, done: make(chan struct{}),
	}
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if a.attach, err = a.send("pty/attach", map[string]any{"cols": size.Cols, "rows": size.Rows}, nil); err != nil {
		return nil, errors.Join(c.broken(ctx, AskTime, err), c.Close())
	}
	go func() {
		defer close(a.done)
		a.end, a.err = a.read(ctx)
	}()
	return a, nil
}

// send sends a request, and calls sent with its id before it can be answered.
func (a *Attachment) send(method string, params map[string]any, sent func(id int)) (id int, err error) {
	params["terminal"] = a.c.ID
	a.mu.Lock()
	defer a.mu.Unlock() // also over the write: requests keep their order
	a.last++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": a.last, "method": method, "params": params})
	if err != nil {
		return 0, err
	}
	if sent != nil {
		sent(a.last)
	}
	_, err = a.c.conn.Write(append(line, '\n'))
	return a.last, err
}

// read shows what comes until the user is not attached any more.
func (a *Attachment) read(ctx context.Context) (end serve.Attached, err error) {
	for {
		line, err := a.c.lines.ReadBytes('\n')
		if err != nil {
			return end, a.c.broken(context.WithoutCancel(ctx), leaveTime, err)
		}
		var m struct {
			ID     int                  `json:"id"`
			Method string               `json:"method"`
			Params serve.AttachedOutput `json:"params"`
			Result json.RawMessage      `json:"result"`
			Error  *serve.Error         `json:"error"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return end, fmt.Errorf("terminal %s: its holder's answer: %w", a.c.ID, err)
		}
		switch {
		case m.Method == "pty/output":
			if _, err := a.live.Write(m.Params.Data); err != nil {
				return end, err
			}
		case m.ID != a.attach:
			a.typed(m.ID)
		case m.Error != nil:
			return end, Answered(m.Error)
		default:
			err := json.Unmarshal(m.Result, &end)
			return end, err
		}
	}
}

// typed ends the wait for the answer to a piece of input.
func (a *Attachment) typed(id int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.typing[id] {
		delete(a.typing, id)
		<-a.slot
	}
}

// Write types bytes as they are.
func (a *Attachment) Write(p []byte) (int, error) {
	select {
	case a.slot <- struct{}{}:
	case <-a.done:
		return 0, io.ErrClosedPipe
	}
	if _, err := a.send("pty/input", map[string]any{"data": p}, func(id int) { a.typing[id] = true }); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Resize changes the terminal's size.
func (a *Attachment) Resize(_ context.Context, size screen.Size) error {
	_, err := a.send("pty/resize", map[string]any{"cols": size.Cols, "rows": size.Rows}, nil)
	return err
}

// Kill ends the terminal's program. Wait returns soon.
func (a *Attachment) Kill() { a.ask("pty/end") }

// Detach leaves the terminal to itself. Wait returns soon.
func (a *Attachment) Detach() { a.ask("pty/detach") }

// ask sends a request after which the user is not attached any more. If the holder does not react
// in time, the connection ends.
func (a *Attachment) ask(method string) {
	_, _ = a.send(method, map[string]any{}, nil) // a connection that is broken ends Wait, too
	_ = a.c.conn.SetReadDeadline(time.Now().Add(leaveTime))
}

// Wait waits until the user is not attached any more. If the program has ended, the
// answer says how.
func (a *Attachment) Wait() (serve.Attached, error) {
	<-a.done
	return a.end, a.err
}

// Close ends the connection, and with it the attachment.
func (a *Attachment) Close() error {
	err := a.c.conn.Close()
	<-a.done
	return err
}
