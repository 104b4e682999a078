package sink

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/scrub"
)

// Text says how output becomes text for a reader. Escape and control sequences of ECMA-48
// and all control characters other than TAB and LF are removed, and bytes that are not
// UTF-8 become U+FFFD. The zero value also removes carriage returns, and keeps invisible
// characters.
type Text struct {
	Return    Return
	Invisible Invisible
	// Colours has a SafeText keep colours and the like (SGR), but for those that hide text. A
	// colour where a secret may have started comes after what that turns out to be.
	Colours bool
}

// Return says what to do with carriage returns.
type Return int

const (
	// RemoveReturn removes them: "10%\r20%" becomes "10%20%".
	RemoveReturn Return = iota
	// RewindReturn shows the last state of a line that is written again and again:
	// "10%\r20%" becomes "20%". If a terminal would still show a part of the state before,
	// because the new one is shorter or starts further to the right, that part becomes a
	// line of its own. If a line is longer than maxRewind, only the bytes after the last
	// multiple of maxRewind can be replaced.
	RewindReturn
	// NewlineReturn makes each of CR and CRLF one LF.
	NewlineReturn
)

// Invisible says what to do with characters that reorder or hide text: bidi controls,
// zero-width characters, tags.
type Invisible int

const (
	// KeepInvisible leaves them.
	KeepInvisible Invisible = iota
	// ShowInvisible writes them as <U+202E>.
	ShowInvisible
)

// maxRewind bounds the line that RewindReturn can replace.
const maxRewind = 64 << 10

// maxSequence bounds a control sequence or a control string, in bytes after its
// introducer. What comes after these bytes, or after a line feed, is text again: a
// sequence without an end does not hide the rest of the output.
const maxSequence = 4 << 10

// state is the position of the parser in an ECMA-48 sequence. ground is text, which is
// passed on; everything else is removed:
//
//	from         on                         to
//	ground       ESC                        escape
//	ground       U+009B, byte 9B            csi; likewise the C1 forms of OSC, DCS, SOS, PM and APC
//	escape       [                          csi
//	escape       ]                          osc
//	escape       P X ^ _                    str
//	escape       a final character          ground
//	csi          @ to ~                     ground
//	osc          BEL                        ground
//	osc, str     ESC                        escape: ST, or another sequence
//	osc, str     U+009C, byte 9C            ground
//	escape, csi  a character above 7E       ground, and the character is text
//	any          CAN, SUB                   ground
//	any          LF, or maxSequence bytes   ground, and the character is text
type state int

const (
	ground state = iota
	escape       // after ESC
	csi          // control sequence, up to its final byte
	str          // DCS, SOS, PM or APC, up to ST
	osc          // OSC, up to ST or BEL
)

// A cleaner turns a stream into text, however the stream is cut into writes, in constant
// memory. It passes the text to out, whose argument is valid during the call; Scanned
// means that the bytes are exactly those written.
type cleaner struct {
	opts Text
	out  func(p []byte, from scrub.Origin)
	sgr  func(params []byte) // takes colours; nil: they are removed

	state   state
	length  int               // of the sequence so far, in bytes
	params  []byte            // the first parameters of a control sequence, if they count
	partial [utf8.UTFMax]byte // the start of a character
	npart   int
	stray   bool    // the last byte was not UTF-8, and shown as such
	cr      bool    // the last character was a carriage return, which is not handled yet
	line    rewound // RewindReturn: the line so far
	buf     []byte  // scratch
	altered bool    // buf is not just what was written
	binary  bool    // a NUL or a byte that is not UTF-8 was seen
}

func newCleaner(opts Text, out func([]byte, scrub.Origin)) *cleaner {
	return &cleaner{opts: opts, out: out}
}

func (c *cleaner) write(p []byte, from scrub.Origin) {
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
		from = scrub.Changed
	}
	c.give(from)
}

// flush passes on what is held back: the stream has ended.
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
	c.buf = c.line.end(c.buf)
	c.give(scrub.Changed)
}

func (c *cleaner) give(from scrub.Origin) {
	if len(c.buf) > 0 {
		c.out(c.buf, from)
	}
}

// run handles what need not be read by characters: plain text, and the inside of control
// strings. It returns the number of bytes.
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
				c.control(p[2:n-1], p[n-1])
			} else {
				n = c.junk(p)
			}
			if n == 0 {
				return p
			}
			c.altered = true
			p = p[n:]
		}
	case str, osc:
		n, most := 0, min(len(p), maxSequence-c.length)
		for n < most && p[n] >= 0x20 && p[n] < utf8.RuneSelf {
			n++
		}
		c.length += n
		return p[n:]
	default:
		return p
	}
}

// junk is a fast path for binary output, with the same result as step and invalid: a run
// of NULs, a dropped control character, or bytes that cannot start a character, after one
// that was shown as U+FFFD. It returns the number of bytes.
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
		c.move()
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

// wholeCSI returns the length of the control sequence at the start of p, 0 if there is
// none or p has only a part of it. Colours are such sequences.
func wholeCSI(p []byte) int {
	if len(p) < 3 || p[0] != 0x1B || p[1] != '[' {
		return 0
	}
	n := 2
	for n < len(p) && n < maxSequence && p[n] >= 0x20 && p[n] < 0x40 {
		n++
	}
	if n == len(p) || p[n] < 0x40 || p[n] > 0x7E {
		return 0
	}
	return n + 1
}

// plain appends text without control characters other than TAB and LF.
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
	if p[0] == '\n' {
		c.cr = false
	}
	c.returned()
	if n := bytes.LastIndexByte(p, '\n'); n >= 0 {
		first, rest, _ := bytes.Cut(p[:n+1], newline)
		c.line.write(first)
		c.buf = append(c.line.end(c.buf), '\n')
		c.buf = append(c.buf, rest...)
		p = p[n+1:]
	}
	c.line.write(p)
	if len(c.line.text) > maxRewind {
		c.buf = c.line.end(c.buf)
	}
}

// character handles one character, or its start if the rest has not arrived yet.
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

// invalid handles a byte, or the start of a character, that is not UTF-8.
func (c *cleaner) invalid(b byte) {
	c.binary, c.altered = true, true
	c.within(1)
	switch c.state {
	case str, osc:
		if b == 0x9C { // ST
			c.state = ground
		}
		return
	case escape, csi:
		c.state = ground // sequences have no such byte
	case ground:
	}
	switch {
	case c.stray: // several in a row are text in another encoding
		c.put(utf8.RuneError)
	case b == 0x9B:
		c.enter(csi)
	case b == 0x9D:
		c.enter(osc)
	case b == 0x90 || b == 0x98 || b == 0x9E || b == 0x9F:
		c.enter(str)
	default:
		c.stray = true
		c.put(utf8.RuneError)
	}
}

// step handles one character.
func (c *cleaner) step(r rune) {
	if c.state != ground || r < 0x20 && r != '\t' && r != '\n' || r >= 0x7F && r < 0xA0 || invisible(r) {
		c.altered = true
	}
	switch r {
	case 0x1B:
		c.enter(escape) // in every state, also as the start of ST
		return
	case 0x18, 0x1A: // CAN, SUB
		c.state = ground
		return
	case '\n':
		c.state = ground
	}
	c.within(utf8.RuneLen(r))
	switch c.state {
	case ground:
		c.ground(r)
	case escape:
		c.escape(r)
	case csi:
		switch {
		case r >= 0x40 && r <= 0x7E:
			c.state = ground
			c.control(c.params, byte(r))
		case r < 0x20:
			c.ground(r) // it acts as if it preceded the sequence
		case r > 0x7F:
			c.state = ground
			c.ground(r)
		case (c.opts.Return == RewindReturn || c.sgr != nil) && len(c.params) < c.maxParams():
			c.params = append(c.params, byte(r))
		}
	case osc:
		if r == 0x07 || r == 0x9C {
			c.state = ground
		}
	case str:
		if r == 0x9C {
			c.state = ground
		}
	}
}

// maxSGR is how many bytes of a colour's parameters are kept: two colours of three numbers each, and
// more. A sequence that fills them is dropped.
const maxSGR = 64

// maxParams is how many bytes of parameters are kept.
func (c *cleaner) maxParams() int {
	if c.sgr != nil {
		return maxSGR
	}
	return maxParams
}

// enter starts a sequence.
func (c *cleaner) enter(s state) {
	c.state, c.length, c.params = s, 0, c.params[:0]
}

// within counts n more bytes of a sequence, and ends one that is too long.
func (c *cleaner) within(n int) {
	if c.state == ground {
		return
	}
	if c.length += n; c.length > maxSequence {
		c.state = ground
	}
}

// escape handles a character after ESC and any intermediate ones.
func (c *cleaner) escape(r rune) {
	switch {
	case r < 0x20:
		c.ground(r)
	case r >= 0x20 && r <= 0x2F: // an intermediate character: the final one follows
	case r == '[':
		c.enter(csi)
	case r == ']':
		c.enter(osc)
	case r == 'P', r == 'X', r == '^', r == '_':
		c.enter(str)
	case r > 0x7E:
		c.state = ground
		c.ground(r)
	default:
		c.state = ground
		if r != '\\' && r != '(' && r != 'B' {
			c.move() // it may restore a saved position
		}
	}
}

// ground handles a character outside any sequence.
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
		c.move()
	case r == 0x9B:
		c.enter(csi)
	case r == 0x9D:
		c.enter(osc)
	case r == 0x90 || r == 0x98 || r == 0x9E || r == 0x9F:
		c.enter(str)
	case r >= 0x80 && r < 0xA0:
	case c.opts.Invisible == ShowInvisible && invisible(r):
		c.move() // on a terminal it has no width
		c.plain(fmt.Appendf(nil, "<U+%04X>", r))
	default:
		c.put(r)
	}
}

func (c *cleaner) put(r rune) {
	var b [utf8.UTFMax]byte
	c.plain(b[:utf8.EncodeRune(b[:], r)])
}

// invisible reports whether a character reorders or hides text. The joiners and
// selectors of emoji count too.
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
