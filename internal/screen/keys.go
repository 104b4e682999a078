package screen

import (
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Modifiers, as xterm and the Kitty protocol add them up. A key sends their sum plus 1.
const (
	shift = 1
	alt   = 2
	ctrl  = 4
)

// Flags of the Kitty keyboard protocol that affect what a key sends.
const (
	disambiguate = 1
	allKeys      = 8  // text keys send sequences too
	withText     = 16 // which include the text
	allFlags     = 31
)

// key is a key of a keyboard.
type key struct {
	name   string
	legacy string // what it sends without modifiers, unless the fields below say it
	code   int    // number of CSI code ~, or of the Kitty protocol's CSI code u
	final  byte   // '~', 'u', or the letter that ends its sequence
	ss3    bool   // sends SS3 and the letter in mode DECCKM, without modifiers
	pad    bool   // a key of the keypad
	char   rune   // the character that it types
}

// namedKeys are the keys that have names. The numbers are those of xterm's
// ctlseqs.txt and of the Kitty protocol's tables.
var namedKeys = sync.OnceValue(func() map[string]key {
	all := map[string]key{}
	add := func(k key, names ...string) {
		for _, name := range names {
			k.name = name
			all[name] = k
		}
	}
	add(key{legacy: "\x1b", code: 27, final: 'u'}, "esc", "escape")
	add(key{legacy: "\r", code: 13, final: 'u'}, "enter", "return", "cr")
	add(key{legacy: "\t", code: 9, final: 'u'}, "tab")
	add(key{legacy: "\x7f", code: 127, final: 'u'}, "backspace", "bs")
	add(key{char: ' '}, "space")
	add(key{char: '-'}, "minus")
	add(key{char: '+'}, "plus")
	for i, name := range []string{"up", "down", "right", "left"} {
		add(key{final: byte('A' + i), ss3: true}, name)
	}
	add(key{final: 'H', ss3: true}, "home")
	add(key{final: 'F', ss3: true}, "end")
	add(key{code: 2, final: '~'}, "insert", "ins")
	add(key{code: 3, final: '~'}, "delete", "del")
	add(key{code: 5, final: '~'}, "pageup", "pgup")
	add(key{code: 6, final: '~'}, "pagedown", "pgdn", "pgdown")
	for i, final := range []byte("PQRS") {
		n := fmt.Sprintf("f%d", i+1)
		add(key{legacy: "\x1bO" + string(final), code: 11 + i, final: final}, n)
	}
	for i, code := range []int{15, 17, 18, 19, 20, 21, 23, 24, 25, 26, 28, 29, 31, 32, 33, 34} {
		add(key{code: code, final: '~'}, fmt.Sprintf("f%d", i+5))
	}
	for i, final := range []byte("pqrstuvwxy") {
		add(key{pad: true, char: rune('0' + i), code: 57399 + i, final: final}, fmt.Sprintf("kp%d", i))
	}
	for name, k := range map[string]key{
		"kp-dot": {char: '.', code: 57409, final: 'n'}, "kp-divide": {char: '/', code: 57410, final: 'o'},
		"kp-multiply": {char: '*', code: 57411, final: 'j'}, "kp-minus": {char: '-', code: 57412, final: 'm'},
		"kp-plus": {char: '+', code: 57413, final: 'k'}, "kp-enter": {char: '\r', code: 57414, final: 'M'},
	} {
		k.pad = true
		add(k, name)
	}
	return all
})

var modifiers = map[string]int{
	"ctrl": ctrl, "control": ctrl, "c": ctrl, "alt": alt, "meta": alt, "option": alt, "m": alt, "a": alt, "shift": shift, "s": shift,
}

// KeyError reports a name that no key has.
type KeyError struct{ Name string }

func (e *KeyError) Error() string {
	return fmt.Sprintf("no key is called %q: name one as in esc, enter, tab, backspace, up, home, pageup, f1, kp5, "+
		"or give one character; put ctrl-, alt- or shift- before it as in ctrl-c, alt-x, shift-tab", e.Name)
}

// parseKey reads a name such as "ctrl-alt-x".
func parseKey(name string) (key, int, error) {
	rest, mods := name, 0
	for {
		lower := strings.ToLower(rest)
		if k, ok := namedKeys()[lower]; ok {
			return k, mods, nil
		}
		if utf8.RuneCountInString(rest) == 1 {
			r, _ := utf8.DecodeRuneInString(rest)
			if r == utf8.RuneError || unicode.IsControl(r) {
				return key{}, 0, &KeyError{name}
			}
			return key{char: r}, mods, nil
		}
		before, after, ok := strings.Cut(lower, "-")
		if !ok || after == "" && before == "" {
			before, after, ok = strings.Cut(lower, "+")
		}
		mod, known := modifiers[before]
		if !ok || !known || after == "" {
			return key{}, 0, &KeyError{name}
		}
		mods |= mod
		rest = rest[len(before)+1:]
	}
}

// Keys returns what a keyboard sends for the named keys, in the modes that the
// program has set: esc, enter, tab, backspace, space, the arrows up,
// down, left and right, home, end, insert, delete, pageup, pagedown, f1 to f20,
// kp0 to kp9 and kp-enter, kp-plus, kp-minus, kp-multiply, kp-divide, kp-dot; or
// any single character. Each name may have the prefixes ctrl-, alt- and shift-. The
// error is a *KeyError.
func (s *Screen) Keys(names ...string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []byte
	for _, name := range names {
		k, mods, err := parseKey(name)
		if err != nil {
			return nil, err
		}
		all = append(all, s.term.encode(k, mods)...)
	}
	return all, nil
}

// Type returns what a keyboard sends for a text, character by character. A line feed
// stands for the enter key.
func (s *Screen) Type(text string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []byte
	for _, r := range text {
		k := key{char: r}
		switch {
		case r == '\n' || r == '\r':
			k = namedKeys()["enter"]
		case r == '\t':
			k = namedKeys()["tab"]
		case unicode.IsControl(r):
			all = utf8.AppendRune(all, r)
			continue
		}
		all = append(all, s.term.encode(k, 0)...)
	}
	return all
}

// Paste returns what a terminal sends for a pasted text. If the program has turned on
// bracketed paste, the text is in brackets, which it cannot end.
func (s *Screen) Paste(text string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	text = strings.ReplaceAll(text, "\x1b", "")
	if !s.term.paste {
		return []byte(strings.ReplaceAll(text, "\n", "\r"))
	}
	return []byte("\x1b[200~" + text + "\x1b[201~")
}

// encode returns what a key sends in the current modes.
func (m *modes) encode(k key, mods int) string {
	flags := m.flags()
	switch {
	case k.pad:
		return m.encodePad(k, mods, flags)
	case k.char != 0:
		return encodeText(k.char, mods, flags)
	case k.final == 'u':
		return encodeEditing(k, mods, flags)
	case mods != 0 && flags != 0 && k.name == "f3": // else it would be a cursor position
		return csi(13, mods, '~')
	case mods != 0:
		return csi(max(1, functionCode(k)), mods, k.final)
	case k.final == '~':
		return fmt.Sprintf("\x1b[%d~", k.code)
	case flags != 0 && k.name == "f3":
		return "\x1b[13~"
	case flags != 0:
		return "\x1b[" + string(k.final)
	case k.legacy != "":
		return k.legacy
	case k.ss3 && m.cursorKeys:
		return "\x1bO" + string(k.final)
	default:
		return "\x1b[" + string(k.final)
	}
}

// functionCode returns the number before the modifiers, which is 1 for keys with a letter.
func functionCode(k key) int {
	if k.final == '~' {
		return k.code
	}
	return 1
}

func csi(code, mods int, final byte) string {
	return fmt.Sprintf("\x1b[%d;%d%c", code, mods+1, final)
}

// encodeEditing encodes esc, enter, tab and backspace.
func encodeEditing(k key, mods, flags int) string {
	kitty := flags&allKeys != 0 || flags&disambiguate != 0 && (mods != 0 || k.code == 27)
	switch {
	case kitty && mods == 0:
		return fmt.Sprintf("\x1b[%du", k.code)
	case kitty:
		return csi(k.code, mods, 'u')
	}
	text := k.legacy
	switch {
	case k.code == 9 && mods&shift != 0:
		text = "\x1b[Z"
	case k.code == 127 && mods&ctrl != 0:
		text = "\b"
	}
	if mods&alt != 0 {
		text = "\x1b" + text
	}
	return text
}

// encodeText encodes keys that type a character.
func encodeText(r rune, mods, flags int) string {
	if mods&shift != 0 && unicode.IsLower(r) && (flags == 0 || mods == shift) {
		r = unicode.ToUpper(r)
	}
	base := unicode.ToLower(r) // keys are named without shift
	if base != r {
		mods |= shift
	}
	if flags&allKeys != 0 || flags&disambiguate != 0 && mods&^shift != 0 {
		text := fmt.Sprintf("\x1b[%d", base)
		if mods != 0 {
			text += fmt.Sprintf(";%d", mods+1)
		}
		if flags&allKeys != 0 && flags&withText != 0 && mods&^shift == 0 {
			if mods == 0 {
				text += ";"
			}
			text += fmt.Sprintf(";%d", r)
		}
		return text + "u"
	}
	text := string(r)
	if mods&ctrl != 0 {
		if c, ok := controlOf(r); ok {
			text = string(rune(c))
		}
	}
	if mods&alt != 0 {
		text = "\x1b" + text
	}
	return text
}

// controlOf returns the control character that a terminal sends for a key with ctrl.
func controlOf(r rune) (byte, bool) {
	switch {
	case r >= 'a' && r <= 'z', r >= '@' && r <= '_':
		return byte(r) & 0x1f, true
	case r >= '3' && r <= '7':
		return byte(r) - '3' + 0x1b, true
	}
	switch r {
	case ' ', '2':
		return 0, true
	case '/', '-':
		return 0x1f, true
	case '8', '?':
		return 0x7f, true
	}
	return 0, false
}

// encodePad encodes keys of the keypad.
func (m *modes) encodePad(k key, mods, flags int) string {
	switch {
	case flags&(disambiguate|allKeys) != 0:
		if mods != 0 {
			return csi(k.code, mods, 'u')
		}
		return fmt.Sprintf("\x1b[%du", k.code)
	case m.keypad:
		return "\x1bO" + string(k.final)
	default:
		return encodeText(k.char, mods, 0)
	}
}
