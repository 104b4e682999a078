package screen

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// shows checks a screen: its rows joined by "|" without empty ones at the end, and the
// cursor.
func shows(t *testing.T, name string, s *Screen, want string, col, row int) {
	t.Helper()
	got := s.Snapshot()
	shown := strings.TrimRight(strings.Join(got.Lines, "|"), "|")
	if shown != want || got.Cursor.Col != col || got.Cursor.Row != row {
		t.Errorf("%s: shows %q with the cursor at %d, %d; want %q, %d, %d", name, shown, got.Cursor.Col, got.Cursor.Row, want, col, row)
	}
}

// outcome is all that a stream leads to.
func outcome(s *Screen) string {
	shot := s.Snapshot()
	keys, err := s.Keys("up", "f3", "kp5", "esc", "ctrl-c")
	return fmt.Sprintf("%q %+v alternate %v title %q replies %q restore %q keys %q %v",
		shot.Lines, shot.Cursor, shot.Alternate, shot.Title, s.Replies(), s.Restore(), keys, err)
}

// Wherever a stream is cut into two writes, it leads to the same screen, answers, keys and
// restoring sequences as in one write.
func TestEverySplit(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"plain text that is longer than a row\r\n",
		"\x1b[1;31mred\x1b[38:2::1:2:3mx\x1b[0m\x1b[;;5H*\x1b[2;3r\x1b[?6h\x1b[9;9Hy",
		"\x1b]0;a title\x07\x1b]2;another: ä漢\x1b\\\x1b]11;?\x1b\\\x1b]52;c;eA==\x07z",
		"\x1bP$qm\x1b\\\x1bP+q544e\x1b\\\x1bPq#0~\x1b\\\x1b_kitty\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\.",
		"\x1b[6n\x1b[5n\x1b[c\x1b[>c\x1b[?u\x1b[18t\x1b[?1$p\x1b[?6n",
		"\x1b(0lqk\x1b(B\x1b)0\x0ex\x0f\x1b*B\x1b%G\x1b#8q",
		"e\u0301 漢字 👩\u200d💻 🇩🇪 1\ufe0f\u20e3 \u1100\u1161\u11a8!",
		"\xf0\x9f\x91\xf0\x9f\x91\xa9\xe2\x82\x1b[1m\xff\xfeA\xc3(\xed\xa0\x80\xf4\x90\x80\x80B\xc0\xaf",
		"\x1b[>1u\x1b[?1049h\x1b[>8u\x1b[=5;2u\x1b[?1h\x1b=\x1b[?2004h\x1b[?1002h\x1b[?25l\x1b[4h\x1b[?7l",
		"\x1b7\x1b[5;5H\x1b8\x1b[s\x1b[3;3H\x1b[u\x1bD\x1bM\x1bE\x1bH\t\x1b[g\x1b[3g",
		"ab\x1b[5b\x1b[3@\x1b[2P\x1b[X\x1b[L\x1b[M\x1b[S\x1b[T\x1b[J\x1b[1J\x1b[K\x1b[1K",
		"\x1b[\x1b[\x18\x1b]\x1a\x1b\x1b\x1b[1\n2\x1b]no end\n3\x1bP no end\x184\x1b[12",
		"\x1b[!p\x1b[?1049h\x1bc\x1b[20h\na\nb\x1b[?99999999999999999999h\x1b[1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17m",
	} {
		whole := New(Size{12, 5})
		write(whole, text)
		want := outcome(whole)
		for at := range len(text) {
			parts := New(Size{12, 5})
			write(parts, text[:at])
			write(parts, "")
			write(parts, text[at:])
			if got := outcome(parts); got != want {
				t.Errorf("%q cut at %d:\n%s\nin one write:\n%s", text, at, got, want)
			}
		}
	}
}

// Characters that take two columns, or none.
func TestWideCharacters(t *testing.T) {
	t.Parallel()
	family := "👨\u200d👩\u200d👧"
	for _, test := range []struct {
		name, text, want string
		col, row         int
	}{
		{"they fill a row", "漢漢漢", "漢漢漢", 5, 0},
		{"the next one wraps", "漢漢漢字", "漢漢漢|字", 2, 1},
		{"one column is not enough", "aaaaa漢", "aaaaa|漢", 2, 1},
		{"wrapping scrolls", "\x1b[3;6H漢", "||漢", 2, 2},
		{"without wrapping it is dropped at the edge", "\x1b[?7laaaaa漢", "aaaaa", 5, 0},
		{"without wrapping the last one stays", "\x1b[?7laaaa漢", "aaaa漢", 5, 0},
		{"a carriage return cancels wrapping", "aaaa漢\rx", "xaaa漢", 1, 0},
		{"a movement cancels wrapping", "aaaa漢\x1b[Dx", "aaaax", 5, 0},
		{"a tab stays in the row", "漢\t*", "漢   *", 5, 0},
		{"a backspace goes into it", "漢\b*", " *", 2, 0},
		{"erasing its first half erases it", "漢a\x1b[1G\x1b[X", "  a", 0, 0},
		{"inserting before it", "漢a\x1b[1G\x1b[@", " 漢a", 0, 0},
		{"deleting before it", "a漢b\x1b[1G\x1b[P", "漢b", 0, 0},
		{"inserting in the middle of it erases it", "漢ab\x1b[2G\x1b[@", "   ab", 1, 0},
		{"deleting its first half erases it", "漢ab\x1b[1G\x1b[P", " ab", 0, 0},
		{"deleting the whole of it", "漢ab\x1b[1G\x1b[2P", "ab", 0, 0},
		{"inserting pushes it off the edge", "aa漢漢\x1b[1G\x1b[@", " aa漢", 0, 0},
		{"deleting more than there is", "a漢漢\x1b[2G\x1b[99P", "a", 1, 0},
		{"insert mode before it", "漢\r\x1b[4hab", "ab漢", 2, 0},
		{"insert mode with marks", "b\r\x1b[4ha\u0301", "a\u0301b", 1, 0},
		{"insert mode shifts by two", "ab\r\x1b[4h漢", "漢ab", 2, 0},
		{"ambiguous width is narrow", "α─§", "α─§", 3, 0},
		{"an emoji of several characters", family + "!", family + "!", 3, 0},
		{"it wraps as a whole", "aaaaa" + family, "aaaaa|" + family, 2, 1},
		{"skin tone", "👍🏽!", "👍🏽!", 3, 0},
		{"half of a flag", "🇩!", "🇩!", 3, 0},
		{"three letters of flags are one and a half", "🇩🇪🇫!", "🇩🇪🇫!", 5, 0},
		{"Hangul from its parts", "\u1100\u1161\u11a8!", "\u1100\u1161\u11a8!", 3, 0},
		{"a mark at the start is dropped", "\u0301a", "a", 1, 0},
		{"a mark after a line end is dropped", "a\r\n\u0301b", "a|b", 1, 1},
		{"several marks", "a\u0301\u0323\u0308b", "a\u0301\u0323\u0308b", 2, 0},
		{"marks on a wide one", "漢\u0301a", "漢\u0301a", 3, 0},
		{"more marks than are kept", "a" + strings.Repeat("\u0301", 100) + "b", "a" + strings.Repeat("\u0301", (maxCluster-1)/2) + "b", 2, 0},
		{"a joiner without anything to join", "a\u200d\u200db", "a\u200d\u200db", 2, 0},
		{"characters that order text are not shown alone", "\u202ea", "a", 1, 0},
		{"C1 controls in UTF-8 do nothing", "a\u009b31mb\u0085c", "a31mbc", 5, 0},
		{"the end of Unicode", "\U0010ffffa", "\U0010ffffa", 2, 0},
		{"surrogates and overlong forms are broken bytes", "\xed\xa0\x80\xc0\xaf", "\ufffd\ufffd\ufffd\ufffd\ufffd", 5, 0},
	} {
		s := New(Size{6, 3})
		write(s, test.text)
		shows(t, test.name, s, test.want, test.col, test.row)
	}
}

// A scrolling region is the only part of the screen that scrolls, and nothing outside it
// moves.
func TestScrollRegions(t *testing.T) {
	t.Parallel()
	const start = "aaaa\r\nbbbb\r\ncccc\r\ndddd\r\neeee"
	for _, test := range []struct {
		name, text, want string
		col, row         int
	}{
		{"of the first rows", "\x1b[1;2r\x1b[2;1H\n*", "bbbb|*|cccc|dddd|eeee", 1, 1},
		{"of the last rows", "\x1b[4;5r\x1b[5;1H\n*", "aaaa|bbbb|cccc|eeee|*", 1, 4},
		{"of one row is refused", "\x1b[3;3r\x1b[5;1H\n*", "bbbb|cccc|dddd|eeee|*", 1, 4},
		{"without parameters it is the screen", "\x1b[2;3r\x1b[r\x1b[5;1H\n*", "bbbb|cccc|dddd|eeee|*", 1, 4},
		{"with the top alone", "\x1b[4r\x1b[5;1H\n*", "aaaa|bbbb|cccc|eeee|*", 1, 4},
		{"with the bottom alone", "\x1b[;2r\x1b[2;1H\n*", "bbbb|*|cccc|dddd|eeee", 1, 1},
		{"with 0 for both", "\x1b[2;3r\x1b[0;0r\x1b[5;1H\n*", "bbbb|cccc|dddd|eeee|*", 1, 4},
		{"wrapping scrolls it alone", "\x1b[2;3r\x1b[3;4Hxy", "aaaa|cccx|y|dddd|eeee", 1, 2},
		{"wrapping below it does not scroll", "\x1b[2;3r\x1b[5;4Hxy", "aaaa|bbbb|cccc|dddd|yeex", 1, 4},
		{"RI above it does not scroll", "\x1b[2;3r\x1b[1;1H\x1bM*", "*aaa|bbbb|cccc|dddd|eeee", 1, 0},
		{"a line feed above it goes into it", "\x1b[2;3r\x1b[1;1H\n*", "aaaa|*bbb|cccc|dddd|eeee", 1, 1},
		{"more lines than it has", "\x1b[2;3r\x1b[9S", "aaaa|||dddd|eeee", 0, 0},
		{"more lines down than it has", "\x1b[2;3r\x1b[9T", "aaaa|||dddd|eeee", 0, 0},
		{"IL of more lines than it has", "\x1b[2;4r\x1b[3;1H\x1b[9L", "aaaa|bbbb|||eeee", 0, 2},
		{"DL of more lines than it has", "\x1b[2;4r\x1b[3;1H\x1b[9M", "aaaa|bbbb|||eeee", 0, 2},
		{"CUU stops at its top", "\x1b[2;4r\x1b[3;1H\x1b[9A*", "aaaa|*bbb|cccc|dddd|eeee", 1, 1},
		{"CUD stops at its bottom", "\x1b[2;4r\x1b[3;1H\x1b[9B*", "aaaa|bbbb|cccc|*ddd|eeee", 1, 3},
		{"CUD below it stops at the screen's bottom", "\x1b[2;3r\x1b[4;1H\x1b[9B*", "aaaa|bbbb|cccc|dddd|*eee", 1, 4},
		{"erasing does not stop at it", "\x1b[2;3r\x1b[3;1H\x1b[J", "aaaa|bbbb", 0, 2},
		{"the answer to CPR counts from it in origin mode", "\x1b[2;4r\x1b[?6h\x1b[2;2H*", "aaaa|bbbb|c*cc|dddd|eeee", 2, 2},
	} {
		s := New(Size{4, 5})
		write(s, start+test.text)
		shows(t, test.name, s, test.want, test.col, test.row)
	}
}

// A size that changes in the midst of something leaves the screen whole.
func TestResizeInTheMidst(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, before string
		size         Size
		after        string
		want         string
		col, row     int
	}{
		{"of a sequence", "ab\x1b[2", Size{6, 3}, "Cx", "ab  x", 5, 0},
		{"of a title", "ab\x1b]0;ti", Size{6, 3}, "tle\x07x", "abx", 3, 0},
		{"of a character", "ab\xe6\xbc", Size{6, 3}, "\xa2x", "ab漢x", 5, 0},
		{"of a character with marks", "abe", Size{6, 3}, "x", "abex", 4, 0},
		{"of a row that is full: the cursor stays on its last column", "abcd", Size{6, 3}, "x", "abcx", 4, 0},
		{"of a row that a wide character has filled", "ab漢", Size{6, 3}, "x", "ab x", 4, 0},
		{"of insert mode", "abcd\r\x1b[4h", Size{6, 3}, "x", "xabcd", 1, 0},
		{"of line drawing", "\x1b(0", Size{6, 3}, "q", "─", 1, 0},
		{"of a region with an origin", "\x1b[2;3r\x1b[?6h", Size{4, 5}, "\x1b[1;1H*", "*", 1, 0},
		{"through a wide character", "ab漢", Size{3, 3}, "", "ab", 2, 0},
		{"to the same size", "abcd", Size{4, 3}, "e", "abcd|e", 1, 1},
		{"to the smallest", "abc\r\ndef", Size{1, 1}, "xy", "y", 0, 0},
		{"of a cursor at the bottom", "a\r\nb\r\nc", Size{4, 1}, "*", "c*", 2, 0},
	} {
		s := New(Size{4, 3})
		write(s, test.before)
		s.Resize(test.size)
		write(s, test.after)
		shows(t, test.name, s, test.want, test.col, test.row)
	}
}

// The bounds of a size are kept by New and by Resize alike.
func TestSizes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ ask, want Size }{
		{Size{}, DefaultSize},
		{Size{-1, -1}, DefaultSize},
		{Size{1, 1}, Size{1, 1}},
		{Size{0, 5}, Size{80, 5}},
		{Size{5, 0}, Size{5, 24}},
		{Size{maxCols, maxRows}, Size{maxCols, maxRows}},
		{Size{maxCols + 1, maxRows + 1}, Size{maxCols, maxRows}},
		{Size{1 << 62, 1 << 62}, Size{maxCols, maxRows}},
	} {
		s := New(Size{3, 3})
		s.Resize(row.ask)
		for name, got := range map[string]Snapshot{"New": New(row.ask).Snapshot(), "Resize": s.Snapshot()} {
			if got.Size != row.want || len(got.Lines) != row.want.Rows {
				t.Errorf("%s(%+v) has the size %+v and %d lines; want %+v", name, row.ask, got.Size, len(got.Lines), row.want)
			}
		}
	}
}

// However a string begins and ends, nothing of it is shown, and everything behind it is.
func TestStringsEnd(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{"OSC": "\x1b]", "title": "\x1b]0;", "DCS": "\x1bP", "SOS": "\x1bX", "PM": "\x1b^", "APC": "\x1b_"} {
		for _, end := range []struct {
			name, bytes, shown string
		}{
			{"ST", "\x1b\\", "ab"},
			{"CAN", "\x18", "ab"},
			{"SUB", "\x1a", "ab"},
			{"another sequence", "\x1b[C", "a b"},
			{"another string", "\x1b]2;t\x07", "ab"},
			{"ESC and ST", "\x1b\x1b\\", "ab"},
			{"line feed", "\n\r", "a|b"},
		} {
			for _, inside := range []string{"", "text", "1;2;3", "\x00\x01\x7f", "ä漢\x9c\x9d", "\r\t\b", strings.Repeat("x", maxString-10)} {
				s := New(Size{8, 3})
				write(s, "a"+begin+inside+end.bytes+"b")
				got := s.Snapshot()
				if shown := strings.TrimRight(strings.Join(got.Lines, "|"), "|"); shown != end.shown {
					t.Errorf("%s of %.10q with %s: shows %q; want %q", name, inside, end.name, shown, end.shown)
				}
				if inside == "text" && name == "title" {
					want := map[string]string{"CAN": "", "SUB": "", "line feed": "", "another string": "t"}
					if title, ok := want[end.name]; !ok && got.Title != inside || ok && got.Title != title {
						t.Errorf("a title with %s: the title is %q", end.name, got.Title)
					}
				}
			}
		}
	}
}

// A title is text, whatever a program puts into it.
func TestTitles(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ osc, want string }{
		{"0;both", "both"},
		{"2;window", "window"},
		{"1;icon", ""},
		{"0;", ""},
		{"0", ""},
		{";x", ""},
		{"00;x", ""},
		{"2;a;b;c", "a;b;c"},
		{"2;a\tb\rc", "abc"},
		{"2;a\u009bb\u0085c", "abc"},
		{"2;a\xffb", "ab"},
		{"2;\u202eright to left", "\u202eright to left"},
		{"2;" + strings.Repeat("ä", maxTitle/2) + "x", strings.Repeat("ä", maxTitle/2)},
		{"2;x" + strings.Repeat("ä", maxTitle/2), "x" + strings.Repeat("ä", maxTitle/2-1)},
	} {
		s := New(DefaultSize)
		write(s, "\x1b]"+row.osc+"\x07")
		if got := s.Snapshot().Title; got != row.want {
			t.Errorf("OSC %q: the title is %q; want %q", row.osc, got, row.want)
		}
	}
}

// Restore knows whether a colour is left set from the numbers of all sequences.
func TestColoursLeft(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		sgr  string // sequences, joined by spaces
		left bool
	}{
		{"31", true},
		{"0", false},
		{"", false},
		{"31 0", false},
		{"31 ;", false},
		{"0;31", true},
		{"31;0", false},
		{"0 1", true},
		{"38;5;0", true},
		{"48;5;0", true},
		{"58;5;0", true},
		{"38;2;0;0;0", true},
		{"38;5;0;0", false},
		{"38;2;1;2;3;0", false},
		{"38:5:0", true},
		{"38:2::0:0:0", true},
		{"38:5:0;0", false},
		{"1 4:0", true},
		{"4:3;0", false},
		{"38", true},
		{"38;5", true},
		{"38;2;0", true},
		{"1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;0", false},
		{"1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;0", true}, // one too many to know
	} {
		s := New(DefaultSize)
		for one := range strings.SplitSeq(row.sgr, " ") {
			write(s, "\x1b["+one+"mx")
		}
		if got := len(s.Restore()) > 0; got != row.left {
			t.Errorf("after SGR %q a colour is left: %v; want %v", row.sgr, got, row.left)
		}
	}
}

// A program that is killed in the alternate screen leaves the keyboards of both screens as
// they were.
func TestRestoreOfBothKeyboards(t *testing.T) {
	t.Parallel()
	s := New(DefaultSize)
	write(s, "\x1b[>1u\x1b[>5u\x1b[?1049h\x1b[>8u")
	end := string(s.Restore())
	if want := "\x1b[<u\x1b[?1049l\x1b[<u\x1b[<u\x1b[m"; end != want {
		t.Errorf("Restore() = %q; want %q", end, want)
	}
	write(s, end)
	if got, err := s.Keys("esc"); string(got) != "\x1b" || err != nil || len(s.Restore()) > 0 {
		t.Errorf("after Restore() esc sends %q, %v, and Restore() is %q; want a plain ESC and nothing", got, err, s.Restore())
	}
}

// A parameter too many does not change the one before.
func TestManyParameters(t *testing.T) {
	t.Parallel()
	s := New(DefaultSize)
	write(s, "\x1b[?"+strings.Repeat("9999;", maxParams-1)+"200;4h\x1b[?2004$p")
	if got := string(s.Replies()); got != "\x1b[?2004;2$y" {
		t.Errorf("after %d parameters 2004 is %q; want it reset", maxParams+1, got)
	}
	write(s, "\x1b[?"+strings.Repeat("9999;", maxParams-1)+"2004h\x1b[?2004$p")
	if got := string(s.Replies()); got != "\x1b[?2004;1$y" {
		t.Errorf("with 2004 as the last of %d parameters it is %q; want it set", maxParams, got)
	}
}

// pressed is a key as a program reads it from the Kitty protocol: the number of CSI u or
// CSI ~, or the letter, and the modifiers.
type pressed struct {
	number int
	final  byte
	mods   int
}

// decodeKey reads one key as the Kitty protocol's documentation describes it.
func decodeKey(t *testing.T, sent string) pressed {
	t.Helper()
	body, ok := strings.CutPrefix(sent, "\x1b[")
	if !ok || body == "" {
		t.Fatalf("%q is not a control sequence", sent)
	}
	p := pressed{number: 1, final: body[len(body)-1]}
	for i, field := range strings.Split(body[:len(body)-1], ";") {
		n, err := strconv.Atoi(field)
		switch {
		case field == "":
		case err != nil:
			t.Fatalf("%q has the parameter %q", sent, field)
		case i == 0:
			p.number = n
		case i == 1:
			p.mods = n - 1
		}
	}
	return p
}

// What a key sends in the Kitty protocol is that key with its modifiers, and no two keys
// send the same.
func TestKeysRoundTrip(t *testing.T) {
	t.Parallel()
	s := New(DefaultSize)
	write(s, "\x1b[>9u") // disambiguate, all keys
	from := map[pressed]string{}
	canonical := map[string]key{}
	for name, k := range namedKeys() {
		if old, ok := canonical[fmt.Sprint(k.code, k.final, k.char)]; !ok || name < old.name {
			canonical[fmt.Sprint(k.code, k.final, k.char)] = key{name: name, code: k.code, final: k.final, char: k.char, pad: k.pad}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(canonical)) {
		k := canonical[id]
		for mods := range 8 {
			name := k.name
			for i, prefix := range []string{"shift-", "alt-", "ctrl-"} {
				if mods>>i&1 != 0 {
					name = prefix + name
				}
			}
			sent, err := s.Keys(name)
			if err != nil {
				t.Fatal(err)
			}
			got := decodeKey(t, string(sent))
			want := pressed{1, k.final, mods}
			switch {
			case k.name == "f3": // CSI R would be the cursor's position
				want = pressed{13, '~', mods}
			case k.char != 0 && !k.pad:
				want = pressed{int(k.char), 'u', mods}
			case k.pad:
				want = pressed{k.code, 'u', mods}
			case k.final == '~' || k.final == 'u':
				want.number = k.code
			}
			if got != want {
				t.Errorf("Keys(%s) = %q, which is %+v; want %+v", name, sent, got, want)
			}
			if other, ok := from[got]; ok {
				t.Errorf("Keys(%s) and Keys(%s) are both %q", name, other, sent)
			}
			from[got] = name
		}
	}
}

// Text that is typed comes back from what is sent: without a protocol as it is, and with
// one from the numbers of the keys.
func TestTypeRoundTrip(t *testing.T) {
	t.Parallel()
	const text = "Hello, World! äÄ ß 漢 👍 -+;:_@[]{}~`\"'\\ 0123456789"
	plain, kitty := New(DefaultSize), New(DefaultSize)
	write(kitty, "\x1b[>25u") // disambiguate, all keys, their text
	if got := string(plain.Type(text)); got != text {
		t.Errorf("Type() = %q; want %q", got, text)
	}
	var back strings.Builder
	for _, part := range strings.SplitAfter(string(kitty.Type(text)), "u") {
		if part == "" {
			continue
		}
		fields := strings.Split(strings.TrimSuffix(strings.TrimPrefix(part, "\x1b["), "u"), ";")
		n, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil || len(fields) != 3 {
			t.Fatalf("Type() sends %q; want a key, its modifiers and its text", part)
		}
		back.WriteRune(rune(n))
		if base, _ := strconv.Atoi(fields[0]); base != int(unicode.ToLower(rune(n))) {
			t.Errorf("Type() sends %q, whose key is %q", part, rune(base))
		}
	}
	if back.String() != text {
		t.Errorf("Type() = the text %q; want %q", back.String(), text)
	}
	for _, r := range []rune{0, 1, 3, 26, 27, 127} {
		if got := string(plain.Type(string(r))); got != string(r) {
			t.Errorf("Type(%q) = %q; want it as it is", r, got)
		}
	}
	if got := plain.Type("a\xffb"); !utf8.Valid(got) {
		t.Errorf("Type() of broken UTF-8 = %q; want valid UTF-8", got)
	}
}
