package tool

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// isSpace reports whether r is \s of ECMAScript, which its trim removes: WhiteSpace
// and LineTerminator of ECMA-262, parts 12.2 and 12.3.
func isSpace(r rune) bool {
	switch r {
	case '\t', '\n', '\v', '\f', '\r', '\u2028', '\u2029', '\ufeff':
		return true
	}
	return unicode.Is(unicode.Zs, r)
}

// spaces is isSpace as a class of a regular expression.
const spaces = `[\t\n\v\f\r\p{Zs}\x{2028}\x{2029}\x{feff}]`

// limiter is a last `| head` or `| tail` with a number of lines and nothing else.
var limiter = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\|` + spaces + `*(head|tail)` + spaces + `+(?:-n` + spaces + `*([0-9]+)|-([0-9]+))` + spaces + `*$`)
})

// ExtractHeadTail removes a last `| head -n N`, `| head -N`, or the same of tail, from
// a command, and the spaces around the rest. It is an option that is off by default:
// the rest may run longer, and may exit with another code.
func ExtractHeadTail(command string) (rest string, head, tail *int64) {
	if m := limiter().FindStringSubmatchIndex(command); m != nil {
		digits := submatch(command, m, 2) + submatch(command, m, 3)
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			n = math.MaxInt64 // digits only: too many of them
		}
		if submatch(command, m, 1) == "head" {
			head = &n
		} else {
			tail = &n
		}
		command = command[:m[0]]
	}
	return strings.TrimFunc(command, isSpace), head, tail
}

func submatch(text string, m []int, n int) string {
	if m[2*n] < 0 {
		return ""
	}
	return text[m[2*n]:m[2*n+1]]
}

// applyHeadTail returns the last tail lines of the first head lines of text. Nil and 0
// mean all lines. The text after the last LF counts as a line even if it is empty.
// applied reports whether lines were left out.
func applyHeadTail(text string, head, tail *int64) (kept string, applied bool) {
	limit := func(lines *int64, shorten func(string, cutLimits) excerpt) {
		if lines == nil || *lines <= 0 {
			return
		}
		short := shorten(text, cutLimits{Lines: int(min(*lines, math.MaxInt)), Bytes: math.MaxInt})
		text, applied = short.Text, applied || short.Truncation != nil
	}
	limit(head, cutHead)
	limit(tail, cutTail)
	return text, applied
}
