package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sandboxbash/sandboxbash/internal/filelock"
)

// errByHand says that the file has a form that AddAllow does not change.
var errByHand = errors.New("its form is not one that can be added to: add the rule to network.allow by hand")

// AddAllow adds a rule to network.allow of a configuration file, as one line of text: the rest of the file,
// its comments and its mode do not change. A file that does not exist is created, for its user alone.
// AddAllow returns an error if the file belongs to another user, or has a form that it cannot add to. Calls
// of several processes wait for each other.
func AddAllow(path, rule string) error {
	if err := addAllow(path, rule); err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	return nil
}

func addAllow(path, rule string) error {
	return editFile(path, func(old []byte) ([]byte, error) { return withAllow(old, rule) })
}

// editFile replaces the text of a file of this user's, which is created if it does not exist. Calls of
// several processes wait for each other.
func editFile(path string, edit func(old []byte) ([]byte, error)) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link to the file stays one
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	old, mode, err := readOwn(path)
	if err != nil {
		return err
	}
	text, err := edit(old)
	if err != nil || bytes.Equal(old, text) {
		return err
	}
	if len(text) > maxFile {
		return fmt.Errorf("it would be longer than %d bytes", maxFile)
	}
	return replaceFile(path, text, mode)
}

// lockFile waits for the lock on a file, which it makes. The function that it returns gives the lock up and
// leaves the file: another process may wait for it.
func lockFile(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // closing it unlocks it
}

// readOwn reads a file of this user's. One that does not exist is empty, and private.
func readOwn(path string) ([]byte, fs.FileMode, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0o600, nil
	case err != nil:
		return nil, 0, err
	case !info.Mode().IsRegular():
		return nil, 0, errors.New("it is not a regular file")
	case info.Size() > maxFile:
		return nil, 0, fmt.Errorf("it is longer than %d bytes", maxFile)
	case !ownFile(info):
		return nil, 0, errors.New("it belongs to another user")
	case info.Mode().Perm()&0o200 == 0:
		return nil, 0, errors.New("it is not for writing")
	}
	text, err := os.ReadFile(path)
	return text, info.Mode().Perm(), err
}

// replaceFile replaces a file in one step.
func replaceFile(path string, text []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".sandboxbash-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// withAllow returns the text of a file with a rule added to network.allow. Lines are added as text, because
// a YAML writer would change the form of the others. What came of it is read again: it must be what the file
// was, and the rule.
func withAllow(old []byte, rule string) ([]byte, error) {
	var was map[string]any
	var doc yaml.Node
	if err := errors.Join(yaml.Unmarshal(old, &was), yaml.Unmarshal(old, &doc)); err != nil {
		return nil, err
	}
	want, have, err := wanted(was, rule)
	if err != nil || have {
		return old, err
	}
	if strings.ContainsAny(strings.ReplaceAll(string(old), "\r\n", "\n"), "\r\u0085\u2028\u2029") {
		return nil, errByHand // YAML counts lines by these too
	}
	e := &fileEdit{lines: strings.SplitAfter(string(old), "\n"), rule: strconv.Quote(rule), end: "\n"}
	if bytes.Contains(old, []byte("\r\n")) {
		e.end = "\r\n"
	}
	if !e.add(&doc) {
		return nil, errByHand
	}
	text := []byte(strings.Join(e.lines, ""))
	var now map[string]any
	if err := yaml.Unmarshal(text, &now); err != nil || !reflect.DeepEqual(now, want) {
		return nil, errByHand
	}
	return text, nil
}

// wanted returns what the file holds once the rule is in it, and whether it is already.
func wanted(was map[string]any, rule string) (want map[string]any, have bool, err error) {
	want = map[string]any{}
	maps.Copy(want, was)
	table := map[string]any{}
	switch value := was[networkKey].(type) {
	case nil:
	case map[string]any:
		maps.Copy(table, value)
	case string:
		table["mode"] = value
	default:
		return nil, false, errByHand
	}
	list, ok := table["allow"].([]any)
	if !ok && table["allow"] != nil {
		return nil, false, errByHand
	}
	if slices.Contains(list, any(rule)) {
		return was, true, nil
	}
	table["allow"] = append(slices.Clone(list), rule)
	want[networkKey] = table
	return want, false, nil
}

// fileEdit adds a rule to the lines of a file.
type fileEdit struct {
	lines []string // with their ends
	rule  string   // quoted
	end   string   // of a line
}

// add reports whether it knows how.
func (e *fileEdit) add(doc *yaml.Node) bool {
	if len(doc.Content) == 0 { // comments at most
		return e.appendTable()
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode || root.Style&yaml.FlowStyle != 0 {
		return false
	}
	key, table := entry(root, networkKey)
	switch {
	case key == nil:
		return root.Content[0].Column == 1 && e.appendTable()
	case table.Kind == yaml.ScalarNode && table.Tag != "!!null":
		return e.tabulate(key, table, e.line(key.Column+1, "allow:")+e.line(key.Column+3, "- "+e.rule))
	case table.Kind == yaml.ScalarNode:
		return e.insert(key.Line, e.line(key.Column+1, "allow:")+e.line(key.Column+3, "- "+e.rule))
	case table.Kind != yaml.MappingNode:
		return false
	}
	allowKey, list := entry(table, "allow")
	switch {
	case allowKey == nil && table.Style&yaml.FlowStyle != 0:
		return e.intoFlow(table, "allow: ["+e.rule+"]")
	case allowKey == nil:
		column := table.Content[0].Column - 1
		return e.insert(key.Line, e.line(column, "allow:")+e.line(column+2, "- "+e.rule))
	case list.Kind == yaml.SequenceNode && list.Style&yaml.FlowStyle != 0:
		return e.intoFlow(list, e.rule)
	case list.Kind == yaml.SequenceNode && len(list.Content) > 0:
		last := list.Content[len(list.Content)-1]
		dash := strings.Index(e.lines[last.Line-1], "-")
		return dash >= 0 && e.insert(last.Line, e.line(dash, "- "+e.rule))
	}
	return list.Tag == "!!null" && e.insert(allowKey.Line, e.line(allowKey.Column+1, "- "+e.rule))
}

// entry returns a key of a mapping and its value. Keys are alike in any case, as for viper.
func entry(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if strings.EqualFold(mapping.Content[i].Value, name) {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

func (e *fileEdit) line(indent int, text string) string {
	return strings.Repeat(" ", indent) + text + e.end
}

// insert puts text behind a line, counted from 1.
func (e *fileEdit) insert(behind int, text string) bool {
	if at := e.lines[behind-1]; !strings.HasSuffix(at, "\n") {
		e.lines[behind-1] = at + e.end
	}
	e.lines = slices.Insert(e.lines, behind, text)
	return true
}

// appendTable adds the whole table at the end.
func (e *fileEdit) appendTable() bool {
	last := len(e.lines) - 1
	if text := e.lines[last]; text != "" {
		e.lines[last] = text + e.end
	}
	e.lines = append(e.lines, e.line(0, networkKey+":")+e.line(2, "allow:")+e.line(4, "- "+e.rule))
	return true
}

// tabulate makes `network: none` the table that it is short for, with more lines in it.
func (e *fileEdit) tabulate(key, mode *yaml.Node, more string) bool {
	line := e.lines[key.Line-1]
	if mode.Line != key.Line || mode.Style != 0 || !strings.HasPrefix(line[mode.Column-1:], mode.Value) {
		return false
	}
	e.lines[key.Line-1] = strings.TrimRight(line[:mode.Column-1], " ") + line[mode.Column-1+len(mode.Value):]
	indent := key.Column + 1
	return e.insert(key.Line, e.line(indent, "mode: "+mode.Value)+more)
}

// intoFlow adds an element to a list or a table in brackets.
func (e *fileEdit) intoFlow(node *yaml.Node, text string) bool {
	row, column, quote, depth := node.Line-1, node.Column-1, byte(0), 0
	for ; row < len(e.lines); row, column = row+1, 0 {
		for line := e.lines[row]; column < len(line); column++ {
			switch c := line[column]; {
			case quote != 0:
				if c == '\\' && quote == '"' {
					column++
				} else if c == quote {
					quote = 0
				}
			case c == '"' || c == '\'':
				quote = c
			case c == '#' && (column == 0 || line[column-1] == ' '):
				column = len(line)
			case c == '[' || c == '{':
				depth++
			case c == ']' || c == '}':
				if depth--; depth > 0 {
					continue
				}
				before := strings.TrimRight(line[:column], " ")
				if len(node.Content) > 0 && !strings.HasSuffix(before, ",") {
					text = ", " + text
				}
				e.lines[row] = before + text + line[column:]
				return true
			}
		}
	}
	return false
}
