// Package sink takes the output of commands. It masks secrets, keeps a window of the
// output as safe text for a reader, writes all of the output to an artifact on disk if
// the window cannot hold it, and passes it to live writers and subscribers while it
// arrives.
//
//	demux ─ scrub ─┬─ live writer    bytes
//	               ├─ artifact       bytes
//	               └─ text ─ scrub ─ window ─ result, updates
//
// Nothing is stored or shown before it is scrubbed. Text is scrubbed again, because
// removing escape sequences can join the parts of a secret. Memory is bounded for every
// output. A failure to store output never fails the command.
package sink

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/sandboxbash/sandboxbash/internal/scrub"
)

// Streams says whether stdout and stderr are told apart.
type Streams int

const (
	// Split keeps a window for each.
	Split Streams = iota
	// Merged has one for both; Stdout and Stderr are the same writer.
	Merged
)

// Options say what to do with the output. The zero value keeps the last 50 KiB of each
// stream, and writes an artifact if there is more.
type Options struct {
	Streams  Streams
	Window   Window
	Text     Text
	Artifact ArtifactMode

	// LiveStdout and LiveStderr, if not nil, get the scrubbed bytes as they arrive. A writer that
	// blocks blocks its stream. A writer that fails gets no further output, and its error is
	// reported in the Output. With Merged, all output goes to LiveStdout.
	LiveStdout, LiveStderr io.Writer
	// Release, when it is closed, gives up live writers that block. The output that they
	// have not taken is still shown and kept, and ErrGivenUp is reported. Such a writer
	// keeps a goroutine until it returns. If Release is nil, live writers are waited for
	// without a limit. A Releaser is released instead of being given up.
	Release <-chan struct{}

	// Limit is how many bytes the command may write in all; 0 means any number. Further
	// bytes are counted and dropped. OnLimit, if not nil, is called once from within a
	// Write when the limit is exceeded; it must not block.
	Limit   int64
	OnLimit func()

	// Minimize filters are applied in order to the text that is shown, if the original can
	// be stored. A truncated text is not minimized.
	Minimize []Filter
}

// Stream is what is kept of one stream.
type Stream struct {
	Head, Tail string      // what is shown; Tail is "" unless both ends are shown
	Truncation *Truncation // nil if all is shown
	Lines      int64       // of text in all
	TextBytes  int64       // of text in all
	Bytes      int64       // received, before scrubbing
	Binary     bool        // it has NULs or bytes that are not UTF-8, which Text does not show
	Live       error       // why the live writer was given up, or nil
}

// Output is what is kept of a command's output.
type Output struct {
	Stdout, Stderr Stream // with Merged all is in Stdout
	Artifact       Artifact
	LimitExceeded  bool
	Minimized      bool
	Masked         int64 // occurrences of secrets
}

// Truncated reports whether part of the output is not shown.
func (o Output) Truncated() bool {
	return o.Stdout.Truncation != nil || o.Stderr.Truncation != nil
}

// Sink takes the output of one command. Stdout and Stderr may be written to at the same
// time, each by one goroutine. All other methods may be called at any time.
type Sink struct {
	opts     Options
	secrets  *Secrets
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

// New returns a sink. It takes the session's next artifact id, whether or not there will
// be an artifact; it is not an error if the session cannot give one. With a nil session
// nothing is stored. Secrets may be nil too.
func New(opts Options, session *Session, secrets *Secrets) (*Sink, error) {
	switch {
	case opts.Limit < 0:
		return nil, fmt.Errorf("output limit %d: must not be negative", opts.Limit)
	case opts.Window.Whole < 0 || opts.Window.Head < 0 || opts.Window.Tail < 0:
		return nil, fmt.Errorf("output window %+v: must not be negative", opts.Window)
	case opts.Streams == Merged && opts.LiveStderr != nil:
		return nil, errors.New("merged streams have one live writer: set LiveStdout only")
	}
	s := &Sink{opts: opts, secrets: secrets}
	s.spill = newSpill(session, opts.Artifact, opts.Window.withDefaults().Whole)
	s.hub = newHub(s.snapshot)
	s.stdout = newStream(s, opts.LiveStdout)
	s.stderr = s.stdout
	if opts.Streams == Split {
		s.stderr = newStream(s, opts.LiveStderr)
	}
	return s, nil
}

// Stdout returns the writer for standard output. Its Write never fails.
func (s *Sink) Stdout() io.Writer { return s.stdout }

// Stderr returns the writer for standard error. Its Write never fails.
func (s *Sink) Stderr() io.Writer { return s.stderr }

// Subscribe returns a subscription to updates from now on. After Close it has one update,
// the last.
func (s *Sink) Subscribe() *Subscription { return s.hub.subscribe() }

// TextFrom returns the text of standard output from an offset on, and the offset of what
// it returns. That is larger if the window does not hold the text at from any more. It
// leaves out text that further output may still change. It may be called after Close.
func (s *Sink) TextFrom(from int64) (text string, begin int64) {
	t := s.stdout
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.window.from(from)
}

// Close ends the output; call it when both streams have ended. It waits until the
// artifact has been written. Later calls return the same Output.
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
		o.Masked = s.stdout.scrub.Masked() + s.stdout.again.Masked()
		if s.stderr != s.stdout {
			o.Masked += s.stderr.scrub.Masked() + s.stderr.again.Masked()
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

// admit returns the part of p that is within the limit.
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

// A stream handles one stream of the command.
type stream struct {
	sink    *Sink
	live    io.Writer // nil once it failed
	gate    *live     // around the live writer; nil without a Release
	liveErr error
	bytes   int64
	scrub   *scrub.Scrubber

	mu     sync.Mutex      // held while text is made, not while anything is written
	clean  *cleaner        // guarded by mu
	again  *scrub.Scrubber // guarded by mu; masks secrets in the text
	window *window         // guarded by mu
}

func newStream(s *Sink, w io.Writer) *stream {
	t := &stream{sink: s, live: w, window: newWindow(s.opts.Window)}
	if w != nil && s.opts.Release != nil {
		t.gate = newLive(w, s.opts.Release)
		t.live = t.gate
	}
	t.again = scrub.New(s.secrets, func(p []byte, _ scrub.Origin) { t.window.write(p) })
	t.clean = newCleaner(s.opts.Text, t.again.Write)
	t.scrub = scrub.New(s.secrets, t.deliver)
	return t
}

// Write handles output of the command. It does not keep p.
func (t *stream) Write(p []byte) (int, error) {
	t.bytes += int64(len(p))
	if kept := t.sink.admit(p); len(kept) > 0 {
		t.scrub.Write(kept, scrub.Changed)
	}
	return len(p), nil
}

// deliver passes on scrubbed bytes.
func (t *stream) deliver(p []byte, from scrub.Origin) {
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

// finish passes on what is held back.
func (t *stream) finish() {
	t.scrub.Flush()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clean.flush()
	t.again.Flush()
	if t.gate != nil {
		t.gate.close()
	}
}

func (t *stream) overflowed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.window.overflowed()
}

// text returns what is shown now, with the line that is still being rewritten.
func (t *stream) text() string {
	t.mu.Lock()
	head, tail, trunc := t.window.view()
	line := t.sink.secrets.Scrub(t.clean.line.shown())
	t.mu.Unlock()
	return Stream{Head: head, Tail: tail, Truncation: trunc}.Text() + line
}

// result is called after finish, when there are no more writes.
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
