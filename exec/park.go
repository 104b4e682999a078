package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Parked is an idle runner as one process leaves it to another. Its stream stands between two
// frames, in both directions.
type Parked struct {
	Stream  io.ReadWriteCloser
	PID     int    // of the runner in the session
	Version uint64 // of the protocol that it speaks
	Seq     uint64 // of its last command
}

// Parking keeps idle runners of one session for other processes. Its methods may be called
// concurrently.
type Parking interface {
	// Take returns a runner that another process has left, or false if there is none.
	Take(ctx context.Context) (Parked, bool)
	// Leave takes over a runner, whose stream it closes if it cannot keep it.
	Leave(p Parked)
}

// awakeTime is how long a runner that was parked may take to answer its first Ping. It answers
// in well under a millisecond, unless its session is paused or its connection is dead.
const awakeTime = 250 * time.Millisecond

var errAsleep = fmt.Errorf("a runner that was kept has not answered within %s", awakeTime)

// resumeRunner goes on with a runner that another process has left. It returns an error, and
// closes the stream, if the runner does not answer a Ping: then it has got no command.
func resumeRunner(ctx context.Context, p Parked) (*Runner, error) {
	r := newRunner(p.Stream)
	r.pid, r.version, r.seq = p.PID, p.Version, p.Seq
	go r.read()
	// A stuck engine may not take the Ping: the goroutine ends with the stream.
	go func() { _ = r.send(wire.TypePing, nil) }()
	late := time.NewTimer(awakeTime)
	defer late.Stop()
	err := errAsleep
	select {
	case <-r.ponged:
		return r, nil
	case <-r.dead:
		err = r.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-late.C:
	}
	r.Close()
	return nil, err
}

// park lets go of an idle runner without closing its stream. It returns false, and closes the
// stream, if the stream does not stand between two frames, or cannot be left to another process:
// that needs a method SetReadDeadline.
func (r *Runner) park() (Parked, bool) {
	stream, ok := r.stream.(interface{ SetReadDeadline(at time.Time) error })
	if !ok || !r.silenced() || stream.SetReadDeadline(time.Unix(1, 0)) != nil {
		r.Close()
		return Parked{}, false
	}
	<-r.dead // read is idle too, and so in a Read
	if !errors.Is(r.err, os.ErrDeadlineExceeded) || len(r.in.Ahead(1)) > 0 || stream.SetReadDeadline(time.Time{}) != nil {
		r.stream.Close()
		return Parked{}, false
	}
	return Parked{Stream: r.stream, PID: r.pid, Version: r.version, Seq: r.seq}, true
}

// silenced has the runner send no further frame. It returns false if the answer to a Ping is on its
// way, or a frame is being written.
func (r *Runner) silenced() bool {
	if !r.writing.TryLock() { // a stuck engine does not take it
		return false
	}
	defer r.writing.Unlock()
	r.parking.Store(true)
	return r.pings.Load() == r.pongs.Load()
}
