package sink

import "io"

// SafeText is a writer that makes text safe before it goes to a reader, such as
// a terminal. It is not safe for concurrent use.
type SafeText struct {
	w       io.Writer
	cleaner *cleaner
	scrub   *scrubber
	err     error // of w; the first one ends all writing
}

// NewSafeText returns a SafeText in front of w. Secrets that appear only when
// the sequences between their parts are gone are masked; nil masks nothing. Close
// must be called at the end of the stream; it does not close w.
func NewSafeText(w io.Writer, opts Text, secrets *Secrets) *SafeText {
	t := &SafeText{w: w}
	t.scrub = newScrubber(secrets, func(p []byte, _ origin) {
		if t.err == nil && len(p) > 0 {
			_, t.err = w.Write(p)
		}
	})
	t.cleaner = newCleaner(opts, t.scrub.write)
	return t
}

// Write takes any part of a stream. It fails only with the error of the writer
// behind.
func (t *SafeText) Write(p []byte) (int, error) {
	t.cleaner.write(p, changed)
	if t.err != nil {
		return 0, t.err
	}
	return len(p), nil
}

// Close writes what waited for the rest of a character or of a secret.
func (t *SafeText) Close() error {
	t.cleaner.flush()
	t.scrub.flush()
	return t.err
}
