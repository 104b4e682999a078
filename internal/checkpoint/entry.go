// Package checkpoint keeps former states of a session's workspace, and brings them back. It is part of
// the runner: it works next to hostile code, as uid 0, on files that belong to the session's user.
//
// # The store
//
// A store is a directory of uid 0 and mode 0700, in the volume of the session's jobs:
//
//	lock       locked by whatever reads or changes the store, or changes the workspace for it
//	state      a wire.CheckpointState: all that is known of the checkpoints; replaced as a whole
//	head.N     the manifest: each path of the newest recorded state, sorted
//	delta.N    what step N of the log has changed: each path as it was and as it is
//	objects/   contents of files, named by their SHA-256
//	pending    the commands that have ended since the last checkpoint
//	journal    a restore that is under way: see restore.go
//	automatic  is there if a checkpoint is wanted after each command
//
// A former state is the manifest with the deltas since then taken back. So a checkpoint costs what it has
// changed, the oldest ones can be dropped by removing a file, and a change of the workspace that
// brings a former state back is a step of the log like any other.
//
// The rename of state is what makes a step count: a file that no state names is a remainder.
//
// # Memory
//
// What runs in a session counts against its limit of memory. The manifest of 100,000 files has some 12 MB, and
// is on the disk: a scan reads the old one and writes the new one from front to back, and holds the names of
// the directories that it is in, and files that have several names. What changed is held in memory
// when it is restored, and only then.
//
// # Rights
//
// Threads that look at the workspace have the session's user as their user for files (setfsuid(2)), and
// all others are uid 0. The process itself stays uid 0 and is not dumpable. So in profile strict no command
// can stop, trace or read it, it can do to the workspace what a command could, and no command can reach the store.
package checkpoint

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// kind is what an entry is.
type kind byte

const (
	none  kind = 0 // nothing is there
	file  kind = 'f'
	dir   kind = 'd'
	link  kind = 'l'
	other kind = 'o' // a socket, a FIFO or a device
)

// gap says why something of an entry is not kept.
type gap byte

const (
	leftNone    gap = 0
	leftUnread  gap = 'r' // its owner may not read it
	leftLarge   gap = 'z' // it is larger than settings.MaxFile
	leftKind    gap = 'k' // a socket, a FIFO or a device
	leftRule    gap = 'x' // a rule leaves it out
	leftMount   gap = 'm' // something else is mounted there
	leftForeign gap = 'u' // it belongs to another user
)

var leftWords = map[gap]string{
	leftUnread:  "the session's user may not read it",
	leftLarge:   "larger than checkpoint.max-file",
	leftKind:    "a socket, a FIFO or a device",
	leftRule:    "left out by a rule",
	leftMount:   "something else is mounted there",
	leftForeign: "it belongs to another user",
}

// covered reports whether all of an entry with this reason is kept.
func (l gap) covered() bool { return l == leftNone }

const sumSize = 32

// sum is the SHA-256 of a content.
type sum [sumSize]byte

// entry is what is at a path, and the stamp by which a later scan finds that it has not changed.
type entry struct {
	name   string // relative, with slashes; "" is the directory itself
	kind   kind
	left   gap
	mode   uint32 // of chmod(2)
	size   int64  // of a file
	mtime  int64  // nanoseconds
	sum    sum    // of a file
	target string // of a link
	xattrs string // those of the user: see packXattrs
	leader string // of a file with several names: the first of them; "" for that one itself

	stamp stamp // not part of the state
}

// stamp is what changes with every change of a file.
type stamp struct {
	ctime int64 // nanoseconds
	ino   uint64
	racy  bool // it was changed so recently that another change could have the same ctime
}

// same reports whether two entries of one path are alike in all that a restore brings back.
func (e *entry) same(f *entry) bool {
	if e.kind != f.kind || e.left != f.left {
		return false
	}
	switch e.left {
	case leftNone, leftUnread, leftLarge:
	default:
		return true // nothing else of it is known
	}
	return e.mode == f.mode && e.mtime == f.mtime && e.target == f.target && e.xattrs == f.xattrs && e.leader == f.leader && e.sameContent(f)
}

// known reports whether the content of a file is kept. That of one that may not be read any more is, if it has not changed
// since it could be.
func (e *entry) known() bool { return e.kind == file && e.sum != sum{} }

// aside reports whether an entry is nothing that a restore would make or remove.
func (e *entry) aside() bool {
	switch e.left {
	case leftRule, leftMount, leftKind, leftForeign:
		return true
	case leftNone, leftUnread, leftLarge:
	}
	return e.kind == none
}

func (e *entry) sameContent(f *entry) bool { return e.size == f.size && e.sum == f.sum }

// append appends the entry to b; with its stamp if it is one of a manifest.
func (e *entry) append(b []byte, stamped bool) []byte {
	b = binary.AppendUvarint(b, uint64(len(e.name)))
	b = append(b, e.name...)
	b = append(b, byte(e.kind), byte(e.left))
	b = binary.AppendUvarint(b, uint64(e.mode))
	b = binary.AppendVarint(b, e.mtime)
	switch e.kind {
	case file:
		b = binary.AppendVarint(b, e.size)
		b = append(b, e.sum[:]...)
		b = appendString(b, e.leader)
	case link:
		b = appendString(b, e.target)
	case dir, other, none:
	}
	b = appendString(b, e.xattrs)
	if !stamped {
		return b
	}
	b = binary.AppendVarint(b, e.stamp.ctime)
	b = binary.AppendUvarint(b, e.stamp.ino)
	return append(b, b2i(e.stamp.racy))
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// errStore is the error of a store whose files are not what this package has written.
var errStore = errors.New("the store of the checkpoints is damaged")

// fields takes fields off a record.
type fields struct {
	b   []byte
	err error
}

func (f *fields) fail() {
	f.err, f.b = errStore, nil
}

func (f *fields) uint() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.fail()
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) int() int64 {
	v, n := binary.Varint(f.b)
	if n <= 0 {
		f.fail()
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) byte() byte {
	if len(f.b) == 0 {
		f.fail()
		return 0
	}
	v := f.b[0]
	f.b = f.b[1:]
	return v
}

func (f *fields) bytes(n uint64) []byte {
	if n > uint64(len(f.b)) {
		f.fail()
		return nil
	}
	v := f.b[:n]
	f.b = f.b[n:]
	return v
}

func (f *fields) string() string { return string(f.bytes(f.uint())) }

func (f *fields) entry(stamped bool) (e entry) {
	e.name = f.string()
	e.kind, e.left = kind(f.byte()), gap(f.byte())
	e.mode = uint32(f.uint())
	e.mtime = f.int()
	switch e.kind {
	case file:
		e.size = f.int()
		copy(e.sum[:], f.bytes(sumSize))
		e.leader = f.string()
	case link:
		e.target = f.string()
	case dir, other, none:
	default:
		f.fail()
	}
	e.xattrs = f.string()
	if stamped {
		e.stamp = stamp{ctime: f.int(), ino: f.uint(), racy: f.byte() == 1}
	}
	return e
}

// Records are a length and that many bytes. A record of no length ends a file: one without it was cut.

const maxRecord = 1 << 20 // bytes; a path, a target and attributes are less

// recordReader reads records.
type recordReader struct {
	src *bufio.Reader
	buf []byte
	off int64 // of the record that next returns next
	end bool
}

func newRecordReader(r io.Reader) *recordReader {
	return &recordReader{src: bufio.NewReaderSize(r, 64<<10)}
}

// next returns the next record, nil at the end. It is valid until the following call.
func (r *recordReader) next() ([]byte, error) {
	if r.end {
		return nil, nil
	}
	n, err := binary.ReadUvarint(r.src)
	if err != nil || n > maxRecord {
		return nil, errStore
	}
	if n == 0 {
		r.end = true
		return nil, nil
	}
	if uint64(cap(r.buf)) < n {
		r.buf = make([]byte, 2*n)
	}
	b := r.buf[:n]
	if _, err := io.ReadFull(r.src, b); err != nil {
		return nil, errStore
	}
	r.off += int64(uvarintLen(n)) + int64(n)
	return b, nil
}

func uvarintLen(n uint64) (size int) {
	for size = 1; n >= 0x80; size++ {
		n >>= 7
	}
	return size
}

// recordWriter writes records.
type recordWriter struct {
	dst *bufio.Writer
	buf []byte
}

func newRecordWriter(w io.Writer) *recordWriter {
	return &recordWriter{dst: bufio.NewWriterSize(w, 64<<10)}
}

func (w *recordWriter) write(record []byte) error {
	w.buf = binary.AppendUvarint(w.buf[:0], uint64(len(record)))
	if _, err := w.dst.Write(w.buf); err != nil {
		return err
	}
	_, err := w.dst.Write(record)
	return err
}

func (w *recordWriter) close() error {
	if err := w.dst.WriteByte(0); err != nil {
		return err
	}
	return w.dst.Flush()
}

// before reports whether the walk of a tree comes to a before b: a directory comes before what is in it, and that
// before what stands behind the directory.
func before(a, b string) bool {
	n := min(len(a), len(b))
	for i := range n {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x == '/' {
			return true
		}
		return y != '/' && x < y
	}
	return len(a) < len(b)
}

// under reports whether a path is another or lies below it.
func under(name, top string) bool {
	return top == "" || name == top || strings.HasPrefix(name, top) && name[len(top)] == '/'
}

// change is a path that differs between two states.
type change struct{ was, now entry }

func (c *change) name() string {
	if c.now.kind != none {
		return c.now.name
	}
	return c.was.name
}

// append appends the change to b.
func (c *change) append(b []byte) []byte {
	return c.now.append(c.was.append(b, false), false)
}

func (f *fields) change() (c change) {
	c.was, c.now = f.entry(false), f.entry(false)
	return c
}

// wired is the entry as an answer has it.
func (e *entry) wired() wire.CheckpointEntry {
	w := wire.CheckpointEntry{Mode: uint64(e.mode), Target: e.target}
	if e.kind == none {
		return wire.CheckpointEntry{}
	}
	w.Kind = string(rune(e.kind))
	if e.kind == file {
		w.Size = uint64(e.size)
		if e.known() {
			w.Sum = string(e.sum[:])
		}
	}
	return w
}

func (c *change) wired() wire.CheckpointChange {
	return wire.CheckpointChange{Path: c.name(), Was: c.was.wired(), Now: c.now.wired()}
}

// refusal is why something is not done, in the terms of wire.CheckpointAnswer.
type refusal struct{ code, text string }

func (r refusal) Error() string { return r.text }

func refuse(code, format string, args ...any) error {
	return refusal{code, fmt.Sprintf(format, args...)}
}
