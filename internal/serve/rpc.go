package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

// Limits of a connection.
const (
	maxInFlight  = 256 // requests; terminals, jobs and cancellations do not wait for room
	maxSessions  = 16
	maxTerminals = 32
)

// errGone is the cause of everything that ends because the client has gone.
var errGone = errors.New("the client has gone")

// RPC serves JSON-RPC 2.0 on a pair of streams, one object per line, until the input or
// ctx ends. Then it cancels the requests that run, waits for them, and stops the
// sessions that it has started. docs/rpc.md describes the methods.
//
// The error is that of the streams; the end of the input is not an error. A write that
// blocks is given up soon after the end; its goroutine ends with the process.
func RPC(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	return speak(ctx, &peer{o: o, methods: methods, terminals: rpcTerminals()}, in, out)
}

func speak(ctx context.Context, p *peer, in io.Reader, out io.Writer) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	p.life, p.calls = ctx, map[string]*request{}
	p.out = newOutgoing(out, end)
	p.sessions = newHeld(ctx, p.o, p.tell)
	read := make(chan error, 1)
	go func() { // a read that blocks ends with the process
		read <- p.read(ctx, newLineReader(in))
	}()
	var err error
	select {
	case err = <-read:
	case <-ctx.Done():
		if err = context.Cause(ctx); !errors.Is(err, errBroken) && errors.Is(ctx.Err(), context.Canceled) {
			err = nil
		}
	}
	end(errGone)
	p.out.hurry()
	p.close()
	return errors.Join(err, p.out.close())
}

// peer is one client.
type peer struct {
	o        Options
	methods  map[string]method // the methods that it may call
	life     context.Context   //nolint:containedctx // the connection's: terminals outlive the requests that open them
	out      *outgoing
	sessions *held
	working  sync.WaitGroup // requests, and what they have left running
	queues   turns          // for methods that keep the order of their requests

	terminals *terminals
	watched   *watchedNetwork // of a NetworkHolder's client; nil: sessions have their networks

	mu    sync.Mutex
	hello *initialize         // guarded by mu; nil before it was sent
	calls map[string]*request // guarded by mu; by their ids as they were sent
}

// request is one that is being answered.
type request struct {
	id      json.RawMessage
	method  string
	params  json.RawMessage
	cancel  context.CancelCauseFunc
	session *Session // guarded by the peer's mu; where its command runs, once it does
}

// message is what a line holds.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// read reads lines until there are no more. It answers an invalid line with an error, and
// goes on.
func (p *peer) read(ctx context.Context, lines *lineReader) error {
	for {
		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errLongLine):
			p.out.refuse(response{Error: errLongLine})
			continue
		case err != nil:
			return err
		}
		if wrong := p.take(ctx, line); wrong != nil {
			p.out.refuse(*wrong)
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the cause is known where the context was ended
		}
	}
}

// take begins to handle a line. It returns an answer if the line is invalid or asks for
// something that does not exist.
func (p *peer) take(ctx context.Context, line []byte) *response {
	if err := checkJSON(line); err != nil {
		return &response{Error: failure(KindParse, "the line cannot be read: %v", err)}
	}
	if line[0] == '[' {
		return &response{Error: failure(KindRequest, "batches are not taken: send each request on a line of its own")}
	}
	m, err := decode[message](line)
	if err != nil {
		return &response{Error: failure(KindRequest, "%v", err)}
	}
	id, ok := checkID(m.ID)
	switch {
	case !ok:
		return &response{Error: failure(KindRequest, "an id is a string, or a whole number of at most 15 digits")}
	case m.Version != "2.0":
		return &response{ID: id, Error: failure(KindRequest, `jsonrpc is not "2.0"`)}
	case m.Method == nil && id != nil && (m.Result != nil || m.Error != nil):
		p.out.answered(id, m.Result, m.Error)
		return nil
	case m.Method == nil:
		return &response{ID: id, Error: failure(KindRequest, "there is no method")}
	case id == nil:
		p.notified(*m.Method, m.Params)
		return nil
	}
	return p.begin(ctx, id, *m.Method, m.Params)
}

// maxID bounds the length of an id, in characters.
const maxID = 256

// checkID returns an id that can be answered to, nil if there is none.
func checkID(raw json.RawMessage) (id json.RawMessage, ok bool) {
	switch {
	case raw == nil:
		return nil, true
	case len(raw) > maxID:
		return nil, false
	case raw[0] == '"':
		return raw, true
	}
	digits := raw
	if digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 15 { // every reader of JSON can represent that many digits
		return nil, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return nil, false
		}
	}
	return raw, true
}

// notified handles a notification. Errors of notifications have no answer.
func (p *peer) notified(method string, params json.RawMessage) {
	if method != "$/cancelRequest" {
		return
	}
	c, err := decode[struct {
		ID json.RawMessage `json:"id"`
	}](params)
	if err != nil {
		return
	}
	p.mu.Lock()
	r := p.calls[string(c.ID)]
	p.mu.Unlock()
	if r != nil {
		r.cancel(errCancelled)
	}
}

// begin answers a request in a goroutine of its own.
func (p *peer) begin(ctx context.Context, id json.RawMessage, name string, params json.RawMessage) *response {
	m, ok := p.methods[name]
	if !ok {
		return &response{ID: id, Error: failure(KindMethod, "there is no method %s", shown(name))}
	}
	p.mu.Lock()
	hello, busy, same := p.hello != nil, len(p.calls) >= maxInFlight, p.calls[string(id)] != nil
	p.mu.Unlock()
	switch {
	case same:
		return &response{ID: nil, Error: failure(KindRequest, "the id %s is that of a request that is being answered", shown(string(id)))}
	case !hello && name != "initialize":
		return &response{ID: id, Error: failure(KindNotInitialized, "send initialize before %s", name)}
	case busy:
		return &response{ID: id, Error: failure(KindOverloaded, "%d requests are being answered: wait for one", maxInFlight)}
	}
	r := &request{id: id, method: name, params: params}
	if name == "initialize" { // later requests rely on it
		return p.answer(ctx, r, m)
	}
	turn, err := p.turn(m, params)
	if err != nil {
		return &response{ID: id, Error: answerable(ctx, err)}
	}
	ctx, r.cancel = context.WithCancelCause(ctx)
	p.mu.Lock()
	p.calls[string(id)] = r
	p.mu.Unlock()
	p.working.Go(func() {
		defer r.cancel(nil)
		if turn != nil {
			defer turn.leave()
		}
		var answer *response
		if err := waitTurn(ctx, turn); err != nil {
			answer = &response{ID: id, Error: answerable(ctx, err)}
		} else {
			answer = p.answer(ctx, r, m)
		}
		p.mu.Lock()
		delete(p.calls, string(id))
		p.mu.Unlock()
		p.out.send(context.WithoutCancel(ctx), *answer)
	})
	return nil
}

// turn joins the queue of a method that keeps the order of its requests.
func (p *peer) turn(m method, params json.RawMessage) (*position, error) {
	if m.order == nil {
		return nil, nil //nolint:nilnil // there is no queue
	}
	key, err := m.order(params)
	if key == "" || err != nil {
		return nil, err
	}
	return p.queues.join(key), nil
}

func waitTurn(ctx context.Context, turn *position) error {
	if turn == nil {
		return nil
	}
	return turn.wait(ctx)
}

func (p *peer) answer(ctx context.Context, r *request, m method) *response {
	result, err := m.do(ctx, p, r)
	if err != nil {
		return &response{ID: r.id, Error: answerable(ctx, err)}
	}
	if result == nil {
		result = struct{}{}
	}
	return &response{ID: r.id, Result: result}
}

// closeTime bounds the end of a connection. Calls take up to 15 s to end.
const closeTime = 30 * time.Second

// close ends everything.
func (p *peer) close() {
	p.working.Wait()
	p.terminals.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	for _, err := range p.sessions.close(ctx) {
		p.o.note("a session was not ended: " + err.Error())
	}
}
