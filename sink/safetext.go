package sink

import (
	"io"

	"github.com/sandboxbash/sandboxbash/internal/scrub"
)

// SafeText is a writer that makes text safe before it writes to a terminal or another
// reader. It is not safe for concurrent use.
type SafeText struct {
	w       io.Writer
	cleaner *cleaner
	scrub   *scrub.Scrubber
	err     error // of w; the first one ends all writing
}

// NewSafeText returns a SafeText that writes to w. It masks secrets that appear only when
// the sequences between their parts have been removed; nil masks nothing. Close must be
// called at the end of the stream; it does not close w.
func NewSafeText(w io.Writer, opts Text, secrets *Secrets) *SafeText {
	t := &SafeText{w: w}
	t.scrub = scrub.New(secrets, func(p []byte, _ scrub.Origin) {
		if t.err == nil && len(p) > 0 {
			_, t.err = w.Write(p)
		}
	})
	t.cleaner = newCleaner(opts, t.scrub.Write)
	return t
}

// Write writes any part of a stream. Its errors are those of the other writer.
func (t *SafeText) Write(p []byte) (int, error) {
	t.cleaner.write(p, scrub.Changed)
	if t.err != nil {
		return 0, t.err
	}
	return len(p), nil
}

// Close writes what is held back: a part of a character, or the possible start of a
// secret.
func (t *SafeText) Close() error {
	t.cleaner.flush()
	t.scrub.Flush()
	return t.err
}
