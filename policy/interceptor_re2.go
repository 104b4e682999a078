package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// translator writes a valid ECMAScript pattern in RE2's syntax. It captures no groups:
// only whether there is a match counts.
type translator struct {
	rest                        string
	ignoreCase, dotAll, unicode bool
	out                         strings.Builder
}

// toRE2 translates a pattern. It reports false if RE2 cannot express the pattern, or only
// with more work than that saves.
func toRE2(pattern, flags string) (text string, ok bool) {
	t := translator{
		rest: pattern, ignoreCase: strings.Contains(flags, "i"), dotAll: strings.Contains(flags, "s"),
		unicode: strings.Contains(flags, "u"),
	}
	if t.unicode && t.ignoreCase || !utf8.ValidString(pattern) {
		return "", false
	}
	multiline := strings.Contains(flags, "m")
	for t.rest != "" {
		c := t.rest[0]
		switch {
		case (c == '^' || c == '$') && multiline:
			return "", false // ECMAScript has four line terminators
		case c == '^':
			t.write(1, `\A`)
		case c == '$':
			t.write(1, `\z`)
		case c == '.':
			t.dot()
		case strings.IndexByte("|)*+?", c) >= 0:
			t.write(1, string(c))
		case c == '(':
			if !t.group() {
				return "", false
			}
		case c == '{':
			t.brace()
		case c == '[':
			if !t.class() {
				return "", false
			}
		case strings.HasPrefix(t.rest, `\b`), strings.HasPrefix(t.rest, `\B`):
			t.write(2, t.rest[:2])
		default:
			set, ok := t.atom(false)
			if !ok {
				return "", false
			}
			t.out.WriteString(set.text(t.ignoreCase))
		}
	}
	return t.out.String(), true
}

// write consumes n bytes of the pattern and writes their translation.
func (t *translator) write(n int, text string) {
	t.rest = t.rest[n:]
	t.out.WriteString(text)
}

func (t *translator) dot() {
	set := runes{}.not()
	if !t.dotAll {
		set = runes{{'\n', '\n'}, {'\r', '\r'}, {'\u2028', '\u2029'}}.not()
	}
	t.write(1, set.text(false))
}

func (t *translator) group() bool {
	rest := t.rest
	switch {
	case !strings.HasPrefix(rest, "(?"):
		t.write(1, "(?:")
	case strings.HasPrefix(rest, "(?:"):
		t.write(3, "(?:")
	case strings.HasPrefix(rest, "(?<") && !strings.HasPrefix(rest, "(?<=") && !strings.HasPrefix(rest, "(?<!"):
		t.write(strings.IndexByte(rest, '>')+1, "(?:") // the pattern is valid, so that the name ends
	default:
		return false // lookaround, or flags for a part
	}
	return true
}

// brace translates a repetition, or a literal brace.
func (t *translator) brace() {
	inside, _, closed := strings.Cut(t.rest[1:], "}")
	low, high, both := strings.Cut(inside, ",")
	if closed && isDigits(low) && (!both || high == "" || isDigits(high)) {
		t.write(len(inside)+2, "{"+inside+"}")
		return
	}
	t.write(1, `\{`)
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// class translates a set in brackets.
func (t *translator) class() bool {
	t.rest = t.rest[1:]
	var negated bool
	t.rest, negated = strings.CutPrefix(t.rest, "^")
	var set runes
	for !strings.HasPrefix(t.rest, "]") {
		low, ok := t.atom(true)
		if !ok {
			return false
		}
		// In [\w-x] and [a-\w] the hyphen is one.
		if strings.HasPrefix(t.rest, "-") && !strings.HasPrefix(t.rest, "-]") {
			t.rest = t.rest[1:]
			high, ok := t.atom(true)
			if !ok {
				return false
			}
			if low.single() && high.single() {
				low = runes{{low[0].low, high[0].low}}
			} else {
				low = slices.Concat(low, high, runes{{'-', '-'}})
			}
		}
		set = append(set, low...)
	}
	t.rest = t.rest[1:]
	if t.ignoreCase && !set.plain() {
		return false
	}
	if t.ignoreCase {
		set = set.bothCases()
	}
	if negated {
		set = set.not()
	}
	t.out.WriteString(set.text(false))
	return true
}

// atom consumes a character, or an escape that stands for a set of characters. It reports
// false if the set is not known here, or if the other cases of its letters are not.
func (t *translator) atom(inClass bool) (runes, bool) {
	r, size := utf8.DecodeRuneInString(t.rest)
	t.rest = t.rest[min(size, len(t.rest)):]
	if size == 0 || r > 0xffff && !t.unicode {
		return nil, false
	}
	if r != '\\' {
		return runes{{r, r}}, !t.ignoreCase || r < utf8.RuneSelf
	}
	if t.rest == "" {
		return nil, false
	}
	c := t.rest[0]
	t.rest = t.rest[1:]
	switch c {
	case 'd':
		return digits, true
	case 'D':
		return digits.not(), true
	case 'w':
		return wordRunes, true
	case 'W':
		return wordRunes.not(), true
	case 's':
		return spaces, true
	case 'S':
		return spaces.not(), true
	case 'x':
		return t.hex(2)
	case 'u':
		return t.hex(4)
	}
	if i := strings.IndexByte("fnrtv", c); i >= 0 {
		r := rune("\f\n\r\t\v"[i])
		return runes{{r, r}}, true
	}
	// Punctuation stands for itself. What other letters and digits mean depends on the
	// rest of the pattern.
	known := c < utf8.RuneSelf && !isWord(rune(c)) || inClass && c == 'b'
	if c == 'b' {
		c = '\b'
	}
	return runes{{rune(c), rune(c)}}, known
}

func (t *translator) hex(n int) (runes, bool) {
	if len(t.rest) < n {
		return nil, false
	}
	v, err := strconv.ParseUint(t.rest[:n], 16, 16)
	if err != nil || v >= 0xd800 && v < 0xe000 {
		return nil, false // not an escape, or half of a surrogate pair
	}
	t.rest = t.rest[n:]
	return runes{{rune(v), rune(v)}}, !t.ignoreCase || v < utf8.RuneSelf
}

// runes is a set of characters, in any order.
type runes []runeRange

type runeRange struct{ low, high rune }

var (
	digits    = runes{{'0', '9'}}
	wordRunes = runes{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	// See isSpace.
	spaces = runes{
		{'\t', '\r'},
		{' ', ' '},
		{0xa0, 0xa0},
		{0x1680, 0x1680},
		{0x2000, 0x200a},
		{0x2028, 0x2029},
		{0x202f, 0x202f},
		{0x205f, 0x205f},
		{0x3000, 0x3000},
		{0xfeff, 0xfeff},
	}
)

func isWord(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z' && r < utf8.RuneSelf
}

func (s runes) single() bool { return len(s) == 1 && s[0].low == s[0].high }

// plain reports whether all letters of the set that have cases are ASCII. Then their other
// cases are known, because no letter beyond ASCII maps to one in ASCII: see Canonicalize
// in ECMA-262, part 22.2.2.7.3. The sets of escapes contain both cases of their letters.
func (s runes) plain() bool {
	for _, r := range s {
		if r.high >= utf8.RuneSelf && r.high != utf8.MaxRune && !slices.Contains(spaces, r) && !slices.Contains(spaces.not(), r) {
			return false
		}
	}
	return true
}

// bothCases adds the other case of ASCII letters.
func (s runes) bothCases() runes {
	out := slices.Clone(s)
	for _, r := range s {
		for _, letters := range []struct{ low, high, other rune }{{'A', 'Z', 'a' - 'A'}, {'a', 'z', 'A' - 'a'}} {
			low, high := max(r.low, letters.low), min(r.high, letters.high)
			if low <= high {
				out = append(out, runeRange{low + letters.other, high + letters.other})
			}
		}
	}
	return out
}

// not returns all other characters, sorted.
func (s runes) not() runes {
	sorted := slices.SortedFunc(slices.Values(s), func(a, b runeRange) int { return int(a.low - b.low) })
	var out runes
	next := rune(0)
	for _, r := range sorted {
		if r.low > next {
			out = append(out, runeRange{next, r.low - 1})
		}
		next = max(next, r.high+1)
	}
	if next <= utf8.MaxRune {
		out = append(out, runeRange{next, utf8.MaxRune})
	}
	return out
}

// text returns the set in RE2's syntax.
func (s runes) text(ignoreCase bool) string {
	if ignoreCase {
		s = s.bothCases()
	}
	if len(s) == 0 {
		return `[^\x{0}-\x{10ffff}]`
	}
	var b strings.Builder
	b.WriteByte('[')
	for _, r := range s {
		fmt.Fprintf(&b, `\x{%x}-\x{%x}`, r.low, r.high)
	}
	b.WriteByte(']')
	return b.String()
}
