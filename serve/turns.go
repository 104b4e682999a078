package serve

import (
	"context"
	"slices"
	"sync"
)

// turns is a queue: whoever joins has the turn when all before have left.
type turns struct {
	mu    sync.Mutex
	queue []*place // guarded by mu; the first one has the turn
}

// place is one in a queue. It must be left.
type place struct {
	of    *turns
	ready chan struct{} // closed when it has the turn
}

// join takes the last place. It does not block.
func (t *turns) join() *place {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &place{of: t, ready: make(chan struct{})}
	if t.queue = append(t.queue, p); len(t.queue) == 1 {
		close(p.ready)
	}
	return p
}

// wait waits for the turn, or for the end of ctx.
func (p *place) wait(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave gives the place up, before its turn or after.
func (p *place) leave() {
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
