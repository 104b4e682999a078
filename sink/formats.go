package sink

import (
	"fmt"
	"strings"
)

// FormatBytes writes a size for people: 512B, 1.5KB, 50.0KB, 1.0GB.
func FormatBytes(n int64) string {
	switch f := float64(n); {
	case n < 1<<10:
		return fmt.Sprintf("%dB", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1fKB", f/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1fMB", f/(1<<20))
	default:
		return fmt.Sprintf("%.1fGB", f/(1<<30))
	}
}

// middleMarker stands for elided lines between head and tail.
func middleMarker(lines, bytes int64) string {
	word := "lines"
	if lines == 1 {
		word = "line"
	}
	return fmt.Sprintf("[… %s %s elided (%s) …]", FormatCount(lines), word, FormatBytes(bytes))
}

// FormatCount writes n with a comma between groups of three digits.
func FormatCount(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Text returns what is shown of a stream: as it is, or head and tail with a marker
// between them.
func (s Stream) Text() string {
	if t := s.Truncation; t != nil && t.Direction == DirectionMiddle {
		return joinMiddle(s.Head, s.Tail, t.ElidedLines, t.ElidedBytes)
	}
	return s.Head + s.Tail
}

// joinMiddle puts the marker for what was elided between head and tail.
func joinMiddle(head, tail string, lines, bytes int64) string {
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	return head + middleMarker(lines, bytes) + "\n" + tail
}
