package tool

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// waitAll waits for jobs, each on its own, and tells of each that has ended.
func waitAll(ctx context.Context, jobs []boxJob, ended chan<- struct{}) {
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

// watch notes that a call is going to tell of jobs: until it is over, or has told,
// nobody else does.
func (b *jobBook) watch(jobs []boxJob) (over func()) {
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

// unwatched waits until no call is going to tell of a job.
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

// deliveryWindow is how long a finished job waits for others, to be told of
// together with them.
const deliveryWindow = 100 * time.Millisecond

// Deliveries hands over the results of finished jobs, those that had ended before
// included, until ctx ends or the sandbox session is gone. Jobs that end at about
// the same time are handed over together. If hand fails the same jobs come again,
// after 500 ms and then after twice as long, up to 30 s; if it does not they are
// acknowledged. Jobs that the tool job has told of are not handed over. Of all
// processes that do this for one owner in a sandbox session, one does at a time.
// hand may be called while another call of it has not returned.
func (s *Session) Deliveries(ctx context.Context, hand func(context.Context, []Delivery) error) error {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	b := batcher{hand: hand}
	defer b.timers.Wait()
	return s.box.Deliver(ctx, s.opts.Owner, func(ctx context.Context, j boxJob) error {
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

// delivery is what is to be told of a job, unless somebody has told it.
func (s *Session) delivery(ctx context.Context, j boxJob) (Delivery, bool, error) {
	info, err := j.Now(ctx)
	if errors.Is(err, ErrUnknownJob) {
		return Delivery{}, false, nil
	}
	if err != nil {
		return Delivery{}, false, err
	}
	if info.Told || info.State == sandbox.JobCancelled {
		return Delivery{}, false, nil
	}
	done, err := s.describe(ctx, info)
	if err != nil {
		return Delivery{}, false, err
	}
	return done.delivery(), true, nil
}

func (f finished) delivery() Delivery {
	return Delivery{JobID: f.job.ID, Label: f.job.Label, Text: f.job.Result + f.job.Error, ArtifactID: f.artifact}
}

// batcher joins deliveries.
type batcher struct {
	hand   func(context.Context, []Delivery) error
	timers sync.WaitGroup

	mu     sync.Mutex
	coming int    // guarded by mu; those that are being worded
	open   *batch // guarded by mu; nil if none is being filled
}

type batch struct {
	list []Delivery
	done chan struct{} // closed when it has been handed over
	err  error         // set before done is closed
}

// expect says that a delivery will come, or will not after all.
func (b *batcher) expect(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.coming += n
}

// add hands an expected delivery over with those that come at about the same time.
func (b *batcher) add(ctx context.Context, d Delivery) error {
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

// fill waits for the window to be over, and for what is still coming as long
// again a few times. Then the batch is closed.
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

// FollowUp is the message that tells of finished jobs that nobody has been told
// of, "" if there are none. They count as told. It is for front ends that have no
// other way than to put it in front of another result; use either it or
// Deliveries.
func (s *Session) FollowUp(ctx context.Context) string {
	if s.opts.Contract != Agent || !s.jobs.maybePending() {
		return ""
	}
	s.jobs.notePending(false) // until there are new ones
	infos, err := s.box.Jobs(ctx, s.opts.Owner)
	if err != nil {
		s.jobs.notePending(true)
		s.opts.Log.WarnContext(ctx, "follow-up on jobs", "error", err)
		return ""
	}
	var all []Delivery
	left := false
	for _, info := range infos {
		if info.Owner != s.opts.Owner || info.Told {
			continue
		}
		if info.State == sandbox.JobRunning || s.jobs.watched(keyOf(info)) {
			left = true
			continue
		}
		d, err := s.toldNow(ctx, info)
		if err != nil {
			left = true
			s.opts.Log.WarnContext(ctx, "follow-up on a job", "job", info.ID, "error", err)
			continue
		}
		if d != nil {
			all = append(all, *d)
		}
	}
	if left {
		s.jobs.notePending(true)
	}
	if len(all) == 0 {
		return ""
	}
	return FollowUp(all)
}

// toldNow words a finished job and counts it as told; nil if somebody else has.
func (s *Session) toldNow(ctx context.Context, info sandbox.JobInfo) (*Delivery, error) {
	j, err := s.find(ctx, info.ID)
	if err != nil {
		return nil, err
	}
	d, ok, err := s.delivery(ctx, j)
	if err != nil || !ok {
		return nil, err
	}
	return &d, j.Acknowledge(ctx)
}

// watched tells whether a call is going to tell of a job.
func (b *jobBook) watched(k jobKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watchers[k] > 0
}

func (b *jobBook) maybePending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pending
}

// notePending notes whether there is something that may have to be told later.
func (b *jobBook) notePending(left bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = left
}
