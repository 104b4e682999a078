package screen

import (
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

// state is where in an ECMA-48 sequence the interpreter is.
type state int

const (
	ground  state = iota
	escape        // after ESC
	nested        // after ESC and an intermediate character
	control       // control sequence, up to its final byte
	command       // OSC, up to ST or BEL
	device        // DCS, up to ST
	ignored       // SOS, PM or APC, up to ST
)

// Bounds on what one sequence may take. What is beyond them is dropped.
const (
	maxParams  = 16     // xterm takes 30; no sequence that counts here has more than 5
	maxParam   = 65_535 // larger than any row, column or mode
	maxString  = 4_096  // bytes of an OSC or DCS string: longer than any title
	maxCluster = 32     // bytes of one character with all its marks
	maxOwed    = 4_096  // bytes of answers: what a terminal takes as one line of input
	maxStack   = 16     // entries of the keyboard's stack; the protocol wants at least 8
)

// An interpreter reads a program's output and keeps a grid and what the grid
// does not: modes, the title, answers that are owed. It is not safe for
// concurrent use.
type interpreter struct {
	grid *vt.Emulator
	size Size
	out  []byte // for the grid, once sync is called

	state   state
	partial []byte // begin of a character
	cluster []byte // a character that marks may follow
	width   int    // of it
	wrap    bool   // a wide character has filled the line: the next one goes to the next

	last      []byte // the character that a REP would repeat
	lastWidth int

	prefix, middle byte  // of a sequence
	params         []int // -1 for one that is left out
	str            []byte

	owed []byte
	modes
}

func newInterpreter(size Size) *interpreter {
	t := &interpreter{grid: vt.NewEmulator(size.Cols, size.Rows), size: size}
	t.modes = freshModes()
	return t
}

// sync gives the grid what waits for it.
func (t *interpreter) sync() {
	t.endCluster()
	t.flush()
}

func (t *interpreter) flush() {
	if len(t.out) > 0 {
		_, _ = t.grid.Write(t.out) // fails only when it is closed, and nobody does that
		t.out = t.out[:0]
	}
}

// pieceSize bounds what waits for the grid.
const pieceSize = 4 << 10 // bytes

func (t *interpreter) write(p []byte) {
	for len(p) > 0 {
		if len(t.out) >= pieceSize {
			t.flush()
		}
		if t.state == ground && len(t.partial) == 0 {
			p = p[t.skip(p):]
			n := 0
			for n < len(p) && n < pieceSize && p[n] >= 0x20 && p[n] < 0x7f {
				n++
			}
			if n > 0 {
				t.text(p[:n])
				p = p[n:]
				continue
			}
		}
		p = p[t.step(p):]
	}
	t.flush()
}

// text takes printable ASCII.
func (t *interpreter) text(p []byte) {
	t.endCluster()
	if t.wrap || t.insert || t.drawing() {
		for _, b := range p {
			t.put(t.mapped(b), 1)
		}
		return
	}
	t.out = append(t.out, p...)
	t.last, t.lastWidth = append(t.last[:0], p[len(p)-1]), 1
}

// step takes one byte or one character, and returns how long it was.
func (t *interpreter) step(p []byte) int {
	b := p[0]
	switch {
	case t.state == command || t.state == device || t.state == ignored:
		t.inString(b)
		return 1
	case len(t.partial) > 0 || b >= utf8.RuneSelf:
		return t.character(p)
	case b == 0x1b:
		t.endCluster()
		t.state = escape
	case b == 0x18 || b == 0x1a: // CAN, SUB
		t.state = ground
	case b < 0x20 || b == 0x7f:
		t.controlCharacter(b) // wherever it comes
	case t.state == escape || t.state == nested:
		t.inEscape(b)
	case t.state == control:
		t.inControl(b)
	default:
		t.text(p[:1])
	}
	return 1
}

func (t *interpreter) inString(b byte) {
	switch {
	case b == 0x1b: // as a rule the begin of ST; whatever it is, the string is over
		t.endString()
		t.state = escape
	case b == 0x07 && t.state == command:
		t.endString()
		t.state = ground
	case b == 0x18 || b == 0x1a:
		t.state = ground
	case t.state != ignored && len(t.str) < maxString:
		t.str = append(t.str, b)
	}
}

// character takes the next bytes of a character that is not ASCII.
func (t *interpreter) character(p []byte) int {
	var whole [utf8.UTFMax]byte
	n := copy(whole[:], t.partial)
	had := n
	n += copy(whole[n:], p)
	if !utf8.FullRune(whole[:n]) {
		t.partial = append(t.partial[:0], whole[:n]...)
		return n - had
	}
	r, size := utf8.DecodeRune(whole[:n])
	t.partial = t.partial[:0]
	if t.state != ground { // no sequence has such a character in it
		t.state = ground
	}
	if r >= 0x80 && r < 0xa0 { // C1: nothing that we know of sends them as UTF-8
		return size - had
	}
	t.join(r)
	if size < had { // it was no begin of a character after all, byte by byte
		for range had - size {
			t.join(r)
		}
		return 0
	}
	return size - had
}

// join adds a character to the one before it, or begins a new one.
func (t *interpreter) join(r rune) {
	if len(t.cluster) > 0 {
		both := utf8.AppendRune(t.cluster, r)
		first, width := ansi.FirstGraphemeCluster(both, ansi.GraphemeWidth)
		if len(first) == len(both) {
			if len(both) <= maxCluster {
				t.cluster, t.width = both, width
			}
			return
		}
		t.endCluster()
	}
	t.cluster = utf8.AppendRune(t.cluster[:0], r)
	_, t.width = ansi.FirstGraphemeCluster(t.cluster, ansi.GraphemeWidth)
}

// endCluster prints the character that waited for its marks.
func (t *interpreter) endCluster() {
	if len(t.cluster) == 0 {
		return
	}
	if t.width > 0 { // a mark without a character has no place
		t.put(t.cluster, min(t.width, 2))
	}
	t.cluster = t.cluster[:0]
}

// put prints one character of that width.
func (t *interpreter) put(p []byte, width int) {
	if t.wrap && t.autowrap {
		t.out = append(t.out, "\r\n"...)
	}
	t.wrap = false
	if width > t.size.Cols {
		return
	}
	if width == 2 {
		// The grid does not wrap before a wide character, nor after one.
		t.flush()
		at := t.grid.CursorPosition().X
		if at == t.size.Cols-1 {
			if !t.autowrap {
				return
			}
			t.out = append(t.out, "\r\n"...)
			at = 0
		}
		t.wrap = at == t.size.Cols-2
	}
	if t.insert {
		t.sequence('@', width)
	}
	t.out = append(t.out, p...)
	t.last, t.lastWidth = append(t.last[:0], p...), width
}

// controlCharacter takes a C0 character or DEL.
func (t *interpreter) controlCharacter(b byte) {
	t.endCluster()
	t.last = t.last[:0]
	switch b {
	case '\b', '\t', '\n', '\v', '\f', '\r':
		t.wrap = t.wrap && b == '\t'
		t.out = append(t.out, b)
	case 0x0e: // SO
		t.shift = 1
	case 0x0f: // SI
		t.shift = 0
	}
}

// sequence sends the grid a control sequence with one parameter.
func (t *interpreter) sequence(final byte, params ...int) {
	t.out = append(t.out, 0x1b, '[')
	for i, n := range params {
		if i > 0 {
			t.out = append(t.out, ';')
		}
		t.out = appendInt(t.out, n)
	}
	t.out = append(t.out, final)
}
