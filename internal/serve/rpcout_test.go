package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
)

// heldWriter writes when it may, and then as an io.Writer does.
type heldWriter struct {
	entered chan struct{} // a value for each write that waits
	pass    chan error    // the result of a write
	mu      sync.Mutex
	text    bytes.Buffer // guarded by mu
}

func newHeldWriter() *heldWriter {
	return &heldWriter{entered: make(chan struct{}, 1000), pass: make(chan error, 1000)}
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.entered <- struct{}{}
	if err := <-w.pass; err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *heldWriter) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Split(strings.TrimSuffix(w.text.String(), "\n"), "\n")
}

// open lets everything pass from now on.
func (w *heldWriter) open() { close(w.pass) }

func newTestOutgoing(t *testing.T, w io.Writer) (*outgoing, context.Context) {
	t.Helper()
	broken, end := context.WithCancelCause(context.WithoutCancel(t.Context()))
	return newOutgoing(w, end), broken
}

// A client that reads slowly gets the first updates and the last answers; what is between them and
// can be left out is left out.
func TestOutgoingOffer(t *testing.T) {
	t.Parallel()
	w := newHeldWriter()
	o, _ := newTestOutgoing(t, w)
	o.send(t.Context(), response{ID: json.RawMessage("0"), Result: "first"})
	<-w.entered // it is being written, and the queue is empty
	for i := range 10 * maxQueued {
		o.offer("tools/update", i)
	}
	if n := len(o.queue); n != maxQueued/2+1 {
		t.Errorf("%d updates are queued; want no more than half of the queue, and one", n)
	}
	for i := range maxQueued/2 - 1 { // answers have room
		o.send(t.Context(), response{ID: json.RawMessage("1"), Result: i})
	}
	w.open()
	if err := o.close(); err != nil {
		t.Fatal(err)
	}
	lines := w.lines()
	if len(lines) != 1+maxQueued {
		t.Fatalf("%d lines are written; want %d", len(lines), 1+maxQueued)
	}
	for i, line := range lines[1 : maxQueued/2+2] {
		if want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"tools/update","params":%d}`, i); line != want {
			t.Fatalf("line %d is %s; want %s", i, line, want)
		}
	}
}

// A notification that must arrive is reported as sent only when it has been written.
func TestOutgoingNotify(t *testing.T) {
	t.Parallel()
	w := newHeldWriter()
	o, broken := newTestOutgoing(t, w)
	sent := make(chan error, 1)
	go func() { sent <- o.notify(t.Context(), "job/completed", 1) }()
	<-w.entered
	select {
	case err := <-sent:
		t.Errorf("notify() = %v before it was written", err)
	default:
	}
	w.pass <- nil
	if err := <-sent; err != nil {
		t.Errorf("notify() = %v", err)
	}
	// One whose sender gives up while it is being written.
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { sent <- o.notify(ctx, "job/completed", 2) }()
	<-w.entered
	cancel(errCancelled)
	if err := <-sent; !errors.Is(err, errCancelled) {
		t.Errorf("notify() = %v; want %v", err, errCancelled)
	}
	w.pass <- nil
	// One that cannot be written.
	go func() { sent <- o.notify(t.Context(), "job/completed", 3) }()
	<-w.entered
	w.pass <- io.ErrClosedPipe
	if err := <-sent; !errors.Is(err, errBroken) {
		t.Errorf("notify() = %v; want %v", err, errBroken)
	}
	<-broken.Done()
	if err := context.Cause(broken); !errors.Is(err, errBroken) || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the connection ends with %v; want %v", err, io.ErrClosedPipe)
	}
	// From now on nothing is sent, and no sender waits.
	if err := o.notify(t.Context(), "job/completed", 4); !errors.Is(err, errBroken) {
		t.Errorf("notify() of a broken connection = %v; want %v", err, errBroken)
	}
	if err := o.ask(t.Context(), "terminal/create", nil, nil); !errors.Is(err, errBroken) {
		t.Errorf("ask() of a broken connection = %v; want %v", err, errBroken)
	}
	if err := o.close(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("close() = %v; want %v", err, io.ErrClosedPipe)
	}
	if got := strings.Join(w.lines(), ""); strings.Contains(got, "3") {
		t.Errorf("written: %s", got)
	}
}

// Values that JSON does not have are a mistake of this program: no message is sent, or an error.
func TestOutgoingEncode(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	o, _ := newTestOutgoing(t, &b)
	if err := o.notify(t.Context(), "x", math.NaN()); err == nil {
		t.Error("notify() of a value that JSON does not have = nil")
	}
	if err := o.ask(t.Context(), "x", math.Inf(1), nil); err == nil {
		t.Error("ask() of a value that JSON does not have = nil")
	}
	o.offer("x", math.NaN())
	o.send(t.Context(), response{ID: json.RawMessage("1"), Result: math.NaN()})
	o.send(t.Context(), response{Result: "<&>\u2028"})
	if err := o.close(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"id":1,"error":{"code":-32603`) || lines[1] != `{"jsonrpc":"2.0","id":null,"result":"<&>\u2028"}` {
		t.Errorf("written: %q", lines)
	}
}

// At the end what is queued is written, and what a client does not read in time is dropped.
func TestOutgoingEnd(t *testing.T) {
	t.Parallel()
	w := newHeldWriter()
	o, _ := newTestOutgoing(t, w)
	o.send(t.Context(), response{ID: json.RawMessage("0"), Result: 0})
	<-w.entered
	for i := range maxQueued {
		o.send(t.Context(), response{ID: json.RawMessage("1"), Result: i})
	}
	waits := make(chan error, 1)
	go func() { waits <- o.put(t.Context(), &queued{line: []byte("x\n")}) }()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errCancelled)
	if err := o.put(ctx, &queued{line: []byte("y\n")}); !errors.Is(err, errCancelled) {
		t.Errorf("put() into a full queue, cancelled = %v; want %v", err, errCancelled)
	}
	if err := o.close(); !errors.Is(err, errBroken) {
		t.Errorf("close() with a client that reads nothing = %v; want %v", err, errBroken)
	}
	if err := <-waits; !errors.Is(err, errBroken) {
		t.Errorf("put() into a full queue at the end = %v; want %v", err, errBroken)
	}
	// The writer's goroutine ends with the next write that fails.
	w.pass <- io.ErrClosedPipe
	<-o.done
}

// Requests to the client have their answers by their ids, in any order.
func TestOutgoingAsk(t *testing.T) {
	t.Parallel()
	out, toClient := io.Pipe()
	defer out.Close() //nolint:errcheck // never fails
	o, _ := newTestOutgoing(t, toClient)
	const asked = 20
	var wait sync.WaitGroup
	for i := range asked {
		wait.Go(func() {
			var answer struct{ N int }
			if err := o.ask(t.Context(), "n", i, &answer); err != nil || answer.N != i {
				t.Errorf("ask(%d) = %d, %v", i, answer.N, err)
			}
		})
	}
	dec := json.NewDecoder(out)
	var requests []rpcAnswer
	for range asked {
		var r rpcAnswer
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		requests = append(requests, r)
	}
	for _, r := range slices.Backward(requests) {
		o.answered(r.ID, json.RawMessage(`{"N":`+string(r.Params)+`}`), json.RawMessage("null"))
		o.answered(r.ID, nil, json.RawMessage(`{"message":"a second answer"}`))
	}
	wait.Wait()
	o.answered(json.RawMessage(`"server-999"`), nil, nil)
	if len(o.waiting) != 0 {
		t.Errorf("%d requests still wait", len(o.waiting))
	}
	// One that is given up leaves nothing behind, and its answer is dropped.
	ctx, cancel := context.WithCancelCause(t.Context())
	given := make(chan error, 1)
	go func() { given <- o.ask(ctx, "n", 0, nil) }()
	var r rpcAnswer
	if err := dec.Decode(&r); err != nil {
		t.Fatal(err)
	}
	cancel(errCancelled)
	if err := <-given; !errors.Is(err, errCancelled) || len(o.waiting) != 0 {
		t.Errorf("ask() = %v, with %d that wait; want %v", err, len(o.waiting), errCancelled)
	}
	o.answered(r.ID, json.RawMessage(`{}`), nil)
	if err := o.close(); err != nil {
		t.Error(err)
	}
}

// A client's error is repeated in printable characters, whatever it is.
func TestReply(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ result, err, want string }{
		{`{}`, ``, ""},
		{`null`, ``, ""},
		{``, `{"code":1,"message":"no room"}`, `the client refuses x: "no room"`},
		{``, `{"code":1,"message":"\u001b]0;title\u0007"}`, `the client refuses x: "\x1b]0;title\a"`},
		{``, `{"code":1}`, `the client refuses x: "it gave no reason"`},
		{``, `7`, `the client refuses x: "it gave no reason"`},
		{`[]`, ``, "the client's answer to x: expected an object, got array"},
		{`{"n":"x"}`, ``, "the client's answer to x: n: expected a whole number, got string"},
	} {
		r := reply{}
		if row.result != "" {
			r.result = json.RawMessage(row.result)
		}
		if row.err != "" {
			r.err = json.RawMessage(row.err)
		}
		var into struct {
			N int `json:"n"`
		}
		got := ""
		if err := r.read("x", &into); err != nil {
			got = err.Error()
		}
		if got != row.want {
			t.Errorf("result %s, error %s: %q; want %q", row.result, row.err, got, row.want)
		}
		if err := r.read("x", nil); (err != nil) != (row.err != "") {
			t.Errorf("result %s, error %s, which is not read: %v", row.result, row.err, err)
		}
	}
}
