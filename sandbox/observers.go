package sandbox

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sandboxbash/sandboxbash/sink"
)

// observers are several as one.
type observers []Observer

// Intend asks all of them, and refuses if one does.
func (all observers) Intend(ctx context.Context, e Observation) error {
	var errs []error
	for _, o := range all {
		if err := o.Intend(ctx, e); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (all observers) Note(e Observation) {
	for _, o := range all {
		o.Note(e)
	}
}

// observeOutput has the observers that want it called with the output of a command.
func (s *Session) observeOutput(o *sink.Options, id string, mode Mode) {
	var to []OutputObserver
	for _, one := range s.engine.observers {
		if one, ok := one.(OutputObserver); ok {
			to = append(to, one)
		}
	}
	if len(to) == 0 {
		return
	}
	pass := func(stream Stream) func([]byte) {
		return func(p []byte) {
			for _, one := range to {
				one.Output(OutputEvent{Session: s.ID(), ID: id, Mode: mode, Stream: stream, Data: p})
			}
		}
	}
	if mode == ModeTerminal {
		o.OnStdout = pass(Screen)
		return
	}
	o.OnStdout, o.OnStderr = pass(Stdout), pass(Stderr)
}

// registry knows what runs. The zero value is empty.
type registry struct {
	mu   sync.Mutex
	next uint64                  // guarded by mu
	all  map[uint64]Observation  // guarded by mu
	jobs map[string]*Observation // guarded by mu; by tag
}

// begun is one entry of a registry.
type begun struct {
	r *registry
	n uint64
}

func (r *registry) begin(e Observation) begun {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all, r.jobs = map[uint64]Observation{}, map[string]*Observation{}
	}
	r.next++
	r.all[r.next] = e
	return begun{r, r.next}
}

// end removes the entry. If the command has become a job, that is added.
func (b begun) end(e Observation) {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	job := b.r.all[b.n]
	delete(b.r.all, b.n)
	if e.JobTag != "" {
		job.Mode, job.Job, job.JobTag = ModeJob, e.Job, e.JobTag
		b.r.jobs[e.JobTag] = &job
	}
}

func (r *registry) endJob(tag string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, tag)
}

// leave removes the jobs of a session.
func (r *registry) leave(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for tag, job := range r.jobs {
		if job.Session == session {
			delete(r.jobs, tag)
		}
	}
}

// Running returns what this process runs now, in the order of the starts: commands, terminals and transfers, as Intend
// had them, and the jobs that its commands have become, until it learns of their ends. What other processes run in the same
// sessions is not in it.
func (e *Engine) Running() []Observation {
	r := &e.running
	r.mu.Lock()
	all := make([]Observation, 0, len(r.all)+len(r.jobs))
	for _, one := range r.all {
		all = append(all, one)
	}
	for _, job := range r.jobs {
		all = append(all, *job)
	}
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b Observation) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID)) })
	return all
}
