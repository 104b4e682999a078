package core

import (
	"fmt"
	"sync"

	"github.com/docker/go-units"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

// Waiting begins to wait for something, such as "copying the workspace": on a terminal, a line on
// standard error says so from the first second on, unless the configuration asks for silence or
// JSON. The caller must call Done of what it returns, which may be nil.
func (c *Configuration) Waiting(what string) *stdio.Waiting {
	if c.Quiet || c.JSON {
		return nil
	}
	return c.streams.Waiting(what)
}

// Progress shows the steps of a pull, a load, a build or a start as a Waiting does.
type Progress struct {
	streams *stdio.Streams
	what    string
	silent  bool
	wait    *stdio.Waiting

	mu    sync.Mutex
	lines bool             // guarded by mu; see Lines
	steps map[string]*step // guarded by mu; those with a size, by their ids
	over  bool             // guarded by mu
}

// step is a step of a known size, such as a layer's download. What is done with a layer after
// that, under another status, does not count again.
type step struct {
	status       string
	current, all int64 // bytes
}

// NewProgress begins to wait. The caller must call Close.
func NewProgress(cfg *Configuration, what string) *Progress {
	return &Progress{streams: cfg.streams, what: what, silent: cfg.Quiet || cfg.JSON, wait: cfg.Waiting(what), steps: map[string]*step{}}
}

// Lines has messages about the whole printed on standard error, also where that is not a
// terminal: those of a build are its commands' output.
func (p *Progress) Lines() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = true
}

// maxSteps bounds the steps that are counted apart; further ones count as one.
const maxSteps = 256

// Show takes one step of a pull, load or build. Its words are an engine's, a
// registry's or a build's: they are made safe.
func (p *Progress) Show(s engine.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent || p.over || s.Status == "" && s.Total == 0 {
		return
	}
	if p.lines && s.ID == "" && s.Total == 0 {
		fmt.Fprintln(p.streams.Stderr, p.streams.Safe(s.Status))
		return
	}
	p.count(s)
	p.wait.Say(p.text(s))
}

// count needs mu.
func (p *Progress) count(s engine.Progress) {
	one := p.steps[s.ID]
	switch {
	case one == nil && s.Total <= 0:
		return
	case one == nil:
		if len(p.steps) >= maxSteps {
			s.ID = ""
		}
		one = &step{status: s.Status}
		p.steps[s.ID] = one
	}
	if s.Status != one.status {
		one.current = one.all
		return
	}
	one.current, one.all = min(s.Current, s.Total), s.Total
}

// text needs mu.
func (p *Progress) text(s engine.Progress) string {
	text := p.what + ": " + s.Status
	var current, all int64
	for _, one := range p.steps {
		current, all = current+one.current, all+one.all
	}
	if all > 0 {
		text += fmt.Sprintf(", %s of %s", units.HumanSize(float64(current)), units.HumanSize(float64(all)))
	}
	return text
}

// Close ends the wait. It may be called more than once.
func (p *Progress) Close() {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	p.wait.Done()
}
