package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Set gives a lasting setting a value in the configuration file that Path names, which is
// created if it does not exist, for its user alone. A list takes any number of texts, any
// other setting takes one. The file's comments and its other lines stay as they are.
//
// The value is checked first, as Load does. It is an error if the setting is unknown, if the
// file belongs to another user, or if its form is one that cannot be edited.
func Set(src Source, key string, texts ...string) error {
	s, ok := Lookup(key)
	if !ok || s.PerCall {
		return UnknownKey(key)
	}
	many := s.Kind == List || s.Kind == Lines
	if len(texts) != 1 && !many {
		return &Error{Key: key, Origin: "config set", Text: fmt.Sprintf("it takes one value, and was given %d", len(texts))}
	}
	path, err := Path(src)
	if err != nil {
		return err
	}
	if path == "" {
		return errors.New("there is no configuration file, because the user's configuration directory is not known")
	}
	value, text := any(texts), flow(texts)
	if !many {
		value, text = texts[0], scalar(s.Kind, texts[0])
	}
	if err := check(src, s, value); err != nil {
		return err
	}
	err = editFile(path, func(old []byte) ([]byte, error) { return withValue(old, s, text) })
	if err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	return nil
}

// UnknownKey returns the error for a key that no lasting setting has.
func UnknownKey(key string) *UnknownKeyError {
	bad := &UnknownKeyError{Key: key}
	if s, ok := Lookup(key); ok {
		bad.Flag = s.Flag
		return bad
	}
	var keys []string
	for s := range Settings() {
		keys = append(keys, s.Key)
	}
	bad.Nearest = nearest(key, keys)
	return bad
}

// check reports what is wrong with a value on its own.
func check(src Source, s Setting, value any) error {
	src.Flags = nil
	r := newReader(src)
	c := &Config{}
	all := settingsOf(c)
	for _, s := range all {
		if s.Default != "" {
			r.v.SetDefault(stored(s.Key), s.Default)
		}
	}
	r.set(s.Key, value, "config set")
	_, err := r.build(c, all)
	return err
}

// plainText matches a text that YAML reads as that text without quotes, in a list too, if it
// is not one of YAML's words or numbers.
var plainText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z_./][A-Za-z0-9_./@+:=-]*$`)
})

func quotedText(text string) string {
	var read any
	if plainText().MatchString(text) && yaml.Unmarshal([]byte("["+text+"]"), &read) == nil && reflect.DeepEqual(read, []any{text}) {
		return text
	}
	return strconv.Quote(text)
}

// scalar writes a single value.
func scalar(kind Kind, text string) string {
	switch kind {
	case Duration, Size, Count, Number, Switch:
		return text // it was checked, and has only letters, digits and dots
	default:
		return quotedText(text)
	}
}

// flow writes a list in brackets.
func flow(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quotedText(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// errSetByHand says that the file has a form that Set does not change.
var errSetByHand = errors.New("its form is not one that can be edited: write the setting by hand")

// withValue returns the text of a file in which a setting has a value, as YAML. Lines are
// edited as text, as in withAllow, and what came of it is read again.
func withValue(old []byte, s Setting, text string) ([]byte, error) {
	var was map[string]any
	var doc yaml.Node
	if err := errors.Join(yaml.Unmarshal(old, &was), yaml.Unmarshal(old, &doc)); err != nil {
		return nil, err
	}
	keys := strings.Split(s.Key, ".")
	if _, isTable := was[networkKey].(map[string]any); isTable && s.Key == networkKey {
		keys = strings.Split(networkModeKey, ".")
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return nil, err
	}
	want, ok := withKey(was, keys, value)
	if !ok || strings.ContainsAny(strings.ReplaceAll(string(old), "\r\n", "\n"), "\r\u0085\u2028\u2029") {
		return nil, errSetByHand
	}
	e := &fileEdit{lines: strings.SplitAfter(string(old), "\n"), end: "\n"}
	if bytes.Contains(old, []byte("\r\n")) {
		e.end = "\r\n"
	}
	if !e.set(&doc, keys, text) {
		return nil, errSetByHand
	}
	edited := []byte(strings.Join(e.lines, ""))
	var now map[string]any
	if err := yaml.Unmarshal(edited, &now); err != nil || !reflect.DeepEqual(now, want) {
		return nil, errSetByHand
	}
	return edited, nil
}

// withKey returns a table with a value below some keys. It fails where a key on the way is
// not a table.
func withKey(was map[string]any, keys []string, value any) (map[string]any, bool) {
	now := map[string]any{}
	maps.Copy(now, was)
	name := keys[0]
	for k := range was { // keys are alike in any case
		if strings.EqualFold(k, name) {
			name = k
		}
	}
	if len(keys) == 1 {
		now[name] = value
		return now, true
	}
	inner, ok := now[name].(map[string]any)
	if mode, isMode := now[name].(string); isMode && name == networkKey {
		inner, ok = map[string]any{"mode": mode}, true
	}
	if !ok && now[name] != nil {
		return nil, false
	}
	now[name], ok = withKey(inner, keys[1:], value)
	return now, ok
}

// set reports whether it knows how to write a value below some keys.
func (e *fileEdit) set(doc *yaml.Node, keys []string, text string) bool {
	if len(doc.Content) == 0 { // comments at most
		e.appendLines(0, keys, text)
		return true
	}
	table := doc.Content[0]
	for i, name := range keys {
		if table.Kind != yaml.MappingNode || table.Style&yaml.FlowStyle != 0 || len(table.Content) == 0 {
			return false
		}
		key, value := entry(table, name)
		switch {
		case key == nil && i == 0:
			e.appendLines(table.Content[0].Column-1, keys, text)
			return true
		case key == nil:
			return e.insert(lastLine(table), e.nested(table.Content[0].Column-1, keys[i:], text))
		case i == len(keys)-1:
			return e.replace(key, value, text)
		case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
			return e.insert(key.Line, e.nested(key.Column+1, keys[i+1:], text))
		case value.Kind == yaml.ScalarNode && i == 0 && name == networkKey:
			return e.tabulate(key, value, e.nested(key.Column+1, keys[1:], text))
		}
		table = value
	}
	return false
}

// lastLine returns the last line of a node, counted from 1.
func lastLine(n *yaml.Node) int {
	last := n.Line
	for _, child := range n.Content {
		last = max(last, lastLine(child))
	}
	return last
}

// nested writes keys, each below the one before, and a value.
func (e *fileEdit) nested(indent int, keys []string, text string) string {
	var b strings.Builder
	for i, key := range keys[:len(keys)-1] {
		b.WriteString(e.line(indent+2*i, key+":"))
	}
	n := len(keys) - 1
	b.WriteString(e.line(indent+2*n, keys[n]+": "+text))
	return b.String()
}

// appendLines adds keys and a value at the end.
func (e *fileEdit) appendLines(indent int, keys []string, text string) {
	last := len(e.lines) - 1
	if line := e.lines[last]; line != "" {
		e.lines[last] = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r") + e.end
	}
	e.lines = append(e.lines, e.nested(indent, keys, text))
}

// replace replaces the value of a key.
func (e *fileEdit) replace(key, value *yaml.Node, text string) bool {
	row := key.Line - 1
	line := e.lines[row]
	after := strings.IndexByte(line[key.Column-1:], ':')
	if after < 0 {
		return false
	}
	after += key.Column // behind the colon
	comment := value.LineComment
	if comment == "" {
		comment = key.LineComment
	}
	if comment != "" {
		comment = " " + comment
	}
	if last := lastLine(value); last > key.Line {
		if value.Kind == yaml.ScalarNode || hasComment(value) {
			return false
		}
		e.lines = slices.Delete(e.lines, row+1, last)
	}
	e.lines[row] = line[:after] + " " + text + comment + e.end
	return true
}

// hasComment reports whether there are comments within a value, which would be lost with it.
func hasComment(n *yaml.Node) bool {
	for _, child := range n.Content {
		if child.HeadComment+child.LineComment+child.FootComment != "" || hasComment(child) {
			return true
		}
	}
	return false
}
