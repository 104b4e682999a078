package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
)

// Tree is what is said of a whole workspace that was read: see VerbClone.
type Tree struct {
	Entries int64 // files, directories and all others, but for the top itself
	Bytes   int64 // of all files together, holes included
	Shared  int64 // bytes of files that share their blocks with their originals
	// LeftOut are entries that are never taken, such as sockets, each with its kind, and LeftOutCount is how many there are:
	// at most MaxTreeNames of them are named.
	LeftOut      []string
	LeftOutCount int64
	// Changed are entries that have changed while they were read, or may have: see LeftOut.
	Changed      []string
	ChangedCount int64
	Sum          Sum // of the stream that was written or read, if there was one
}

// MaxTreeNames is how many names a list of a Tree has at most.
const MaxTreeNames = 20

// Leave adds an entry that is left out.
func (t *Tree) Leave(what string) {
	if t.LeftOutCount++; t.LeftOutCount <= MaxTreeNames {
		t.LeftOut = append(t.LeftOut, shortened(what))
	}
}

// Change adds an entry that has changed.
func (t *Tree) Change(name string) {
	if t.ChangedCount++; t.ChangedCount <= MaxTreeNames {
		t.Changed = append(t.Changed, shortened(name))
	}
}

// shortened returns the end of a long name.
func shortened(name string) string {
	const most = 1 << 10 // bytes
	if len(name) <= most {
		return name
	}
	return "…" + name[len(name)-most:]
}

// treeVersion begins the answer.
const treeVersion = "tree 1"

// Append appends the answer to dst: a line of numbers, and one for each name.
func (t *Tree) Append(dst []byte) []byte {
	dst = fmt.Appendf(dst, "%s %d %d %d %d %d %x\n", treeVersion, t.Entries, t.Bytes, t.Shared, t.LeftOutCount, t.ChangedCount, t.Sum[:])
	for _, name := range t.LeftOut {
		dst = append(strconv.AppendQuote(append(dst, 'l'), name), '\n')
	}
	for _, name := range t.Changed {
		dst = append(strconv.AppendQuote(append(dst, 'c'), name), '\n')
	}
	return dst
}

// ParseTree reads an answer.
func ParseTree(b []byte) (t Tree, err error) {
	first := true
	for line := range textLines(b) {
		if first {
			var sum string
			first = false
			if _, err := fmt.Sscanf(line, treeVersion+" %d %d %d %d %d %s", &t.Entries, &t.Bytes, &t.Shared, &t.LeftOutCount, &t.ChangedCount, &sum); err != nil {
				return Tree{}, fmt.Errorf("%w: tree %.80q: %w", ErrFrame, line, err)
			}
			if n, err := hex.Decode(t.Sum[:], []byte(sum[:min(len(sum), 2*sha256.Size)])); err != nil || n != sha256.Size || len(sum) != 2*sha256.Size {
				return Tree{}, fmt.Errorf("%w: tree %.80q: bad sum", ErrFrame, line)
			}
			if min(t.Entries, t.Bytes, t.Shared, t.LeftOutCount, t.ChangedCount) < 0 {
				return Tree{}, fmt.Errorf("%w: tree %.80q: a number is negative", ErrFrame, line)
			}
			continue
		}
		name, err := strconv.Unquote(line[min(1, len(line)):])
		if err != nil {
			return Tree{}, fmt.Errorf("%w: tree name %.80q: %w", ErrFrame, line, err)
		}
		list := &t.LeftOut
		if line[0] == 'c' {
			list = &t.Changed
		} else if line[0] != 'l' {
			return Tree{}, fmt.Errorf("%w: tree name %.80q", ErrFrame, line)
		}
		if *list = append(*list, name); len(*list) > MaxTreeNames {
			return Tree{}, fmt.Errorf("%w: tree: more than %d names", ErrFrame, MaxTreeNames)
		}
	}
	if first {
		return Tree{}, fmt.Errorf("%w: tree: no answer", ErrFrame)
	}
	return t, nil
}
