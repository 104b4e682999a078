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

// RetryJitter is the most, exclusive, that is added to a RetryPause.
const RetryJitter = 200 * time.Millisecond

// RetryPause is the time between a try to tell the end of a job that has failed,
// counted from 1, and the next one, jitter aside.
func RetryPause(try int) time.Duration {
	pause := firstRetry
	for ; try > 1 && pause < maxRetry; try-- {
		pause *= 2
	}
	return min(pause, maxRetry)
}

// reopenPause is before watching a session's jobs again whose watch has ended.
const reopenPause = time.Second

// Deliver reports the ends of an owner's jobs, including those that ended before it was
// called, until ctx ends or the session is gone: hand is called with each job
// that has not been acknowledged, and again after a pause as long as it fails. When
// it has not failed the job is acknowledged. Of all processes that deliver to one
// owner in a session, one does at a time; the next takes over when it ends. So
// each job is reported once, and twice only if a process dies between hand and the
// acknowledgement. hand may be called concurrently for different jobs.
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
	busy map[string]bool // guarded by mu; tags of the jobs that are being told, or have been
}

// watch reports ends as long as the runner's side of the watch lives. While it does,
// other processes that deliver to the same owner wait.
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
	d.helper.Wait() // the next watch may be another process's
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

// lookAt looks at the jobs whenever there is news, and again after a pause where
// that has failed: there need not be other news.
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

// look begins to tell what is new.
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

// tell hands one job over until that works.
func (d *deliverer) tell(ctx context.Context, j *Job) {
	for try := 1; ctx.Err() == nil; try++ {
		if d.hand(ctx, j) == nil {
			d.session.noteJob(j.info)
			// If this fails the session is gone, or the job is.
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
	delete(d.busy, j.info.tag) // it is for the next watch
}
