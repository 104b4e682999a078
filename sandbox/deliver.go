package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

const (
	firstRetry = 500 * time.Millisecond
	maxRetry   = 30 * time.Second
)

// RetryJitter is the exclusive upper bound of the random time that is added to a RetryPause.
const RetryJitter = 200 * time.Millisecond

// RetryPause returns the pause after a delivery that failed, without the jitter. The first
// try has the number 1.
func RetryPause(try int) time.Duration {
	pause := firstRetry
	for ; try > 1 && pause < maxRetry; try-- {
		pause *= 2
	}
	return min(pause, maxRetry)
}

// reopenPause is the pause before a watch that has ended is opened again.
const reopenPause = time.Second

// Deliver reports the jobs of an owner that end, and those that ended before the call, until
// ctx ends or the session is gone. It calls hand with each job that has not been
// acknowledged. If hand returns an error, Deliver calls it again after a pause; otherwise it
// acknowledges the job. If several processes deliver to one owner in a session, one of them
// does so at a time, and another takes over when it ends. A job is therefore reported
// once, or twice if a process dies between hand and the acknowledgement. hand may be called
// concurrently for different jobs.
func (s *Session) Deliver(ctx context.Context, owner string, hand func(context.Context, *Job) error) error {
	d := deliverer{session: s, owner: owner, hand: hand, busy: map[string]bool{}}
	defer d.helper.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		err := d.watch(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		info, gone := s.engine.Show(ctx, s.ID())
		if gone != nil {
			return fmt.Errorf("session %s: jobs: %w", s.ID(), gone)
		}
		if info.Status != engine.StatusRunning && info.Status != engine.StatusPaused {
			return fmt.Errorf("session %s: jobs: its container is %s: %w", s.ID(), info.Status, err)
		}
		select {
		case <-time.After(reopenPause):
		case <-ctx.Done():
		}
	}
}

// deliverer is one call of Deliver.
type deliverer struct {
	session *Session
	owner   string
	hand    func(context.Context, *Job) error
	helper  sync.WaitGroup

	mu   sync.Mutex
	busy map[string]bool // guarded by mu; tags of jobs whose delivery has begun
}

// watch delivers until the runner that watches the jobs ends. Until then, other processes
// that deliver to the same owner wait.
func (d *deliverer) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := make(chan struct{}, 1)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		d.lookAt(ctx, news)
	}()
	sum := sha256.Sum256([]byte(d.owner))
	q := wire.JobQuery{Verb: wire.JobWatch, Watch: hex.EncodeToString(sum[:8])}
	err := d.session.askJobs(ctx, q, helperStreams{out: signal(news)})
	cancel()
	close(news)
	<-looked
	d.helper.Wait() // another process may have the next watch
	return err
}

// signal is a writer that signals each write.
type signal chan<- struct{}

func (s signal) Write(p []byte) (int, error) {
	select {
	case s <- struct{}{}:
	default:
	}
	return len(p), nil
}

// lookAt lists the jobs when there is news. If that fails it tries again after a pause,
// because more news may never come.
func (d *deliverer) lookAt(ctx context.Context, news <-chan struct{}) {
	var again <-chan time.Time
	for failed := 0; ; {
		select {
		case _, more := <-news:
			if !more {
				return
			}
		case <-again:
		}
		if again = nil; d.look(ctx) == nil || ctx.Err() != nil {
			failed = 0
			continue
		}
		failed++
		again = time.After(RetryPause(failed))
	}
}

// look starts the delivery of each job that has ended since.
func (d *deliverer) look(ctx context.Context) error {
	all, err := d.session.Jobs(ctx, "")
	if err != nil {
		return err
	}
	for _, info := range all {
		if info.Owner != d.owner || info.Told || info.State == JobRunning || info.State == JobUnknown {
			continue
		}
		d.mu.Lock()
		busy := d.busy[info.tag]
		d.busy[info.tag] = true
		d.mu.Unlock()
		if !busy {
			d.helper.Go(func() { d.tell(ctx, &Job{session: d.session, info: info}) })
		}
	}
	return nil
}

// tell delivers one job, and tries again until that succeeds.
func (d *deliverer) tell(ctx context.Context, j *Job) {
	for try := 1; ctx.Err() == nil; try++ {
		if d.hand(ctx, j) == nil {
			d.session.noteJob(j.info)
			// If this fails, the session or the job is gone.
			_ = j.Acknowledge(context.WithoutCancel(ctx))
			return
		}
		select {
		case <-time.After(RetryPause(try) + rand.N(RetryJitter)):
		case <-ctx.Done():
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, j.info.tag) // the next watch delivers it
}
