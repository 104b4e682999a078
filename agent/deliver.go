package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// waitAll waits for several jobs at once, and sends a value for each that has ended.
func waitAll(ctx context.Context, jobs []sandboxJob, ended chan<- struct{}) {
	var all sync.WaitGroup
	for _, j := range jobs {
		all.Go(func() {
			if _, err := j.Wait(ctx); err == nil || errors.Is(err, ErrUnknownJob) {
				ended <- struct{}{} // there is room
			}
		})
	}
	all.Wait()
}

// watch notes that a call of the job tool will report these jobs. Until it calls over
// they are not delivered in another way.
func (b *jobBook) watch(jobs []sandboxJob) (over func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range jobs {
		k := keyOf(j.Info())
		if b.watchers[k]++; b.idle[k] == nil {
			b.idle[k] = make(chan struct{})
		}
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, j := range jobs {
			k := keyOf(j.Info())
			if b.watchers[k]--; b.watchers[k] == 0 {
				close(b.idle[k])
				delete(b.idle, k)
				delete(b.watchers, k)
			}
		}
	}
}

// unwatched waits until no call will report a job.
func (b *jobBook) unwatched(ctx context.Context, k jobKey) error {
	b.mu.Lock()
	idle := b.idle[k]
	b.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// deliveryWindow is how long a finished job waits for others to be delivered with.
const deliveryWindow = 100 * time.Millisecond

// Deliveries passes the results of finished jobs to hand until ctx ends or the sandbox
// session is gone. Jobs that had ended before are included, and jobs that end at about
// the same time are passed together. If hand returns nil the jobs are acknowledged;
// otherwise it gets them again, after 500 ms at first and then after twice as long, up
// to 30 s. Jobs that the tool job has reported are left out. If several processes do
// this for one owner in a sandbox session, one of them delivers at a time. hand may be
// called again before an earlier call has returned.
func (s *Session) Deliveries(ctx context.Context, hand func(context.Context, []tool.Delivery) error) error {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	b := batcher{hand: hand}
	defer b.timers.Wait()
	return s.sandbox.Deliver(ctx, s.opts.Owner, func(ctx context.Context, j sandboxJob) error {
		if err := s.jobs.unwatched(ctx, keyOf(j.Info())); err != nil {
			return err
		}
		b.expect(1)
		d, ok, err := s.delivery(ctx, j)
		if err != nil || !ok {
			b.expect(-1)
			return err
		}
		return b.add(ctx, d)
	})
}

// delivery words the result of a job. It returns false if the owner knows it already.
func (s *Session) delivery(ctx context.Context, j sandboxJob) (tool.Delivery, bool, error) {
	info, err := j.Now(ctx)
	if errors.Is(err, ErrUnknownJob) {
		return tool.Delivery{}, false, nil
	}
	if err != nil {
		return tool.Delivery{}, false, err
	}
	if info.Told || info.State == sandbox.JobCancelled {
		return tool.Delivery{}, false, nil
	}
	done, err := s.describe(ctx, info)
	if err != nil {
		return tool.Delivery{}, false, err
	}
	return done.delivery(), true, nil
}

func (f finished) delivery() tool.Delivery {
	return tool.Delivery{JobID: f.job.ID, Label: f.job.Label, Text: f.job.Result + f.job.Error, ArtifactID: f.artifact}
}

// batcher joins deliveries.
type batcher struct {
	hand   func(context.Context, []tool.Delivery) error
	timers sync.WaitGroup

	mu     sync.Mutex
	coming int    // guarded by mu; deliveries that are being worded
	open   *batch // guarded by mu; nil if none is being filled
}

type batch struct {
	list []tool.Delivery
	done chan struct{} // closed when it has been handed over
	err  error         // set before done is closed
}

// expect adds n to the number of deliveries that add will get.
func (b *batcher) expect(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.coming += n
}

// add passes an expected delivery to hand, with those that come at about the same time.
// It returns what hand has returned.
func (b *batcher) add(ctx context.Context, d tool.Delivery) error {
	b.mu.Lock()
	b.coming--
	if b.open == nil {
		mine := &batch{done: make(chan struct{})}
		b.open = mine
		b.timers.Go(func() { // ends after the window and hand
			defer close(mine.done)
			b.fill()
			if mine.err = context.Cause(ctx); mine.err == nil {
				mine.err = b.hand(ctx, mine.list)
			}
		})
	}
	mine := b.open
	mine.list = append(mine.list, d)
	b.mu.Unlock()
	<-mine.done
	return mine.err
}

// fill waits for the window to be over, and for a few more windows if deliveries are
// still expected. Then it closes the batch.
func (b *batcher) fill() {
	const most = 10
	for n := 1; ; n++ {
		time.Sleep(deliveryWindow)
		b.mu.Lock()
		if b.coming == 0 || n == most {
			b.open = nil
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
	}
}
