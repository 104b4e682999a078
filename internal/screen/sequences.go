package screen

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
)

// inEscape interprets a character after ESC.
func (t *interpreter) inEscape(b byte) {
	if t.state == nested {
		if b >= 0x30 {
			t.state = ground
			t.charset(t.middle, b)
		}
		return
	}
	t.state = ground
	switch b {
	case '[':
		t.state = control
		t.prefix, t.middle, t.params, t.parts, t.surplus = 0, 0, t.params[:0], 0, false
		return
	case ']':
		t.state, t.str = command, t.str[:0]
		return
	case 'P':
		t.state, t.str = device, t.str[:0]
		return
	case 'X', '^', '_':
		t.state = ignored
		return
	case '\\': // ST
		return
	}
	if b < 0x30 {
		t.state, t.middle = nested, b
		return
	}
	t.last, t.wrap = t.last[:0], false
	switch b {
	case '7', '8':
		t.save(b == '7')
	case 'D', 'H', 'M': // IND, HTS, RI
		t.out = append(t.out, 0x1b, b)
	case 'E': // NEL
		t.out = append(t.out, "\r\x1bD"...)
	case '=', '>':
		t.keypad = b == '='
	case 'Z': // DECID
		t.attributes()
	case 'c':
		t.reset()
	}
}

// charset handles ESC ( and ESC ).
func (t *interpreter) charset(middle, name byte) {
	switch middle {
	case '(':
		t.graphics[0] = name == '0'
	case ')':
		t.graphics[1] = name == '0'
	}
}

// inControl interprets a character of a control sequence.
func (t *interpreter) inControl(b byte) {
	switch {
	case b >= '0' && b <= '9':
		if t.surplus {
			return
		}
		if len(t.params) == 0 {
			t.params = append(t.params, -1)
		}
		at := &t.params[len(t.params)-1]
		*at = min(max(*at, 0)*10+int(b-'0'), maxParam)
	case b == ';' || b == ':':
		if len(t.params) == 0 {
			t.params = append(t.params, -1)
		}
		if t.surplus = len(t.params) == maxParams; t.surplus {
			return
		}
		if b == ':' {
			t.parts |= 1 << len(t.params)
		}
		t.params = append(t.params, -1)
	case b >= '<' && b <= '?':
		t.prefix = b
	case b < 0x30:
		t.middle = b
	default:
		t.state = ground
		t.perform(b)
	}
}

// param returns a parameter, or missing if it was left out.
func (t *interpreter) param(i, missing int) int {
	if i < 0 || i >= len(t.params) || t.params[i] < 0 {
		return missing
	}
	return t.params[i]
}

// count returns the first parameter as a number from 1 to most.
func (t *interpreter) count(most int) int { return min(max(1, t.param(0, 1)), most) }

// perform executes a whole control sequence.
func (t *interpreter) perform(final byte) {
	if t.prefix == 0 && t.middle == 0 && final == 'm' {
		t.colour()
		return // colours are not kept; REP and wrapping go on
	}
	if final != 'b' {
		t.last = t.last[:0]
	}
	switch {
	case t.middle == 0 && t.prefix == 0:
		t.plain(final)
	case t.middle == 0:
		t.private(final)
	case t.middle == '!' && final == 'p':
		t.softReset()
	case t.middle == '$' && final == 'p' && t.prefix == '?':
		t.owe(fmt.Sprintf("\x1b[?%d;%d$y", t.param(0, 0), t.modeState(t.param(0, 0))))
	}
}

// colour handles SGR: it finds out whether a colour or another attribute is left set.
func (t *interpreter) colour() {
	for i := 0; i < max(1, len(t.params)); i++ {
		if t.parts>>i&1 != 0 {
			continue
		}
		n := t.param(i, 0)
		t.coloured = n != 0
		if (n == 38 || n == 48 || n == 58) && t.parts>>(i+1)&1 == 0 { // a colour's numbers follow
			switch t.param(i+1, 0) {
			case 5: // an index
				i += 2
			case 2: // red, green and blue
				i += 4
			}
		}
	}
	t.coloured = t.coloured || t.surplus
}

// plain handles sequences without a prefix.
func (t *interpreter) plain(final byte) {
	cols, rows := t.size.Cols, t.size.Rows
	switch final {
	case 'A', 'B', 'E', 'F', 'S', 'e':
		t.move(final, t.count(rows))
	case 'L', 'M':
		t.editLines(final, t.count(rows))
	case 'T':
		if len(t.params) < 2 { // else it is about the mouse
			t.move(final, t.count(rows))
		}
	case '@', 'P':
		t.wrap = false
		t.editRow(final, t.count(cols))
	case 'C', 'D', 'I', 'X', 'Z', 'a', 'G', '`':
		t.move(final, t.count(cols))
	case 'd':
		t.move(final, t.count(rows))
	case 'H', 'f':
		t.move('H', t.count(rows), min(max(1, t.param(1, 1)), cols))
	case 'J', 'K':
		t.erase(final)
	case 'b':
		t.repeat(t.count(cols * rows))
	case 'g':
		t.move(final, t.param(0, 0))
	case 'r':
		t.margins()
	case 's', 'u':
		t.wrap = false
		t.save(final == 's')
	case 'h', 'l':
		for _, mode := range t.params {
			switch mode {
			case modeInsert:
				t.insert = final == 'h'
			case modeNewline:
				t.sequence(final, modeNewline)
			}
		}
	default:
		t.report(final)
	}
}

// move passes on a sequence that moves the cursor or parts of the screen.
func (t *interpreter) move(final byte, params ...int) {
	t.wrap = false
	t.sequence(final, params...)
}

// editLines handles IL and DL. In a scrolling region the grid moves the cursor down
// by the rows above the region; editLines moves it back.
func (t *interpreter) editLines(final byte, n int) {
	row := t.position().Row
	t.move(final, n)
	if over := t.position().Row - row; over > 0 {
		t.sequence('A', over)
	}
}

// editRow handles ICH and DCH. The grid loses wide characters that it moves, so a row is
// edited here once there may be one in it. A wide character that is cut in half becomes
// blank.
func (t *interpreter) editRow(final byte, n int) {
	if !t.wide {
		t.sequence(final, n)
		return
	}
	at, cols := t.position(), t.size.Cols
	from := make([]int, cols) // the column that each cell comes from; -1: it is blank
	for x := range from {
		switch {
		case x < at.Col:
			from[x] = x
		case final == 'P' && x+n < cols:
			from[x] = x + n
		case final == '@' && x >= at.Col+n:
			from[x] = x - n
		default:
			from[x] = -1
		}
	}
	row := copyRow(t.grid.CellAt, at.Row, cols)
	for x := 0; x < cols; x++ {
		i := from[x]
		switch {
		case i >= 0 && row[i].Width == 1:
			t.grid.SetCell(x, at.Row, &row[i])
		case i >= 0 && row[i].Width > 1 && x+1 < cols && from[x+1] == i+1:
			t.grid.SetCell(x, at.Row, &row[i])
			x++ // its second half
		default:
			t.grid.SetCell(x, at.Row, nil)
		}
	}
}

// copyRow returns copies of the cells of row y.
func copyRow[T any](cell func(x, y int) *T, y, cols int) []T {
	row := make([]T, cols)
	for x := range row {
		if c := cell(x, y); c != nil {
			row[x] = *c
		}
	}
	return row
}

// erase handles ED and EL. What has scrolled out (3) is not kept anyway.
func (t *interpreter) erase(final byte) {
	switch what := t.param(0, 0); {
	case final == 'J' && what == 1:
		t.eraseAbove()
	case what <= 2:
		t.move(final, what)
	}
}

// eraseAbove erases up to and including the cursor. The grid's own ED 1 erases the
// rest of the cursor's row too.
func (t *interpreter) eraseAbove() {
	at := t.position()
	t.move('K', 1)
	if at.Row == 0 {
		return
	}
	if t.origin { // positions count from the region
		t.gridMode(modeOrigin, false)
	}
	t.sequence('H', at.Row, 1)
	t.sequence('J', 1)
	t.sequence('H', at.Row+1, at.Col+1)
	if t.origin {
		t.gridMode(modeOrigin, true)
	}
}

// repeat is REP.
func (t *interpreter) repeat(n int) {
	for range n {
		if len(t.last) == 0 {
			return
		}
		if len(t.out) >= pieceSize {
			t.flush()
		}
		t.put(t.last, t.lastWidth)
	}
	t.last = t.last[:0]
}

// margins is DECSTBM.
func (t *interpreter) margins() {
	rows := t.size.Rows
	top, bottom := t.count(rows), t.param(1, rows)
	if bottom < 1 || bottom > rows {
		bottom = rows
	}
	if top >= bottom && rows > 1 {
		return
	}
	t.region = top != 1 || bottom != rows
	t.move('r', top, bottom)
}

// private handles sequences with a prefix.
func (t *interpreter) private(final byte) {
	switch {
	case t.prefix == '?' && (final == 'h' || final == 'l'):
		t.wrap = false
		for _, mode := range t.params {
			t.setMode(mode, final == 'h')
		}
	case t.prefix == '?' && (final == 'J' || final == 'K'):
		t.erase(final)
	case t.prefix == '?' && final == 'u':
		t.owe(fmt.Sprintf("\x1b[?%du", t.flags()))
	case t.prefix == '?' && final == 'n' && t.param(0, 0) == 6:
		t.tell("\x1b[?%d;%d;1R")
	case t.prefix == '>' && final == 'c' && t.param(0, 0) == 0:
		t.owe("\x1b[>1;10;0c")
	case final == 'u':
		t.keyboard(t.prefix)
	}
}

// report answers queries.
func (t *interpreter) report(final byte) {
	switch {
	case final == 'c' && t.param(0, 0) == 0:
		t.attributes()
	case final == 'n' && t.param(0, 0) == 5:
		t.owe("\x1b[0n")
	case final == 'n' && t.param(0, 0) == 6:
		t.tell("\x1b[%d;%dR")
	case final == 't' && t.param(0, 0) == 18:
		t.owe(fmt.Sprintf("\x1b[8;%d;%dt", t.size.Rows, t.size.Cols))
	}
}

// attributes is the answer to DA1: a VT220 with colours.
func (t *interpreter) attributes() { t.owe("\x1b[?62;22c") }

// tell adds an answer with the cursor's position.
func (t *interpreter) tell(format string) {
	at := t.position()
	t.owe(fmt.Sprintf(format, at.Row+1, at.Col+1))
}

// endString executes an OSC or DCS string.
func (t *interpreter) endString() {
	kind := t.state
	t.state = ground
	t.last = t.last[:0]
	switch {
	case kind == device && (bytes.HasPrefix(t.str, []byte("$q")) || bytes.HasPrefix(t.str, []byte("+q"))):
		t.owe("\x1bP0" + string(t.str[0]) + "r\x1b\\") // the setting is not reported
	case kind == command:
		number, text, _ := strings.Cut(string(t.str), ";")
		switch {
		case number == "0" || number == "2":
			t.title = printable(text)
		case number == "10" && text == "?":
			t.owe("\x1b]10;rgb:ffff/ffff/ffff\x1b\\")
		case number == "11" && text == "?":
			t.owe("\x1b]11;rgb:0000/0000/0000\x1b\\")
		}
	}
	t.str = t.str[:0]
}

// maxTitle is how much of a title is kept, in bytes.
const maxTitle = 256

// printable returns a hostile text without control characters, cut to maxTitle.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if len(text) > maxTitle {
		text = strings.ToValidUTF8(text[:maxTitle], "")
	}
	return text
}

// resize changes the size. It scrolls so that the cursor's row stays on the screen.
func (t *interpreter) resize(size Size) {
	if size == t.size {
		return
	}
	t.endCluster()
	at := t.position()
	t.wrap, t.last = false, t.last[:0]
	t.wholeScreen(at)
	if over := at.Row - size.Rows + 1; over > 0 {
		t.sequence('S', over)
		t.sequence('A', over)
	}
	t.flush()
	t.grid.Resize(size.Cols, size.Rows)
	t.size = size
}
