package screen

import (
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Whatever a program writes, however it is cut and whenever the size changes: no
// panic, bounded memory, a screen of the right shape, and the same screen as when
// it is written at once.
func FuzzScreen(f *testing.F) {
	for _, seed := range []string{
		"hello\r\nworld", "\x1b[2J\x1b[H\x1b[?1049h\x1b[3;1Hx\x1b[?1049l", "\x1b[1;999r\x1b[99M\x1b[99L\x1b[99@\x1b[99P",
		"\xe6\xbc\xa2\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb\xcc\x81\xcc\x81", "\x1b]0;title\x07\x1bP$q\x1b\\\x1b[6n\x1b[?u\x1b[>5u",
		"-\x1b[999999b\x1b[4hx\x1b(0lqk\x1b)0\x0e\x1b[?6h\x1b[2;3r\x1b[5;5Hx\x1b8\x1bc", "\xff\xfe\xc3\x28\xe2\x82\x1b[", "\x1b[99999999999999999999A\x1b[-5B\x1b[;;;;H",
	} {
		f.Add([]byte(seed), uint8(10), uint8(4), uint16(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, cols, rows uint8, cut uint16) {
		size := Size{int(cols), int(rows)}
		whole, parts := New(size), New(size)
		_, _ = whole.Write(data)
		at := 0
		for at < len(data) {
			n := min(len(data)-at, 1+int(cut)%7)
			_, _ = parts.Write(data[at : at+n])
			at += n
		}
		a, b := whole.Snapshot(), parts.Snapshot()
		if !slices.Equal(a.Lines, b.Lines) || a.Cursor != b.Cursor || a.Title != b.Title || a.Alternate != b.Alternate {
			t.Errorf("at once: %q %+v; in parts: %q %+v", a.Lines, a.Cursor, b.Lines, b.Cursor)
		}
		if x, y := whole.Replies(), parts.Replies(); string(x) != string(y) || len(x) > maxOwed {
			t.Errorf("replies at once: %q; in parts: %q", x, y)
		}
		check(t, a)
		other := Size{int(cut) % 200, int(cut) >> 8}
		whole.Resize(other)
		check(t, whole.Snapshot())
		_, _ = whole.Write(data)
		check(t, whole.Snapshot())
		if _, err := whole.Keys("up", "ctrl-c", "f3", "kp0", "x"); err != nil {
			t.Error(err)
		}
	})
}

func check(t *testing.T, s Snapshot) {
	t.Helper()
	if len(s.Lines) != s.Rows || s.Cursor.Row < 0 || s.Cursor.Row >= s.Rows || s.Cursor.Col < 0 || s.Cursor.Col >= s.Cols {
		t.Errorf("%d lines, cursor %+v on a screen of %+v", len(s.Lines), s.Cursor, s.Size)
	}
	for _, line := range s.Lines {
		if !utf8.ValidString(line) || len(line) > s.Cols*(maxCluster+utf8.UTFMax) || ansi.StringWidth(line) > s.Cols {
			t.Errorf("line %q on a screen of %+v", line, s.Size)
		}
	}
	if len(s.Title) > maxTitle || !utf8.ValidString(s.Title) {
		t.Errorf("title %q", s.Title)
	}
}

// A name is a key's, or an error; what it sends is never empty.
func FuzzKeys(f *testing.F) {
	for name := range namedKeys() {
		f.Add("ctrl-"+name, "\x1b[>1u")
	}
	f.Add("shift-alt-x", "\x1b[?1h\x1b=")
	f.Fuzz(func(t *testing.T, name, mode string) {
		s := New(Size{10, 4})
		write(s, mode)
		if got, err := s.Keys(name); err == nil && (len(got) == 0 || len(got) > 40) {
			t.Errorf("Keys(%q) = %q", name, got)
		}
	})
}
