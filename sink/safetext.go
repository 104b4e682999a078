package sink

import (
	"bytes"
	"io"
	"strconv"

	"github.com/sandboxbash/sandboxbash/internal/scrub"
)

// SafeText is a writer that makes text safe before it writes to a terminal or another
// reader. It is not safe for concurrent use.
type SafeText struct {
	w       io.Writer
	cleaner *cleaner
	scrub   *scrub.Scrubber
	err     error // of w; the first one ends all writing

	waiting  []byte // colours that come after what scrub holds back
	coloured bool   // the colours are not the usual ones
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
	t.cleaner = newCleaner(opts, t.text)
	if opts.Colours {
		t.cleaner.sgr = t.colour
	}
	return t
}

// text passes on text, and the colours that have waited for it.
func (t *SafeText) text(p []byte, from scrub.Origin) {
	t.scrub.Write(p, from)
	if !t.scrub.Holds() {
		t.paint()
	}
}

// maxColours bounds the colours that wait. Further ones are dropped.
const maxColours = 1 << 10 // bytes

// colour passes on the parameters of SGR. Within what may be a secret they wait: a colour in its
// middle would keep it from being found.
func (t *SafeText) colour(params []byte) {
	if len(params) >= maxSGR || !shows(params) || len(t.waiting)+len(params) > maxColours {
		return
	}
	t.waiting = append(append(append(t.waiting, "\x1b["...), params...), 'm')
	t.coloured = len(bytes.Trim(params, "0;")) > 0
	if !t.scrub.Holds() {
		t.paint()
	}
}

func (t *SafeText) paint() {
	if len(t.waiting) > 0 && t.err == nil {
		_, t.err = t.w.Write(t.waiting)
	}
	t.waiting = t.waiting[:0]
}

// maxParam is more than any parameter of SGR that there is.
const maxParam = 255

// shows reports whether parameters of SGR are well formed and hide nothing: 8 is concealed.
func shows(params []byte) bool {
	var codes []int
	for field := range bytes.SplitSeq(params, []byte{';'}) {
		first, rest, _ := bytes.Cut(field, []byte{':'}) // 4:3 and 38:2::1:2:3 are single parameters
		n, err := strconv.Atoi("0" + string(first))
		if err != nil || n > maxParam || len(bytes.Trim(rest, "0123456789:")) > 0 {
			return false
		}
		codes = append(codes, n)
	}
	for i := 0; i < len(codes); i++ {
		switch codes[i] {
		case 8:
			return false
		case 38, 48, 58: // a colour: 5;N or 2;R;G;B
			switch {
			case i+1 < len(codes) && codes[i+1] == 5:
				i += 2
			case i+1 < len(codes) && codes[i+1] == 2:
				i += 4
			}
		}
	}
	return true
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
	t.paint()
	if t.coloured && t.err == nil {
		_, t.err = io.WriteString(t.w, "\x1b[m")
	}
	return t.err
}
