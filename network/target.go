package network

import (
	"errors"
	"strings"
)

// maxMethod is longer than every registered method.
const maxMethod = 32 // bytes

// validMethod says whether a method can be judged and forwarded. TRACE echoes what was added to
// a request, CONNECT asks for a tunnel of its own, and some servers take get for GET.
func validMethod(method string) bool {
	if method == "" || len(method) > maxMethod || method == "TRACE" || method == "CONNECT" {
		return false
	}
	return strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_") == ""
}

// target is the path and query of a request in the spelling that is judged and forwarded.
type target struct {
	path    string // percent signs only where needed, with capitals
	query   string // with its ?; "" if there is none
	unclear string // why servers may read the path in another way; "" if they do not
}

func (t target) String() string { return t.path + t.query }

// parseTarget reads what follows the method of a request. Its error says what all servers do
// not read in the same way, whatever the rules are.
func parseTarget(method, text string) (target, error) {
	if text == "*" && method == "OPTIONS" {
		return target{path: "*"}, nil
	}
	if !strings.HasPrefix(text, "/") {
		return target{}, errors.New("the path does not begin with a slash")
	}
	raw, query, asked := strings.Cut(text, "?")
	t, err := cleanPath(raw)
	if err != nil || !asked {
		return t, err
	}
	t.query = "?" + query
	for i := range len(t.query) {
		if c := t.query[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return t, errors.New("the query has a space, a # or a byte that is not printable ASCII")
		}
	}
	return t, nil
}

// cleanPath gives a path the form that RFC 3986 section 6.2.2 calls normal, without removing
// any segment: what would have to be removed is refused.
func cleanPath(raw string) (target, error) {
	var t target
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '%':
			if i+2 >= len(raw) || !isHex(raw[i+1]) || !isHex(raw[i+2]) {
				return t, errors.New("a percent sign is not followed by two hexadecimal digits")
			}
			c = unhex(raw[i+1])<<4 | unhex(raw[i+2])
			switch {
			case c < ' ' || c == 0x7f:
				return t, errors.New("the path has an encoded control character")
			case c == '/' || c == '\\':
				t.unclear = "the path has an encoded slash or backslash"
			}
			if unreserved(c) {
				b.WriteByte(c)
			} else {
				escape(&b, c)
			}
			i += 2
		case c <= ' ' || c == 0x7f || c == '#' || c == '\\':
			return t, errors.New("the path has a space, a #, a backslash or a control character")
		case c >= 0x80 || strings.IndexByte("\"<>^`{|}", c) >= 0:
			escape(&b, c)
		default:
			if c == ';' {
				t.unclear = "the path has a semicolon"
			}
			b.WriteByte(c)
		}
	}
	t.path = b.String()
	// Looked for in what is forwarded: %25%32%66 becomes %252f.
	for _, rest := range strings.Split(t.path, "%25")[1:] {
		if len(rest) > 1 && isHex(rest[0]) && isHex(rest[1]) {
			t.unclear = "the path is encoded twice"
		}
	}
	segments := strings.Split(t.path, "/")[1:]
	for i, segment := range segments {
		name, _, _ := strings.Cut(segment, ";")
		switch {
		case name == "." || name == "..":
			return t, errors.New("the path has a segment of one dot or two")
		case segment == "" && i < len(segments)-1:
			t.unclear = "the path has an empty segment"
		}
	}
	return t, nil
}

// mentions says whether the path or the query holds a text in lower case, however encoded.
func (t target) mentions(text string) bool {
	const passes = 4 // what is still encoded afterwards holds the text, for all that is known
	now := t.String()
	for range passes {
		if strings.Contains(strings.ToLower(now), text) {
			return true
		}
		next := decode(now)
		if next == now {
			return false
		}
		now = next
	}
	return true
}

// decode decodes what is percent-encoded, and leaves the rest.
func decode(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]) {
			b.WriteByte(unhex(text[i+1])<<4 | unhex(text[i+2]))
			i += 2
		} else {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}

// unreserved are the characters that mean the same encoded or not, RFC 3986 section 2.3.
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func escape(b *strings.Builder, c byte) {
	const digits = "0123456789ABCDEF"
	b.WriteByte('%')
	b.WriteByte(digits[c>>4])
	b.WriteByte(digits[c&15])
}

// glob says whether a pattern, in which * stands for any text with slashes too, matches a path.
func glob(pattern, path string) bool {
	star, resume := -1, 0
	p, i := 0, 0
	for i < len(path) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, i
			p++
		case p < len(pattern) && pattern[p] == path[i]:
			p++
			i++
		case star >= 0:
			resume++
			p, i = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
