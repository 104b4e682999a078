package sink

import (
	"io"

	"github.com/sandboxbash/sandboxbash/internal/scrub"
)

// Masked is a writer that masks secrets in text before it writes to another writer. It
// holds back what may be the start of a secret, at most until the end of the line: each
// line of a value with several lines is masked by itself. It is not safe for concurrent
// use.
type Masked struct {
	w     io.Writer
	scrub *scrub.Scrubber
	err   error // of w; the first one ends all writing
}

// NewMasked returns a Masked in front of w. If secrets is nil, nothing is masked.
func NewMasked(w io.Writer, secrets *Secrets) *Masked {
	m := &Masked{w: w}
	m.scrub = scrub.New(secrets, func(p []byte, _ scrub.Origin) {
		if m.err == nil && len(p) > 0 {
			_, m.err = m.w.Write(p)
		}
	})
	return m
}

// Write writes any part of the text. Its errors are those of the other writer.
func (m *Masked) Write(p []byte) (int, error) {
	m.scrub.Write(p, scrub.Changed)
	if n := len(p); n > 0 && p[n-1] == '\n' {
		m.scrub.Flush()
	}
	if m.err != nil {
		return 0, m.err
	}
	return len(p), nil
}

// Flush writes what is held back.
func (m *Masked) Flush() error {
	m.scrub.Flush()
	return m.err
}
