package docker

import (
	"context"
	"sync/atomic"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/flight"
)

// memo remembers an answer that does not change. Callers that ask at the same time share
// one request, and an error is not remembered. The zero value is ready to use.
type memo[T any] struct {
	asking flight.Group[T]
	known  atomic.Pointer[T]
}

func (m *memo[T]) get(ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	if known := m.known.Load(); known != nil {
		return *known, nil
	}
	return m.asking.Do(ctx, "", nil, func(ctx context.Context, _ func(engine.Progress)) (T, error) {
		if known := m.known.Load(); known != nil { // since this caller looked
			return *known, nil
		}
		answer, err := ask(ctx)
		if err == nil {
			m.known.Store(&answer)
		}
		return answer, err
	})
}
