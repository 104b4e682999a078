// Package strictjson reads JSON strictly: it refuses what two readers could understand in
// different ways.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Problem is what is wrong with a text.
type Problem int

// What can be wrong with a text.
const (
	NotUTF8   Problem = iota + 1
	HalfPair          // a \u escape of half a surrogate pair, for which readers disagree
	TooDeep           // nested deeper than Error.Depth
	NotJSON           // or nested deeper than encoding/json reads
	NotObject         // another value
	Duplicate         // an object has Error.Name twice
)

// Error says what is wrong with a text.
type Error struct {
	Problem Problem
	Depth   int    // of TooDeep
	Name    string // of Duplicate
}

func (e *Error) Error() string {
	switch e.Problem {
	case NotUTF8:
		return "it is not UTF-8"
	case HalfPair:
		return "it has half of a surrogate pair"
	case TooDeep:
		return fmt.Sprintf("it is nested deeper than %d levels", e.Depth)
	case NotObject:
		return "it is not an object"
	case Duplicate:
		return shown(e.Name) + " is given twice"
	case NotJSON:
	}
	return "it is not JSON"
}

// maxShown bounds what an error repeats of a text.
const maxShown = 64 // bytes

// shown quotes a text for an error, in printable characters.
func shown(text string) string {
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	return strconv.QuoteToASCII(text)
}

// Check refuses a text that is not one JSON document in UTF-8, that is nested deeper than
// depth levels (0: than encoding/json reads), that has half of a surrogate pair, or an
// object with a name twice. The error is an *Error.
func Check(data []byte, depth int) error {
	switch {
	case !utf8.Valid(data):
		return &Error{Problem: NotUTF8}
	case depth > 0 && tooDeep(data, depth):
		return &Error{Problem: TooDeep, Depth: depth}
	case !json.Valid(data):
		return &Error{Problem: NotJSON}
	case halfPair(data):
		return &Error{Problem: HalfPair}
	}
	return checkNames(data)
}

// tooDeep counts open brackets. The data need not be JSON.
func tooDeep(data []byte, most int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// checkNames refuses valid JSON that has an object with a name twice.
func checkNames(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var open []map[string]bool // the objects and arrays around; nil for an array
	name := false              // the next text is a name
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &Error{Problem: NotJSON}
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{':
				open = append(open, map[string]bool{})
			case '[':
				open = append(open, nil)
			default:
				open = open[:len(open)-1]
			}
			name = len(open) > 0 && open[len(open)-1] != nil
			continue
		case string:
			if name {
				names := open[len(open)-1]
				if names[t] {
					return &Error{Problem: Duplicate, Name: t}
				}
				names[t], name = true, false
				continue
			}
		}
		name = len(open) > 0 && open[len(open)-1] != nil
	}
}

// halfPair reports whether a JSON text has a \u escape of half a character.
func halfPair(text []byte) bool {
	for i := 0; i < len(text); {
		next := bytes.IndexByte(text[i:], '\\')
		if next < 0 {
			return false
		}
		i += next
		unit, ok := escapedUnit(text[i:])
		switch {
		case !ok:
			i += 2 // the escaped character
		case unit >= 0xDC00 && unit < 0xE000:
			return true
		case unit >= 0xD800 && unit < 0xDC00:
			low, ok := escapedUnit(text[i+6:])
			if !ok || low < 0xDC00 || low >= 0xE000 {
				return true
			}
			i += 12
		default:
			i += 6
		}
	}
	return false
}

// escapedUnit reads a \uXXXX.
func escapedUnit(raw []byte) (unit uint64, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return unit, err == nil
}

// Member is a field of an object.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Members reads an object, whose fields it returns in their order. It looks for names that
// are given twice in the object itself only: what reads a field's value checks that. The
// error is an *Error.
func Members(raw []byte) ([]Member, error) {
	switch {
	case !utf8.Valid(raw):
		return nil, &Error{Problem: NotUTF8}
	case halfPair(raw):
		return nil, &Error{Problem: HalfPair}
	case !json.Valid(raw): // bounds the nesting too
		return nil, &Error{Problem: NotJSON}
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, &Error{Problem: NotObject}
	}
	var members []Member
	seen := map[string]bool{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, &Error{Problem: NotJSON}
		}
		m := Member{Name: name.(string)} //nolint:forcetypeassert // it is valid JSON
		if err := dec.Decode(&m.Value); err != nil {
			return nil, &Error{Problem: NotJSON}
		}
		if seen[m.Name] {
			return nil, &Error{Problem: Duplicate, Name: m.Name}
		}
		seen[m.Name] = true
		members = append(members, m)
	}
	return members, nil
}
