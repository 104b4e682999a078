package sink

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Text says how output becomes text for a reader. Escape and control sequences
// of ECMA-48 are removed, so are all control characters other than TAB and LF,
// and what is not UTF-8 becomes U+FFFD. The zero value removes carriage returns and
// leaves invisible characters alone.
type Text struct {
	Return    Return
	Invisible Invisible
}

// Return says what becomes of carriage returns.
type Return int

const (
	// RemoveReturn removes them: "10%\r20%" becomes "10%20%".
	RemoveReturn Return = iota
	// RewindReturn shows the last state of a line that is written again and again:
	// "10%\r20%" becomes "20%". Of a line longer than maxRewind only the bytes
	// since the last multiple of it can be taken back.
	RewindReturn
	// NewlineReturn makes each of CR and CRLF one LF.
	NewlineReturn
)

// Invisible says what becomes of characters that steer or hide text: bidi
// controls, zero-width characters, tags.
type Invisible int

const (
	// KeepInvisible leaves them.
	KeepInvisible Invisible = iota
	// ShowInvisible writes them as <U+202E>.
	ShowInvisible
)

// maxRewind bounds the line that RewindReturn can take back.
const maxRewind = 64 << 10

// state is where in an ECMA-48 sequence the parser is.
type state int

const (
	ground state = iota
	escape       // after ESC
	csi          // control sequence, up to its final byte
	str          // DCS, SOS, PM or APC, up to ST
	osc          // OSC, up to ST or BEL
	strRaw       // as str and osc, begun by a lone 8-bit byte, which may just as
	oscRaw       // well be text in another encoding: LF ends it too
)

// A cleaner makes text of a stream, however it is cut into writes, in constant
// memory. It gives to out; the bytes are valid during the call, and scanned means
// that they are exactly those written.
type cleaner struct {
	opts Text
	out  func(p []byte, from origin)

	state   state
	partial [utf8.UTFMax]byte // begin of a character
	npart   int
	stray   bool   // the last byte was not UTF-8, and shown as such
	cr      bool   // a carriage return waits for what follows
	line    []byte // RewindReturn: the line so far
	buf     []byte // scratch
	altered bool   // buf is not just what was written
	binary  bool   // a NUL or a byte that is not UTF-8 was seen
}

func newCleaner(opts Text, out func([]byte, origin)) *cleaner {
	return &cleaner{opts: opts, out: out}
}

func (c *cleaner) write(p []byte, from origin) {
	if c.state == ground && c.npart == 0 && !c.cr && c.opts.Return != RewindReturn && plainPrefix(p) == len(p) {
		c.stray = c.stray && len(p) == 0
		c.out(p, from)
		return
	}
	c.buf = c.buf[:0]
	c.altered = c.state != ground || c.cr || c.opts.Return == RewindReturn
	for len(p) > 0 {
		if c.npart == 0 {
			p = c.run(p)
			if len(p) == 0 {
				break
			}
		}
		p = c.character(p)
	}
	if c.altered {
		from = changed
	}
	c.give(from)
}

// flush gives out what waits: the stream ends here.
func (c *cleaner) flush() {
	c.buf = c.buf[:0]
	if c.npart > 0 {
		c.npart = 0
		c.invalid(0xFF)
	}
	if c.cr && c.opts.Return == NewlineReturn {
		c.put('\n')
	}
	c.cr = false
	c.buf = append(c.buf, c.line...)
	c.line = nil
	c.give(changed)
}

func (c *cleaner) give(from origin) {
	if len(c.buf) > 0 {
		c.out(c.buf, from)
	}
}

// run takes what needs no look at single characters: plain text, and the inside
// of strings.
func (c *cleaner) run(p []byte) []byte {
	switch c.state {
	case ground:
		for {
			if n := plainPrefix(p); n > 0 {
				c.stray = false
				c.plain(p[:n])
				p = p[n:]
			}
			n := wholeCSI(p)
			if n > 0 {
				c.stray = false
			} else {
				n = c.junk(p)
			}
			if n == 0 {
				return p
			}
			c.altered = true
			p = p[n:]
		}
	case str, osc, strRaw, oscRaw:
		n := 0
		for n < len(p) && p[n] >= 0x20 && p[n] < utf8.RuneSelf {
			n++
		}
		return p[n:]
	default:
		return p
	}
}

// junk takes what binary output is mostly made of, as step and invalid would: a
// run of NULs, a control character that is dropped, or bytes that no character
// begins with, behind one that was shown as such. It returns how much.
func (c *cleaner) junk(p []byte) int {
	if len(p) == 0 || c.cr {
		return 0
	}
	switch b := p[0]; {
	case b == 0:
		c.binary, c.stray = true, false
		return nuls(p)
	case b < 0x20 && b != 0x1B && (b != '\r' || c.opts.Return == RemoveReturn), b == 0x7F:
		c.stray = false
		return 1
	case c.stray && c.opts.Return != RewindReturn:
		n := 0
		for n < len(p) && (p[n] >= utf8.RuneSelf && p[n] < 0xC2 || p[n] > 0xF4) {
			c.buf = append(c.buf, replacement...)
			n++
		}
		return n
	}
	return 0
}

// replacement is U+FFFD.
const replacement = string(utf8.RuneError)

// wholeCSI returns the length of the control sequence that p begins with, 0 if
// there is none or it is not whole. It is what colours are made of.
func wholeCSI(p []byte) int {
	if len(p) < 3 || p[0] != 0x1B || p[1] != '[' {
		return 0
	}
	n := 2
	for n < len(p) && p[n] >= 0x20 && p[n] < 0x40 {
		n++
	}
	if n == len(p) || p[n] < 0x40 || p[n] > 0x7E {
		return 0
	}
	return n + 1
}

// plain adds text that has no control characters but TAB and LF.
func (c *cleaner) plain(p []byte) {
	if c.opts.Return != RewindReturn {
		if c.cr {
			c.cr = false
			if p[0] != '\n' {
				c.buf = append(c.buf, '\n')
			}
		}
		c.buf = append(c.buf, p...)
		return
	}
	if c.cr {
		c.cr = false
		if p[0] != '\n' {
			c.line = c.line[:0]
		}
	}
	if n := bytes.LastIndexByte(p, '\n'); n >= 0 {
		c.buf = append(append(c.buf, c.line...), p[:n+1]...)
		c.line = c.line[:0]
		p = p[n+1:]
	}
	c.line = append(c.line, p...)
	if len(c.line) > maxRewind {
		c.buf = append(c.buf, c.line...)
		c.line = c.line[:0]
	}
}

// character takes one character, or its begin if the rest is still to come.
func (c *cleaner) character(p []byte) []byte {
	if c.npart > 0 {
		var whole [utf8.UTFMax]byte
		n := copy(whole[:], c.partial[:c.npart])
		n += copy(whole[n:], p)
		size, ok, more := decode(whole[:n])
		if more {
			c.npart = copy(c.partial[:], whole[:n])
			return nil
		}
		used := size - c.npart
		c.npart = 0
		c.take(whole[:size], ok)
		return p[used:]
	}
	size, ok, more := decode(p)
	if more {
		c.npart = copy(c.partial[:], p)
		return nil
	}
	c.take(p[:size], ok)
	return p[size:]
}

func (c *cleaner) take(p []byte, ok bool) {
	if !ok {
		c.invalid(p[0])
		return
	}
	c.stray = false
	r, _ := utf8.DecodeRune(p)
	c.step(r)
}

// invalid takes one byte, or the begin of a character, that is not UTF-8.
func (c *cleaner) invalid(b byte) {
	c.binary, c.altered = true, true
	switch c.state {
	case str, osc, strRaw, oscRaw:
		if b == 0x9C { // ST
			c.state = ground
		}
		return
	case escape, csi:
		c.state = ground // no sequence has such a byte
	case ground:
	}
	switch {
	case c.stray: // among others of its kind it is text in another encoding
		c.put(utf8.RuneError)
	case b == 0x9B:
		c.state = csi
	case b == 0x9D:
		c.state = oscRaw
	case b == 0x90 || b == 0x98 || b == 0x9E || b == 0x9F:
		c.state = strRaw
	default:
		c.stray = true
		c.put(utf8.RuneError)
	}
}

// step takes one character.
func (c *cleaner) step(r rune) {
	if c.state != ground || r < 0x20 && r != '\t' && r != '\n' || r >= 0x7F && r < 0xA0 || invisible(r) {
		c.altered = true
	}
	switch r {
	case 0x1B:
		c.state = escape // wherever it comes, also as the begin of ST
		return
	case 0x18, 0x1A: // CAN, SUB
		c.state = ground
		return
	}
	switch c.state {
	case ground:
		c.ground(r)
	case escape:
		c.escape(r)
	case csi:
		switch {
		case r >= 0x40 && r <= 0x7E:
			c.state = ground
		case r < 0x20:
			c.ground(r) // acts as if it came before the sequence
		case r > 0x7F:
			c.state = ground
			c.ground(r)
		}
	case osc, oscRaw:
		if r == 0x07 || r == 0x9C || r == '\n' && c.state == oscRaw {
			c.state = ground
			c.lineFeed(r)
		}
	case str, strRaw:
		if r == 0x9C || r == '\n' && c.state == strRaw {
			c.state = ground
			c.lineFeed(r)
		}
	}
}

func (c *cleaner) lineFeed(r rune) {
	if r == '\n' {
		c.put(r)
	}
}

// escape takes a character after ESC and any intermediate ones.
func (c *cleaner) escape(r rune) {
	switch {
	case r < 0x20:
		c.ground(r)
	case r >= 0x20 && r <= 0x2F: // intermediate: the final one is still to come
	case r == '[':
		c.state = csi
	case r == ']':
		c.state = osc
	case r == 'P', r == 'X', r == '^', r == '_':
		c.state = str
	case r > 0x7E:
		c.state = ground
		c.ground(r)
	default:
		c.state = ground
	}
}

// ground takes a character outside any sequence.
func (c *cleaner) ground(r rune) {
	switch {
	case r == '\t' || r == '\n':
		c.put(r)
	case r == '\r':
		switch {
		case c.opts.Return == RemoveReturn:
		case c.cr && c.opts.Return == NewlineReturn:
			c.buf = append(c.buf, '\n')
		default:
			c.cr = true
		}
	case r == 0:
		c.binary = true
	case r < 0x20 || r == 0x7F:
	case r == 0x9B:
		c.state = csi
	case r == 0x9D:
		c.state = osc
	case r == 0x90 || r == 0x98 || r == 0x9E || r == 0x9F:
		c.state = str
	case r >= 0x80 && r < 0xA0:
	case c.opts.Invisible == ShowInvisible && invisible(r):
		c.plain(fmt.Appendf(nil, "<U+%04X>", r))
	default:
		c.put(r)
	}
}

func (c *cleaner) put(r rune) {
	var b [utf8.UTFMax]byte
	c.plain(b[:utf8.EncodeRune(b[:], r)])
}

// invisible tells characters that steer or hide text. The joiners and selectors
// that belong to emoji are among them.
func invisible(r rune) bool {
	switch {
	case r == 0x00AD, r == 0x061C, r == 0x180E, r == 0xFEFF:
	case r >= 0x200B && r <= 0x200F:
	case r >= 0x2028 && r <= 0x202E:
	case r >= 0x2060 && r <= 0x206F:
	case r >= 0xFE00 && r <= 0xFE0F:
	case r >= 0xFFF9 && r <= 0xFFFB:
	case r >= 0xE0000 && r <= 0xE0FFF:
	default:
		return false
	}
	return true
}
