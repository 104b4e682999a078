package screen

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func write(s *Screen, text string) { _, _ = s.Write([]byte(text)) }

// Each row is what a program writes to a terminal of 10 by 4, and what a person
// sees then.
func TestScreen(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		want       string // without empty lines at the end
		col, row   int
	}{
		{"text", "hello", "hello", 5, 0},
		{"lines", "a\r\nb\r\nc", "a\nb\nc", 1, 2},
		{"line feed alone", "ab\ncd", "ab\n  cd", 4, 1},
		{"scrolls", "1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5", 1, 3},
		{"wraps", "0123456789ab", "0123456789\nab", 2, 1},
		{"full line", "0123456789", "0123456789", 9, 0},
		{"full line and line end", "0123456789\r\nx", "0123456789\nx", 1, 1},
		{"no wrapping", "\x1b[?7l0123456789ab", "012345678b", 9, 0},
		{"progress", "10%\r20%\r30%", "30%", 3, 0},
		{"backspace", "abc\b\bX", "aXc", 2, 0},
		{"tab", "a\tb", "a       b", 9, 0},
		{"colours", "\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mx\x1b[m", "red x", 5, 0},
		{"erase line", "abcdef\x1b[3D\x1b[K", "abc", 3, 0},
		{"erase screen", "abc\r\ndef\x1b[2J", "", 3, 1},
		{"erase what scrolled out", "abc\x1b[3J", "abc", 3, 0},
		{"cursor address", "\x1b[3;4Hx", "\n\n   x", 4, 2},
		{"cursor address out of range", "\x1b[99;99Hx", "\n\n\n         x", 9, 3},
		{"insert characters", "abc\x1b[1G\x1b[2@", "  abc", 0, 0},
		{"insert mode", "abc\r\x1b[4hxy\x1b[4lz", "xyzbc", 3, 0},
		{"delete characters", "abcdef\x1b[1G\x1b[2P", "cdef", 0, 0},
		{"insert line", "a\r\nb\x1b[1;1H\x1b[L", "\na\nb", 0, 0},
		{"delete line", "a\r\nb\x1b[1;1H\x1b[M", "b", 0, 0},
		{"region", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\n", "1\n3\n\n4", 0, 2},
		{"region beyond the screen", "1\r\n2\x1b[1;999r\x1b[4;1H\n\n", "", 0, 3},
		{"reverse index", "a\x1b[H\x1bMb", "b\na", 1, 0},
		{"repeat", "-\x1b[4b|", "-----|", 6, 0},
		{"repeat after nothing", "a\r\n\x1b[3b", "a", 0, 1},
		{"line drawing", "\x1b(0lqk\x1b(Bq", "┌─┐q", 4, 0},
		{"line drawing by shift", "\x1b)0\x0ex\x0fx", "│x", 2, 0},
		{"save and restore", "ab\x1b7cd\x1b8X", "abXd", 3, 0},
		{"save and restore, the other way", "ab\x1b[scd\x1b[uX", "abXd", 3, 0},
		{"reset", "abc\x1bcd", "d", 1, 0},
		{"alternate and back", "main\x1b[?1049h\x1b[2J\x1b[Hother\x1b[?1049l!", "main!", 5, 0},
		{"back without having gone", "main\x1b[?1049l", "main", 4, 0},
		{"marks", "e\xcc\x81\xc3\xa9x", "e\u0301éx", 3, 0},
		{"wide", "\xe6\xbc\xa2\xe5\xad\x97x", "漢字x", 5, 0},
		{"wide at the edge", "012345678\xe6\xbc\xa2", "012345678\n漢", 2, 1},
		{"wide, then on", "01234567\xe6\xbc\xa2x", "01234567漢\nx", 1, 1},
		{"emoji of several", "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb!", "👩‍💻!", 3, 0},
		{"not UTF-8", "a\xff\xc3(b", "a\ufffd\ufffd(b", 5, 0},
		{"cut by a sequence", "a\xe2\x82\x1b[1mb", "a\ufffd\ufffdb", 4, 0},
		{"title", "\x1b]0;hello\x07x", "x", 1, 0},
		{"strings are not shown", "a\x1bPq#0\x1b\\b\x1b_x\x1b\\c\x1b]52;c;eA==\x1b\\d", "abcd", 4, 0},
		{"a line feed ends strings", "\x1b]a\r\n1\x1bPa\r\n2\x1b_a\r\n3", "\n1\n 2\n  3", 3, 3},
		{"a line feed ends other sequences", "\x1b[\r\n12\x1b\r\n3\x1b(\r\n4", "\n12\n3\n4", 1, 3},
		{"a string without an end", "\x1b]" + strings.Repeat("x", maxString-1) + "hello", "hello", 5, 0},
		{"a string without an end that is not kept", "\x1b^" + strings.Repeat("x", maxString-1) + "hello", "hello", 5, 0},
		{"a control sequence without an end", "\x1b[" + strings.Repeat("1", maxString-1) + "12", "12", 2, 0},
		{"unknown sequences", "a\x1b[?2026h\x1b[>4;2m\x1b[>1u\x1b[5 q\x1b[22;0;0tb", "ab", 2, 0},
		{"enormous numbers", "a\x1b[99999999999999999999Cb\x1b[999999999b\x1b[99999999999I\x1b[999999999L", "bbbbbbbbbb\nbbbbbbbbbb\nbbbbbbbbbb", 0, 3},
	} {
		s := New(Size{10, 4})
		write(s, row.text)
		got := s.Snapshot()
		if got.Text() != row.want || got.Cursor.Col != row.col || got.Cursor.Row != row.row {
			t.Errorf("%s: Write(%q) shows %q with the cursor at %d, %d; want %q, %d, %d",
				row.name, row.text, got.Text(), got.Cursor.Col, got.Cursor.Row, row.want, row.col, row.row)
		}
		// However it is cut, it shows the same.
		byByte := New(Size{10, 4})
		for i := range len(row.text) {
			write(byByte, row.text[i:i+1])
		}
		if cut := byByte.Snapshot(); !slices.Equal(cut.Lines, got.Lines) || cut.Cursor != got.Cursor {
			t.Errorf("%s: byte by byte it shows %q %+v; want %q %+v", row.name, cut.Text(), cut.Cursor, got.Text(), got.Cursor)
		}
	}
}

func TestModesOfTheScreen(t *testing.T) {
	t.Parallel()
	s := New(Size{20, 5})
	write(s, "\x1b[?1049h\x1b[?25l\x1b]2;my \x1b[1mtitle\x07")
	if got := s.Snapshot(); !got.Alternate || got.Cursor.Visible || got.Title != "my " {
		t.Errorf("alternate %v, visible %v, title %q; want true, false, \"my \"", got.Alternate, got.Cursor.Visible, got.Title)
	}
	write(s, "\x1b[?1049l\x1b[?25h\x1b]0;next\x1b\\")
	if got := s.Snapshot(); got.Alternate || !got.Cursor.Visible || got.Title != "next" {
		t.Errorf("alternate %v, visible %v, title %q; want false, true, next", got.Alternate, got.Cursor.Visible, got.Title)
	}
	write(s, "\x1b]2;"+strings.Repeat("x", 4000)+"\x07")
	if got := s.Snapshot().Title; got != strings.Repeat("x", maxTitle) {
		t.Errorf("a title of 4000 bytes is kept with %d bytes; want %d", len(got), maxTitle)
	}
}

func TestReplies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"cursor position", "ab\r\ncd\x1b[6n", "\x1b[2;3R"},
		{"status", "\x1b[5n", "\x1b[0n"},
		{"attributes", "\x1b[c\x1b[0c", "\x1b[?62;22c\x1b[?62;22c"},
		{"secondary attributes", "\x1b[>c", "\x1b[>1;10;0c"},
		{"keyboard", "\x1b[?u\x1b[>5u\x1b[?u", "\x1b[?0u\x1b[?5u"},
		{"keyboard of each screen", "\x1b[>1u\x1b[?1049h\x1b[?u\x1b[?1049l\x1b[?u", "\x1b[?0u\x1b[?1u"},
		{"keyboard popped", "\x1b[>1u\x1b[>8u\x1b[<u\x1b[?u\x1b[<9u\x1b[?u", "\x1b[?1u\x1b[?0u"},
		{"keyboard set", "\x1b[=5u\x1b[?u\x1b[=2;2u\x1b[?u\x1b[=4;3u\x1b[?u", "\x1b[?5u\x1b[?7u\x1b[?3u"},
		{"mode", "\x1b[?1$p\x1b[?1h\x1b[?1$p\x1b[?31337$p", "\x1b[?1;2$y\x1b[?1;1$y\x1b[?31337;0$y"},
		{"size", "\x1b[18t", "\x1b[8;4;10t"},
		{"background", "\x1b]11;?\x07", "\x1b]11;rgb:0000/0000/0000\x1b\\"},
		{"settings that are not answered", "\x1bP$qm\x1b\\\x1bP+q544e\x1b\\", "\x1bP0$r\x1b\\\x1bP0+r\x1b\\"},
		{"nothing", "hello\x1b[1;2H\x1b[31m", ""},
	} {
		s := New(Size{10, 4})
		write(s, row.text)
		if got := string(s.Replies()); got != row.want {
			t.Errorf("%s: Write(%q) is answered with %q; want %q", row.name, row.text, got, row.want)
		}
		if got := s.Replies(); len(got) > 0 {
			t.Errorf("%s: answered again with %q", row.name, got)
		}
	}
	s := New(DefaultSize)
	write(s, strings.Repeat("\x1b[c", 100_000))
	if got := len(s.Replies()); got == 0 || got > maxOwed {
		t.Errorf("after 100000 questions %d bytes are owed; want some, at most %d", got, maxOwed)
	}
}

func TestResize(t *testing.T) {
	t.Parallel()
	s := New(Size{10, 5})
	write(s, "1\r\n2\r\n3\r\n4\r\n5 prompt")
	s.Resize(Size{10, 3})
	if got := s.Snapshot(); got.Text() != "3\n4\n5 prompt" || got.Cursor.Row != 2 {
		t.Errorf("made lower: %q, cursor in row %d; want the last three lines, row 2", got.Text(), got.Cursor.Row)
	}
	s.Resize(Size{5, 6})
	got := s.Snapshot()
	if len(got.Lines) != 6 || got.Size != (Size{5, 6}) || got.Lines[2] != "5 pro" {
		t.Errorf("made narrower: %q; want 6 lines, the third cut", got.Lines)
	}
	s.Resize(Size{1 << 30, -1})
	if got := s.Snapshot().Size; got != (Size{maxCols, DefaultSize.Rows}) {
		t.Errorf("an enormous size became %+v", got)
	}
	write(s, "\x1b[1;99r\x1b[24;1H\n\n\nend")
	if got := s.Snapshot().Lines[23]; got != "end" {
		t.Errorf("last line %q; want end", got)
	}
}

// A flood is not drawn line by line, and what is seen at its end is the same.
func TestFlood(t *testing.T) {
	t.Parallel()
	var flood bytes.Buffer
	for i := range 200_000 {
		if i%3 == 0 {
			flood.WriteString("\x1b[32m")
		}
		flood.WriteString(strings.Repeat("word ", i%7))
		flood.WriteString("\r\n")
	}
	flood.WriteString("last")
	whole, cut := New(DefaultSize), New(DefaultSize)
	for try := 1; ; try++ { // more than one if the machine is busy
		began := time.Now()
		_, _ = whole.Write(flood.Bytes())
		took := time.Since(began)
		if took <= 5*time.Second {
			break
		}
		if try == 3 {
			t.Errorf("%d bytes took %v", flood.Len(), took)
			break
		}
		whole = New(DefaultSize)
	}
	tail := flood.Bytes()[flood.Len()-4000:]
	for i := 0; i < len(tail); i += 100 { // too little to skip any of it
		_, _ = cut.Write(tail[i:min(len(tail), i+100)])
	}
	if got, want := whole.Snapshot(), cut.Snapshot(); got.Text() != want.Text() || got.Cursor != want.Cursor {
		t.Errorf("shown: %q %+v; want %q %+v", got.Text(), got.Cursor, want.Text(), want.Cursor)
	}
}

// What a program has left behind is undone, and nothing is done where it has
// cleaned up.
func TestRestore(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"nothing", "hello\r\n", ""},
		{"cleaned up", "\x1b[?1049h\x1b[?1h\x1b=\x1b[?25l\x1b[31mx\x1b[m\x1b[?25h\x1b[?1l\x1b>\x1b[?1049l", ""},
		{"a full-screen program", "\x1b[?1049h\x1b[?1h\x1b=\x1b[?25l\x1b[?1002h\x1b[?1006h\x1b[?2004h", "\x1b[?1002l\x1b[?1006l\x1b[?1l\x1b[?2004l\x1b>\x1b[?1049l\x1b[?25h\x1b[m"},
		{"keyboard", "\x1b[>1u\x1b[>5u", "\x1b[<u\x1b[<u"},
		{"colour", "\x1b[1;31mred", "\x1b[m"},
		{"region and drawing", "\x1b[2;3r\x1b(0", "\x0f\x1b(B\x1b)B\x1b7\x1b[r\x1b8"},
	} {
		s := New(DefaultSize)
		write(s, row.text)
		if got := string(s.Restore()); got != row.want {
			t.Errorf("%s: Restore() after %q = %q; want %q", row.name, row.text, got, row.want)
		}
		write(s, row.want)
		if got := string(s.Restore()); got != "" {
			t.Errorf("%s: after Restore() it is %q; want nothing", row.name, got)
		}
	}
}

// What Redraw writes shows the same on another terminal, whose modes are then the same, too.
func TestRedraw(t *testing.T) {
	t.Parallel()
	size := Size{Cols: 20, Rows: 5}
	for _, row := range []struct{ name, shown string }{
		{"nothing", ""},
		{"a prompt", "$ ls\r\na b\r\n$ "},
		{"scrolled", "1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7"},
		{"an editor", "$ vi\r\n\x1b[?1049h\x1b[2J\x1b[H\x1b[31mtext\x1b[m\r\n~\r\n~\x1b[5;1H:wq\x1b[1;3H"},
		{"modes", "\x1b[?1h\x1b=\x1b[?2004h\x1b[?1000h\x1b[?1006h\x1b[?25l\x1b[?7l\x1b[4hx"},
		{"the Kitty keyboard", "\x1b[>1u\x1b[?1049h\x1b[>5uin it"},
		{"wide characters", "日本語 é\r\n"},
		{"a full line", "12345678901234567890\r\nnext"},
	} {
		was := New(size)
		_, _ = was.Write([]byte(row.shown))
		other := New(size)
		_, _ = other.Write([]byte("what was there\r\nbefore"))
		_, _ = other.Write(was.Redraw())
		want, got := was.Snapshot(), other.Snapshot()
		want.Title = ""
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: drawn %+v; want %+v", row.name, got, want)
		}
		if got, want := other.Restore(), was.Restore(); !bytes.Equal(bytes.TrimSuffix(got, []byte("\x1b[m")), bytes.TrimSuffix(want, []byte("\x1b[m"))) { // colours are not drawn
			t.Errorf("%s: the modes are undone by %q; want %q", row.name, got, want)
		}
	}
}
