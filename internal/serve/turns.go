package serve

import (
	"context"
	"slices"
	"sync"
)

// turns are queues, each with a name. A position has the turn when all before it in its
// queue have left. Names come from clients, so a queue exists only while it has positions.
type turns struct {
	mu     sync.Mutex
	queues map[string][]*position // guarded by mu; none is empty, and the first position has the turn
}

// position is a position in a queue. It must be left.
type position struct {
	of    *turns
	name  string
	ready chan struct{} // closed when it has the turn
}

// join returns the last position of a queue. It does not block.
func (t *turns) join(name string) *position {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &position{of: t, name: name, ready: make(chan struct{})}
	if t.queues == nil {
		t.queues = map[string][]*position{}
	}
	if t.queues[name] = append(t.queues[name], p); len(t.queues[name]) == 1 {
		close(p.ready)
	}
	return p
}

// wait waits for the turn, or for the end of ctx.
func (p *position) wait(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave gives the position up, before its turn or after.
func (p *position) leave() {
	t := p.of
	t.mu.Lock()
	defer t.mu.Unlock()
	queue := t.queues[p.name]
	i := slices.Index(queue, p)
	switch {
	case i < 0:
		return
	case len(queue) == 1:
		delete(t.queues, p.name)
		return
	}
	t.queues[p.name] = slices.Delete(queue, i, i+1)
	if i == 0 {
		close(t.queues[p.name][0].ready)
	}
}
