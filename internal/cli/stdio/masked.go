package stdio

import (
	"bytes"
	"io"
	"sync"

	"github.com/sandboxbash/sandboxbash/sink"
)

// Masked is a stream of this process as everything but the output of a command that
// is passed on as it comes goes to it: that is masked in package sink. It may be used
// concurrently.
type Masked struct {
	masks  func() *sink.Secrets
	to     io.Writer // the stream itself, or its guard
	before func()    // called before each write

	mu  sync.Mutex
	by  *sink.Secrets // guarded by mu
	out *sink.Masked  // guarded by mu; nil before the first word
	err error         // guarded by mu; the first of a write
}

// Write implements io.Writer.
func (m *Masked) Write(p []byte) (int, error) {
	m.before()
	secrets := m.masks()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.out == nil || m.by != secrets {
		m.flush()
		m.by, m.out = secrets, sink.NewMasked(m.to, secrets)
	}
	n, err := m.out.Write(p)
	if m.err == nil {
		m.err = err
	}
	return n, err
}

// writeJSON writes a document behind everything written so far. Its guard need not
// see it: see printJSON.
func (m *Masked) writeJSON(doc []byte) error {
	m.before()
	doc = m.masks().ScrubJSON(doc)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
	_, err := Raw(m.to).Write(inertJSON(doc))
	if m.err == nil {
		m.err = err
	}
	return err
}

// Flush needs mu.
func (m *Masked) flush() {
	if m.out == nil {
		return
	}
	if err := m.out.Flush(); m.err == nil {
		m.err = err
	}
}

// End writes what waits, and returns the first error there was.
func (m *Masked) End() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flush()
	return m.err
}

// Masked is w with secrets masked.
func (s *Streams) Masked(w io.Writer) *Masked {
	return &Masked{masks: s.masks, to: w, before: s.unwait}
}

// Lines is w for messages, with the secrets in them masked.
func (s *Streams) Lines(w io.Writer) io.Writer { return &jsonLines{masks: s.masks, w: w} }

// PastMasks returns the stream that is behind a masked one, for what is masked
// already: the guarded one, if it is.
func PastMasks(w io.Writer) io.Writer {
	if m, ok := w.(*Masked); ok {
		return m.to
	}
	return w
}

// EndMasked writes what waits, and returns an error of standard output: a program that has not
// printed what was asked for has not succeeded.
func (s *Streams) EndMasked() error {
	if m, ok := s.Stderr.(*Masked); ok {
		_ = m.End()
	}
	if m, ok := s.Stdout.(*Masked); ok {
		return m.End()
	}
	return nil
}

// jsonLines masks the secrets in messages, an object a line, that go to w. What
// identifies a request is its client's own, and stays. It is for one goroutine.
type jsonLines struct {
	masks func() *sink.Secrets
	w     io.Writer
	line  []byte // the start of one
}

// Write takes any part of messages.
func (j *jsonLines) Write(p []byte) (int, error) {
	n := bytes.LastIndexByte(p, '\n') + 1
	if n == 0 {
		j.line = append(j.line, p...)
		return len(p), nil
	}
	secrets := j.masks()
	var out []byte
	for line := range bytes.Lines(append(j.line, p[:n]...)) {
		out = append(append(out, secrets.ScrubJSON(bytes.TrimSuffix(line, []byte{'\n'}), "id")...), '\n')
	}
	j.line = append(j.line[:0:0], p[n:]...)
	if _, err := j.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
