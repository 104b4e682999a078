package core

import (
	"fmt"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

// Progress shows what takes long on standard error: bars on a terminal, else a
// line for each step. It shows nothing until there is something to show.
type Progress struct {
	streams *stdio.Streams
	silent  bool // nothing is shown
	draw    bool // bars

	mu   sync.Mutex
	bars *mpb.Progress       // guarded by mu; nil until the first step with a size
	bar  map[string]*mpb.Bar // guarded by mu; by step
	last map[string]string   // guarded by mu; the status of each step
	over bool                // guarded by mu
}

// NewProgress shows steps on standard error while they are under way, unless the
// configuration asks for silence or JSON.
func NewProgress(streams *stdio.Streams, cfg *Configuration) *Progress {
	return &Progress{streams: streams, silent: cfg.Quiet || cfg.JSON, draw: stdio.IsTerminal(streams.Stderr), bar: map[string]*mpb.Bar{}, last: map[string]string{}}
}

// maxSteps bounds the steps that are shown apart; further ones show as one.
const maxSteps = 256

// Show takes one step of a pull, load or build. Its words are an engine's, a
// registry's or a build's: they are made safe.
func (p *Progress) Show(s engine.Progress) {
	if p.silent {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	if _, known := p.last[s.ID]; !known && len(p.last) >= maxSteps {
		s.ID = ""
	}
	if p.draw && s.Total > 0 {
		p.advance(s)
		return
	}
	if p.last[s.ID] == s.Status || s.Status == "" || p.bar[s.ID] != nil {
		return
	}
	p.last[s.ID] = s.Status
	line := s.Status
	if s.ID != "" {
		line = s.ID + ": " + line
	}
	line = p.streams.Safe(line)
	if p.bars != nil {
		_, _ = fmt.Fprintln(p.bars, line)
		return
	}
	fmt.Fprintln(p.streams.Stderr, line)
}

// advance moves a step's bar. It needs mu.
func (p *Progress) advance(s engine.Progress) {
	if p.bars == nil {
		p.bars = mpb.New(mpb.WithOutput(stdio.Raw(p.streams.Stderr)), mpb.WithAutoRefresh())
	}
	b := p.bar[s.ID]
	if b == nil {
		name := p.streams.Safe(s.ID + " " + s.Status)
		b = p.bars.AddBar(s.Total,
			mpb.PrependDecorators(decor.Name(name, decor.WCSyncSpaceR)),
			mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f")))
		p.bar[s.ID] = b
		p.last[s.ID] = s.Status
	}
	b.SetTotal(s.Total, false)
	b.SetCurrent(min(s.Current, s.Total))
}

// Close ends the showing.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.bars == nil {
		return
	}
	for _, b := range p.bar {
		b.Abort(false) // those that are complete stay so
	}
	p.bars.Wait()
}
