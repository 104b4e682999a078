package sink

import (
	"bytes"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/sandboxbash/sandboxbash/internal/scrub"
)

// maxParams is how many bytes of a control sequence's parameters are kept: sequences that
// erase have one or two.
const maxParams = 8

// A rewound is a line that carriage returns start again. The part of its earlier state
// that the new state does not cover on a terminal becomes a line of its own. It may show
// more than a terminal would, but never less. The zero value is an empty line.
type rewound struct {
	text  []byte // the line so far
	under []byte // what the line is written over
	solid int    // 1 + the bytes of text that certainly are at the line's start; 0: all of them
	blank int    // bytes of text that were erased
}

func (l *rewound) write(p []byte) { l.text = append(l.text, p...) }

// move notes that the cursor may be elsewhere now: later text covers nothing.
func (l *rewound) move() {
	if l.solid == 0 {
		l.solid = 1 + len(l.text)
	}
}

// erase notes that the line was erased, from the cursor on or whole.
func (l *rewound) erase(whole bool) {
	if whole {
		l.blank = len(l.text)
	}
	if whole || l.solid == 0 && bytes.IndexByte(l.text, '\t') < 0 {
		l.under = l.under[:0]
	}
}

// rewind starts a new state of the line. It appends to out what the current state did not
// cover.
func (l *rewound) rewind(out []byte) []byte {
	if len(l.text) == 0 {
		l.solid = 0
		return out
	}
	out = l.settle(out)
	if l.blank < len(l.text) {
		l.under = append(l.under, l.text...)
	}
	l.text, l.solid, l.blank = l.text[:0], 0, 0
	return out
}

// end appends the line to out, without a line feed, and empties it.
func (l *rewound) end(out []byte) []byte {
	out = append(l.settle(out), l.text...)
	l.text, l.solid, l.blank = l.text[:0], 0, 0
	return out
}

// settle appends what the line does not cover, as a line of its own.
func (l *rewound) settle(out []byte) []byte {
	if !l.covers() {
		out = append(out, l.under...)
		if len(l.text) > 0 {
			out = append(out, '\n')
		}
	}
	l.under = l.under[:0]
	return out
}

// covers reports whether a terminal shows nothing of what the line is written over.
func (l *rewound) covers() bool {
	if len(l.under) == 0 {
		return true
	}
	top := l.text
	if l.solid > 0 {
		top = top[:l.solid-1]
	}
	if n := bytes.IndexByte(top, '\t'); n >= 0 { // a TAB moves the cursor and covers nothing
		top = top[:n]
	}
	under := bytes.TrimRight(l.under, " \t")
	if bytes.IndexByte(under, '\t') >= 0 {
		return len(top) >= len(under) && bytes.Equal(top[:len(under)], under)
	}
	return columns(top) >= columns(under)
}

// columns returns the width of a text on a terminal.
func columns(p []byte) int {
	for _, b := range p {
		if b >= utf8.RuneSelf {
			return ansi.StringWidth(string(p))
		}
	}
	return len(p)
}

// shown returns the visible text of the line.
func (l *rewound) shown() string {
	now := rewound{text: l.text, under: bytes.Clone(l.under), solid: l.solid}
	return string(now.end(nil))
}

// control handles a whole control sequence.
func (c *cleaner) control(params []byte, final byte) {
	if final == 'm' && c.sgr != nil {
		c.give(scrub.Changed)
		c.buf = c.buf[:0]
		c.sgr(params)
		return
	}
	if c.opts.Return != RewindReturn {
		return
	}
	switch final {
	case 'm', 'h', 'l': // colours and modes
	case 'K', 'J':
		c.returned()
		switch string(params) {
		case "", "0":
			c.line.erase(false)
		case "2", "3":
			c.line.erase(true)
		}
	default:
		c.move()
	}
}

// move notes that the cursor may be elsewhere in its line now.
func (c *cleaner) move() {
	if c.opts.Return == RewindReturn {
		c.returned()
		c.line.move()
	}
}

// returned handles a carriage return, once it is known that no LF follows it.
func (c *cleaner) returned() {
	if c.cr {
		c.cr = false
		c.buf = c.line.rewind(c.buf)
	}
}
