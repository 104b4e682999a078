package policy

import (
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"
)

// oddCharacters looks at the characters of a command outside quotes. Bash takes most odd
// ones for letters, but a person sees a space, another letter or nothing; and the parser
// and bash differ on a carriage return. If a command has any, what a person sees is
// searched for denials too.
func (w *walker) oddCharacters(c *syntax.CallExpr, args []arg, in stream) {
	end := int(c.End().Offset())
	start := int(c.Pos().Offset())
	// For bash, a carriage return before the newline is a part of the last word.
	if start > end || end > len(w.text) || plainText(w.text[start:min(end+1, len(w.text))]) {
		return
	}
	odd := false
	for i, word := range c.Args {
		for _, p := range word.Parts {
			if l, ok := p.(*syntax.Lit); ok && hasOdd(l.Value, i == 0) {
				odd = true
			}
		}
	}
	odd = odd || strings.ContainsRune(outside(w, c), '\r')
	if !odd || len(args) == 0 {
		return
	}
	at := w.position(c)
	w.deny(setExec+"/odd-character", at, quote(w.source(c)))
	w.notKnown(opaqueCharacter, at, quote(w.source(c)))
	var looks []arg
	for _, a := range args {
		for text := range strings.FieldsFuncSeq(a.text, oddSpace) {
			looks = append(looks, lit(strings.Map(asItLooks, text), a.at))
		}
	}
	if len(looks) > 0 {
		node := w.node
		w.silently(func() {
			w.argv(looks, in)
		})
		w.node = node
	}
}

// outside returns the source between the words of a command.
func outside(w *walker, c *syntax.CallExpr) string {
	var b strings.Builder
	end := int(c.Pos().Offset())
	for _, word := range c.Args {
		if start := int(word.Pos().Offset()); start >= end && start <= len(w.text) {
			b.WriteString(w.text[end:start])
		}
		end = int(word.End().Offset())
		// The parser drops a carriage return before a newline, but counts it as a part
		// of the word's extent.
		if end > 0 && end <= len(w.text) && w.text[end-1] == '\r' {
			b.WriteByte('\r')
		}
	}
	if end < len(w.text) && w.text[end] == '\r' {
		b.WriteByte('\r')
	}
	return b.String()
}

// plainText reports whether text is ASCII without control characters.
func plainText(text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 0x7f || c < ' ' && c != '\t' && c != '\n' {
			return false
		}
	}
	return true
}

// hasOdd reports whether text has a character that looks like another or like none. A
// letter is odd only in a command's name, and only if all of the name looks like ASCII.
func hasOdd(text string, name bool) bool {
	letters, ascii := false, true
	for _, r := range text {
		switch {
		case r < 0x80 && (r >= ' ' && r != 0x7f || r == '\t' || r == '\n'):
		case r < 0x80, oddSpace(r), invisible(r):
			return true
		case asItLooks(r) != r:
			letters = true
		default:
			ascii = false
		}
	}
	return name && letters && ascii
}

// oddSpace reports whether a character looks like a space, but is not one to bash.
func oddSpace(r rune) bool {
	return r == '\r' || r == '\v' || r == '\f' || r > 0x7f && unicode.IsSpace(r) || r == 0x2800 || r == 0x3164 || r == 0x115f || r == 0x1160 || r == 0xffa0
}

// invisible reports whether a character cannot be seen.
func invisible(r rune) bool {
	return unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) || unicode.IsControl(r) || r == 0x34f
}

// lookalikes maps letters of other alphabets to the ASCII letters that they look like.
var lookalikes = map[rune]rune{
	// Cyrillic
	'а': 'a', 'с': 'c', 'ԁ': 'd', 'е': 'e', 'һ': 'h', 'і': 'i', 'ј': 'j', 'к': 'k', 'ӏ': 'l', 'м': 'm', 'о': 'o', 'р': 'p', 'ԛ': 'q',
	'г': 'r', 'ѕ': 's', 'т': 't', 'ѵ': 'v', 'ѡ': 'w', 'ԝ': 'w', 'х': 'x', 'у': 'y', 'п': 'n', 'в': 'b', 'ь': 'b',
	// Greek
	'α': 'a', 'ϲ': 'c', 'ε': 'e', 'η': 'n', 'ι': 'i', 'ϳ': 'j', 'κ': 'k', 'ν': 'v', 'ο': 'o', 'ρ': 'p', 'τ': 't', 'υ': 'u', 'χ': 'x', 'γ': 'y',
	// Armenian, Latin beyond ASCII, and Roman numerals
	'ո': 'n', 'ց': 'g', 'ս': 'u', 'օ': 'o', 'ɡ': 'g', 'ı': 'i', 'ʀ': 'r', 'ᴍ': 'm', 'ʟ': 'l', 'ɑ': 'a', 'ſ': 's',
	'ⅰ': 'i', 'ⅴ': 'v', 'ⅹ': 'x', 'ⅼ': 'l', 'ⅽ': 'c', 'ⅾ': 'd', 'ⅿ': 'm',
	// dashes, for options
	'‐': '-', '‑': '-', '‒': '-', '–': '-', '—': '-', '−': '-', '⁄': '/', '∕': '/', '⧸': '/',
}

// asItLooks returns the ASCII character that a character looks like, the character itself
// if there is none, and -1 if it cannot be seen.
func asItLooks(r rune) rune {
	switch {
	case r < 0x80:
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	case invisible(r):
		return -1
	case r >= 0xff01 && r <= 0xff5e: // full width
		return r - 0xff01 + '!'
	case r >= 0x1d400 && r <= 0x1d6a3: // mathematical letters: 13 alphabets of 52
		n := (r - 0x1d400) % 52
		if n < 26 {
			return 'A' + n
		}
		return 'a' + n - 26
	}
	if c, ok := lookalikes[r]; ok {
		return c
	}
	return r
}
