package sink

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// Window says how much of a stream's text is kept for a reader. The zero value
// keeps the last 50 KiB.
type Window struct {
	// A text of at most Whole bytes is kept whole; otherwise only its first Head and its
	// last Tail bytes are. A Whole less than Head+Tail means Head+Tail.
	Whole int
	Head  int // bytes kept from the start
	Tail  int // bytes kept from the end

	// Nothing means that a Window whose other fields are 0 keeps nothing.
	Nothing bool
}

// DefaultWindow is the size of the default window.
const DefaultWindow = 50 << 10

// Tail returns a window that keeps the last n bytes. With 0 it keeps nothing.
func Tail(n int) Window { return HeadTail(0, n) }

// Head returns a window that keeps the first n bytes. With 0 it keeps nothing.
func Head(n int) Window { return HeadTail(n, 0) }

// HeadTail returns a window that keeps the first head and the last tail bytes. With 0 and
// 0 it keeps nothing.
func HeadTail(head, tail int) Window {
	return Window{Head: head, Tail: tail, Nothing: head == 0 && tail == 0}
}

func (w Window) withDefaults() Window {
	w.Whole, w.Head, w.Tail = max(w.Whole, 0), max(w.Head, 0), max(w.Tail, 0)
	if w.Head+w.Tail == 0 {
		if w.Whole == 0 && !w.Nothing {
			w.Whole = DefaultWindow
		}
		w.Tail = w.Whole
	}
	w.Whole = max(w.Whole, w.Head+w.Tail)
	return w
}

// A Direction says which part of a text is shown.
type Direction string

// By says which limit cut a text.
type By string

// The parts that can be shown, and the limits that cut.
const (
	DirectionHead   Direction = "head"
	DirectionTail   Direction = "tail"
	DirectionMiddle Direction = "middle" // head and tail, without the middle

	ByBytes  By = "bytes"
	ByLines  By = "lines"
	ByMiddle By = "middle"
)

// Range is a range of lines, counted from 1, both ends included.
type Range struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

// Truncation says which part of a text is shown. It counts bytes and lines of the text
// after that was made safe. A text has one line more than LFs, and an empty text has
// none.
type Truncation struct {
	Direction   Direction `json:"direction"`
	TruncatedBy By        `json:"truncatedBy"`
	TotalLines  int64     `json:"totalLines"`
	TotalBytes  int64     `json:"totalBytes"`
	OutputLines int64     `json:"outputLines"`
	OutputBytes int64     `json:"outputBytes"`

	ShownRange *Range `json:"shownRange,omitempty"` // head or tail
	HeadRange  *Range `json:"headRange,omitempty"`  // middle
	TailRange  *Range `json:"tailRange,omitempty"`  // middle

	// ElidedBytes are the bytes not shown: TotalBytes less OutputBytes. ElidedLines counts
	// the LFs among them.
	ElidedBytes int64 `json:"elidedBytes,omitempty"`
	ElidedLines int64 `json:"elidedLines,omitempty"`

	ArtifactID string `json:"artifactId,omitempty"`
}

// A window keeps the start and the end of a text in bounded memory: at most Head and
// twice Whole bytes.
type window struct {
	size  Window
	head  []byte
	tail  tailBuffer // what follows head
	bytes int64
	lfs   int64
}

func newWindow(size Window) *window {
	size = size.withDefaults()
	return &window{size: size, tail: tailBuffer{max: size.Whole - size.Head}}
}

func (w *window) write(p []byte) {
	w.bytes += int64(len(p))
	w.lfs += int64(bytes.Count(p, newline))
	if room := w.size.Head - len(w.head); room > 0 {
		n := min(room, len(p))
		w.head = append(w.head, p[:n]...)
		p = p[n:]
	}
	w.tail.write(p)
}

var newline = []byte{'\n'}

// overflowed reports whether part of the text is not shown.
func (w *window) overflowed() bool { return w.bytes > int64(w.size.Whole) }

// view returns what is shown. If nothing was elided it is all in head.
func (w *window) view() (head, tail string, t *Truncation) {
	if !w.overflowed() {
		return string(w.head) + string(w.tail.bytes()), "", nil
	}
	h := headRunes(w.head, w.size.Head)
	e := tailRunes(w.tail.bytes(), w.size.Tail)
	return string(h), string(e), w.truncation(h, e)
}

// from returns the text from an offset on, and the offset at which it starts: a later one
// if the text at the offset is not kept without a gap.
func (w *window) from(at int64) (text string, begin int64) {
	all := w.tail.bytes()
	if w.overflowed() {
		all = tailRunes(all, w.size.Tail)
	} else {
		all = slices.Concat(w.head, all)
	}
	begin = w.bytes - int64(len(all))
	skip := min(max(at-begin, 0), int64(len(all)))
	for skip < int64(len(all)) && !utf8.RuneStart(all[skip]) {
		skip++
	}
	return string(all[skip:]), begin + skip
}

func (w *window) truncation(head, tail []byte) *Truncation {
	t := &Truncation{
		TotalLines:  w.lines(),
		TotalBytes:  w.bytes,
		OutputBytes: int64(len(head) + len(tail)),
		ElidedBytes: w.bytes - int64(len(head)+len(tail)),
		ElidedLines: w.lfs - int64(bytes.Count(head, newline)+bytes.Count(tail, newline)),
	}
	headLines, tailLines := linesOf(head), linesOf(tail)
	t.OutputLines = headLines + tailLines
	first := &Range{1, headLines}
	last := &Range{t.TotalLines - tailLines + 1, t.TotalLines}
	switch {
	case len(head) == 0: // also if no whole character fits: DirectionMiddle needs both ends
		t.Direction, t.TruncatedBy, t.ShownRange = DirectionTail, ByBytes, last
	case len(tail) == 0:
		t.Direction, t.TruncatedBy, t.ShownRange = DirectionHead, ByBytes, first
	default:
		if bytes.HasSuffix(head, newline) { // the line after the last LF is empty
			t.OutputLines--
			first.End--
		}
		t.Direction, t.TruncatedBy, t.HeadRange, t.TailRange = DirectionMiddle, ByMiddle, first, last
	}
	return t
}

func (w *window) lines() int64 {
	if w.bytes == 0 {
		return 0
	}
	return w.lfs + 1
}

func linesOf(p []byte) int64 {
	if len(p) == 0 {
		return 0
	}
	return int64(bytes.Count(p, newline)) + 1
}

// A tailBuffer keeps the last max bytes of what is written, at the cost of a
// little more than one copy and twice the memory.
type tailBuffer struct {
	max int
	buf []byte
}

func (t *tailBuffer) write(p []byte) {
	switch {
	case len(p) >= t.max:
		t.buf = append(t.buf[:0], p[len(p)-t.max:]...)
	case len(t.buf)+len(p) > 2*t.max:
		n := copy(t.buf, t.buf[len(t.buf)-(t.max-len(p)):])
		t.buf = append(t.buf[:n], p...)
	default:
		t.buf = append(t.buf, p...)
	}
}

// bytes returns the last bytes; they may start inside a character.
func (t *tailBuffer) bytes() []byte { return t.buf[max(0, len(t.buf)-t.max):] }

// headRunes returns at most n bytes from the start of p. It does not split a character.
func headRunes(p []byte, n int) []byte {
	p = p[:min(n, len(p))]
	for i := len(p) - 1; i >= 0 && len(p)-i < utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if !utf8.FullRune(p[i:]) {
				return p[:i]
			}
			break
		}
	}
	return p
}

// tailRunes returns at most n bytes from the end of p. It does not split a character.
func tailRunes(p []byte, n int) []byte {
	p = p[len(p)-min(n, len(p)):]
	for i := range min(len(p), utf8.UTFMax) {
		if utf8.RuneStart(p[i]) {
			return p[i:]
		}
	}
	if len(p) < utf8.UTFMax {
		return nil
	}
	return p
}

// HeadBytes returns at most n bytes from the start of s. It does not split a character.
func HeadBytes(s string, n int) string { return string(headRunes([]byte(s), max(n, 0))) }

// TailBytes returns at most n bytes from the end of s. It does not split a character.
func TailBytes(s string, n int) string { return string(tailRunes([]byte(s), max(n, 0))) }
