package serve

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// readAll returns the lines of a stream, and the error that ends it. A line that is too long is
// "<long>".
func readAll(r io.Reader) (lines []string, err error) {
	l := newLineReader(r)
	for {
		line, err := l.next()
		switch {
		case errors.Is(err, errLongLine):
			lines = append(lines, "<long>")
		case err != nil:
			return lines, err
		default:
			lines = append(lines, string(line))
		}
	}
}

func TestLineReader(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, row := range []struct {
		name  string
		in    io.Reader
		lines string
		err   error
	}{
		{"nothing", strings.NewReader(""), "", io.EOF},
		{"lines", strings.NewReader("a\nb\n"), "a|b", io.EOF},
		{"no line end at the end", strings.NewReader("a\nb"), "a|b", io.EOF},
		{"Windows", strings.NewReader("a\r\nb\r\n"), "a|b", io.EOF},
		{"white space", strings.NewReader("\n \t\r\n  a b \t\n\n\n"), "a b", io.EOF},
		{"blanks at the end", strings.NewReader("a\n  "), "a", io.EOF},
		{"a byte at a time", iotest.OneByteReader(strings.NewReader("ab\n\ncd")), "ab|cd", io.EOF},
		{"data with its error", iotest.DataErrReader(strings.NewReader("ab\ncd\n")), "ab|cd", io.EOF},
		{"an error", io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), "a", broken},
	} {
		lines, err := readAll(row.in)
		if got := strings.Join(lines, "|"); got != row.lines || !errors.Is(err, row.err) {
			t.Errorf("%s: %q, %v; want %q, %v", row.name, got, err, row.lines, row.err)
		}
	}
}

// The longest line is a line; a byte more is too much, and the next line is read.
func TestLineReaderLimit(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		in   string
		want string
	}{
		{"the longest", strings.Repeat("x", MaxLine) + "\nnext\n", "line|next"},
		{"the longest, at the end", strings.Repeat("x", MaxLine), "line"},
		{"a byte more", strings.Repeat("x", MaxLine+1) + "\nnext\n", "<long>|next"},
		{"far more", strings.Repeat("x", 2*MaxLine) + "\nnext", "<long>|next"},
		{"far more, without an end", strings.Repeat("x", 2*MaxLine), "<long>"},
		{"two", strings.Repeat("x", MaxLine+1) + "\n" + strings.Repeat("x", MaxLine+1) + "\nnext", "<long>|<long>|next"},
	} {
		lines, err := readAll(strings.NewReader(row.in))
		for i, line := range lines {
			if len(line) == MaxLine {
				lines[i] = "line"
			}
		}
		if got := strings.Join(lines, "|"); got != row.want || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %.100q, %v; want %q", row.name, got, err, row.want)
		}
	}
}
