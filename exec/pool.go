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

// busyPause is the pause between two tries of a command while other processes use all slots
// of its session. It doubles up to maxBusyPause.
const (
	busyPause    = 10 * time.Millisecond
	maxBusyPause = 320 * time.Millisecond
)

// heartbeat is the longest time between two Pings to a busy runner.
const heartbeat = 10 * time.Second

// hostLease is the most time that a runner goes on with a command without a frame from this
// process, however long the session's lease is. If an engine is restarted while its
// containers run, all streams are cut and the runners do not notice. It is six heartbeats
// long, because this process may be late.
const hostLease = time.Minute

// openTime bounds the opening of a runner. For a command with a timeout, the bound is at most
// that timeout plus openSlack, so that the call can end within 5 s after the timeout.
const (
	openTime  = 15 * time.Second
	openSlack = 3 * time.Second
)

// If a runner could not be opened, the pool tries again for againTime, first after
// againPause and then after twice as long each time. An engine takes a second or two to
// restart its containerd. Trying again is safe, because no command was sent yet.
const (
	againTime  = 5 * time.Second
	againPause = 100 * time.Millisecond
)

var errSlowOpen = fmt.Errorf("the engine has not started a runner in time: it may be overloaded, or hang: %w", context.DeadlineExceeded)

// Pool keeps the runners of one session. It is safe for concurrent use.
//
// A runner is in one of these states:
//
//	state    in open  in idle  used by                    becomes
//	opening  no       no       take, or Fill's goroutine  busy (take), idle (Fill), or gone (it failed)
//	idle     yes      yes      none                       busy (take), or gone
//	busy     yes      no       one call of Runner.Run     idle, or gone
//	gone     no       no       none; its stream is closed
//
// A busy runner becomes gone after its command if the command has left processes behind or was
// handed over as a job (the runner retires), if the command's end is unknown, or if the stream
// has ended.
//
// An idle runner becomes gone if it was unused for maxIdle, except that Ahead of them, and at least
// one, are kept; if take finds that its stream has ended; or if any runner was silent for too long,
// because the fault that silenced one may have reached all.
//
// Close makes all runners gone, and Run then returns an error.
//
// A command first acquires one unit of queue, or all of them if it is exclusive, and releases
// them when it has ended. Waiting commands get their units first come, first served. So at most
// maxRunners commands run at once, besides those of Aside, which acquire none. Then the command
// takes an idle runner or a slot of Openings, whichever it gets first; with a slot it opens a
// runner. It does not hold the slot while it runs. mu is held for bookkeeping only, never over
// I/O, and no other lock is taken while it is held.
type Pool struct {
	opts  Options
	queue *semaphore.Weighted // one for each command that runs

	waiting atomic.Int64 // commands that wait for a unit of queue

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

// NewPool returns a Pool. It opens no runner; the first command or Fill does.
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

// PoolStats counts the runners of a Pool and the commands that wait.
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

// Run runs one command as soon as fewer than 8 others run, first come, first served. An
// exclusive command does not wait: if another command runs, Run returns an error with
// CauseBusy. The command's timeout starts when the command does, not while it waits. Errors
// are those of Runner.Run.
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

// Aside runs one command outside the queue. It is for commands of the calling program that
// take long, or that must not wait for the session's commands. Errors are those of
// Runner.Run.
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

// take returns an idle runner or a new one, whichever it gets first. timeout is that of the
// command.
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

// openInSlot uses a slot that the caller has taken to open a runner, unless one is idle by
// now. It releases the slot.
func (p *Pool) openInSlot(ctx context.Context, within time.Duration) (*Runner, error) {
	release := p.opts.Openings.hold()
	defer release()
	if r := p.takeIdle(); r != nil {
		return r, nil
	}
	return p.openRunner(ctx, within)
}

// takeIdle returns an idle runner whose stream is open, or nil if there is none.
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
	default: // there is a token for every caller that can wait
	}
}

// openRunner opens a runner. It tries again for againTime, as long as Options.Again returns
// nil.
func (p *Pool) openRunner(ctx context.Context, within time.Duration) (*Runner, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errSlowOpen)
	defer cancel()
	began := time.Now()
	for pause := againPause; ; pause *= 2 {
		r, err := p.openOnce(ctx)
		e, _ := errors.AsType[*Error](err)
		if e == nil || e.Cause != CauseEngine || time.Since(began)+pause > againTime || p.opts.Again == nil {
			return r, err
		}
		if final := p.opts.Again(ctx, e); final != nil {
			return nil, final
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
	closed := p.closed
	if !closed {
		p.open[r] = struct{}{}
		r.beaten = time.Now()
	}
	p.mu.Unlock()
	if closed {
		r.Close()
		return nil, notStarted(CauseCancelled, "the session is closed")
	}
	return r, nil
}

// giveBack returns a runner to the pool after a command, or drops it if it retires or is
// lost. The table at Pool says when. Then it replaces what is missing ahead of need.
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

// Fill opens runners in the background until Ahead are idle. It does not report an error:
// the next command opens a runner itself and returns the error if that fails.
func (p *Pool) Fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && len(p.idle)+p.filling < p.opts.Ahead && len(p.open)+p.filling < maxRunners {
		p.filling++
		p.helper.Go(p.fill)
	}
}

// fill opens one runner as soon as it gets a slot.
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

// beat sends Pings to the runners. It closes those that have been idle for too long and
// those that do not answer.
func (p *Pool) beat() {
	// Two heartbeats fit into a lease.
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

// due returns the runners to close, and those to send a Ping to. Each busy runner gets a
// Ping. If none is busy, one idle runner gets it, to renew the container's lease. The other
// idle runners rarely get one, so that an idle session uses hardly any processor time.
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

// Close closes every runner, which kills the commands that they run, and waits for the
// pool's goroutines. Calls of Run that are under way return an error with the outcome
// Unknown. Jobs go on.
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
