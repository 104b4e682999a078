package tool

import (
	"strings"

	"github.com/sandboxbash/sandboxbash/sink"
)

// cutLimits says how much of a text is kept. Zero means the default.
type cutLimits struct {
	Lines     int // default 3000
	Bytes     int // default 50 KiB
	HeadLines int // cutMiddle only: of Lines, those from the start; default half
	HeadBytes int // cutMiddle only: of Bytes, those from the start; default half
}

const defaultLines = 3000

func (l cutLimits) withDefaults() cutLimits {
	if l.Lines <= 0 {
		l.Lines = defaultLines
	}
	if l.Bytes <= 0 {
		l.Bytes = sink.DefaultWindow
	}
	if l.HeadLines <= 0 {
		l.HeadLines = l.Lines / 2
	}
	if l.HeadBytes <= 0 {
		l.HeadBytes = l.Bytes / 2
	}
	l.HeadLines, l.HeadBytes = min(l.HeadLines, l.Lines), min(l.HeadBytes, l.Bytes)
	return l
}

// excerpt is a text cut to limits.
type excerpt struct {
	Text       string
	Truncation *sink.Truncation // nil if nothing was cut

	LastLinePartial       bool // cutTail: the last line alone is too long; its end is shown
	FirstLineExceedsLimit bool // cutHead: the first line alone is too long; nothing is shown
}

// cutLine returns at most n characters of a line, followed by an ellipsis if
// that is not all of it.
func cutLine(line string, n int) (text string, cut bool) {
	for i := range line {
		if n--; n < 0 {
			return line[:i] + "…", true
		}
	}
	return line, false
}

// cutHead returns the first whole lines of text that are within the limits.
func cutHead(text string, limits cutLimits) excerpt {
	l := limits.withDefaults()
	lines := strings.Split(text, "\n")
	if len(lines) <= l.Lines && len(text) <= l.Bytes {
		return excerpt{Text: text}
	}
	kept, by := takeHead(lines, l.Lines, l.Bytes)
	c := excerpt{Text: strings.Join(lines[:kept], "\n"), FirstLineExceedsLimit: kept == 0}
	c.Truncation = cutOf(text, c.Text, kept)
	c.Truncation.Direction, c.Truncation.TruncatedBy = sink.DirectionHead, by
	c.Truncation.ShownRange = &sink.Range{Start: 1, End: int64(kept)}
	return c
}

// cutTail returns the last whole lines of text that are within the limits,
// or the end of the last line if that alone is too long.
func cutTail(text string, limits cutLimits) excerpt {
	l := limits.withDefaults()
	lines := strings.Split(text, "\n")
	if len(lines) <= l.Lines && len(text) <= l.Bytes {
		return excerpt{Text: text}
	}
	kept, by := takeTail(lines, l.Lines, l.Bytes)
	c := excerpt{Text: strings.Join(lines[len(lines)-kept:], "\n")}
	if kept == 0 {
		kept = 1
		c.Text, c.LastLinePartial = sink.TailBytes(lines[len(lines)-1], l.Bytes), true
	}
	c.Truncation = cutOf(text, c.Text, kept)
	c.Truncation.Direction, c.Truncation.TruncatedBy = sink.DirectionTail, by
	c.Truncation.ShownRange = &sink.Range{Start: int64(len(lines) - kept + 1), End: int64(len(lines))}
	return c
}

// cutMiddle returns the first and the last whole lines of text that are
// within the limits, with a marker for the lines between them. It is cutTail if the
// first line does not fit into the head's part, and cutHead if there is no room left
// for the tail. If the last line alone is too long its end is shown, as by cutTail.
func cutMiddle(text string, limits cutLimits) excerpt {
	l := limits.withDefaults()
	lines := strings.Split(text, "\n")
	if len(lines) <= l.Lines && len(text) <= l.Bytes {
		return excerpt{Text: text}
	}
	head, _ := takeHead(lines, l.HeadLines, l.HeadBytes)
	if head == 0 {
		return cutTail(text, l)
	}
	forLines, forBytes := l.Lines-head, l.Bytes-l.HeadBytes
	if forLines == 0 || forBytes == 0 {
		return cutHead(text, l)
	}
	tail, _ := takeTail(lines[head:], forLines, forBytes)
	first := strings.Join(lines[:head], "\n")
	last := strings.Join(lines[len(lines)-tail:], "\n")
	var c excerpt
	if tail == 0 {
		tail = 1
		last, c.LastLinePartial = sink.TailBytes(lines[len(lines)-1], forBytes), true
	}
	elided := int64(len(lines) - head - tail)
	elidedBytes := int64(len(text) - len(first) - len(last))
	c.Text = sink.Stream{Head: first, Tail: last, Truncation: &sink.Truncation{
		Direction: sink.DirectionMiddle, ElidedLines: elided, ElidedBytes: elidedBytes,
	}}.Text()
	c.Truncation = cutOf(text, c.Text, head+tail+1)
	c.Truncation.Direction, c.Truncation.TruncatedBy = sink.DirectionMiddle, sink.ByMiddle
	c.Truncation.ElidedLines, c.Truncation.ElidedBytes = elided, elidedBytes
	c.Truncation.HeadRange = &sink.Range{Start: 1, End: int64(head)}
	c.Truncation.TailRange = &sink.Range{Start: int64(len(lines) - tail + 1), End: int64(len(lines))}
	return c
}

func cutOf(text, shown string, lines int) *sink.Truncation {
	return &sink.Truncation{
		TotalLines:  int64(strings.Count(text, "\n") + 1),
		TotalBytes:  int64(len(text)),
		OutputLines: int64(lines),
		OutputBytes: int64(len(shown)),
		ElidedBytes: int64(max(0, len(text)-len(shown))),
		ElidedLines: int64(max(0, strings.Count(text, "\n")+1-lines)),
	}
}

// takeHead counts the first lines that fit, and says what stopped it. The LF
// between two lines counts.
func takeHead(lines []string, maxLines, maxBytes int) (n int, by sink.By) {
	size := -1
	for n < len(lines) && n < maxLines {
		if size += len(lines[n]) + 1; size > maxBytes {
			return n, sink.ByBytes
		}
		n++
	}
	return n, sink.ByLines
}

// takeTail counts the last lines that fit, and says what stopped it.
func takeTail(lines []string, maxLines, maxBytes int) (n int, by sink.By) {
	size := -1
	for n < len(lines) && n < maxLines {
		if size += len(lines[len(lines)-1-n]) + 1; size > maxBytes {
			return n, sink.ByBytes
		}
		n++
	}
	return n, sink.ByLines
}
