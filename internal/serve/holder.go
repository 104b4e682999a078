package serve

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/tool"
)

// Holder serves one terminal to any number of clients, one after another or at the same
// time. The terminal outlives its clients. Clients speak JSON-RPC, as docs/rpc.md
// describes it, and have the methods of terminals but for pty/start. A Holder is safe
// for concurrent use.
type Holder struct {
	o         Options
	terminal  *heldTerminal
	console   Attachable // the same
	methods   map[string]method
	forgotten chan struct{} // closed by the first pty/end
	once      sync.Once     // closes it

	mu    sync.Mutex
	busy  int           // guarded by mu; requests that are being answered
	asked time.Time     // guarded by mu; when the last request began or ended
	rest  chan struct{} // guarded by mu; closed and replaced when busy becomes 0

	attached *attachment // guarded by mu; nil: no client is
}

// HeldTerminal is the terminal of a Holder, with its description for clients.
type HeldTerminal struct {
	Terminal Attachable
	ID       string
	Session  string
	Command  string // to be shown: without secrets
	Version  string // of this program
}

// heldMethods are the methods for a terminal that has been started.
var heldMethods = []string{"initialize", "pty/list", "pty/write", "pty/resize", "pty/read", "pty/screen", "pty/wait", "pty/end"}

// NewHolder returns a Holder of a terminal. The caller ends the terminal, unless a client
// does with pty/end.
func NewHolder(t HeldTerminal) *Holder {
	h := &Holder{
		console: t.Terminal,
		o:       Options{Version: t.Version, Contract: tool.Agent}, methods: map[string]method{}, forgotten: make(chan struct{}), asked: time.Now(), rest: make(chan struct{}),
	}
	h.terminal = &heldTerminal{
		Terminal: t.Terminal, id: t.ID, session: t.Session, command: t.Command, started: time.Now(),
		forget: func() { h.once.Do(func() { close(h.forgotten) }) },
	}
	for _, name := range heldMethods {
		h.methods[name] = h.counted(methods[name])
	}
	h.attachMethods()
	return h
}

// counted returns a method whose requests count as busy as long as their client is
// there.
func (h *Holder) counted(m method) method {
	do := m.do
	m.do = func(ctx context.Context, p *peer, r *request) (any, error) {
		h.count(1)
		over := sync.OnceFunc(func() { h.count(-1) })
		defer over()
		stop := context.AfterFunc(ctx, over) // input that waits to be typed may outlive its client
		defer stop()
		return do(ctx, p, r)
	}
	return m
}

func (h *Holder) count(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy += n
	h.asked = time.Now()
	if h.busy == 0 {
		close(h.rest)
		h.rest = make(chan struct{})
	}
}

// Rest returns when no request is being answered, or ctx ends.
func (h *Holder) Rest(ctx context.Context) {
	h.mu.Lock()
	busy, rest := h.busy, h.rest
	h.mu.Unlock()
	if busy == 0 {
		return
	}
	select {
	case <-rest:
	case <-ctx.Done():
	}
}

// Serve serves one client until the input or ctx ends. The error is that of the streams,
// which the caller closes afterwards.
func (h *Holder) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	held := rpcTerminals()
	held.put(h.terminal)
	return speak(ctx, &peer{o: h.o, methods: h.methods, terminals: held}, in, out)
}

// Forgotten returns a channel that is closed when a client has ended the terminal and has
// its result: the terminal is not needed any more.
func (h *Holder) Forgotten() <-chan struct{} { return h.forgotten }

// Idle returns for how long there has been no request; 0 while one is being answered.
func (h *Holder) Idle() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy > 0 {
		return 0
	}
	return time.Since(h.asked)
}
