// Package screen is a virtual terminal. It interprets the bytes that a program writes
// to its terminal and returns what the screen shows, and it turns the names of keys
// into the bytes that a keyboard would send to that program.
//
// The grid of characters is that of github.com/charmbracelet/x/vt. Its input comes
// from hostile programs, so an interpreter of our own processes it first: the grid
// gets only whole characters and sequences with bounded parameters, and no queries
// that a terminal must answer (docs/adr/0013).
package screen

import (
	"strings"
	"sync"

	"github.com/charmbracelet/x/vt"
)

// Size of a terminal, in characters.
type Size struct{ Cols, Rows int }

// DefaultSize is the size of a terminal if none is given.
var DefaultSize = Size{Cols: 80, Rows: 24}

// Bounds of a Screen's size. A cell takes about 110 bytes, and there are two grids.
// Any screen in practical use is smaller.
const (
	maxCols = 500
	maxRows = 250
)

// bounded returns the nearest size that a Screen can have; 0 stands for the default.
func (z Size) bounded() Size {
	if z.Cols <= 0 {
		z.Cols = DefaultSize.Cols
	}
	if z.Rows <= 0 {
		z.Rows = DefaultSize.Rows
	}
	return Size{Cols: min(z.Cols, maxCols), Rows: min(z.Rows, maxRows)}
}

// Cursor is the position of the next character, counted from 0 at the top left.
type Cursor struct {
	Col, Row int
	Visible  bool
}

// Snapshot is what a Screen shows at one moment.
type Snapshot struct {
	Size
	Cursor    Cursor
	Lines     []string // one for each row, without spaces at its end
	Alternate bool     // the screen of a full-screen program, not of a shell
	Title     string   // of the window
}

// Text returns the lines as one text, without empty lines at its end.
func (s Snapshot) Text() string {
	return strings.TrimRight(strings.Join(s.Lines, "\n"), "\n")
}

// Screen is a virtual terminal. It is safe for concurrent use. Its memory is
// bounded, and nothing that is written to it makes it fail.
type Screen struct {
	mu   sync.Mutex
	term *interpreter // guarded by mu
}

// New returns an empty Screen. A dimension of 0 or less means that of DefaultSize. Columns
// above 500 mean 500, and rows above 250 mean 250.
func New(size Size) *Screen { return &Screen{term: newInterpreter(size.bounded())} }

// Write interprets output of the program. The output may be cut into writes anywhere. Write
// never fails.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term.write(p)
	return len(p), nil
}

// Replies returns the terminal's answers to queries of the program, such as for the
// cursor's position. The caller must write them to the program's input, because the
// program waits for them. Each answer is returned once. At most 4 KiB are kept: if
// the caller does not take them, later answers are dropped.
func (s *Screen) Replies() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	owed := s.term.owed
	s.term.owed = nil
	return owed
}

// Resize changes the size, as New bounds it.
func (s *Screen) Resize(size Size) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term.resize(size.bounded())
}

// Snapshot returns what the screen shows now. A mark that arrives after a Snapshot does not
// join a character that arrived before it.
func (s *Screen) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.term
	t.sync()
	shot := Snapshot{
		Size: t.size, Cursor: t.position(),
		Lines: make([]string, t.size.Rows), Alternate: t.alternate, Title: t.title,
	}
	for y := range shot.Lines {
		shot.Lines[y] = rowText(t.grid, y, t.size.Cols)
	}
	return shot
}

// rowText returns a row of the grid without the spaces at its end.
func rowText(grid *vt.Emulator, y, cols int) string {
	var b strings.Builder
	for x := 0; x < cols; {
		cell := grid.CellAt(x, y)
		switch {
		case cell == nil || cell.Content == "" || x+cell.Width > cols: // the last is cut by a resize
			b.WriteByte(' ')
			x++
		default:
			b.WriteString(cell.Content)
			x += max(1, cell.Width)
		}
	}
	return strings.TrimRight(b.String(), " ")
}
