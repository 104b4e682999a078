package screen

import (
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

// state is where in an ECMA-48 sequence the interpreter is. A sequence is text for the
// terminal between characters for the screen:
//
//	from             on                         to
//	ground           ESC                        escape
//	escape           [                          control
//	                 ]                          command
//	                 P                          device
//	                 X ^ _                      ignored
//	                 SP to / (intermediate)     nested
//	                 anything else              ground, and the function is executed
//	nested           0 to ~ (final)             ground, and a character set is chosen
//	control          @ to ~ (final)             ground, and the function is executed
//	command          BEL                        ground, and the string is executed
//	command, device  ESC                        escape, and the string is executed
//	ignored          ESC                        escape
//	any              CAN, SUB                   ground: the sequence is dropped
//	any              LF, or maxString bytes     ground: the sequence is dropped, and the byte is text
//	all but strings  ESC                        escape: the sequence is dropped
//	all but strings  a byte above 0x7f          ground: the character is printed
//
// Other control characters within escape, nested and control are executed, and the sequence
// goes on. ST, the end of a string, is ESC and a backslash: the ESC ends the string, and
// the backslash does nothing.
//
// That a line feed ends a sequence is not in the standard. A real terminal would show
// nothing until the end of the string comes, which in the output of a program that was
// killed may be never.
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

// Bounds on the parts of a sequence. What exceeds them is dropped.
const (
	maxParams  = 16     // xterm takes 30; no sequence that counts here has more than 5
	maxParam   = 65_535 // larger than any row, column or mode
	maxString  = 4_096  // bytes of a sequence: longer than any title; what follows is text
	maxCluster = 32     // bytes of one character with all its marks
	maxOwed    = 4_096  // bytes of answers: what a terminal takes as one line of input
	maxStack   = 16     // entries of the keyboard's stack; the protocol wants at least 8
)

// An interpreter reads a program's output. It sends the grid characters and sequences that
// the grid handles, and keeps what the grid does not: modes, the title, unread answers. It
// is not safe for concurrent use.
//
// Output passes through two buffers on its way to the grid. cluster is the last character:
// it is not printed before the next one has come, because marks may follow it. out is
// bytes for the grid, which takes few large writes faster than many small ones. So flush
// comes before every question to the grid, and endCluster before every function that moves
// the cursor or changes the screen.
type interpreter struct {
	grid *vt.Emulator
	size Size
	out  []byte // not yet written to the grid

	state   state
	length  int    // bytes of the sequence so far
	partial []byte // first bytes of a character
	cluster []byte // a character that is not printed yet, because marks may follow it
	width   int    // of cluster
	wrap    bool   // a wide character has filled the line: the next character wraps

	wide bool // the grid may have wide characters

	last      []byte // the character that REP repeats
	lastWidth int

	prefix, middle byte   // of a sequence
	params         []int  // -1 for one that is left out
	parts          uint32 // bits by index in params: it follows a colon, so it is a part of the one before
	surplus        bool   // there were more parameters than are kept
	str            []byte

	owed []byte
	modes
}

func newInterpreter(size Size) *interpreter {
	t := &interpreter{grid: vt.NewEmulator(size.Cols, size.Rows), size: size}
	t.modes = freshModes()
	return t
}

// sync writes everything that is pending to the grid.
func (t *interpreter) sync() {
	t.endCluster()
	t.flush()
}

func (t *interpreter) flush() {
	if len(t.out) > 0 {
		_, _ = t.grid.Write(t.out) // fails only when it is closed, which does not happen
		t.out = t.out[:0]
	}
}

// pieceSize bounds what is not yet written to the grid.
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

// text prints printable ASCII. The last character waits for marks.
func (t *interpreter) text(p []byte) {
	t.endCluster()
	last := len(p) - 1
	if t.wrap || t.insert || t.drawing() {
		for _, b := range p[:last] {
			t.put(t.mapped(b), 1)
		}
	} else {
		t.out = append(t.out, p[:last]...)
	}
	t.cluster, t.width = append(t.cluster[:0], t.mapped(p[last])...), 1
}

// step interprets the first byte or character of p, and returns its length.
func (t *interpreter) step(p []byte) int {
	b := p[0]
	if t.state != ground {
		// A sequence without an end hides nothing that follows.
		if t.length++; b == '\n' || t.length > maxString && b != 0x1b {
			t.state = ground
		}
	}
	switch {
	case t.state == command || t.state == device || t.state == ignored:
		t.inString(b)
		return 1
	case len(t.partial) > 0 || b >= utf8.RuneSelf:
		return t.character(p)
	case b == 0x1b:
		t.endCluster()
		t.state, t.length = escape, 0
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
	case b == 0x1b: // usually the start of ST; any sequence ends the string
		t.endString()
		t.state, t.length = escape, 0
	case b == 0x07 && t.state == command:
		t.endString()
		t.state = ground
	case b == 0x18 || b == 0x1a:
		t.state = ground
	case t.state != ignored:
		t.str = append(t.str, b)
	}
}

// character interprets the next bytes of a character that is not ASCII.
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
	if t.state != ground { // such a character ends a sequence
		t.state = ground
	}
	if r >= 0x80 && r < 0xa0 { // C1 encoded as UTF-8: not used by any known program
		return size - had
	}
	t.join(r)
	if size < had { // the partial bytes were not the start of a character
		for range had - size {
			t.join(r)
		}
		return 0
	}
	return size - had
}

// join adds r to the character before it, or begins a new character.
func (t *interpreter) join(r rune) {
	if len(t.cluster) > 0 {
		both := utf8.AppendRune(t.cluster, r)
		first, width := ansi.FirstGraphemeCluster(both, ansi.GraphemeWidth)
		if len(first) == len(both) {
			// A mark does not make an ASCII character wide, as in 1 and a keycap.
			if len(both) <= maxCluster && (width == 1 || both[0] >= utf8.RuneSelf) {
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
	if t.width > 0 { // a mark without a character is dropped
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
		t.wide = true
	}
	if t.insert {
		t.editRow('@', width)
	}
	if p[0] < utf8.RuneSelf && len(p) > 1 {
		t.putMarked(p)
	} else {
		t.out = append(t.out, p...)
	}
	t.last, t.lastWidth = append(t.last[:0], p...), width
}

// putMarked prints an ASCII character with its marks, which the grid does not join:
// it prints the character and then changes its cell.
func (t *interpreter) putMarked(p []byte) {
	before := t.position()
	t.out = append(t.out, p[0])
	at := t.position()
	if at.Col != before.Col { // else it is in the last column, and the next one wraps
		at.Col--
	}
	if cell := t.grid.CellAt(at.Col, at.Row); cell != nil {
		marked := *cell
		marked.Content = string(p)
		t.grid.SetCell(at.Col, at.Row, &marked)
	}
}

// controlCharacter executes a C0 character. DEL does nothing.
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

// sequence sends the grid a control sequence.
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
