package clientfile

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// A Table is a table of a TOML text that this program writes, between two lines that mark it.
type Table struct {
	Mark  string // in both lines
	Name  []string
	Lines []string // KEY = VALUE
}

func (t Table) begin() string { return "# " + t.Mark + ": begin" }
func (t Table) end() string   { return "# " + t.Mark + ": end" }

// ParseTOML reads a text. The error says where it is not understood.
func ParseTOML(text []byte) (map[string]any, error) {
	all := map[string]any{}
	err := toml.Unmarshal(text, &all)
	if d, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := d.Position()
		return nil, &PositionError{line, column, d.Error()}
	}
	return all, err
}

// Lookup returns what is at a path of a TOML text.
func Lookup(all map[string]any, path ...string) (value any, ok bool) {
	value = all
	for _, name := range path {
		table, isTable := value.(map[string]any)
		if !isTable {
			return nil, false
		}
		if value, ok = table[name]; !ok {
			return nil, false
		}
	}
	return value, true
}

// SetTable writes a table, in the place of the one that has its mark or at the end. A table of that
// name without the mark is the user's: an error says where it is.
func SetTable(text []byte, t Table) ([]byte, error) {
	before, err := RemoveTable(text, t)
	if err != nil {
		return nil, err
	}
	all, err := ParseTOML(before)
	if err != nil {
		return nil, err
	}
	if _, ok := Lookup(all, t.Name...); ok {
		return nil, at(text, max(0, bytes.Index(text, []byte(t.Name[len(t.Name)-1]))), "%s is there, and was not written by this program", strings.Join(t.Name, "."))
	}
	block := t.begin() + "\n[" + strings.Join(t.Name, ".") + "]\n" + strings.Join(t.Lines, "\n") + "\n" + t.end() + "\n"
	if from, to, ok := marked(text, t); ok {
		return checked(slices.Concat(text[:from], []byte(block), text[to:]))
	}
	gap := ""
	if len(text) > 0 {
		gap = "\n"
		if !bytes.HasSuffix(text, []byte("\n")) {
			gap = "\n\n"
		}
	}
	return checked(slices.Concat(text, []byte(gap+block)))
}

// RemoveTable removes the table that has the mark.
func RemoveTable(text []byte, t Table) ([]byte, error) {
	if _, err := ParseTOML(text); err != nil {
		return nil, err
	}
	from, to, ok := marked(text, t)
	if !ok {
		return text, nil
	}
	rest := slices.Concat(text[:from], text[to:])
	if to == len(text) && bytes.HasSuffix(rest, []byte("\n\n")) {
		rest = rest[:len(rest)-1] // the empty line that stood in front of it
	}
	return checked(rest)
}

// marked returns the range of whole lines from the mark's first to its last.
func marked(text []byte, t Table) (from, to int, ok bool) {
	from = lineOf(text, t.begin())
	if from < 0 {
		return 0, 0, false
	}
	end := lineOf(text[from:], t.end())
	if end < 0 {
		return 0, 0, false
	}
	to = from + end + len(t.end())
	if to < len(text) && text[to] == '\n' {
		to++
	}
	return from, to, true
}

// lineOf returns the offset of a whole line, -1 if there is none.
func lineOf(text []byte, line string) int {
	for offset := 0; offset < len(text); {
		rest := text[offset:]
		n := bytes.IndexByte(rest, '\n')
		if n < 0 {
			n = len(rest)
		}
		if string(bytes.TrimRight(rest[:n], "\r")) == line {
			return offset
		}
		offset += n + 1
	}
	return -1
}

// SetLine puts a line KEY = VALUE with a mark behind it into a table, which is added at the end if there
// is none. A key that is there stays as it is: same reports whether it has that value.
func SetLine(text []byte, table, key string, value any, mark string) (next []byte, same bool, err error) {
	all, err := ParseTOML(text)
	if err != nil {
		return nil, false, err
	}
	if got, ok := Lookup(all, table, key); ok {
		return text, reflect.DeepEqual(got, value), nil
	}
	line := fmt.Sprintf("%s = %v # %s", key, value, mark)
	header := "[" + table + "]"
	for offset := 0; offset < len(text); {
		n := bytes.IndexByte(text[offset:], '\n')
		if n < 0 {
			n = len(text) - offset
		}
		words, _, _ := strings.Cut(string(text[offset:offset+n]), "#")
		if strings.TrimSpace(words) == header {
			behind := offset + n
			next, err = checked(slices.Concat(text[:behind], []byte("\n"+line), text[behind:]))
			return next, false, err
		}
		offset += n + 1
	}
	if _, ok := all[table]; ok {
		return nil, false, at(text, max(0, bytes.Index(text, []byte(table))), "%s is not a table with a line [%s] of its own: put %s = %v there by hand", table, table, key, value)
	}
	gap := ""
	if len(text) > 0 {
		gap = "\n"
		if !bytes.HasSuffix(text, []byte("\n")) {
			gap = "\n\n"
		}
	}
	next, err = checked(slices.Concat(text, []byte(gap+header+" # "+mark+"\n"+line+"\n")))
	return next, false, err
}

// RemoveLines removes the lines that end with a mark.
func RemoveLines(text []byte, mark string) ([]byte, error) {
	if _, err := ParseTOML(text); err != nil {
		return nil, err
	}
	var kept [][]byte
	header := -1 // a table of this program's, which may hold what the user has added
	for _, line := range bytes.SplitAfter(text, []byte("\n")) {
		bare := strings.TrimSpace(string(line))
		switch {
		case strings.HasSuffix(bare, "# "+mark) && strings.HasPrefix(bare, "["):
			header = len(kept)
			kept = append(kept, line)
		case strings.HasSuffix(bare, "# "+mark):
		default:
			if header >= 0 && bare != "" && !strings.HasPrefix(bare, "[") {
				kept[header] = []byte(strings.TrimSuffix(strings.TrimRight(string(kept[header]), "\n"), " # "+mark) + "\n")
				header = -1
			}
			if header >= 0 && strings.HasPrefix(bare, "[") {
				kept = slices.Delete(kept, header, header+1)
				header = -1
			}
			kept = append(kept, line)
		}
	}
	if header >= 0 {
		kept = slices.Delete(kept, header, header+1)
		for header > 0 && header == len(kept)-1 && len(bytes.TrimSpace(kept[header-1])) == 0 {
			kept = slices.Delete(kept, header-1, header)
			header--
		}
	}
	out := bytes.Join(kept, nil)
	if !bytes.Equal(out, text) && bytes.HasSuffix(out, []byte("\n\n")) {
		out = out[:len(out)-1]
	}
	return checked(out)
}

// checked returns a text that was changed, if it is still TOML.
func checked(text []byte) ([]byte, error) {
	if _, err := ParseTOML(text); err != nil {
		return nil, fmt.Errorf("the change would break it, which is a mistake in this program: %w", err)
	}
	return text, nil
}
