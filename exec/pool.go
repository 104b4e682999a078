package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// busyPause is between two tries of a command whose session is busy with the
// commands of other processes. It doubles up to maxBusyPause.
const (
	busyPause    = 10 * time.Millisecond
	maxBusyPause = 320 * time.Millisecond
)

// heartbeat is the longest time between two signs of life to a runner.
const heartbeat = 10 * time.Second

// hostLease is how long a runner at most goes on with a command without a word from
// this process, however long its session's lease is: an engine that is restarted
// under its containers cuts all streams, and no runner sees an end of its own.
// It is six heartbeats, for a process of ours may be late.
const hostLease = time.Minute

// openTime bounds the opening of a runner, and openSlack that for a command with a
// timeout: it has that long more, so that the call can still end 5 s after it.
const (
	openTime  = 15 * time.Second
	openSlack = 3 * time.Second
)

// A runner that could not be opened is tried again for againTime, at first after
// againPause and then after twice as long each time: an engine takes a second or
// two to start its containerd again. No command has gone to it yet.
const (
	againTime  = 5 * time.Second
	againPause = 100 * time.Millisecond
)

var errSlowOpen = fmt.Errorf("the engine has not started a runner in time: it may be overloaded, or hang: %w", context.DeadlineExceeded)

// Pool keeps the runners of one session. It is safe for concurrent use.
//
// A runner is in one of these states:
//
//	state     in open  in idle  who has it                 goes to
//	opening   no       no       take, or Fill's goroutine  busy (take), idle (Fill), gone (it failed)
//	idle      yes      yes      the pool                   busy (take), gone (its stream ended, or unused for maxIdle)
//	busy      yes      no       one call of Runner.Run     idle, or gone
//	gone      no       no       no one: its stream is closed
//
// A busy runner is gone after its command if the command has left processes behind or
// was handed over as a job (the runner retires), if the command's end is unknown, or if
// the stream has ended. Close makes all of them gone; Run then returns an error.
//
// A command takes a place in queue first, in the order of asking, and keeps it until it
// has ended: at most maxRunners commands run at once. Then it takes an idle runner, or a
// slot of Openings to open one, whichever is free first. It never holds a slot while it
// runs. mu is held for bookkeeping only, and no other lock is taken while it is held.
type Pool struct {
	opts  Options
	queue *semaphore.Weighted // one for each command that runs

	waiting atomic.Int64 // commands that wait for their place in queue

	stop   context.CancelFunc
	ctx    context.Context //nolint:containedctx // it is the pool's own life: of refilling; ends with Close
	helper sync.WaitGroup
	freed  chan struct{} // a token when a runner is idle

	mu      sync.Mutex
	idle    []*Runner            // guarded by mu; the last used is the last
	open    map[*Runner]struct{} // guarded by mu; idle and busy
	filling int                  // guarded by mu; runners being opened ahead
	closed  bool                 // guarded by mu
}

// NewPool returns a Pool. It opens nothing: the first command or Fill does.
func NewPool(opts Options) *Pool {
	if opts.Openings == nil {
		opts.Openings = NewOpenings()
	}
	p := &Pool{
		opts: opts, queue: semaphore.NewWeighted(maxRunners), open: map[*Runner]struct{}{},
		freed: make(chan struct{}, maxRunners),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.helper.Go(p.beat)
	return p
}

// PoolStats is what a Pool holds at a moment.
type PoolStats struct {
	Idle, Busy int // runners
	Waiting    int // commands that wait in the queue
}

// Stats counts runners and waiting commands.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PoolStats{Idle: len(p.idle), Busy: len(p.open) - len(p.idle), Waiting: int(p.waiting.Load())}
}

// Run runs one command as soon as fewer than maxRunners others run, in the order of
// asking. The command's timeout starts with the command, not with the wait. Errors are
// those of Runner.Run.
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
	for pause := busyPause; ; pause = min(2*pause, maxBusyPause) {
		st, err := p.try(ctx, c)
		var e *Error
		if c.Exclusive || !errors.As(err, &e) || e.Cause != CauseBusy {
			return st, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return Status{}, &Error{Outcome: NotStarted, Cause: CauseCancelled, Err: context.Cause(ctx)}
		}
	}
}

// Aside runs one command outside the queue: one of the caller's own that takes long, or
// must not wait for the session's commands. Errors are those of Runner.Run.
func (p *Pool) Aside(ctx context.Context, c Command) (Status, error) { return p.try(ctx, c) }

func (p *Pool) try(ctx context.Context, c Command) (Status, error) {
	r, err := p.take(ctx, c.Timeout)
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

// take returns an idle runner, or a new one, whichever there is first, for a command
// with that timeout.
func (p *Pool) take(ctx context.Context, timeout time.Duration) (*Runner, error) {
	if r := p.takeIdle(); r != nil {
		return r, nil
	}
	within := openTime
	if timeout > 0 {
		within = min(within, timeout+openSlack)
	}
	late := time.NewTimer(openingWait)
	defer late.Stop()
	for {
		select {
		case p.opts.Openings.slots <- struct{}{}:
			return p.openInSlot(ctx, within)
		case <-p.freed:
			if r := p.takeIdle(); r != nil {
				return r, nil
			}
		case <-late.C:
			return nil, crowded()
		case <-ctx.Done():
			return nil, &Error{Outcome: NotStarted, Cause: CauseCancelled, Err: context.Cause(ctx)}
		}
	}
}

// openInSlot opens a runner in a slot that has been taken, unless one is idle by now.
func (p *Pool) openInSlot(ctx context.Context, within time.Duration) (*Runner, error) {
	release := p.opts.Openings.hold()
	defer release()
	if r := p.takeIdle(); r != nil {
		return r, nil
	}
	return p.openRunner(ctx, within)
}

// takeIdle returns an idle runner that lives; nil if there is none.
func (p *Pool) takeIdle() *Runner {
	for {
		p.mu.Lock()
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return nil
		}
		r := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if r.alive() {
			return r
		}
		p.drop(r)
	}
}

// free wakes one caller that waits for an idle runner.
func (p *Pool) free() {
	select {
	case p.freed <- struct{}{}:
	default: // every caller that can wait has a token
	}
}

// openRunner opens a runner. It tries again while Options.Again says so, for againTime.
func (p *Pool) openRunner(ctx context.Context, within time.Duration) (*Runner, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errSlowOpen)
	defer cancel()
	began := time.Now()
	for pause := againPause; ; pause *= 2 {
		r, err := p.openOnce(ctx)
		e, _ := errors.AsType[*Error](err)
		if e == nil || e.Cause != CauseEngine || time.Since(began)+pause > againTime || p.opts.Again == nil || !p.opts.Again(ctx) {
			return r, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (p *Pool) openOnce(ctx context.Context) (*Runner, error) {
	stream, err := p.opts.Open(ctx)
	if err != nil {
		return nil, &Error{Outcome: NotStarted, Cause: CauseEngine, Err: err}
	}
	r, err := NewRunner(ctx, stream, min(p.opts.Lease, hostLease))
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
	r.beaten = time.Now()
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
		p.free()
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
		p.helper.Go(p.fill)
	}
}

// fill opens one runner as soon as it may.
func (p *Pool) fill() {
	var r *Runner
	var err error
	select {
	case p.opts.Openings.slots <- struct{}{}:
		release := p.opts.Openings.hold()
		r, err = p.openRunner(p.ctx, openTime)
		release()
	case <-p.ctx.Done():
		err = p.ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling--
	if err == nil {
		r.idleSince = time.Now()
		p.idle = append([]*Runner{r}, p.idle...)
		p.free()
	}
}

// beat sends Pings to the runners, and closes those that have been idle for long or do
// not answer.
func (p *Pool) beat() {
	// Two of them fit into a lease.
	ticker := time.NewTicker(min(heartbeat, p.opts.Lease*2/5))
	defer ticker.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-ticker.C:
		}
		stale, due := p.due(time.Now())
		for _, r := range stale {
			p.drop(r)
		}
		for _, r := range due {
			if how := r.silent.beat(r.listener, time.Now()); how != healthy {
				p.helper.Go(func() { p.suspect(r, how) })
			}
			// A runner whose stream is stuck must not hold up the others; its
			// goroutine ends with the stream.
			go func() { _ = r.send(wire.TypePing, nil) }()
		}
	}
}

// due returns the runners to close, and those to send a Ping: all busy ones, or, where
// there are none, one idle runner, which keeps the container's lease. The rest get one
// rarely, so that an idle session uses no processor time.
func (p *Pool) due(now time.Time) (stale, due []*Runner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > max(p.opts.Ahead, 1) && now.Sub(p.idle[0].idleSince) > maxIdle {
		stale = append(stale, p.idle[0])
		p.idle = p.idle[1:]
	}
	for r := range p.open {
		if !slices.Contains(p.idle, r) && !slices.Contains(stale, r) {
			due = append(due, r)
		}
	}
	if n := len(p.idle); n > 0 && len(due) == 0 {
		due = append(due, p.idle[n-1])
	}
	for _, r := range p.idle {
		if now.Sub(r.beaten) >= wire.IdleLease/3 && !slices.Contains(due, r) {
			due = append(due, r)
		}
	}
	for _, r := range due {
		r.beaten = now
	}
	return stale, due
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
