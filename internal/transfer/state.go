package transfer

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// State is a tree as it once was on both sides: of each file what is needed to say
// whether it has changed since. The zero value knows of nothing. It is sorted by
// name.
type State []Entry

// NewState sorts entries. Of several with one name the last counts.
func NewState(entries []Entry) State {
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	out := entries[:0]
	for _, e := range entries {
		if n := len(out); n > 0 && out[n-1].Name == e.Name {
			out[n-1] = e
			continue
		}
		out = append(out, e)
	}
	return out
}

// Find returns the entry of that name.
func (s State) Find(name string) (Entry, bool) {
	i, ok := slices.BinarySearchFunc(s, name, func(e Entry, name string) int { return cmp.Compare(e.Name, name) })
	if !ok {
		return Entry{}, false
	}
	return s[i], true
}

// Below returns what is below a directory, by the names that it has from there. A
// file that is named itself is not below itself.
func (s State) Below(dir string) State {
	if dir == "." || dir == "" {
		return s
	}
	var out State
	for _, e := range s {
		if rest, ok := strings.CutPrefix(e.Name, dir+"/"); ok {
			e.Name = rest
			out = append(out, e)
		}
	}
	return out // its order is that of s: the names have one prefix
}

// Under is the opposite of Below.
func (s State) Under(dir string) State {
	if dir == "." || dir == "" {
		return s
	}
	out := slices.Clone(s)
	for i := range out {
		out[i].Name = path.Join(dir, out[i].Name)
	}
	return out
}

// stateVersion is the first line of an encoded State.
const stateVersion = "sandboxbash state 1\n"

// Append appends the encoded state to b.
func (s State) Append(b []byte) []byte {
	b = append(b, stateVersion...)
	for _, e := range s {
		b = e.append(b)
	}
	return b
}

// append appends one encoded entry to b.
func (e Entry) append(b []byte) []byte {
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	text(e.Name)
	b = append(b, byte(e.Kind))
	b = binary.AppendUvarint(b, uint64(e.Mode))
	switch e.Kind {
	case File:
		b = binary.AppendUvarint(b, uint64(e.Size))
		b = append(b, e.Sum[:]...)
	case Link:
		text(e.Target)
	case Dir, Other:
	}
	return b
}

// errState is returned for what is not an encoded state.
var errState = errors.New("not a state")

// ParseState reads what Append has written.
func ParseState(b []byte) (State, error) {
	s := State{} // one of an empty tree is known
	err := parseEntries(b, func(e Entry) error {
		if len(s) > 0 && s[len(s)-1].Name >= e.Name {
			return errState
		}
		s = append(s, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ParseManifest reads what Manifest has written, within Limits. The order of the entries
// is that of a walk, and their names are a session's.
func ParseManifest(b []byte, l Limits) (State, error) {
	body, ok := bytes.CutSuffix(b, []byte(manifestEnd))
	if !ok {
		return nil, fmt.Errorf("the list of files was cut: %w", io.ErrUnexpectedEOF)
	}
	var s State
	names := int64(0)
	err := parseEntries(body, func(e Entry) error {
		if len(s) >= l.Entries {
			return fmt.Errorf("it has more than %d files", l.Entries)
		}
		if names += int64(len(e.Name) + len(e.Target)); names > l.Names {
			return fmt.Errorf("the names of its files are more than %d bytes", l.Names)
		}
		if err := l.checkName(e); err != nil {
			return err
		}
		if e.Name == "." {
			return errState
		}
		s = append(s, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	sorted := NewState(s)
	if len(sorted) != len(s) {
		return nil, errors.New("a name comes twice")
	}
	return sorted, nil
}

// manifestEnd is what ends a manifest: no entry has an empty name.
const manifestEnd = "\x00"

func parseEntries(b []byte, take func(Entry) error) error {
	text, ok := strings.CutPrefix(string(b), stateVersion)
	if !ok {
		return errState
	}
	d := decoder{text}
	for d.rest != "" {
		e := Entry{Name: strings.Clone(d.text(maxPath)), Kind: Kind(d.byte()), Mode: fs.FileMode(d.number()).Perm()}
		switch e.Kind {
		case File:
			e.Size, e.Sum = int64(d.number()), d.sum()
		case Link:
			e.Target = strings.Clone(d.text(maxPath))
		case Dir:
		case Other:
			return errState
		default:
			return errState
		}
		if d.rest == bad || e.Size < 0 || path.Clean(e.Name) != e.Name || !filepath.IsLocal(filepath.FromSlash(e.Name)) {
			return errState
		}
		if err := take(e); err != nil {
			return err
		}
	}
	return nil
}

// bad is what is left of a text that has been read beyond its end: no encoded text
// has it.
const bad = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff bad"

type decoder struct{ rest string }

func (d *decoder) take(n uint64) string {
	if d.rest == bad || n > uint64(len(d.rest)) {
		d.rest = bad
		return ""
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != "" {
		return b[0]
	}
	return 0
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint([]byte(d.rest[:min(len(d.rest), binary.MaxVarintLen64)]))
	if size <= 0 {
		d.rest = bad
		return 0
	}
	d.take(uint64(size))
	return n
}

func (d *decoder) text(most uint64) string {
	n := d.number()
	if n > most {
		d.rest = bad
		return ""
	}
	return d.take(n)
}

func (d *decoder) sum() *Sum {
	var s Sum
	copy(s[:], d.take(uint64(len(s))))
	return &s
}
