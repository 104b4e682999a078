package scrub

import (
	"bytes"
	"encoding/json"
	"slices"
)

// ScrubJSON returns a JSON document with every secret in its texts masked and nothing
// else changed, so that it stays valid. The members of the outermost object that keep
// names are not changed. What is not JSON is scrubbed as text.
func (s *Secrets) ScrubJSON(doc []byte, keep ...string) []byte {
	if s == nil || s.index == nil {
		return doc
	}
	if !json.Valid(doc) {
		return []byte(s.Scrub(string(doc)))
	}
	out := make([]byte, 0, len(doc))
	depth, name := 0, ""
	for len(doc) > 0 {
		n := bytes.IndexAny(doc, `"{}[]`)
		if n < 0 {
			break
		}
		out = append(out, doc[:n]...)
		if doc = doc[n:]; doc[0] != '"' {
			if depth--; doc[0] == '{' || doc[0] == '[' {
				depth += 2
			}
			out, doc = append(out, doc[0]), doc[1:]
			continue
		}
		n = textLength(doc)
		text, isName := doc[:n], bytes.HasPrefix(bytes.TrimLeft(doc[n:], " \t\r\n"), []byte(":"))
		doc = doc[n:]
		switch {
		case isName:
			if depth == 1 {
				name = string(text[1 : n-1])
			}
			// Such names are not secrets: programs look for them.
			if !slices.ContainsFunc(text[1:n-1], func(b byte) bool { return (b|0x20) < 'a' || (b|0x20) > 'z' }) {
				break
			}
			text = s.scrubText(text)
		case depth == 1 && slices.Contains(keep, name):
		default:
			text = s.scrubText(text)
		}
		out = append(out, text...)
	}
	return append(out, doc...)
}

// textLength returns the length of the JSON text at the start of p, with its quotes.
func textLength(p []byte) int {
	for i := 1; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(p)
}

// scrubText masks secrets in a JSON text: in its value, and in its escaped form.
func (s *Secrets) scrubText(text []byte) []byte {
	value := string(text[1 : len(text)-1])
	if bytes.IndexByte(text, '\\') >= 0 && json.Unmarshal(text, &value) != nil {
		return text
	}
	masked := s.Scrub(value)
	if masked == value {
		return text
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(masked) // a text
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}
