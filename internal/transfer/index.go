package transfer

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
)

// Stamp is what the file system says of a file of this machine, and what changes whenever its
// content does. Times are in nanoseconds.
type Stamp struct {
	Size, Modified, Changed int64
	Inode                   uint64
}

// Indexed is a file whose content was read when it had that stamp.
type Indexed struct {
	Stamp
	Length int64 // of the content that a session gets, in bytes: see Tree.Clean
	Sum    Sum   // of that content
}

// Index has the files of a directory by name, so that those that have not changed need not be
// read again. A file that is not in it, or has another stamp, must be read.
type Index map[string]Indexed

// racy is how young a change may be for another one to leave the stamp as it is: the
// coarsest clock of a file system is that of FAT. It is git's racy-clean rule.
const racy = 2 * time.Second

// add adds a file that was read after it had been found with info. What has changed shortly
// before the reading began is left out: it may change again without a trace.
func (x Index) add(name string, info fs.FileInfo, e Entry, begun time.Time) {
	st, ok := stampOf(info)
	if !ok || e.Sum == nil || max(st.Modified, st.Changed) > begun.Add(-racy).UnixNano() {
		return
	}
	x[name] = Indexed{Stamp: st, Length: e.Size, Sum: *e.Sum}
}

// find returns the entry of a file, if it is as it was when it was read.
func (x Index) find(name string, info fs.FileInfo) (Entry, bool) {
	was, ok := x[name]
	if !ok {
		return Entry{}, false
	}
	if st, ok := stampOf(info); !ok || st != was.Stamp {
		return Entry{}, false
	}
	return Entry{Name: name, Kind: File, Mode: info.Mode().Perm(), Size: was.Length, Sum: &was.Sum}, true
}

// indexVersion is the first line of an encoded Index.
const indexVersion = "sandboxbash index 1\n"

// Append appends the encoded index to b.
func (x Index) Append(b []byte) []byte {
	b = append(b, indexVersion...)
	for _, name := range slices.Sorted(maps.Keys(x)) {
		f := x[name]
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
		for _, n := range []int64{f.Size, f.Modified, f.Changed, int64(f.Inode), f.Length} {
			b = binary.AppendUvarint(b, uint64(n))
		}
		b = append(b, f.Sum[:]...)
	}
	return b
}

// ParseIndex reads what Append has written.
func ParseIndex(b []byte) (Index, error) {
	text, ok := strings.CutPrefix(string(b), indexVersion)
	if !ok {
		return nil, errState
	}
	x := Index{}
	for d := (decoder{text}); d.rest != ""; {
		var f Indexed
		name := d.text(maxPath)
		for _, n := range []*int64{&f.Size, &f.Modified, &f.Changed} {
			*n = int64(d.number())
		}
		f.Inode, f.Length, f.Sum = d.number(), int64(d.number()), *d.sum()
		if d.rest == bad || name == "" {
			return nil, fmt.Errorf("after %d files: %w", len(x), errState)
		}
		x[name] = f
	}
	return x, nil
}
