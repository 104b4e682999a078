// Package clientfile changes single values of other programs' configuration files, JSON with or
// without comments and TOML, and leaves every other byte as it is. It knows no files and no clients.
package clientfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// A PositionError says where a text is not what a change needs. Lines and columns count from 1.
type PositionError struct {
	Line, Column int
	Text         string
}

func (e *PositionError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Text)
}

// at returns a PositionError for an offset.
func at(text []byte, offset int, format string, args ...any) error {
	before := text[:min(max(offset, 0), len(text))]
	line := bytes.Count(before, []byte("\n"))
	column := len(before) - (bytes.LastIndexByte(before, '\n') + 1)
	return &PositionError{line + 1, column + 1, fmt.Sprintf(format, args...)}
}

// errText is what a text is not.
var errText = errors.New("it is not JSON")

// A Document is a JSON text, which may have comments and trailing commas.
type Document struct {
	text []byte
	root hujson.Value
}

// ParseJSON reads a text. An empty one is an empty object. The error says where it is not understood.
func ParseJSON(text []byte) (*Document, error) {
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return nil, at(text, 0, "it begins with a byte order mark")
	}
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	d := &Document{text: text}
	var err error
	if d.root, err = hujson.Parse(text); err != nil {
		return nil, fmt.Errorf("%w: %w", errText, err) // with line and column
	}
	if _, ok := d.root.Value.(*hujson.Object); !ok {
		return nil, at(text, d.root.StartOffset, "it is not an object")
	}
	return d, d.unique(&d.root)
}

// unique refuses an object that has a name twice: which one counts is up to its reader.
func (d *Document) unique(v *hujson.Value) error {
	switch t := v.Value.(type) {
	case *hujson.Object:
		seen := map[string]bool{}
		for i := range t.Members {
			name := nameOf(t.Members[i])
			if seen[name] {
				return at(d.text, t.Members[i].Name.StartOffset, "%q is there twice", name)
			}
			seen[name] = true
			if err := d.unique(&t.Members[i].Value); err != nil {
				return err
			}
		}
	case *hujson.Array:
		for i := range t.Elements {
			if err := d.unique(&t.Elements[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func nameOf(m hujson.ObjectMember) string {
	name, _ := m.Name.Value.(hujson.Literal)
	return name.String()
}

// Text is the text as it is now.
func (d *Document) Text() []byte { return d.text }

// find follows a path as far as it goes. It returns the last value found and how many names led there.
func (d *Document) find(path []string) (v *hujson.Value, depth int) {
	v = &d.root
	for depth < len(path) {
		obj, ok := v.Value.(*hujson.Object)
		if !ok {
			return v, depth
		}
		i := slices.IndexFunc(obj.Members, func(m hujson.ObjectMember) bool { return nameOf(m) == path[depth] })
		if i < 0 {
			return v, depth
		}
		v, depth = &obj.Members[i].Value, depth+1
	}
	return v, depth
}

// Get returns the value at a path as standard JSON in its shortest form, nil if there is none.
func (d *Document) Get(path ...string) json.RawMessage {
	v, depth := d.find(path)
	if depth < len(path) {
		return nil
	}
	return minimal(*v)
}

func minimal(v hujson.Value) json.RawMessage {
	v = v.Clone()
	v.Minimize()
	return v.Pack()
}

// Set puts a value at a path. Objects on the way are created. What stands on the way and is not an
// object is an error, with its place.
func (d *Document) Set(value any, path ...string) error {
	v, depth := d.find(path)
	if depth == len(path) {
		return d.replace(v.StartOffset, v.EndOffset, d.render(value, d.indentAt(v.StartOffset)))
	}
	obj, ok := v.Value.(*hujson.Object)
	if !ok {
		return at(d.text, v.StartOffset, "%s is not an object", strings.Join(path[:depth], "."))
	}
	for i := len(path) - 1; i > depth; i-- {
		value = map[string]any{path[i]: value}
	}
	name, err := json.Marshal(path[depth])
	if err != nil {
		return err
	}
	return d.insert(v, len(obj.Members), func(i int) (int, int) {
		return obj.Members[i].Name.StartOffset, obj.Members[i].Value.EndOffset
	}, func(indent string) string { return string(name) + ": " + d.render(value, indent) })
}

// Add appends a value to the array at a path, which is created if there is none. It is a no-op if the
// array has the value.
func (d *Document) Add(value any, path ...string) error {
	v, depth := d.find(path)
	if depth < len(path) {
		return d.Set([]any{value}, path...)
	}
	array, ok := v.Value.(*hujson.Array)
	if !ok {
		return at(d.text, v.StartOffset, "%s is not an array", strings.Join(path, "."))
	}
	if d.index(array, value) >= 0 {
		return nil
	}
	return d.insert(v, len(array.Elements), func(i int) (int, int) {
		return array.Elements[i].StartOffset, array.Elements[i].EndOffset
	}, func(indent string) string { return d.render(value, indent) })
}

// Has reports whether the array at a path has a value.
func (d *Document) Has(value any, path ...string) bool {
	v, depth := d.find(path)
	array, ok := v.Value.(*hujson.Array)
	return depth == len(path) && ok && d.index(array, value) >= 0
}

func (d *Document) index(array *hujson.Array, value any) int {
	want := compact(value)
	return slices.IndexFunc(array.Elements, func(v hujson.Value) bool { return Equal(minimal(v), want) })
}

// Depth returns how many of a path's names lead to a value: all if there is one at its end.
func (d *Document) Depth(path ...string) int {
	_, depth := d.find(path)
	return depth
}

// Remove removes the value at a path, and objects on the way to it that hold nothing else, comments
// included. What the first keep names of the path lead to stays. It is a no-op if there is no value.
func (d *Document) Remove(keep int, path ...string) error {
	if _, depth := d.find(path); depth < len(path) {
		return nil
	}
	parent, _ := d.find(path[:len(path)-1])
	obj, ok := parent.Value.(*hujson.Object)
	if !ok {
		return at(d.text, parent.StartOffset, "%s is not an object", strings.Join(path[:len(path)-1], "."))
	}
	if len(obj.Members) == 1 && len(path)-1 > keep && !d.commented(parent) {
		return d.Remove(keep, path[:len(path)-1]...)
	}
	i := slices.IndexFunc(obj.Members, func(m hujson.ObjectMember) bool { return nameOf(m) == path[len(path)-1] })
	return d.cut(parent, len(obj.Members), i, func(i int) (int, int) { return obj.Members[i].Name.StartOffset, obj.Members[i].Value.EndOffset })
}

// RemoveFrom removes a value from the array at a path, and the array if it held nothing else and is not
// to stay, as with Remove.
func (d *Document) RemoveFrom(value any, keep int, path ...string) error {
	v, depth := d.find(path)
	array, ok := v.Value.(*hujson.Array)
	if depth < len(path) || !ok {
		return nil
	}
	i := d.index(array, value)
	switch {
	case i < 0:
		return nil
	case len(array.Elements) == 1 && len(path) > keep && !d.commented(v):
		return d.Remove(keep, path...)
	}
	return d.cut(v, len(array.Elements), i, func(i int) (int, int) { return array.Elements[i].StartOffset, array.Elements[i].EndOffset })
}

// commented reports whether there is a comment in what stands around a composite's parts.
func (d *Document) commented(v *hujson.Value) bool {
	found := false
	look := func(extra hujson.Extra) { found = found || len(bytes.TrimSpace(extra)) > 0 }
	switch t := v.Value.(type) {
	case *hujson.Object:
		look(t.AfterExtra)
		for _, m := range t.Members {
			look(m.Name.BeforeExtra)
			look(m.Name.AfterExtra)
			look(m.Value.BeforeExtra)
			look(m.Value.AfterExtra)
		}
	case *hujson.Array:
		look(t.AfterExtra)
		for _, e := range t.Elements {
			look(e.BeforeExtra)
			look(e.AfterExtra)
		}
	}
	return found
}

// insert puts a part behind the last of n parts of a composite.
func (d *Document) insert(v *hujson.Value, n int, span func(int) (from, to int), part func(indent string) string) error {
	end := v.EndOffset - 1 // the closing bracket
	if n == 0 {
		if d.commented(v) {
			return at(d.text, v.StartOffset, "it holds comments and nothing else: put in by hand what is to be there")
		}
		indent := d.indentAt(v.StartOffset)
		deeper := indent + d.step()
		return d.replace(v.StartOffset+1, end, "\n"+deeper+part(deeper)+"\n"+indent)
	}
	from, to := span(n - 1)
	separator, indent := " ", d.indentAt(from)
	if d.startsLine(from) {
		separator = "\n" + indent
	}
	// A trailing comma stays one: behind the last part there may be a comment, and then the comma.
	if comma := d.commaAfter(to, end); comma >= 0 {
		return d.replace(comma+1, comma+1, separator+part(indent)+",")
	}
	return d.replace(to, to, ","+separator+part(indent))
}

// commaAfter returns the offset of a comma between two parts, where there are only blanks and comments
// besides it; -1 if there is none.
func (d *Document) commaAfter(from, to int) int {
	for i := from; i < to; i++ {
		switch rest := d.text[i:to]; {
		case rest[0] == ',':
			return i
		case bytes.HasPrefix(rest, []byte("//")):
			n := bytes.IndexByte(rest, '\n')
			if n < 0 {
				return -1
			}
			i += n
		case bytes.HasPrefix(rest, []byte("/*")):
			n := bytes.Index(rest[2:], []byte("*/"))
			if n < 0 {
				return -1
			}
			i += n + 3
		}
	}
	return -1
}

// cut removes part i of n parts, with one comma and the line that it leaves.
func (d *Document) cut(v *hujson.Value, n, i int, span func(int) (from, to int)) error {
	from, to := span(i)
	end := v.EndOffset - 1
	if n == 1 && !d.commented(v) {
		return d.replace(v.StartOffset+1, end, "")
	}
	if i+1 < n {
		end, _ = span(i + 1)
	}
	comma := d.commaAfter(to, end)
	switch {
	case comma >= 0:
		to = comma + 1
	case i > 0: // the last one, without a comma behind it: the one before loses its own
		_, before := span(i - 1)
		if c := d.commaAfter(before, from); c >= 0 {
			text := slices.Concat(d.text[:c], d.text[c+1:])
			d.text = text
			from, to = from-1, to-1
		}
	}
	for from > 0 && (d.text[from-1] == ' ' || d.text[from-1] == '\t') {
		from--
	}
	if from > 0 && d.text[from-1] == '\n' && (to >= len(d.text) || strings.ContainsRune("\r\n", rune(d.text[to]))) {
		from--
		if from > 0 && d.text[from-1] == '\r' {
			from--
		}
	}
	return d.replace(from, to, "")
}

// replace puts a text in the place of a range, and reads the document again.
func (d *Document) replace(from, to int, with string) error {
	if bytes.Contains(d.text, []byte("\r\n")) {
		with = strings.ReplaceAll(with, "\n", "\r\n")
	}
	next, err := ParseJSON(slices.Concat(d.text[:from], []byte(with), d.text[to:]))
	if err != nil {
		return fmt.Errorf("the change would break it, which is a mistake in this program: %w", err)
	}
	*d = *next
	return nil
}

// startsLine reports whether there are only blanks in front of an offset on its line.
func (d *Document) startsLine(offset int) bool {
	line := d.text[bytes.LastIndexByte(d.text[:offset], '\n')+1 : offset]
	return bytes.Contains(d.text[:offset], []byte("\n")) && len(bytes.Trim(line, " \t")) == 0
}

// indentAt returns the indentation of the line that an offset is on.
func (d *Document) indentAt(offset int) string {
	line := d.text[bytes.LastIndexByte(d.text[:offset], '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// step is what the document indents by: as its first member is.
func (d *Document) step() string {
	if obj, ok := d.root.Value.(*hujson.Object); ok && len(obj.Members) > 0 && d.startsLine(obj.Members[0].Name.StartOffset) {
		if indent := d.indentAt(obj.Members[0].Name.StartOffset); indent != "" {
			return indent
		}
	}
	return "  "
}

// render is a value as it is written at an indentation.
func (d *Document) render(value any, indent string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent(indent, d.step())
	if err := enc.Encode(value); err != nil {
		panic(err) // values are this program's
	}
	return strings.TrimRight(b.String(), "\n")
}

func compact(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // values are this program's
	}
	return text
}

// Equal reports whether two JSON texts are the same value.
func Equal(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return bytes.Equal(compact(x), compact(y))
}

// EqualTo reports whether a JSON text is a value.
func EqualTo(text json.RawMessage, value any) bool { return Equal(text, compact(value)) }
