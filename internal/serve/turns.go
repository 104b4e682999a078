package serve

import (
	"context"
	"slices"
	"sync"
)

// turns is a queue. A position has the turn when all before it have left.
type turns struct {
	mu    sync.Mutex
	queue []*position // guarded by mu; the first one has the turn
}

// position is a position in a queue. It must be left.
type position struct {
	of    *turns
	ready chan struct{} // closed when it has the turn
}

// join returns the last position. It does not block.
func (t *turns) join() *position {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &position{of: t, ready: make(chan struct{})}
	if t.queue = append(t.queue, p); len(t.queue) == 1 {
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
	i := slices.Index(t.queue, p)
	if i < 0 {
		return
	}
	t.queue = slices.Delete(t.queue, i, i+1)
	if i == 0 && len(t.queue) > 0 {
		close(t.queue[0].ready)
	}
}
