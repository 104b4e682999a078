package transfer

import (
	"cmp"
	"encoding/binary"
	"errors"
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
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for _, e := range s {
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
	}
	return b
}

// errState is returned for what is not an encoded state.
var errState = errors.New("not a state")

// ParseState reads what Append has written.
func ParseState(b []byte) (State, error) {
	text, ok := strings.CutPrefix(string(b), stateVersion)
	if !ok {
		return nil, errState
	}
	d := decoder{text}
	var s State
	for d.rest != "" {
		e := Entry{Name: d.text(maxPath), Kind: Kind(d.byte()), Mode: fs.FileMode(d.number())}
		switch e.Kind {
		case File:
			e.Size, e.Sum = int64(d.number()), d.sum()
		case Link:
			e.Target = d.text(maxPath)
		case Dir:
		case Other:
			return nil, errState
		default:
			return nil, errState
		}
		if d.rest == bad || len(s) > 0 && s[len(s)-1].Name >= e.Name || !filepath.IsLocal(filepath.FromSlash(e.Name)) {
			return nil, errState
		}
		s = append(s, e)
	}
	return s, nil
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
