package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// Bounds of the output to the client.
const (
	maxQueued   = 64  // messages; senders of more wait
	maxRefusals = 256 // further messages: answers to invalid lines
	// stallTime is how long a client that goes on sending invalid lines may read no
	// answer. Then the connection ends, so that the end of the input can be read.
	stallTime = 5 * time.Second
	// flushTime is how long a client may take to read what is queued at the end.
	flushTime = 2 * time.Second
)

// errBroken is returned if the output cannot be written any more.
var errBroken = errors.New("the client no longer reads answers")

// response is an answer. A nil ID becomes null.
type response struct {
	ID     json.RawMessage
	Result any
	Error  *Error
}

// wireMessage is a message as it is sent.
type wireMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// outgoing sends messages to the client, one at a time, and requests to it.
type outgoing struct {
	queue  chan *queued
	done   chan struct{} // closed when nothing is written any more
	ending chan struct{} // closed by hurry
	once   sync.Once     // closes it

	broken   context.CancelCauseFunc
	refusing chan struct{}  // a token for each answer of refuse
	refusals sync.WaitGroup // answers of refuse

	mu      sync.Mutex
	err     error                 // guarded by mu; that of the first write that failed
	asked   int64                 // guarded by mu; requests to the client so far
	waiting map[string]chan reply // guarded by mu; requests to the client without an answer yet
}

type queued struct {
	line []byte        // with its end
	sent chan struct{} // closed when it has been written; nil if no caller waits
	last bool          // no message follows
}

// reply is the client's answer.
type reply struct{ result, err json.RawMessage }

// newOutgoing writes to w. It calls broken with the error that ends the output.
func newOutgoing(w io.Writer, broken context.CancelCauseFunc) *outgoing {
	o := &outgoing{
		queue: make(chan *queued, maxQueued), done: make(chan struct{}), ending: make(chan struct{}), waiting: map[string]chan reply{},
		broken: broken, refusing: make(chan struct{}, maxRefusals),
	}
	go o.write(bufio.NewWriter(w))
	return o
}

func (o *outgoing) write(w *bufio.Writer) {
	defer close(o.done)
	for q := range o.queue {
		_, err := w.Write(q.line)
		if err == nil && (len(o.queue) == 0 || q.sent != nil || q.last) {
			err = w.Flush()
		}
		if err != nil {
			o.mu.Lock()
			o.err = fmt.Errorf("%w: %w", errBroken, err)
			o.mu.Unlock()
			o.broken(o.err)
			return
		}
		switch {
		case q.last:
			return
		case q.sent != nil:
			close(q.sent)
		}
	}
}

// put queues a message. It waits for room without a limit, except at the end.
func (o *outgoing) put(ctx context.Context, q *queued) error {
	select {
	case o.queue <- q:
		return nil
	case <-o.done:
		return errBroken
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-o.ending:
	}
	room := time.NewTimer(flushTime)
	defer room.Stop()
	select {
	case o.queue <- q:
		return nil
	case <-o.done:
	case <-room.C:
	}
	return errBroken
}

// hurry notes that the client has sent its last message: from now on, output that it
// does not read in time is dropped.
func (o *outgoing) hurry() { o.once.Do(func() { close(o.ending) }) }

// send queues an answer.
func (o *outgoing) send(ctx context.Context, r response) {
	m := wireMessage{Version: "2.0", ID: r.ID, Result: r.Result, Error: r.Error}
	if m.ID == nil {
		m.ID = json.RawMessage("null")
	}
	line, err := encodeLine(m)
	if err != nil { // a mistake of this program: the client gets an error instead
		m.Result, m.Error = nil, failure(KindInternal, "the answer cannot be written: %v", err)
		line, _ = encodeLine(m)
	}
	_ = o.put(ctx, &queued{line: line}) // it fails if the client does not read any more
}

// refuse queues the answer to an invalid line. If many of them wait it blocks until the
// client has read one, so that the next line is not read before that. The output breaks
// if the client reads none for stallTime.
func (o *outgoing) refuse(r response) {
	select {
	case o.refusing <- struct{}{}:
	default:
		if !o.waitForRoom() {
			return
		}
	}
	o.refusals.Go(func() {
		o.send(context.Background(), r) // put bounds the wait at the end
		<-o.refusing
	})
}

// waitForRoom takes a token for the answer of refuse.
func (o *outgoing) waitForRoom() bool {
	stalled := time.NewTimer(stallTime)
	defer stalled.Stop()
	select {
	case o.refusing <- struct{}{}:
		return true
	case <-stalled.C:
		o.broken(errBroken)
	case <-o.done:
	case <-o.ending:
	}
	return false
}

// notify sends a notification, and returns when it has been written.
func (o *outgoing) notify(ctx context.Context, method string, params any) error {
	line, err := encodeLine(wireMessage{Version: "2.0", Method: method, Params: params})
	if err != nil {
		return err
	}
	q := &queued{line: line, sent: make(chan struct{})}
	if err := o.put(ctx, q); err != nil {
		return err
	}
	select {
	case <-q.sent:
		return nil
	case <-o.done:
		return errBroken
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// offer sends a notification if there is room for it now. It is for notifications that
// the next one replaces.
func (o *outgoing) offer(method string, params any) {
	line, err := encodeLine(wireMessage{Version: "2.0", Method: method, Params: params})
	if err != nil || len(o.queue) > maxQueued/2 {
		return
	}
	select {
	case o.queue <- &queued{line: line}:
	default:
	}
}

// ask sends a request to the client and reads its answer into result.
func (o *outgoing) ask(ctx context.Context, method string, params, result any) error {
	o.mu.Lock()
	o.asked++
	id := strconv.Quote("server-" + strconv.FormatInt(o.asked, 10))
	answer := make(chan reply, 1)
	o.waiting[id] = answer
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		delete(o.waiting, id)
		o.mu.Unlock()
	}()
	line, err := encodeLine(wireMessage{Version: "2.0", ID: json.RawMessage(id), Method: method, Params: params})
	if err != nil {
		return err
	}
	if err := o.put(ctx, &queued{line: line}); err != nil {
		return err
	}
	select {
	case r := <-answer:
		return r.read(method, result)
	case <-o.done:
		return errBroken
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r reply) read(method string, result any) error {
	if r.err != nil {
		var e struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(r.err, &e) != nil || e.Message == "" {
			e.Message = "it gave no reason"
		}
		return fmt.Errorf("the client refuses %s: %s", method, shown(e.Message))
	}
	if result == nil || absent(r.result) {
		return nil
	}
	if err := json.Unmarshal(r.result, result); err != nil {
		return fmt.Errorf("the client's answer to %s: %s", method, unmarshalText(err))
	}
	return nil
}

// answered handles the client's answer to a request. It drops an answer whose request
// has been given up.
func (o *outgoing) answered(id, result, err json.RawMessage) {
	if absent(err) {
		err = nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if answer := o.waiting[string(id)]; answer != nil {
		delete(o.waiting, string(id))
		answer <- reply{result: result, err: err}
	}
}

// close writes what is queued. It does not wait for a client that reads nothing any more.
func (o *outgoing) close() error {
	o.hurry()
	o.refusals.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	_ = o.put(ctx, &queued{last: true})
	select {
	case <-o.done:
	case <-ctx.Done():
		return errBroken
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
