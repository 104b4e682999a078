package sink

import (
	"strings"
)

// Limits bound a text that is at hand as a whole. Zero means the default.
type Limits struct {
	Lines     int // default 3000
	Bytes     int // default 50 KiB
	HeadLines int // TruncateMiddle only: of Lines, those from the begin; default half
	HeadBytes int // TruncateMiddle only: of Bytes, those from the begin; default half
}

const defaultLines = 3000

func (l Limits) withDefaults() Limits {
	if l.Lines <= 0 {
		l.Lines = defaultLines
	}
	if l.Bytes <= 0 {
		l.Bytes = DefaultWindow
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

// Cut is a text cut to limits.
type Cut struct {
	Text       string
	Truncation *Truncation // nil if nothing was cut

	LastLinePartial       bool // TruncateTail: the last line alone is too long; its end is shown
	FirstLineExceedsLimit bool // TruncateHead: the first line alone is too long; nothing is shown
}

// HeadBytes returns at most n bytes from the begin of s, and no part of a
// character.
func HeadBytes(s string, n int) string { return string(headRunes([]byte(s), max(n, 0))) }

// TailBytes returns at most n bytes from the end of s, and no part of a
// character.
func TailBytes(s string, n int) string { return string(tailRunes([]byte(s), max(n, 0))) }

// TruncateLine returns at most n characters of a line, followed by an ellipsis if
// that is not all of it.
func TruncateLine(line string, n int) (text string, cut bool) {
	for i := range line {
		if n--; n < 0 {
			return line[:i] + "…", true
		}
	}
	return line, false
}

// TruncateHead returns the first whole lines of text that are within the limits.
func TruncateHead(text string, limits Limits) Cut {
	l := limits.withDefaults()
	lines := strings.Split(text, "\n")
	if len(lines) <= l.Lines && len(text) <= l.Bytes {
		return Cut{Text: text}
	}
	kept, by := takeHead(lines, l.Lines, l.Bytes)
	c := Cut{Text: strings.Join(lines[:kept], "\n"), FirstLineExceedsLimit: kept == 0}
	c.Truncation = cutOf(text, c.Text, kept)
	c.Truncation.Direction, c.Truncation.TruncatedBy = DirectionHead, by
	c.Truncation.ShownRange = &Range{1, int64(kept)}
	return c
}

// TruncateTail returns the last whole lines of text that are within the limits,
// or the end of the last line if that alone is too long.
func TruncateTail(text string, limits Limits) Cut {
	l := limits.withDefaults()
	lines := strings.Split(text, "\n")
	if len(lines) <= l.Lines && len(text) <= l.Bytes {
		return Cut{Text: text}
	}
	kept, by := takeTail(lines, l.Lines, l.Bytes)
	c := Cut{Text: strings.Join(lines[len(lines)-kept:], "\n")}
	if kept == 0 {
		kept = 1
		c.Text, c.LastLinePartial = TailBytes(lines[len(lines)-1], l.Bytes), true
	}
	c.Truncation = cutOf(text, c.Text, kept)
	c.Truncation.Direction, c.Truncation.TruncatedBy = DirectionTail, by
	c.Truncation.ShownRange = &Range{int64(len(lines) - kept + 1), int64(len(lines))}
	return c
}

// TruncateMiddle returns the first and the last whole lines of text that are
// within the limits, with a marker for the lines between them.
func TruncateMiddle(text string, limits Limits) Cut {
	l := limits.withDefaults()
	lines := strings.Split(text, "\n")
	if len(text) <= l.Bytes {
		return Cut{Text: text}
	}
	head, _ := takeHead(lines, l.HeadLines, l.HeadBytes)
	tail, _ := takeTail(lines[head:], l.Lines-head, l.Bytes-l.HeadBytes)
	first := strings.Join(lines[:head], "\n")
	last := strings.Join(lines[len(lines)-tail:], "\n")
	elided := int64(len(lines) - head - tail)
	elidedBytes := int64(len(text) - len(first) - len(last))
	c := Cut{Text: joinMiddle(first, last, elided, elidedBytes)}
	c.Truncation = cutOf(text, c.Text, head+tail+1)
	c.Truncation.Direction, c.Truncation.TruncatedBy = DirectionMiddle, ByMiddle
	c.Truncation.ElidedLines, c.Truncation.ElidedBytes = elided, elidedBytes
	c.Truncation.HeadRange = &Range{1, int64(head)}
	c.Truncation.TailRange = &Range{int64(len(lines) - tail + 1), int64(len(lines))}
	return c
}

func cutOf(text, shown string, lines int) *Truncation {
	return &Truncation{
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
func takeHead(lines []string, maxLines, maxBytes int) (n int, by By) {
	size := -1
	for n < len(lines) && n < maxLines {
		if size += len(lines[n]) + 1; size > maxBytes {
			return n, ByBytes
		}
		n++
	}
	return n, ByLines
}

// takeTail counts the last lines that fit, and says what stopped it.
func takeTail(lines []string, maxLines, maxBytes int) (n int, by By) {
	size := -1
	for n < len(lines) && n < maxLines {
		if size += len(lines[len(lines)-1-n]) + 1; size > maxBytes {
			return n, ByBytes
		}
		n++
	}
	return n, ByLines
}

// joinMiddle puts the marker for what was elided between head and tail.
func joinMiddle(head, tail string, lines, bytes int64) string {
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	return head + MiddleMarker(lines, bytes) + "\n" + tail
}
