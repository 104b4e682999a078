package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Runner is a connection to one runner process, which runs one command at a time. Run must
// not be called again before it has returned. Close may be called at any time.
type Runner struct {
	stream io.ReadWriteCloser
	in     *wire.Reader

	pid     int    // of the runner in the container; set by shake
	version uint64 // of the protocol, as the runner speaks it; set by shake

	writing sync.Mutex // one frame at a time on stream

	seq     uint64
	current atomic.Pointer[running]

	dead chan struct{} // closed when the stream has ended
	err  error         // why; set before dead is closed

	listener *listener
	silent   silence // the pool's

	idleSince time.Time // the pool's
	beaten    time.Time // the pool's; when it last got a Ping
}

// NewRunner performs the handshake with the runner at the other end of stream, and closes
// stream if that fails. It starts a goroutine that reads until the stream ends. lease is how
// long the runner lives without a frame from this process.
func NewRunner(ctx context.Context, stream io.ReadWriteCloser, lease time.Duration) (*Runner, error) {
	r := &Runner{stream: stream, listener: &listener{stream: stream}, dead: make(chan struct{})}
	r.in = wire.NewReader(r.listener)
	// Close unblocks the read below when ctx ends.
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	err := r.shake(lease)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		stream.Close()
		return nil, runnerError(stream, err)
	}
	go r.read()
	return r, nil
}

// runnerError returns the error of a runner that did not start properly. It adds what the
// runner printed. If stream has a method NoRoom, that says whether the runner ended because
// the session had no room for it.
func runnerError(stream any, err error) error {
	cause := CauseEngine
	if errors.Is(err, wire.ErrFrame) {
		cause = CauseProtocol
	}
	if s, ok := stream.(interface{ NoRoom() bool }); ok && cause == CauseEngine && s.NoRoom() {
		cause = CauseResources
	} else if s, ok := stream.(interface{ Stderr() string }); ok && s.Stderr() != "" {
		err = fmt.Errorf("%w; its standard error: %s", err, s.Stderr())
	}
	return &Error{Outcome: NotStarted, Cause: cause, Err: fmt.Errorf("runner: %w", err)}
}

// maxShown is how many bytes an error shows of what came instead of a greeting.
const maxShown = 300

func (r *Runner) shake(lease time.Duration) error {
	kind, payload, err := r.in.Next()
	if errors.Is(err, wire.ErrFrame) { // not a runner, but the engine's words instead
		return fmt.Errorf("no greeting, but %q", r.in.Ahead(maxShown))
	}
	if err != nil {
		return fmt.Errorf("no greeting: %w", err)
	}
	if kind != wire.TypeHello {
		return fmt.Errorf("%w: greeting of type %q", wire.ErrFrame, kind)
	}
	hello, err := wire.ParseHello(payload)
	if err != nil {
		return err
	}
	if err := hello.Known(); err != nil {
		return err
	}
	r.pid, r.version = hello.PID, hello.Version
	return r.send(wire.TypeOpen, wire.Open{Version: hello.Version, Lease: lease}.Append(nil))
}

// Close ends the runner, which then kills the command that it still runs. It waits until the
// stream has ended.
func (r *Runner) Close() {
	r.stream.Close()
	<-r.dead
}

// alive reports whether the stream is still open.
func (r *Runner) alive() bool {
	select {
	case <-r.dead:
		return false
	default:
		return true
	}
}

func (r *Runner) send(kind wire.Type, payload []byte) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.write(kind, payload)
}

// sendFor sends a frame that belongs to a command, unless the command is over. The runner
// would take a late frame for one of the next command.
func (r *Runner) sendFor(run *running, kind wire.Type, payload []byte) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	if r.current.Load() != run {
		return errOver
	}
	return r.write(kind, payload)
}

var errOver = errors.New("the command is over")

// write is called with writing locked.
func (r *Runner) write(kind wire.Type, payload []byte) error {
	_, err := r.stream.Write(wire.AppendFrame(make([]byte, 0, wire.HeaderSize+len(payload)), kind, payload))
	return err
}

// running is the command that a runner runs.
type running struct {
	seq    uint64
	chunks chan chunk    // output, for the taker
	taken  chan struct{} // one for each chunk
	// abandoned is closed when the output is no longer waited for.
	abandoned chan struct{}
	end       chan any           // wire.Exit or wire.Failed
	refused   chan wire.Detached // a hand-over that was refused; nil without a Job
	window    atomic.Int64       // bytes of standard input that may be sent now
	credit    chan struct{}      // a token when window has grown
	taking    atomic.Int64       // when take began to write its chunk, as UnixNano; 0: it waits for one
	received  [2]int64           // used by read only, until end is sent
	dropped   int64              // used by read only, until end is sent
}

type chunk struct {
	stream  int // 0 or 1
	payload []byte
}

// read takes the runner's frames until the stream ends.
func (r *Runner) read() {
	defer close(r.dead)
	for {
		kind, payload, err := r.in.Next()
		if err == nil {
			err = r.handle(kind, payload)
		}
		if err != nil {
			if r.listener.givenUp.Load() {
				err = errSilent
			}
			r.err = err
			r.stream.Close()
			return
		}
	}
}

func (r *Runner) handle(kind wire.Type, payload []byte) error {
	run := r.current.Load()
	switch kind {
	case wire.TypePong:
		return nil
	case wire.TypeStdout, wire.TypeStderr:
		if run != nil {
			stream := 0
			if kind == wire.TypeStderr {
				stream = 1
			}
			r.deliver(run, chunk{stream: stream, payload: payload})
			return nil
		}
	case wire.TypeTaken:
		taken, err := wire.ParseTaken(payload)
		if err != nil || taken.Bytes > wire.StdinWindow {
			return fmt.Errorf("%w: taken", wire.ErrFrame)
		}
		if run != nil && run.seq == taken.Seq {
			run.window.Add(int64(taken.Bytes))
			select {
			case run.credit <- struct{}{}:
			default:
			}
		}
		return nil
	case wire.TypeExit:
		exit, err := wire.ParseExit(payload)
		if err != nil {
			return err
		}
		if run != nil && run.seq == exit.Seq {
			run.end <- exit
			return nil
		}
	case wire.TypeDetached:
		return r.detached(run, payload)
	case wire.TypeFailed:
		failed, err := wire.ParseFailed(payload)
		if err != nil {
			return err
		}
		if run != nil && run.seq == failed.Seq {
			run.end <- failed
			return nil
		}
	default: // what only the host sends, or a later runner
		if kind.Optional() {
			return nil
		}
	}
	return fmt.Errorf("%w: type %q out of place", wire.ErrFrame, kind)
}

// deliver passes a chunk to take and waits until take has written it or the output is
// abandoned. By this wait a slow writer slows the command.
func (r *Runner) deliver(run *running, c chunk) {
	run.received[c.stream] += int64(len(c.payload))
	select {
	case <-run.abandoned: // even if take is ready again: a part is missing, so nothing may follow
		run.dropped += int64(len(c.payload))
		return
	default:
	}
	select {
	case run.chunks <- c:
	case <-run.abandoned:
		run.dropped += int64(len(c.payload))
		return
	}
	select {
	case <-run.taken:
	case <-run.abandoned:
		run.dropped += int64(len(c.payload))
		r.in.Detach()
	}
}

// take writes the chunks to the command's writers until there are no more.
func (run *running) take(out [2]io.Writer) (first error) {
	var failed [2]bool
	for c := range run.chunks {
		if !failed[c.stream] {
			run.taking.Store(time.Now().UnixNano())
			_, err := out[c.stream].Write(c.payload)
			run.taking.Store(0)
			if err != nil {
				failed[c.stream] = true
				if first == nil {
					first = err
				}
			}
		}
		select {
		case run.taken <- struct{}{}:
		case <-run.abandoned:
		}
	}
	return first
}

// Run runs one command and waits for it to end or to be handed over. If the error is not nil
// it is an *Error: the command did not run, or its end is unknown.
//
// When ctx ends the command is killed, and the cause of ctx determines the Reason. Run then
// returns within c.Grace plus 2.5 s; if the cause is ErrInterrupt, within twice c.Grace plus
// 2.5 s.
//
// While a command runs there are four goroutines, which share the running struct:
//
//	goroutine  does                                          ends
//	Run        waits for the end, in await and wait          by the table below
//	read       takes the runner's frames                     when the stream ends: it outlives the command
//	take       writes the output to the caller's writers     when chunks is closed
//	feed       sends the request, then the standard input    when all is sent, at stop, or if the stream fails
//
// The request, a Detach and a Kill are not sent by Run's own goroutine, because a stuck engine
// may not take them, and Run must return all the same. A take that is stuck in a Write, and a
// feed that is stuck in a Read, end when that call returns; Run does not wait for them without
// a limit.
//
// read passes each chunk of output to take and waits until take has written it. This is how
// a slow writer slows the command, and why an Exit arrives after all of the output.
//
// Run goes through these states:
//
//	state    event                                      becomes
//	waiting  Job.After is over, or Job.Detach           asked; a Detach is sent
//	asked    Detached without an ID                     waiting, and does not ask again; Job.Refused is called
//	asked    no answer within patience                  asked; the output is abandoned
//	both     Exit, or Failed                            ended
//	both     Detached with an ID                        ended: handed over
//	both     the stream ends                            unknown
//	both     ctx ends                                   killing; a Kill is sent
//	killing  Exit, Failed, or Detached with an ID       ended, as above
//	killing  the grace is over, and a Write is stuck    killing; the output is abandoned
//	killing  the stream ends                            unknown
//	killing  the grace and sweepTime are over           unknown: the kill is not confirmed
//
// If Job.After is 0, the request itself asks for the hand-over, so that the answer arrives in the
// state waiting. The grace is twice as long if the cause is ErrInterrupt. If the last frames
// before the end of the stream hold an Exit, a Failed or a Detached, the state becomes ended.
//
// Ended is not yet a Status: if output is missing, or if processes have survived the kill, Run
// returns an error with the outcome Unknown. Abandoned output is read and dropped, and counted in
// Status.Dropped. In the state unknown Run closes the Runner, because what its process does is
// not known.
func (r *Runner) Run(ctx context.Context, c Command) (Status, error) {
	if err := ctx.Err(); err != nil {
		return Status{}, &Error{Outcome: NotStarted, Cause: CauseCancelled, Err: context.Cause(ctx)}
	}
	if c.OnRunner != nil {
		c.OnRunner(r.pid)
	}
	run := r.begin(c)
	defer r.current.Store(nil)

	var writeErr error
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		writeErr = run.take([2]io.Writer{c.Stdout, c.Stderr})
	}()
	stopFeeding := make(chan struct{})
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if err := r.sendRequest(c.request(run.seq).AppendFor(r.version, nil)); err == nil && c.Stdin != nil {
			r.feed(run, c.Stdin, stopFeeding)
		}
	}()

	start := time.Now()
	end, err := r.wait(ctx, run, c)
	elapsed := time.Since(start)

	close(stopFeeding)
	if end == nil {
		r.stream.Close() // what it is doing is unknown: never use it again
		<-r.dead
		run.abandon()
	}
	unblock(c.Stdin, fed)
	close(run.chunks)
	select {
	case <-taken:
	case <-run.abandoned: // a writer of the caller's that never returns keeps its goroutine
	}
	if err != nil {
		return Status{}, err
	}
	st, err := run.status(ctx, end)
	if err != nil {
		return Status{}, err
	}
	st.Elapsed, st.Dropped = elapsed, run.dropped
	select {
	case <-taken:
		st.Write = writeErr
	default:
	}
	return st, nil
}

// begin makes c the runner's command, to which the frames that arrive from now on belong.
func (r *Runner) begin(c Command) *running {
	r.seq++
	run := &running{
		seq: r.seq, chunks: make(chan chunk), taken: make(chan struct{}),
		abandoned: make(chan struct{}), end: make(chan any, 1), credit: make(chan struct{}, 1),
	}
	if c.Job != nil {
		run.refused = make(chan wire.Detached, 1)
	}
	r.current.Store(run)
	return run
}

// status converts the end of a command, which is a wire.Exit, a wire.Detached or a wire.Failed.
func (run *running) status(ctx context.Context, end any) (Status, error) {
	var exit wire.Exit
	switch end := end.(type) {
	case wire.Exit:
		exit = end
	case wire.Detached:
		// Its file has all of its output, whatever the engine has let through.
		exit = wire.Exit{Stdout: uint64(run.received[0]), Stderr: uint64(run.received[1])}
	case wire.Failed:
		return Status{}, failure(end)
	}
	if got := run.received; uint64(got[0]) != exit.Stdout || uint64(got[1]) != exit.Stderr {
		return Status{}, &Error{Outcome: Unknown, Cause: CauseProtocol, Err: fmt.Errorf(
			"the engine lost output: %d+%d bytes of %d+%d arrived", got[0], got[1], exit.Stdout, exit.Stderr)}
	}
	if err := unproved(exit); err != nil {
		return Status{}, err
	}
	st := status(ctx, exit)
	if d, ok := end.(wire.Detached); ok {
		st.Reason, st.Handed = HandedOver, &Started{ID: d.ID, PID: d.PID}
	}
	return st, nil
}

// abandon stops the wait for the caller's writers: read drops output from now on. It may be
// called more than once, by the goroutine of Run only.
func (run *running) abandon() {
	select {
	case <-run.abandoned:
	default:
		close(run.abandoned)
	}
}

// How long a Write of the caller's may block once a kill and its grace are over.
const (
	stuckTaker = 50 * time.Millisecond // on one chunk
	slowTaker  = time.Second           // on all remaining chunks
)

// stuck reports whether take has blocked for too long, so that the end cannot arrive.
func (run *running) stuck(now, patient time.Time) bool {
	since := run.taking.Load()
	return since != 0 && (now.Sub(time.Unix(0, since)) >= stuckTaker || now.After(patient))
}

// wait waits for the command to end. When ctx ends, wait asks the runner to kill the command
// and waits for a bounded time. The table at Run has its states.
func (r *Runner) wait(ctx context.Context, run *running, c Command) (any, error) {
	lost := func() (any, error) {
		select {
		case end := <-run.end: // it came with the last frames
			return end, nil
		default:
		}
		return nil, &Error{Outcome: Unknown, Cause: CauseRunnerLost, Err: fmt.Errorf("the runner has ended: %w", r.err)}
	}
	end, over := r.await(ctx, run, c.Job)
	switch {
	case end != nil:
		return end, nil
	case over:
		return lost()
	}
	grace := graceOf(c)
	if c.OnKill != nil {
		c.OnKill()
	}
	kill := wire.Kill{Seq: run.seq, Grace: grace, Interrupt: errors.Is(context.Cause(ctx), ErrInterrupt), TimedOut: errors.Is(context.Cause(ctx), ErrTimeout)}
	if kill.Interrupt {
		grace *= 2 // one for each of the two signals
	}
	// A stuck engine may not take it: the goroutine ends with the stream.
	go func() { _ = r.send(wire.TypeKill, kill.AppendFor(r.version, nil)) }()

	killed := time.Now()
	takers := time.NewTimer(grace)
	defer takers.Stop()
	top := time.NewTimer(grace + sweepTime)
	defer top.Stop()
	for {
		select {
		case end := <-run.end:
			return end, nil
		case <-r.dead:
			return lost()
		case now := <-takers.C:
			// The end may be behind output that the caller's writers do not take, or both
			// may still be on their way.
			if run.stuck(now, killed.Add(grace+slowTaker)) {
				run.abandon()
			} else {
				takers.Reset(stuckTaker)
			}
		case <-top.C:
			return nil, &Error{Outcome: Unknown, Cause: CauseUnconfirmed, Err: fmt.Errorf(
				"%w, and the runner did not confirm the kill within %s", context.Cause(ctx), grace+sweepTime)}
		}
	}
}

// unproved returns an error if the runner reports that processes have survived the kill.
func unproved(exit wire.Exit) error {
	if exit.Rung == wire.RungNone || exit.Rung != wire.RungStuck && exit.Left == 0 {
		return nil
	}
	return &Error{Outcome: Unknown, Cause: CauseUnconfirmed, Err: fmt.Errorf("%d of its processes have survived the kill", exit.Left)}
}

// status converts an Exit. The cause of ctx determines the Reason only if the runner had to
// kill the command. A command that ended first has ended by itself.
func status(ctx context.Context, exit wire.Exit) Status {
	st := Status{
		Reason: Exited, Code: exit.Code, Signal: exit.Signal, CPU: exit.CPU, MaxRSS: int64(exit.MaxRSS), Processes: int64(exit.Processes),
		Stdout: int64(exit.Stdout), Stderr: int64(exit.Stderr), Rung: exit.Rung, Left: int(exit.Left), NoRoom: exit.NoRoom,
	}
	cause := context.Cause(ctx)
	switch {
	case exit.Rung != wire.RungNone && errors.Is(cause, ErrTimeout):
		st.Reason = TimedOut
	case exit.Rung != wire.RungNone && errors.Is(cause, ErrOutputLimit):
		st.Reason = OutputLimit
	case exit.Rung != wire.RungNone:
		st.Reason = Cancelled
	case exit.OOM:
		st.Reason = OOMKilled
	case exit.Signal != 0:
		st.Reason = Signalled
	}
	return st
}
