package serve

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/tool"
)

// Holder serves one terminal to any number of clients, after each other and at
// once. It outlives them: they come and go, and the terminal is as they left it.
// They speak JSON-RPC, as docs/rpc.md has it, with the methods of terminals but
// pty/start. A Holder is safe for concurrent use.
type Holder struct {
	o         Options
	terminal  *heldTerminal
	methods   map[string]method
	forgotten chan struct{} // closed by the first pty/end
	once      sync.Once     // closes it

	mu    sync.Mutex
	busy  int           // guarded by mu; requests that are being answered
	asked time.Time     // guarded by mu; when there was the last one
	rest  chan struct{} // guarded by mu; closed and replaced when there is none any more
}

// HeldTerminal is what a Holder holds, and what clients are told of it.
type HeldTerminal struct {
	Terminal Terminal
	ID       string
	Session  string
	Command  string // to be shown: without secrets
	Version  string // of this program
}

// heldMethods are those of a terminal that is there.
var heldMethods = []string{"initialize", "pty/list", "pty/write", "pty/resize", "pty/read", "pty/screen", "pty/wait", "pty/end"}

// NewHolder holds a terminal. To end it is the caller's, or a client's by pty/end.
func NewHolder(t HeldTerminal) *Holder {
	h := &Holder{
		o: Options{Version: t.Version, Contract: tool.Agent}, methods: map[string]method{}, forgotten: make(chan struct{}), asked: time.Now(), rest: make(chan struct{}),
	}
	h.terminal = &heldTerminal{
		Terminal: t.Terminal, id: t.ID, session: t.Session, command: t.Command, started: time.Now(),
		forget: func() { h.once.Do(func() { close(h.forgotten) }) },
	}
	for _, name := range heldMethods {
		h.methods[name] = h.counted(methods[name])
	}
	return h
}

// counted makes a method one whose requests are words from somebody, as long as
// their client is there.
func (h *Holder) counted(m method) method {
	do := m.do
	m.do = func(ctx context.Context, p *peer, r *request) (any, error) {
		h.count(1)
		over := sync.OnceFunc(func() { h.count(-1) })
		defer over()
		stop := context.AfterFunc(ctx, over) // what is typed may wait longer than its client
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

// Serve serves one client, until the input ends or ctx does. The error is that of
// the streams. The caller closes them behind it.
func (h *Holder) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	return speak(ctx, &peer{o: h.o, methods: h.methods, terminals: map[string]*heldTerminal{h.terminal.id: h.terminal}}, in, out)
}

// Forgotten is closed when a client has ended the terminal and knows how: nobody
// needs it any more.
func (h *Holder) Forgotten() <-chan struct{} { return h.forgotten }

// Idle is for how long nobody has asked for anything; 0 while somebody does.
func (h *Holder) Idle() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy > 0 {
		return 0
	}
	return time.Since(h.asked)
}
