package stdio

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Colouring says when colours are shown.
type Colouring string

// When colours are shown.
const (
	ColourAuto   Colouring = "auto" // on a terminal that has them, unless the user's environment says otherwise
	ColourAlways Colouring = "always"
	ColourNever  Colouring = "never"
)

// A Colour is a parameter of SGR, ECMA-48 8.3.117. The zero value is none.
type Colour string

// The few colours that there are. They are the terminal's own, and so fit its background.
const (
	Bold   Colour = "1"
	Faint  Colour = "2"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Cyan   Colour = "36"
)

// SetColours says when colours are shown from now on. Before, there are none.
func (s *Streams) SetColours(when Colouring, getenv func(string) string) {
	s.colours = func(w io.Writer) bool {
		switch when {
		case ColourAlways:
			return true
		case ColourAuto:
			// no-color.org and bixense.com/clicolors
			return IsTerminal(w) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && getenv("CLICOLOR") != "0"
		default:
			return false
		}
	}
}

// Colours reports whether colours are shown on a stream of this process.
func (s *Streams) Colours(w io.Writer) bool { return s.colours != nil && s.colours(w) }

// Paint returns a text in a colour for a stream that shows colours, else as it is.
func (s *Streams) Paint(w io.Writer, c Colour, text string) string {
	if c == "" || text == "" || !s.Colours(w) {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[m"
}

// stateColour is the colour of a state, whatever it is of. What is usual has none.
func stateColour(state string) Colour {
	switch state {
	case "running", "up":
		return Green
	case "paused", "silent", "restarting", "incomplete", "orphaned":
		return Yellow
	case "kept":
		return Cyan
	case "ended", "exited", "created":
		return Faint
	case "lost", "dead", "failed", "killed", "denied", "refused":
		return Red
	}
	return ""
}

// columnColour returns what colours the cells of a column, nil if nothing does.
func columnColour(name string) func(cell string) Colour {
	switch name {
	case "STATE", "STATUS", "VERDICT":
		return stateColour
	case "EXIT":
		return func(cell string) Colour {
			if cell == "0" || cell == "-" {
				return ""
			}
			return Red
		}
	}
	return nil
}

// column is one of a table, which begins at a character.
type column struct {
	from   int
	colour func(cell string) Colour
}

// columnsOf returns the columns of a head that have colours. Two spaces are between any two.
func columnsOf(head string) (list []column) {
	from := 0
	for part := range strings.SplitSeq(head, "  ") {
		name := strings.TrimLeft(part, " ")
		if colour := columnColour(name); colour != nil {
			list = append(list, column{from + utf8.RuneCountInString(part) - utf8.RuneCountInString(name), colour})
		}
		from += utf8.RuneCountInString(part) + 2
	}
	return list
}

// paintTable colours a table whose columns are aligned already: colours have no width.
func (s *Streams) paintTable(w io.Writer, text string) string {
	if !s.Colours(w) {
		return text
	}
	head, rows, _ := strings.Cut(text, "\n")
	columns := columnsOf(head)
	var b strings.Builder
	b.WriteString(s.Paint(w, Bold, head) + "\n")
	for row := range strings.Lines(rows) {
		runes := []rune(row)
		for _, column := range slices.Backward(columns) { // from the right, so that the others stay where they are
			from := column.from
			to := from
			for to < len(runes) && runes[to] != ' ' && runes[to] != '\n' {
				to++
			}
			if to > from {
				cell := string(runes[from:to])
				runes = []rune(string(runes[:from]) + s.Paint(w, column.colour(cell), cell) + string(runes[to:]))
			}
		}
		b.WriteString(string(runes))
	}
	return b.String()
}
