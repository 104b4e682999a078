package screen

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/vt"
)

// modes are the settings of a program that the grid does not keep, or keeps without
// a way to read them.
type modes struct {
	alternate bool
	hidden    bool // the cursor
	autowrap  bool
	insert    bool
	origin    bool
	region    bool // the scrolling region is not the whole screen
	title     string

	cursorKeys bool         // DECCKM: arrows as SS3
	keypad     bool         // DECKPAM: the keypad as SS3
	paste      bool         // pasted text in brackets
	kitty      [2][]int     // stacks of flags of the Kitty keyboard protocol, of the main and the alternate screen
	graphics   [2]bool      // G0 and G1 are line drawing
	shift      int          // index in graphics of the set in use
	saved      [2]cursor    // for each screen, what DECSC saves besides the position
	others     map[int]bool // remembered modes that are set
	coloured   bool         // the last colour was not the default one
}

type cursor struct {
	graphics [2]bool
	shift    int
	origin   bool
}

func freshModes() modes { return modes{autowrap: true, others: map[int]bool{}} }

// Modes by their numbers, as xterm's ctlseqs.txt lists them.
const (
	modeCursorKeys = 1
	modeOrigin     = 6
	modeAutowrap   = 7
	modeCursor     = 25
	modeAlternate  = 47
	modeKeypad     = 66
	modeAlternate2 = 1047
	modeSave       = 1048
	modeBoth       = 1049
	modePaste      = 2004

	modeInsert  = 4  // ANSI
	modeNewline = 20 // ANSI
)

// setMode sets or resets a private mode.
func (t *interpreter) setMode(mode int, on bool) {
	switch mode {
	case modeCursorKeys:
		t.cursorKeys = on
	case modeOrigin:
		t.origin = on
		t.gridMode(mode, on)
		t.sequence('H', 1, 1)
	case modeAutowrap:
		t.autowrap = on
		t.gridMode(mode, on)
	case modeCursor:
		t.hidden = !on
	case modeKeypad:
		t.keypad = on
	case modePaste:
		t.paste = on
	case modeAlternate, modeAlternate2:
		t.setAlternate(on)
	case modeSave:
		t.save(on)
	case modeBoth:
		if on == t.alternate {
			return
		}
		if on {
			t.save(true)
		}
		t.setAlternate(on)
		if !on {
			t.save(false)
		}
	default:
		if slices.Contains(remembered, mode) {
			t.others[mode] = on
		}
	}
}

func (t *interpreter) setAlternate(on bool) {
	if on == t.alternate {
		return
	}
	at := t.position()
	t.alternate = on
	t.gridMode(modeAlternate2, on)
	// Each of the grid's screens has a cursor and margins; a terminal has one pair.
	t.wholeScreen(at)
}

// wholeScreen makes the whole screen the scrolling region, and moves the cursor to at.
func (t *interpreter) wholeScreen(at Cursor) {
	t.region = false
	t.out = append(t.out, "\x1b[r"...)
	t.sequence('H', at.Row+1, at.Col+1)
}

// position returns the cursor. It does not include a character that waits for marks.
func (t *interpreter) position() Cursor {
	t.flush()
	at := t.grid.CursorPosition()
	return Cursor{Col: at.X, Row: at.Y, Visible: !t.hidden}
}

func (t *interpreter) gridMode(mode int, on bool) {
	t.out = append(t.out, "\x1b[?"...)
	t.out = appendInt(t.out, mode)
	t.out = append(t.out, final(on))
}

func final(on bool) byte {
	if on {
		return 'h'
	}
	return 'l'
}

// save is DECSC if on, else DECRC.
func (t *interpreter) save(on bool) {
	own := &t.saved[screenOf(t.alternate)]
	if on {
		*own = cursor{t.graphics, t.shift, t.origin}
		t.out = append(t.out, "\x1b7"...)
		return
	}
	t.graphics, t.shift = own.graphics, own.shift
	if own.origin != t.origin {
		t.origin = own.origin
		t.gridMode(modeOrigin, t.origin)
	}
	t.out = append(t.out, "\x1b8"...)
	// The screen may have become smaller since: CHA moves the cursor into it.
	if at := t.position(); at.Col >= t.size.Cols || at.Row >= t.size.Rows {
		t.sequence('G', t.size.Cols)
	}
}

func screenOf(alternate bool) int {
	if alternate {
		return 1
	}
	return 0
}

// modeState answers DECRQM: 1 set, 2 reset, 0 unknown.
func (t *interpreter) modeState(mode int) int {
	known := map[int]bool{
		modeCursorKeys: t.cursorKeys, modeOrigin: t.origin, modeAutowrap: t.autowrap, modeCursor: !t.hidden,
		modeKeypad: t.keypad, modeAlternate: t.alternate, modeAlternate2: t.alternate, modeBoth: t.alternate, modePaste: t.paste,
	}
	on, ok := known[mode]
	switch {
	case !ok:
		return 0
	case on:
		return 1
	default:
		return 2
	}
}

// softReset is DECSTR.
func (t *interpreter) softReset() {
	t.setModeIf(modeOrigin, t.origin, false)
	t.setModeIf(modeAutowrap, t.autowrap, true)
	t.wholeScreen(t.position())
	old := t.modes
	t.modes = freshModes()
	t.alternate, t.title, t.kitty, t.saved = old.alternate, old.title, old.kitty, old.saved
}

func (t *interpreter) setModeIf(mode int, is, want bool) {
	if is != want {
		t.setMode(mode, want)
	}
}

// reset is RIS.
func (t *interpreter) reset() {
	t.setAlternate(false)
	t.modes = freshModes()
	t.out = append(t.out, "\x1bc\x1b[r\x1b[H"...)
}

// drawing reports whether ASCII stands for line drawing now.
func (t *interpreter) drawing() bool { return t.graphics[t.shift] }

// mapped returns a printable ASCII character as the current character set shows it.
func (t *interpreter) mapped(b byte) []byte {
	if t.drawing() {
		if drawn, ok := vt.SpecialDrawing[b]; ok {
			return []byte(drawn)
		}
	}
	return []byte{b}
}

// flags returns the current flags of the Kitty keyboard protocol.
func (m *modes) flags() int {
	stack := m.kitty[screenOf(m.alternate)]
	if len(stack) == 0 {
		return 0
	}
	return stack[len(stack)-1]
}

// keyboard handles CSI > u, CSI < u and CSI = u.
func (t *interpreter) keyboard(prefix byte) {
	stack := &t.kitty[screenOf(t.alternate)]
	switch prefix {
	case '>':
		*stack = append(*stack, t.param(0, 0)&allFlags)
		if len(*stack) > maxStack {
			*stack = append((*stack)[:0], (*stack)[1:]...)
		}
	case '<':
		*stack = (*stack)[:max(0, len(*stack)-max(1, t.param(0, 1)))]
	case '=':
		if len(*stack) == 0 {
			*stack = append(*stack, 0)
		}
		top, flags := &(*stack)[len(*stack)-1], t.param(0, 0)&allFlags
		switch t.param(1, 1) {
		case 1:
			*top = flags
		case 2:
			*top |= flags
		case 3:
			*top &^= flags
		}
	}
}

// owe adds an answer. An answer that does not fit is dropped as a whole.
func (t *interpreter) owe(answer string) {
	if len(t.owed)+len(answer) <= maxOwed {
		t.owed = append(t.owed, answer...)
	}
}

func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }

// remembered are further private modes in which a program must not leave a terminal
// that outlives it: those of the mouse, and focus events.
var remembered = []int{9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016}

// Restore returns the sequences that bring a terminal which got the same bytes as the
// Screen back into the state that a shell expects. They are empty after a program that
// has cleaned up, but usually not after one that was killed.
func (s *Screen) Restore() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.term
	var b []byte
	unset := func(on bool, mode int) {
		if on {
			b = append(appendInt(append(b, "\x1b[?"...), mode), 'l')
		}
	}
	for _, mode := range remembered {
		unset(t.others[mode], mode)
	}
	unset(t.cursorKeys, modeCursorKeys)
	unset(t.paste, modePaste)
	if t.keypad {
		b = append(b, "\x1b>"...)
	}
	popKeyboard := func(alternate bool) {
		for range t.kitty[screenOf(alternate)] {
			b = append(b, "\x1b[<u"...)
		}
	}
	popKeyboard(t.alternate)
	ascii := func(graphics [2]bool, shift int) {
		if graphics != [2]bool{} || shift != 0 {
			b = append(b, "\x0f\x1b(B\x1b)B"...)
		}
	}
	ascii(t.graphics, t.shift)
	if t.region {
		b = append(b, "\x1b7\x1b[r\x1b8"...)
	}
	if t.insert {
		b = append(b, "\x1b[4l"...)
	}
	unset(t.origin, modeOrigin)
	if !t.autowrap {
		b = append(b, "\x1b[?7h"...)
	}
	unset(t.alternate, modeBoth)
	if t.alternate { // each screen has a stack of its own
		popKeyboard(false)
		saved := t.saved[screenOf(false)] // which the terminal restores when it leaves the other screen
		ascii(saved.graphics, saved.shift)
		unset(saved.origin, modeOrigin)
	}
	if t.hidden {
		b = append(b, "\x1b[?25h"...)
	}
	if t.alternate || t.coloured {
		b = append(b, "\x1b[m"...)
	}
	return b
}

// Redraw returns the sequences that show the Screen, without its colours, on a terminal of the
// same size that is as a shell expects it. What that terminal shows scrolls away. A program
// that has the whole screen should be told to draw it again, too: its scrolling region is not
// known here.
func (s *Screen) Redraw() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.term
	t.sync()
	at := t.position()
	var b []byte
	pushKeyboard := func(alternate bool) {
		for _, flags := range t.kitty[screenOf(alternate)] {
			b = append(appendInt(append(b, "\x1b[>"...), flags), 'u')
		}
	}
	pushKeyboard(false)
	if t.alternate {
		b = append(b, "\x1b[?1049h"...)
		pushKeyboard(true)
	} else {
		b = append(b, bytes.Repeat([]byte("\r\n"), t.size.Rows)...)
	}
	b = append(b, "\x1b[H\x1b[J"...)
	rows := make([]string, t.size.Rows)
	last := 0
	for y := range rows {
		if rows[y] = rowText(t.grid, y, t.size.Cols); rows[y] != "" {
			last = y
		}
	}
	b = append(b, strings.Join(rows[:last+1], "\r\n")...)
	b = appendInt(append(b, "\x1b["...), at.Row+1)
	b = append(appendInt(append(b, ';'), at.Col+1), 'H')
	set := func(on bool, mode int) {
		if on {
			b = append(appendInt(append(b, "\x1b[?"...), mode), 'h')
		}
	}
	for _, mode := range remembered {
		set(t.others[mode], mode)
	}
	set(t.cursorKeys, modeCursorKeys)
	set(t.paste, modePaste)
	if t.keypad {
		b = append(b, "\x1b="...)
	}
	if t.insert {
		b = append(b, "\x1b[4h"...)
	}
	if !t.autowrap {
		b = append(b, "\x1b[?7l"...)
	}
	if t.hidden {
		b = append(b, "\x1b[?25l"...)
	}
	return b
}
