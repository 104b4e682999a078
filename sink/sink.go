// Package sink is where a command's output goes: secrets are masked in it, a
// window of it is kept for a reader as safe text, all of it goes to an artifact
// on disk if the window cannot hold it, and live writers and subscribers see it
// while it arrives.
//
//	demux ─ scrub ─┬─ live writer    bytes
//	               ├─ artifact       bytes
//	               └─ text ─ scrub ─ window ─ result, updates
//
// Nothing is stored or shown before it is scrubbed. Text is scrubbed once more
// where making it safe joined what sequences had kept apart. Memory is bounded
// whatever comes; failing to store anything is never the command's failure.
package sink

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// Streams says whether stdout and stderr are told apart.
type Streams int

const (
	// Split keeps a window for each.
	Split Streams = iota
	// Merged has one for both; Stdout and Stderr are the same writer.
	Merged
)

// Options say what becomes of the output. The zero value keeps the last 50 KiB of
// each stream, and an artifact if that is not all.
type Options struct {
	Streams  Streams
	Window   Window
	Text     Text
	Artifact ArtifactMode

	// LiveStdout and LiveStderr get the scrubbed bytes as they come, if not nil. A
	// writer that blocks blocks its stream; one that fails is written to no more,
	// and its error is reported in the Output. With Merged, all goes to LiveStdout.
	LiveStdout, LiveStderr io.Writer
	// Release, when it is closed, gives up live writers that block: what they have
	// not taken is shown and kept all the same, and ErrGivenUp is reported. Such a
	// writer keeps a goroutine until it returns. Nil waits for them.
	Release <-chan struct{}

	// Limit is how many bytes the command may write in all; 0 means any number.
	// What is beyond it is counted and dropped, and OnLimit is called once, if not
	// nil, from within a Write; it must not block.
	Limit   int64
	OnLimit func()

	// Minimize are applied to the text that is shown, in order, provided that the
	// original can be stored. Of a truncated text nothing is minimized.
	Minimize []Filter
}

// Stream is what is kept of one stream.
type Stream struct {
	Head, Tail string      // what is shown; Tail only if both ends are
	Truncation *Truncation // nil if all is shown
	Lines      int64       // of text in all
	TextBytes  int64       // of text in all
	Bytes      int64       // received, before scrubbing
	Binary     bool        // it has NULs or bytes that are not UTF-8; the text is not faithful
	Live       error       // why the live writer was given up, or nil
}

// Output is what is kept of a command's output.
type Output struct {
	Stdout, Stderr Stream // with Merged all is in Stdout
	Artifact       Artifact
	LimitExceeded  bool
	Minimized      bool
	Masked         int64 // secrets, each time that one was found
}

// Truncated tells whether something is not shown.
func (o Output) Truncated() bool {
	return o.Stdout.Truncation != nil || o.Stderr.Truncation != nil
}

// Sink takes the output of one command. Stdout and Stderr may be written to at
// the same time, each by one goroutine; everything else may be called at any time.
type Sink struct {
	opts     Options
	spill    *spill
	hub      *hub
	stdout   *stream
	stderr   *stream // == stdout if merged
	received atomic.Int64
	scrubbed atomic.Int64
	exceeded atomic.Bool

	closing sync.Once
	output  Output
}

// New returns a sink. With a session it takes the next artifact id of it, whether
// or not there will be an artifact; a session that has none to give is no error.
// Nil stores nothing. Secrets may be nil too.
func New(opts Options, session *Session, secrets *Secrets) (*Sink, error) {
	switch {
	case opts.Limit < 0:
		return nil, fmt.Errorf("output limit %d: must not be negative", opts.Limit)
	case opts.Window.Whole < 0 || opts.Window.Head < 0 || opts.Window.Tail < 0:
		return nil, fmt.Errorf("output window %+v: must not be negative", opts.Window)
	case opts.Streams == Merged && opts.LiveStderr != nil:
		return nil, errors.New("merged streams have one live writer: set LiveStdout only")
	}
	s := &Sink{opts: opts}
	s.spill = newSpill(session, opts.Artifact, opts.Window.withDefaults().Whole)
	s.hub = newHub(s.snapshot)
	s.stdout = newStream(s, opts.LiveStdout, secrets)
	s.stderr = s.stdout
	if opts.Streams == Split {
		s.stderr = newStream(s, opts.LiveStderr, secrets)
	}
	return s, nil
}

// Stdout returns the writer for standard output. Its Write never fails.
func (s *Sink) Stdout() io.Writer { return s.stdout }

// Stderr returns the writer for standard error. Its Write never fails.
func (s *Sink) Stderr() io.Writer { return s.stderr }

// ArtifactID returns the id that an artifact of this command has if there is one
// or will be; "" without a store, or if none could be had.
func (s *Sink) ArtifactID() string { return s.spill.id }

// Subscribe returns updates from now on. After Close there is one, the last.
func (s *Sink) Subscribe() *Subscription { return s.hub.subscribe() }

// TextFrom returns the text of standard output from a byte of it on, and the byte
// at which what it returns begins: a later one, if the window does not hold that
// one any more. Text that more output may still change is not in it. It may be
// called after Close too.
func (s *Sink) TextFrom(from int64) (text string, begin int64) {
	t := s.stdout
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.window.from(from)
}

// Close ends the output: call it when both streams have ended. It waits for the
// disk, as any write to it would. Later calls return the same.
func (s *Sink) Close() Output {
	s.closing.Do(func() {
		s.stdout.finish()
		if s.stderr != s.stdout {
			s.stderr.finish()
		}
		o := &s.output
		o.LimitExceeded = s.exceeded.Load()
		cause := ""
		if o.LimitExceeded {
			cause = fmt.Sprintf("the command wrote more than the limit of %d bytes", s.opts.Limit)
		}
		o.Artifact = s.spill.finish(s.overflowed(), cause)
		o.Stdout = s.stdout.result()
		if s.stderr != s.stdout {
			o.Stderr = s.stderr.result()
		}
		o.Masked = s.stdout.scrub.masked + s.stdout.again.masked
		if s.stderr != s.stdout {
			o.Masked += s.stderr.scrub.masked + s.stderr.again.masked
		}
		s.minimize(o)
		s.hub.close()
	})
	return s.output
}

func (s *Sink) overflowed() bool { return s.stdout.overflowed() || s.stderr.overflowed() }

func (s *Sink) snapshot() Update {
	u := Update{Stdout: s.stdout.text(), Bytes: s.scrubbed.Load()}
	if s.stderr != s.stdout {
		u.Stderr = s.stderr.text()
	}
	return u
}

// admit returns what of p is within the limit.
func (s *Sink) admit(p []byte) []byte {
	if s.opts.Limit == 0 {
		return p
	}
	after := s.received.Add(int64(len(p)))
	if after <= s.opts.Limit {
		return p
	}
	if s.exceeded.CompareAndSwap(false, true) && s.opts.OnLimit != nil {
		s.opts.OnLimit()
	}
	return p[:max(0, int64(len(p))-(after-s.opts.Limit))]
}

// A stream is the way of one stream through the sink.
type stream struct {
	sink    *Sink
	live    io.Writer // nil once it failed
	gate    *live     // around the live writer; nil without a Release
	liveErr error
	bytes   int64
	scrub   *scrubber

	mu     sync.Mutex // held while text is made, not while anything is written
	clean  *cleaner   // guarded by mu
	again  *scrubber  // guarded by mu; secrets that show up in the text
	window *window    // guarded by mu
}

func newStream(s *Sink, w io.Writer, secrets *Secrets) *stream {
	t := &stream{sink: s, live: w, window: newWindow(s.opts.Window)}
	if w != nil && s.opts.Release != nil {
		t.gate = newLive(w, s.opts.Release)
		t.live = t.gate
	}
	t.again = newScrubber(secrets, func(p []byte, _ origin) { t.window.write(p) })
	t.clean = newCleaner(s.opts.Text, t.again.write)
	t.scrub = newScrubber(secrets, t.deliver)
	return t
}

// Write takes output of the command. It keeps nothing of p.
func (t *stream) Write(p []byte) (int, error) {
	t.bytes += int64(len(p))
	if kept := t.sink.admit(p); len(kept) > 0 {
		t.scrub.write(kept, changed)
	}
	return len(p), nil
}

// deliver passes on scrubbed bytes.
func (t *stream) deliver(p []byte, from origin) {
	t.sink.scrubbed.Add(int64(len(p)))
	if t.live != nil {
		if _, err := t.live.Write(p); err != nil {
			t.live, t.liveErr = nil, err
		}
	}
	t.mu.Lock()
	t.clean.write(p, from)
	overflowed := t.window.overflowed()
	t.mu.Unlock()
	t.sink.spill.write(p, overflowed)
	t.sink.hub.touch()
}

// finish passes on what waits for more.
func (t *stream) finish() {
	t.scrub.flush()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clean.flush()
	t.again.flush()
	if t.gate != nil {
		t.gate.close()
	}
}

func (t *stream) overflowed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.window.overflowed()
}

// text returns what is shown now, the line that is still being rewritten included.
func (t *stream) text() string {
	t.mu.Lock()
	head, tail, trunc := t.window.view()
	line := t.again.secrets.Scrub(string(t.clean.line))
	t.mu.Unlock()
	return Stream{Head: head, Tail: tail, Truncation: trunc}.Text() + line
}

// result is called after finish, when nobody writes any more.
func (t *stream) result() Stream {
	r := Stream{
		Lines:     t.window.lines(),
		TextBytes: t.window.bytes,
		Bytes:     t.bytes,
		Binary:    t.clean.binary,
		Live:      t.liveErr,
	}
	r.Head, r.Tail, r.Truncation = t.window.view()
	return r
}
