package sink

import (
	"fmt"
	"math"
	"strings"
)

// The texts of the three tool contracts over what a sink kept. What they say is
// for people and models; whoever decides something reads the fields.

// FormatBytes writes a size as contract agent does: 512B, 1.5KB, 50.0KB, 1.0GB.
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

// humanizeBytes writes a size as contract modes does: 4095B, 195kB, 10MB.
func humanizeBytes(n int64) string {
	switch f := float64(n); {
	case n < 4<<10:
		return fmt.Sprintf("%dB", n)
	case n < 1<<20:
		return fmt.Sprintf("%.0fkB", math.Round(f/(1<<10)))
	case n < 1<<30:
		return fmt.Sprintf("%.0fMB", math.Round(f/(1<<20)))
	default:
		return "more than 1GB"
	}
}

// MiddleMarker stands for elided lines between head and tail.
func MiddleMarker(lines, bytes int64) string {
	word := "lines"
	if lines == 1 {
		word = "line"
	}
	return fmt.Sprintf("[… %s %s elided (%s) …]", thousands(lines), word, FormatBytes(bytes))
}

// thousands writes n with a comma between groups of three digits.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Text returns what is shown of a stream as contract agent writes it: as it is,
// or head and tail with a marker between them.
func (s Stream) Text() string {
	if t := s.Truncation; t != nil && t.Direction == DirectionMiddle {
		return joinMiddle(s.Head, s.Tail, t.ElidedLines, t.ElidedBytes)
	}
	return s.Head + s.Tail
}

// AgentTruncation is the details.meta.truncation of contract agent: nil if
// nothing was elided. The marker of a middle form counts as output.
func (s Stream) AgentTruncation(a Artifact) *Truncation {
	if s.Truncation == nil {
		return nil
	}
	t := *s.Truncation
	if t.Direction == DirectionMiddle {
		text := s.Text()
		t.OutputBytes, t.OutputLines = int64(len(text)), int64(strings.Count(text, "\n")+1)
	} else {
		t.ElidedBytes, t.ElidedLines = 0, 0
	}
	if a.Stored {
		t.ArtifactID = a.ID
	}
	return &t
}

// AgentNotice is what contract agent appends to the text of a result whose
// output was truncated, "" if it was not. It begins with an empty line.
func (s Stream) AgentNotice(a Artifact) string {
	t := s.AgentTruncation(a)
	if t == nil {
		return ""
	}
	var b strings.Builder
	if t.Direction == DirectionMiddle {
		word := "lines"
		if t.ElidedLines == 1 {
			word = "line"
		}
		fmt.Fprintf(&b, "Showing lines %d-%d and %d-%d of %d; %s middle %s (%s) elided",
			t.HeadRange.Start, t.HeadRange.End, t.TailRange.Start, t.TailRange.End, t.TotalLines,
			thousands(t.ElidedLines), word, FormatBytes(t.ElidedBytes))
	} else {
		fmt.Fprintf(&b, "Showing lines %d-%d of %d", t.ShownRange.Start, t.ShownRange.End, t.TotalLines)
		if t.TruncatedBy == ByBytes {
			fmt.Fprintf(&b, " (%s limit)", FormatBytes(t.OutputBytes))
		}
	}
	if t.ArtifactID != "" {
		fmt.Fprintf(&b, ". Read artifact://%s for full output", t.ArtifactID)
	}
	return "\n\n[" + b.String() + "]"
}

// AgentPrefixed puts a notice about the command in front of its output, as
// contract agent does for a timeout: "[Command cancelled]" and a LF.
func (s Stream) AgentPrefixed(notice string) string {
	return "[" + notice + "]\n" + s.Text()
}

// PlainWindow is the window of contract plain: the first 1 MiB of each stream.
func PlainWindow() Window { return Head(1 << 20) }

// PlainText is a stream as contract plain writes it, over PlainWindow.
func (s Stream) PlainText() string {
	if s.Truncation == nil {
		return s.Head
	}
	return s.Head + "... (truncated)"
}

// ModesWindow is the window of contract modes: all of 128 KiB, else the first and
// the last 4 KiB.
func ModesWindow() Window { return Window{Whole: 128 << 10, Head: 4 << 10, Tail: 4 << 10} }

// ModesText is a stream as contract modes writes it, over ModesWindow.
func (s Stream) ModesText() string {
	if s.Truncation == nil {
		return s.Head
	}
	return fmt.Sprintf("[output truncated in middle: got %s, max is %s]\n%s\n\n[snip]\n\n%s",
		humanizeBytes(s.Truncation.TotalBytes), humanizeBytes(int64(ModesWindow().Whole)), s.Head, s.Tail)
}
