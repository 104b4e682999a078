package screen

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// model is a screen as the standard describes it, for ASCII and for functions at a known
// position. It shares nothing with the interpreter or the grid.
type model struct {
	rows     [][]byte
	col, row int
}

func newModel(size Size) *model {
	m := &model{}
	for range size.Rows {
		m.rows = append(m.rows, blank(size.Cols))
	}
	return m
}

func blank(cols int) []byte { return bytes.Repeat([]byte{' '}, cols) }

// edit executes a function with its parameter at the cursor.
func (m *model) edit(final byte, n int) {
	cols, line := len(m.rows[0]), m.rows[m.row]
	right := min(n, cols-m.col)
	down := min(n, len(m.rows)-m.row)
	switch final {
	case '@': // ICH
		copy(line[m.col+right:], bytes.Clone(line[m.col:]))
		copy(line[m.col:m.col+right], blank(right))
	case 'P': // DCH
		copy(line[m.col:], bytes.Clone(line[m.col+right:]))
		copy(line[cols-right:], blank(right))
	case 'X': // ECH
		copy(line[m.col:m.col+right], blank(right))
	case 'K': // EL
		m.erase(m.row, n)
	case 'J': // ED
		for row := range m.rows {
			switch {
			case n == 0 && row > m.row, n == 1 && row < m.row, n == 2:
				m.rows[row] = blank(cols)
			case row == m.row:
				m.erase(row, n)
			}
		}
	case 'L': // IL
		m.rows = slices.Insert(m.rows, m.row, blanks(down, cols)...)
		m.rows, m.col = m.rows[:len(m.rows)-down], 0
	case 'M': // DL
		m.rows, m.col = append(slices.Delete(m.rows, m.row, m.row+down), blanks(down, cols)...), 0
	case 'S': // SU
		n = min(n, len(m.rows))
		m.rows = append(m.rows[n:], blanks(n, cols)...)
	case 'T': // SD
		n = min(n, len(m.rows))
		m.rows = append(blanks(n, cols), m.rows[:len(m.rows)-n]...)
	case 'A', 'B', 'C', 'D':
		m.row += map[byte]int{'A': -n, 'B': n}[final]
		m.col += map[byte]int{'C': n, 'D': -n}[final]
		m.row, m.col = min(max(m.row, 0), len(m.rows)-1), min(max(m.col, 0), cols-1)
	}
}

func blanks(n, cols int) (all [][]byte) {
	for range n {
		all = append(all, blank(cols))
	}
	return all
}

func (m *model) erase(row, how int) {
	line := m.rows[row]
	switch how {
	case 0:
		copy(line[m.col:], blank(len(line)))
	case 1:
		copy(line[:m.col+1], blank(m.col+1))
	case 2:
		copy(line, blank(len(line)))
	}
}

// print writes a text from the cursor on, which wraps and scrolls.
func (m *model) print(text string) {
	for i := range len(text) {
		if m.col == len(m.rows[0]) { // a full line wraps with the next character
			m.col = 0
			if m.row++; m.row == len(m.rows) {
				m.row--
				m.edit('S', 1)
			}
		}
		m.rows[m.row][m.col] = text[i]
		m.col++
	}
	m.col = min(m.col, len(m.rows[0])-1)
}

func (m *model) text() string {
	var lines []string
	for _, row := range m.rows {
		lines = append(lines, strings.TrimRight(string(row), " "))
	}
	return strings.Join(lines, "|")
}

// Whatever is written, erased, inserted, deleted and scrolled, the screen is that of the model.
func TestModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		size := Size{1 + r.IntN(12), 1 + r.IntN(6)}
		s, m := New(size), newModel(size)
		var written []string
		for range 40 {
			m.row, m.col = r.IntN(size.Rows), r.IntN(size.Cols)
			step := fmt.Sprintf("\x1b[%d;%dH", m.row+1, m.col+1)
			if r.IntN(2) == 0 {
				text := "The quick brown fox jumps over the lazy dog"[r.IntN(20):]
				text = text[:1+r.IntN(len(text))]
				step += text
				m.print(text)
			} else {
				final := "@PXKJLMSTABCD"[r.IntN(13)]
				n := 1 + r.IntN(15)
				if final == 'K' || final == 'J' {
					n = r.IntN(3)
				}
				step += fmt.Sprintf("\x1b[%d%c", n, final)
				m.edit(final, n)
			}
			written = append(written, step)
			write(s, step)
			got := s.Snapshot()
			if shown := strings.Join(got.Lines, "|"); shown != m.text() || got.Cursor.Row != m.row || got.Cursor.Col != m.col {
				t.Fatalf("on %v, after %q:\nshows %q, cursor %d, %d; want\n%q, cursor %d, %d",
					size, written, shown, got.Cursor.Col, got.Cursor.Row, m.text(), m.col, m.row)
			}
		}
	}
}

// What scrolls off the screen is skipped, and nothing is shown that would not be shown without
// that: a text in one write leads to the same screen as line by line.
func TestFloodOfAnyText(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	parts := []string{"a", "long words here ", "\t", "\b", "\r", "\x1b[31m", "\x1b[0;1m", "漢", "é", "e\u0301", "\a", "x"}
	starts := []string{"", "\x1b[4h", "\x1b[2;3r", "\x1b[?6h", "\x1b[?7l", "\x1b(0", "\x1b[20h", "\x1b[?1049h", "\x1b[5;5Hx"}
	for range 120 {
		var text strings.Builder
		ends := []string{"\n", "\r\n", "\n\n"}[r.IntN(3):]
		for text.Len() < 3*minSkip {
			for range r.IntN(6) {
				text.WriteString(parts[r.IntN(len(parts))])
			}
			text.WriteString(ends[r.IntN(len(ends))])
		}
		text.WriteString("the end")
		start := starts[r.IntN(len(starts))]
		whole, lines := New(Size{11, 4}), New(Size{11, 4})
		write(whole, start)
		write(whole, text.String())
		write(lines, start)
		for line := range strings.Lines(text.String()) {
			write(lines, line)
		}
		a, b := whole.Snapshot(), lines.Snapshot()
		if !slices.Equal(a.Lines, b.Lines) || a.Cursor != b.Cursor {
			t.Fatalf("after %q, in one write: %q %+v\nline by line: %q %+v\nof %q", start, a.Lines, a.Cursor, b.Lines, b.Cursor, text.String())
		}
	}
}

// Whatever modes a program has left, the restoring sequences undo all of them.
func TestRestoreIsEnough(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 12))
	left := []string{
		"\x1b[?1h", "\x1b[?6h", "\x1b[?7l", "\x1b[?25l", "\x1b[?47h", "\x1b[?1047h", "\x1b[?1049h", "\x1b[?2004h", "\x1b[?1000h", "\x1b[?1003h", "\x1b[?1006h",
		"\x1b[4h", "\x1b=", "\x1b(0", "\x1b)0", "\x0e", "\x1b[2;3r", "\x1b[>1u", "\x1b[=8;1u", "\x1b[31m", "\x1b7", "\x1b8", "\x1b[?1049l", "text", "\x1b[?66h",
	}
	keys := []string{"up", "end", "f3", "kp5", "kp-enter", "esc", "ctrl-c", "shift-tab", "x"}
	want, err := New(Size{20, 5}).Keys(keys...)
	if err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		s := New(Size{20, 5})
		var written []string
		for range 1 + r.IntN(8) {
			step := left[r.IntN(len(left))]
			written = append(written, step)
			write(s, step)
		}
		restore := s.Restore()
		write(s, string(restore))
		if more := s.Restore(); len(more) > 0 {
			t.Fatalf("after %q and %q, %q is still to be restored", written, restore, more)
		}
		if got, err := s.Keys(keys...); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("after %q and %q the keys send %q, %v; want %q", written, restore, got, err, want)
		}
		if shot := s.Snapshot(); shot.Alternate || !shot.Cursor.Visible {
			t.Fatalf("after %q and %q the screen is %+v", written, restore, shot)
		}
		write(s, "\x1b[H\x1b[2Jlqx\r\nnext")
		if got := s.Snapshot().Text(); got != "lqx\nnext" {
			t.Fatalf("after %q and %q a shell's text looks like %q", written, restore, got)
		}
	}
}

// Nothing that a program writes makes the interpreter keep more than its bounds say.
func TestHostileOutputIsBounded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a string without an end":   "\x1b]0;" + strings.Repeat("x", 1<<16),
		"strings of every kind":     strings.Repeat("\x1b]2;"+strings.Repeat("y", 3000)+"\x07\x1bP"+strings.Repeat("z", 5000), 20),
		"marks":                     "e" + strings.Repeat("\u0301", 1<<14),
		"joined characters":         strings.Repeat("👩\u200d", 1<<12),
		"parameters":                "\x1b[" + strings.Repeat("1;", 1<<15) + "m",
		"large numbers":             strings.Repeat("\x1b[99999999999999999999999999@\x1b[4294967296;18446744073709551616H", 1000),
		"queries":                   strings.Repeat("\x1b[6n\x1b[c\x1b[?u\x1b[18t", 1<<13),
		"a stack of keyboards":      strings.Repeat("\x1b[>31u", 1<<13),
		"modes":                     strings.Repeat("\x1b[?1;2;3;4;5;1000;1001;77777;31337h", 1<<11),
		"saved cursors":             strings.Repeat("\x1b7\x1b[s\x1b[?1048h\x1b[?1049h", 1<<12),
		"first bytes of characters": strings.Repeat("\xf0\x9f", 1<<14),
		"repetitions":               "-" + strings.Repeat("\x1b[65535b", 200),
	} {
		s := New(Size{20, 5})
		for len(text) > 0 {
			n := min(len(text), 1000)
			write(s, text[:n])
			text = text[n:]
			term := s.term
			others := 0
			for range term.others {
				others++
			}
			switch {
			case len(term.str) > maxString, len(term.cluster) > maxCluster, len(term.partial) > 3, len(term.params) > maxParams,
				len(term.owed) > maxOwed, len(term.kitty[0]) > maxStack, len(term.kitty[1]) > maxStack, others > len(remembered), len(term.out) > 0:
				t.Fatalf("%s: keeps %d bytes of a string, %d of a character, %d of answers, %d parameters, %d and %d keyboards, %d modes, %d not shown",
					name, len(term.str), len(term.cluster), len(term.owed), len(term.params), len(term.kitty[0]), len(term.kitty[1]), others, len(term.out))
			}
		}
		check(t, s.Snapshot())
		// Answers come whole, or not at all.
		if replies := s.Replies(); len(replies) > 0 && (replies[0] != 0x1b || !strings.ContainsRune("Rcutn", rune(replies[len(replies)-1]))) {
			t.Errorf("%s: the answers are cut: %.20q … %q", name, replies, replies[len(replies)-10:])
		}
		write(s, "\x18\x1bc\x1b[3;3Hworks")
		if got := s.Snapshot().Text(); got != "\n\n  works" {
			t.Errorf("%s: afterwards the screen shows %q", name, got)
		}
	}
}

// Output, keys, sizes and snapshots may come from several goroutines; each snapshot is whole.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	s := New(Size{20, 5})
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for i := range 200 {
				switch n {
				case 0:
					write(s, fmt.Sprintf("\x1b[?1049h\x1b[%d;%dH漢字 %d\x1b[6n\r\n\x1b[?1049l", i%9, i%30, i))
				case 1:
					s.Resize(Size{1 + i%30, 1 + i%7})
				case 2:
					check(t, s.Snapshot())
					s.Replies()
				case 3:
					if got, err := s.Keys("up", "ctrl-c"); err != nil || len(got) < 4 || len(s.Restore()) > 100 {
						t.Errorf("Keys() = %q, %v", got, err)
					}
				}
			}
		})
	}
	all.Wait()
	check(t, s.Snapshot())
}
