package screen

import (
	"fmt"
	"strings"
	"testing"
)

// filled writes rows of letters, one letter for each row, on a screen of 8 by 5:
// what edits and scrolls is seen by what is left.
const filled = "aaaaaaaa\r\nbbbbbbbb\r\ncccccccc\r\ndddddddd\r\neeeeeeee"

// Each row is a function of ECMA-48 (fifth edition, clause 8.3) or of the VT220 and
// xterm (DEC STD 070, ctlseqs.txt), and what the document says of it, on a screen of
// 8 by 5. Positions are counted from 1 in sequences and from 0 in col and row.
func TestStandards(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		want       string // rows joined by |, without empty ones at the end
		col, row   int
	}{
		// Movement of the cursor stops at the edges and never scrolls.
		{"CUU stops at the top", "\x1b[3;3H\x1b[9A*", "  *", 3, 0},
		{"CUU by 0 is by 1", "\x1b[3;3H\x1b[0A*", "|  *", 3, 1},
		{"CUD stops at the bottom", "1\x1b[9B*", "1||||" + " *", 2, 4},
		{"CUF stops at the right edge", "\x1b[99C*", "       *", 7, 0},
		{"CUB stops at the left edge", "abc\x1b[99D*", "*bc", 1, 0},
		{"CNL goes to the first column", "ab\x1b[2E*", "ab||*", 1, 2},
		{"CPL goes to the first column", "\x1b[4;4H\x1b[2F*", "|*", 1, 1},
		{"CHA", "abc\x1b[6G*", "abc  *", 6, 0},
		{"HPA is CHA", "abc\x1b[6`*", "abc  *", 6, 0},
		{"HPR", "a\x1b[3a*", "a   *", 5, 0},
		{"VPA keeps the column", "abc\x1b[4d*", "abc|||   *", 4, 3},
		{"VPR", "ab\x1b[2e*", "ab||  *", 3, 2},
		{"CUP without parameters is home", "abc\x1b[H*", "*bc", 1, 0},
		{"CUP with 0 is 1", "abc\x1b[0;0H*", "*bc", 1, 0},
		{"CUP with the column alone", "\x1b[;4H*", "   *", 4, 0},
		{"HVP is CUP", "\x1b[2;4f*", "|   *", 4, 1},
		{"IND goes down in the column", "ab\x1bD*", "ab|  *", 3, 1},
		{"IND scrolls at the bottom", filled + "\x1b[5;3H\x1bD*", "bbbbbbbb|cccccccc|dddddddd|eeeeeeee|  *", 3, 4},
		{"NEL goes to the first column", "ab\x1bE*", "ab|*", 1, 1},
		{"NEL scrolls at the bottom", filled + "\x1bE*", "bbbbbbbb|cccccccc|dddddddd|eeeeeeee|*", 1, 4},
		{"RI scrolls at the top", filled + "\x1b[1;3H\x1bM*", "  *|aaaaaaaa|bbbbbbbb|cccccccc|dddddddd", 3, 0},
		{"VT and FF are line feeds", "a\vb\fc", "a| b|  c", 3, 2},
		{"LNM: a line feed returns too", "\x1b[20ha\nb\x1b[20lc\nd", "a|bc|  d", 3, 2},

		// Tab stops.
		{"HTS and HT", "\x1b[4G\x1bH\r\t*", "   *", 4, 0},
		{"CHT by two", "\x1b[3G\x1bH\x1b[6G\x1bH\r\x1b[2I*", "     *", 6, 0},
		{"CBT", "\x1b[3G\x1bH\x1b[7G\x1b[Z*", "  *", 3, 0},
		{"TBC clears the stop here", "\x1b[3G\x1bH\x1b[6G\x1bH\x1b[3G\x1b[g\r\t*", "     *", 6, 0},
		{"TBC 3 clears all stops", "\x1b[3G\x1bH\x1b[3g\r\t*", "       *", 7, 0},

		// Erasing keeps the cursor, and includes its position.
		{"ED 0", filled + "\x1b[2;3H\x1b[J", "aaaaaaaa|bb", 2, 1},
		{"ED 1", filled + "\x1b[4;3H\x1b[1J", "|||   ddddd|eeeeeeee", 2, 3},
		{"ED 1 in the first row", filled + "\x1b[1;3H\x1b[1J", "   aaaaa|bbbbbbbb|cccccccc|dddddddd|eeeeeeee", 2, 0},
		{"ED 1 does not stop at the region", filled + "\x1b[3;4r\x1b[?6h\x1b[2;3H\x1b[1J*", "|||  *ddddd|eeeeeeee", 3, 3},
		{"ED 2", filled + "\x1b[2;3H\x1b[2J", "", 2, 1},
		{"EL 0", filled + "\x1b[2;3H\x1b[K", "aaaaaaaa|bb|cccccccc|dddddddd|eeeeeeee", 2, 1},
		{"EL 1", filled + "\x1b[2;3H\x1b[1K", "aaaaaaaa|   bbbbb|cccccccc|dddddddd|eeeeeeee", 2, 1},
		{"EL 2", filled + "\x1b[2;3H\x1b[2K", "aaaaaaaa||cccccccc|dddddddd|eeeeeeee", 2, 1},
		{"ECH moves nothing", "abcdefgh\x1b[1;3H\x1b[3X", "ab   fgh", 2, 0},
		{"ECH stops at the edge", "abcdefgh\x1b[1;3H\x1b[99X", "ab", 2, 0},

		// Editing moves what is right of the cursor, or below it.
		{"ICH drops at the edge", "abcdefgh\x1b[1;3H\x1b[3@", "ab   cde", 2, 0},
		{"DCH pulls blanks in", "abcdefgh\x1b[1;3H\x1b[3P*", "ab*gh", 3, 0},
		{"IL", filled + "\x1b[2;1H\x1b[2L", "aaaaaaaa|||bbbbbbbb|cccccccc", 0, 1},
		{"DL", filled + "\x1b[2;1H\x1b[2M", "aaaaaaaa|dddddddd|eeeeeeee", 0, 1},
		{"IL stays in the region", filled + "\x1b[2;4r\x1b[3;1H\x1b[L", "aaaaaaaa|bbbbbbbb||cccccccc|eeeeeeee", 0, 2},
		{"DL stays in the region", filled + "\x1b[2;4r\x1b[3;1H\x1b[M", "aaaaaaaa|bbbbbbbb|dddddddd||eeeeeeee", 0, 2},
		{"IL outside the region does nothing", filled + "\x1b[2;4r\x1b[5;1H\x1b[L", "aaaaaaaa|bbbbbbbb|cccccccc|dddddddd|eeeeeeee", 0, 4},
		{"IRM", "abc\x1b[1;2H\x1b[4hxy\x1b[4lz", "axyzc", 4, 0},

		// Scrolling.
		{"SU", filled + "\x1b[2;3H\x1b[2S", "cccccccc|dddddddd|eeeeeeee", 2, 1},
		{"SD", filled + "\x1b[2;3H\x1b[2T", "||aaaaaaaa|bbbbbbbb|cccccccc", 2, 1},
		{"SU in the region", filled + "\x1b[2;4r\x1b[S", "aaaaaaaa|cccccccc|dddddddd||eeeeeeee", 0, 0},
		{"DECSTBM puts the cursor home", "ab\x1b[3;4H\x1b[2;4r*", "*b", 1, 0},
		{"DECSTBM with top at bottom is ignored", "\x1b[3;3H\x1b[4;2r*", "||  *", 3, 2},
		{"a line feed below the region does not scroll", filled + "\x1b[2;3r\x1b[5;1H\n*", "aaaaaaaa|bbbbbbbb|cccccccc|dddddddd|*eeeeeee", 1, 4},
		{"RI at the region's top scrolls it alone", filled + "\x1b[2;3r\x1b[2;1H\x1bM", "aaaaaaaa||bbbbbbbb|dddddddd|eeeeeeee", 0, 1},

		// Origin mode counts from the region, and keeps the cursor in it.
		{"DECOM", "\x1b[2;4r\x1b[?6h\x1b[1;1H*", "|*", 1, 1},
		{"DECOM stops at the region's end", "\x1b[2;4r\x1b[?6h\x1b[99;1H*", "|||*", 1, 3},
		{"DECOM off is home", "\x1b[2;4r\x1b[?6h\x1b[?6l*", "*", 1, 0},

		// Wrapping is put off until the next character (xterm's and DEC's behaviour).
		{"the cursor waits in the last column", "abcdefgh", "abcdefgh", 7, 0},
		{"the next character wraps", "abcdefghi", "abcdefgh|i", 1, 1},
		{"a carriage return cancels it", "abcdefgh\rx", "xbcdefgh", 1, 0},
		{"a movement cancels it", "abcdefgh\x1b[Dx", "abcdefxh", 7, 0},
		{"a line feed goes down once", "abcdefgh\nx", "abcdefgh|       x", 7, 1},
		{"a colour does not cancel it", "abcdefgh\x1b[31mx", "abcdefgh|x", 1, 1},
		{"without DECAWM the last one stays", "\x1b[?7labcdefghij", "abcdefgj", 7, 0},
		{"wrapping scrolls at the bottom", "\x1b[5;7Hxyz", "|||      xy|z", 1, 4},

		// Saving the cursor keeps position, origin mode and character sets.
		{"DECRC without DECSC is home", "abc\x1b8*", "*bc", 1, 0},
		{"DECSC keeps the character set", "\x1b(0\x1b7\x1b(Bq\x1b8q", "─", 1, 0},
		{"DECSC keeps origin mode", "\x1b[2;4r\x1b[?6h\x1b7\x1b[?6l\x1b8\x1b[1;1H*", "|*", 1, 1},

		// Resets.
		{"DECSTR keeps the screen", "ab\x1b[4h\x1b[!p\rx", "xb", 1, 0},
		{"DECSTR ends the region", filled + "\x1b[2;3r\x1b[!p\x1b[3;1H\n\n*", "aaaaaaaa|bbbbbbbb|cccccccc|dddddddd|*eeeeeee", 1, 4},
		{"RIS clears and homes", filled + "\x1b[2;3r\x1b(0\x1bcq", "q", 1, 0},

		// Characters.
		{"CAN ends a sequence", "\x1b[3\x18ab", "ab", 2, 0},
		{"SUB ends a sequence", "\x1b[3\x1aab", "ab", 2, 0},
		{"ESC begins anew in a sequence", "\x1b[3\x1b[2Cx", "  x", 3, 0},
		{"C0 acts inside a sequence", "ab\x1b[\b2Cx", "ab x", 4, 0},
		{"DEL prints nothing", "a\x7fb", "ab", 2, 0},
		{"NUL and BEL print nothing", "a\x00\x07b", "ab", 2, 0},
		{"REP of a wide character", "漢\x1b[2b", "漢漢漢", 6, 0},
		{"REP wraps", "ab\x1b[8b", "abbbbbbb|bb", 2, 1},
		{"a wide character over the half of one", "漢字\x1b[1;2H漢", " 漢", 3, 0},
		{"a narrow character over the half of a wide one", "漢\x1b[1;2Hx", " x", 2, 0},
		{"a mark joins the last column's character", "abcdefge\u0301", "abcdefge\u0301", 7, 0},
		{"a mark joins the character that wraps", "abcdefghe\u0301f", "abcdefgh|e\u0301f", 2, 1},
		{"a mark does not make a digit wide", "1\ufe0f\u20e3x", "1\u20e3x", 2, 0},
		{"REP repeats the marks", "e\u0301\x1b[2b", "e\u0301e\u0301e\u0301", 3, 0},
		{"a sequence parts a mark from its character", "e\x1b[1m\u0301x", "ex", 2, 0},
		{"two flags", "🇩🇪🇫🇷x", "🇩🇪🇫🇷x", 5, 0},
		{"line drawing's corners", "\x1b(0lqwqk\x1b(B", "┌─┬─┐", 5, 0},

		// The alternate screen (xterm's 47, 1047 and 1049).
		{"47 keeps the cursor's position", "ab\x1b[?47h*\x1b[?47l!", "ab !", 4, 0},
		{"1049 restores the cursor", "ab\x1b[?1049h\x1b[4;4Hx\x1b[?1049l!", "ab!", 3, 0},
		{"1049 shows an empty screen", "ab\x1b[?1049h", "", 2, 0},
		{"1049 is empty the second time too", "\x1b[?1049hxyz\x1b[?1049l\x1b[?1049h", "", 0, 0},
		{"a region of the alternate screen ends with it", filled + "\x1b[?1049h\x1b[2;3r\x1b[?1049l\x1b[5;1H\n*", "bbbbbbbb|cccccccc|dddddddd|eeeeeeee|*", 1, 4},
	} {
		s := New(Size{8, 5})
		write(s, test.text)
		got := s.Snapshot()
		shown := strings.TrimRight(strings.Join(got.Lines, "|"), "|")
		if shown != test.want || got.Cursor.Col != test.col || got.Cursor.Row != test.row {
			t.Errorf("%s: Write(%q) shows %q with the cursor at %d, %d; want %q, %d, %d",
				test.name, test.text, shown, got.Cursor.Col, got.Cursor.Row, test.want, test.col, test.row)
		}
	}
}

// xterm's table of modifiers for function keys (ctlseqs.txt, "PC-Style Function Keys"):
// the number after the semicolon is 1 plus 1 for shift, 2 for alt, 4 for control.
func TestModifiedKeys(t *testing.T) {
	t.Parallel()
	modified := []struct {
		name   string
		number int
	}{{"shift-", 2}, {"alt-", 3}, {"alt-shift-", 4}, {"ctrl-", 5}, {"ctrl-shift-", 6}, {"ctrl-alt-", 7}, {"ctrl-alt-shift-", 8}}
	letters := map[string]string{"up": "A", "down": "B", "right": "C", "left": "D", "home": "H", "end": "F", "f1": "P", "f2": "Q", "f3": "R", "f4": "S"}
	numbers := map[string]int{
		"insert": 2, "delete": 3, "pageup": 5, "pagedown": 6, "f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24,
	}
	check := func(mode, name, want string) {
		t.Helper()
		s := New(DefaultSize)
		write(s, mode)
		if got, err := s.Keys(name); string(got) != want || err != nil {
			t.Errorf("Keys(%q) after %q = %q, %v; want %q", name, mode, got, err, want)
		}
	}
	for _, mod := range modified {
		// Modes of the cursor keys and the keypad change nothing for a key with modifiers.
		for _, mode := range []string{"", "\x1b[?1h", "\x1b="} {
			for name, letter := range letters {
				check(mode, mod.name+name, fmt.Sprintf("\x1b[1;%d%s", mod.number, letter))
			}
			for name, number := range numbers {
				check(mode, mod.name+name, fmt.Sprintf("\x1b[%d;%d~", number, mod.number))
			}
		}
	}
	for name, number := range numbers {
		check("", name, fmt.Sprintf("\x1b[%d~", number))
	}
	for _, name := range []string{"up", "down", "right", "left", "home", "end"} {
		check("", name, "\x1b["+letters[name])
		check("\x1b[?1h", name, "\x1bO"+letters[name])
		check("\x1b[?1h\x1b[?1l", name, "\x1b["+letters[name])
		check("\x1b[?1h\x1bc", name, "\x1b["+letters[name])
		check("\x1b[?1h\x1b[!p", name, "\x1b["+letters[name])
	}
	// The keypad in application mode sends SS3 and a letter (VT220, table 3-9).
	for i, letter := range "pqrstuvwxy" {
		name := fmt.Sprintf("kp%d", i)
		check("", name, fmt.Sprint(i))
		check("\x1b=", name, "\x1bO"+string(letter))
		check("\x1b[?66h", name, "\x1bO"+string(letter))
		check("\x1b[?66h\x1b[?66l", name, fmt.Sprint(i))
	}
	// Control and a key is a C0 character (ECMA-6's columns 4 and 5, less 0x40).
	for c := byte('a'); c <= 'z'; c++ {
		check("", "ctrl-"+string(c), string(c-'a'+1))
		check("", "ctrl-alt-"+string(c), "\x1b"+string(c-'a'+1))
	}
	for name, want := range map[string]string{"@": "\x00", "[": "\x1b", "\\": "\x1c", "]": "\x1d", "^": "\x1e", "_": "\x1f", "?": "\x7f"} {
		check("", "ctrl-"+name, want)
	}
}

// A terminal that changes its size keeps what fits, and its cursor on the screen.
func TestResizes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, before string
		sizes        []Size
		after        string
		want         string
		col, row     int
	}{
		{"wider and lower than before", "ab\r\ncd", []Size{{12, 6}}, "*", "ab|cd*", 3, 1},
		{"the cursor at the bottom stays on its row's text", filled, []Size{{8, 2}}, "", "dddddddd|eeeeeeee", 7, 1},
		{"back and forth", "1\r\n2\r\n3", []Size{{8, 2}, {8, 5}}, "*", "2|3*", 2, 1},
		{"narrower than the cursor's column", "abcdefgh", []Size{{4, 5}}, "", "abcd", 3, 0},
		{"a region becomes the whole screen", filled + "\x1b[2;3r\x1b[5;1H", []Size{{8, 6}}, "\n\n*", "bbbbbbbb|cccccccc|dddddddd|eeeeeeee||*", 1, 5},
		{"one character", "abc\r\nd", []Size{{1, 1}}, "", "d", 0, 0},
		{"a wide character does not fit on one column", "", []Size{{1, 3}}, "漢x", "x", 0, 0},
		{"wrapping follows the new width", "", []Size{{4, 5}}, "abcdef", "abcd|ef", 2, 1},
		{"the alternate screen is resized too", "ab\x1b[?1049h", []Size{{4, 2}}, "\x1b[9;9H*", "|   *", 3, 1},
		{"and the main screen with it", "abcdefgh\x1b[?1049h", []Size{{4, 2}}, "\x1b[?1049l", "abcd", 3, 0},
		{"a saved cursor stays on the screen", "\x1b[5;8H\x1b7", []Size{{4, 2}}, "\x1b8*", "|   *", 3, 1},
		{"tab stops of the new columns", "", []Size{{20, 2}}, "\t\t*", "                *", 17, 0},
	} {
		s := New(Size{8, 5})
		write(s, test.before)
		for _, size := range test.sizes {
			s.Resize(size)
		}
		write(s, test.after)
		got := s.Snapshot()
		shown := strings.TrimRight(strings.Join(got.Lines, "|"), "|")
		if shown != test.want || got.Cursor.Col != test.col || got.Cursor.Row != test.row {
			t.Errorf("%s: shows %q with the cursor at %d, %d; want %q, %d, %d", test.name, shown, got.Cursor.Col, got.Cursor.Row, test.want, test.col, test.row)
		}
		if last := test.sizes[len(test.sizes)-1]; got.Size != last || len(got.Lines) != last.Rows {
			t.Errorf("%s: the size is %+v with %d lines; want %+v", test.name, got.Size, len(got.Lines), last)
		}
	}
}

// DECRQM tells of each mode whether it is set: 1, reset: 2, or unknown: 0.
func TestModeReports(t *testing.T) {
	t.Parallel()
	for _, mode := range []int{modeCursorKeys, modeOrigin, modeAutowrap, modeCursor, modeKeypad, modePaste, modeAlternate, modeAlternate2, modeBoth} {
		s := New(DefaultSize)
		ask := fmt.Sprintf("\x1b[?%d$p", mode)
		for _, step := range []struct {
			final byte
			want  int
		}{{'h', 1}, {'l', 2}, {'h', 1}} {
			write(s, fmt.Sprintf("\x1b[?%d%c%s", mode, step.final, ask))
			if got, want := string(s.Replies()), fmt.Sprintf("\x1b[?%d;%d$y", mode, step.want); got != want {
				t.Errorf("mode %d after %c: answered %q; want %q", mode, step.final, got, want)
			}
		}
		write(s, "\x1bc"+ask)
		want := 2
		if mode == modeAutowrap || mode == modeCursor {
			want = 1
		}
		if got, want := string(s.Replies()), fmt.Sprintf("\x1b[?%d;%d$y", mode, want); got != want {
			t.Errorf("mode %d after a reset: answered %q; want %q", mode, got, want)
		}
	}
}
