package tool

import (
	"fmt"
	"strings"

	"github.com/sandboxbash/sandboxbash/sink"
)

// Truncation returns the details.meta.truncation of contract agent: nil if nothing was
// elided. The marker between head and tail counts as output.
func Truncation(s sink.Stream, a sink.Artifact) *sink.Truncation {
	if s.Truncation == nil {
		return nil
	}
	t := *s.Truncation
	if t.Direction == sink.DirectionMiddle {
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

// truncationNotice is what contract agent appends to the text of a result whose
// output was truncated, "" if it was not. It begins with an empty line.
func truncationNotice(s sink.Stream, a sink.Artifact) string {
	t := Truncation(s, a)
	if t == nil {
		return ""
	}
	var b strings.Builder
	if t.Direction == sink.DirectionMiddle {
		word := "lines"
		if t.ElidedLines == 1 {
			word = "line"
		}
		fmt.Fprintf(&b, "Showing lines %d-%d and %d-%d of %d; %s middle %s (%s) elided",
			t.HeadRange.Start, t.HeadRange.End, t.TailRange.Start, t.TailRange.End, t.TotalLines,
			sink.FormatCount(t.ElidedLines), word, sink.FormatBytes(t.ElidedBytes))
	} else {
		fmt.Fprintf(&b, "Showing lines %d-%d of %d", t.ShownRange.Start, t.ShownRange.End, t.TotalLines)
		if t.TruncatedBy == sink.ByBytes {
			fmt.Fprintf(&b, " (%s limit)", sink.FormatBytes(t.OutputBytes))
		}
	}
	if t.ArtifactID != "" {
		fmt.Fprintf(&b, ". Read artifact://%s for full output", t.ArtifactID)
	}
	return "\n\n[" + b.String() + "]"
}

// prefixed puts a notice about the command in front of its output, as
// contract agent does for a timeout: "[Command cancelled]" and a LF.
func prefixed(s sink.Stream, notice string) string {
	return "[" + notice + "]\n" + s.Text()
}
