package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
)

// Tree is what the verbs that take a whole workspace answer: see VerbClone, VerbSave and VerbRestore.
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
	Sum          Sum // of the stream that VerbSave has written, or VerbRestore has read
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

// maxChunk bounds the payload of one chunk in bytes.
const maxChunk = 1 << 20

// Chunks writes what VerbSave answers: chunks of the stream, each behind its length, an empty one, and a Tree. It is for a
// writer that has a report to add to a stream of which it does not know the length.
type Chunks struct{ W io.Writer }

// Write writes one or more chunks.
func (c Chunks) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		some := p[done:min(len(p), done+maxChunk)]
		if err := c.chunk(some); err != nil {
			return done, err
		}
		done += len(some)
	}
	return done, nil
}

func (c Chunks) chunk(p []byte) error {
	_, err := c.W.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p))))
	if err == nil && len(p) > 0 {
		_, err = c.W.Write(p)
	}
	return err
}

// End ends the stream with a report.
func (c Chunks) End(t *Tree) error {
	if err := c.chunk(nil); err != nil {
		return err
	}
	_, err := c.W.Write(t.Append(nil))
	return err
}

// ReadChunks copies the stream that Chunks has written to w, at most limit bytes, and returns the report.
func ReadChunks(r io.Reader, w io.Writer, limit int64) (Tree, error) {
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return Tree{}, cut(err)
		}
		n := int64(binary.BigEndian.Uint32(head[:]))
		if n == 0 {
			break
		}
		if n > maxChunk {
			return Tree{}, fmt.Errorf("%w: a chunk of %d bytes", ErrFrame, n)
		}
		if limit -= n; limit < 0 {
			return Tree{}, fmt.Errorf("%w: the stream is longer than it may be", ErrFrame)
		}
		if _, err := io.CopyN(w, r, n); err != nil {
			return Tree{}, cut(err)
		}
	}
	const most = 256 << 10 // bytes; 40 quoted names of 1 KiB are fewer
	var report bytes.Buffer
	n, err := io.Copy(&report, io.LimitReader(r, most+1))
	if err != nil {
		return Tree{}, err
	}
	if n > most {
		return Tree{}, fmt.Errorf("%w: the report is longer than %d bytes", ErrFrame, most)
	}
	return ParseTree(report.Bytes())
}

func cut(err error) error {
	if err == io.EOF { //nolint:errorlint // as io.ReadFull and io.CopyN return it
		return io.ErrUnexpectedEOF
	}
	return err
}
