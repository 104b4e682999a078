package gateway

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A program in a loop makes refusals and failures much faster than anyone can read or a log can
// hold them. So many are recorded a second, and at once after a pause; the others are counted, and
// recorded as one. Connections that are carried are recorded each: their rate is limited.
const (
	repeatRate  = 20
	repeatBurst = 200
	repeatPause = time.Second // from the first that is counted to the record of all
)

// repeats passes records on, as long as there are not too many.
type repeats struct {
	to     func(Record)
	budget *rate.Limiter

	mu      sync.Mutex
	waiting Record      // guarded by mu; stands for Count others
	timer   *time.Timer // guarded by mu; nil if Count is 0
}

func newRepeats(to func(Record)) *repeats {
	if to == nil {
		to = func(Record) {}
	}
	return &repeats{to: to, budget: rate.NewLimiter(repeatRate, repeatBurst)}
}

func (p *repeats) record(r Record) {
	if r.Allowed && r.Err == "" || p.budget.Allow() {
		p.to(r)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting.Count == 0 {
		p.waiting = Record{Time: r.Time, Kind: r.Kind, Reason: ReasonRepeats}
		p.timer = time.AfterFunc(repeatPause, p.flush)
	}
	p.waiting.Count++
}

// flush records those that were counted so far.
func (p *repeats) flush() {
	p.mu.Lock()
	r := p.waiting
	p.waiting = Record{}
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.mu.Unlock()
	if r.Count == 0 {
		return
	}
	r.Elapsed = time.Since(r.Time)
	r.Why = fmt.Sprintf("%d more were refused or failed, too fast to be told one by one", r.Count)
	p.to(r)
}
