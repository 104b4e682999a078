package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"sync"
)

// Events is an OutputObserver that is read from: a stream of what happens, with output. It never makes a command wait:
// what its queue cannot hold is dropped and counted. Make one with NewEvents. It is safe for concurrent use.
type Events struct {
	most int

	mu      sync.Mutex
	queue   []StreamEvent // guarded by mu
	bytes   int           // guarded by mu; of queue
	dropped int64         // guarded by mu; since the last event in queue
	closed  bool          // guarded by mu
	changed chan struct{} // guarded by mu; closed and replaced when something is put
}

// StreamEvent is one event of Events.
type StreamEvent struct {
	// Observation is what has happened, or for output its Session, ID and Mode alone.
	Observation
	// Begins is set for a command or a transfer that is about to start. Its end is another event with the same ID.
	Begins bool
	// Output is set for output alone, and Stream says of what.
	Output []byte
	Stream Stream
	// Dropped is how many events before this one did not fit into the queue.
	Dropped int64
}

// DefaultEvents is the size of the queue of Events in bytes if none is given.
const DefaultEvents = 4 << 20

// eventSize stands for the size of an event without output, in bytes.
const eventSize = 512

// ErrEventsClosed is returned by Next after Close, when all events have been returned.
var ErrEventsClosed = errors.New("the events were closed")

// NewEvents returns Events for Options.Observers, whose queue holds that many bytes; 0: DefaultEvents.
func NewEvents(most int) *Events {
	return &Events{most: cmp.Or(most, DefaultEvents), changed: make(chan struct{})}
}

// Intend implements Observer. It never refuses.
func (v *Events) Intend(_ context.Context, e Observation) error {
	v.put(StreamEvent{Observation: e, Begins: true})
	return nil
}

// Note implements Observer.
func (v *Events) Note(e Observation) { v.put(StreamEvent{Observation: e}) }

// Output implements OutputObserver.
func (v *Events) Output(e OutputEvent) {
	v.put(StreamEvent{Observation: Observation{Session: e.Session, ID: e.ID, Mode: e.Mode}, Output: e.Data, Stream: e.Stream})
}

func (v *Events) put(e StreamEvent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	size := eventSize + len(e.Output)
	switch {
	case v.closed:
		return
	case v.bytes+size > v.most:
		v.dropped++
		return
	}
	e.Output, e.Dropped, v.dropped = bytes.Clone(e.Output), v.dropped, 0
	v.queue, v.bytes = append(v.queue, e), v.bytes+size
	close(v.changed)
	v.changed = make(chan struct{})
}

// Next waits for the next event. The error is the cause of ctx's end, or ErrEventsClosed.
func (v *Events) Next(ctx context.Context) (StreamEvent, error) {
	for {
		v.mu.Lock()
		if len(v.queue) > 0 {
			e := v.queue[0]
			v.queue[0] = StreamEvent{} // its output is not kept
			v.queue, v.bytes = v.queue[1:], v.bytes-eventSize-len(e.Output)
			v.mu.Unlock()
			return e, nil
		}
		closed, changed := v.closed, v.changed
		v.mu.Unlock()
		if closed {
			return StreamEvent{}, ErrEventsClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return StreamEvent{}, context.Cause(ctx)
		}
	}
}

// Close has Next return what is in the queue, and then ErrEventsClosed. Later events are ignored.
func (v *Events) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closed {
		v.closed = true
		close(v.changed)
	}
}
