package exec

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// busyPause is between two tries of a command whose session is busy with the
// commands of other processes.
const busyPause = 10 * time.Millisecond

// heartbeat is the longest time between two signs of life to a runner.
const heartbeat = 10 * time.Second

// openTime bounds the opening of a runner.
const openTime = 15 * time.Second

// Pool keeps the runners of one session. It is safe for concurrent use.
type Pool struct {
	opts  Options
	queue *semaphore.Weighted // one for each command that runs

	waiting atomic.Int64 // commands in the queue

	stop   context.CancelFunc
	ctx    context.Context //nolint:containedctx // it is the pool's own life: of refilling; ends with Close
	helper sync.WaitGroup

	mu      sync.Mutex
	idle    []*Runner            // guarded by mu; the last used is the last
	open    map[*Runner]struct{} // guarded by mu; idle and busy
	filling int                  // guarded by mu; runners being opened ahead
	closed  bool                 // guarded by mu
}

// NewPool returns a Pool. It opens nothing: the first command or Fill does.
func NewPool(opts Options) *Pool {
	p := &Pool{opts: opts, queue: semaphore.NewWeighted(maxRunners), open: map[*Runner]struct{}{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.helper.Go(p.beat)
	return p
}

// PoolStats is what a Pool holds at a moment.
type PoolStats struct {
	Idle, Busy int // runners
	Waiting    int // commands that wait for their place
}

// Stats counts what there is.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PoolStats{Idle: len(p.idle), Busy: len(p.open) - len(p.idle), Waiting: int(p.waiting.Load())}
}

// Run runs one command as soon as a place is free, first come first served. The
// command's timeout begins with its start, not with the wait. Errors are those
// of Runner.Run.
func (p *Pool) Run(ctx context.Context, c Command) (Status, error) {
	if c.Exclusive && !p.queue.TryAcquire(maxRunners) {
		return Status{}, notStarted(CauseBusy, "the session is busy with another command")
	}
	if !c.Exclusive {
		p.waiting.Add(1)
		err := p.queue.Acquire(ctx, 1)
		p.waiting.Add(-1)
		if err != nil {
			return Status{}, &Error{Outcome: NotStarted, Cause: CauseCancelled, Err: context.Cause(ctx)}
		}
		defer p.queue.Release(1)
	} else {
		defer p.queue.Release(maxRunners)
	}
	for {
		st, err := p.try(ctx, c)
		var e *Error
		if c.Exclusive || !errors.As(err, &e) || e.Cause != CauseBusy {
			return st, err
		}
		select {
		case <-time.After(busyPause):
		case <-ctx.Done():
			return Status{}, &Error{Outcome: NotStarted, Cause: CauseCancelled, Err: context.Cause(ctx)}
		}
	}
}

// Aside runs one command beside the queue: one of the caller's own that takes
// long, or must not wait for the session's commands. Errors are those of
// Runner.Run.
func (p *Pool) Aside(ctx context.Context, c Command) (Status, error) { return p.try(ctx, c) }

func (p *Pool) try(ctx context.Context, c Command) (Status, error) {
	r, err := p.take(ctx)
	if err != nil {
		return Status{}, err
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, ErrTimeout)
		defer cancel()
	}
	st, err := r.Run(ctx, c)
	p.giveBack(r, st, err)
	return st, err
}

// take returns an idle runner, or a new one.
func (p *Pool) take(ctx context.Context) (*Runner, error) {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return p.openRunner(ctx)
		}
		r := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if r.alive() {
			return r, nil
		}
		p.drop(r)
	}
}

func (p *Pool) openRunner(ctx context.Context) (*Runner, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	stream, err := p.opts.Open(ctx)
	if err != nil {
		return nil, &Error{Outcome: NotStarted, Cause: CauseEngine, Err: err}
	}
	r, err := NewRunner(ctx, stream, p.opts.Lease)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		r.stream.Close()
		return nil, notStarted(CauseCancelled, "the session is closed")
	}
	p.open[r] = struct{}{}
	return r, nil
}

// giveBack returns a runner after a command. One that retires, because the
// command has left children or goes on as a job, or is lost, is replaced ahead of
// need.
func (p *Pool) giveBack(r *Runner, st Status, err error) {
	var e *Error
	lost := errors.As(err, &e) && e.Outcome == Unknown
	if st.Left > 0 || st.Handed != nil || lost || !r.alive() {
		p.drop(r)
	} else {
		p.mu.Lock()
		r.idleSince = time.Now()
		p.idle = append(p.idle, r)
		p.mu.Unlock()
	}
	p.Fill()
}

func (p *Pool) drop(r *Runner) {
	p.mu.Lock()
	delete(p.open, r)
	p.mu.Unlock()
	r.Close()
}

// Fill opens runners in the background until Ahead are idle. One that cannot be
// opened is the next command's to report.
func (p *Pool) Fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && len(p.idle)+p.filling < p.opts.Ahead && len(p.open)+p.filling < maxRunners {
		p.filling++
		p.helper.Go(func() {
			r, err := p.openRunner(p.ctx)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.filling--
			if err == nil {
				r.idleSince = time.Now()
				p.idle = append([]*Runner{r}, p.idle...)
			}
		})
	}
}

// beat tells every runner that this process lives, and closes those that have
// been idle for long.
func (p *Pool) beat() {
	ticker := time.NewTicker(min(heartbeat, p.opts.Lease/3))
	defer ticker.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-ticker.C:
		}
		p.mu.Lock()
		var stale []*Runner
		for len(p.idle) > max(p.opts.Ahead, 1) && time.Since(p.idle[0].idleSince) > maxIdle {
			stale = append(stale, p.idle[0])
			p.idle = p.idle[1:]
		}
		var all []*Runner
		for r := range p.open {
			all = append(all, r)
		}
		p.mu.Unlock()
		for _, r := range stale {
			p.drop(r)
		}
		for _, r := range all {
			// A runner whose stream is stuck must not hold up the others; its
			// goroutine ends with the stream.
			go func() { _ = r.send(wire.TypePing, nil) }()
		}
	}
}

// Close closes every runner, which kills what they run in the foreground, and
// waits for its own goroutines. Commands under way end as unknown.
func (p *Pool) Close() {
	p.stop()
	p.mu.Lock()
	p.closed = true
	all := p.open
	p.open, p.idle = map[*Runner]struct{}{}, nil
	p.mu.Unlock()
	for r := range all {
		r.Close()
	}
	p.helper.Wait()
}
