package tool

import (
	"fmt"
	"strings"

	"github.com/sandboxbash/sandboxbash/sink"
)

// Surface says where a command came from, which decides how much of it is shown.
type Surface int

// Surfaces.
const (
	// AgentCall is a call of the tool, among others. Collapsed it shows the last 10
	// lines as they are on the screen.
	AgentCall Surface = iota
	// UserCommand is a command that the user gave. Collapsed it shows the last 20
	// lines of the output.
	UserCommand
)

// Preview sizes of the documents.
const (
	callLines    = 10
	userLines    = 20
	maxLineChars = 4000
)

// View says how a command is to be shown.
type View struct {
	Surface  Surface
	Expanded bool // show all of the output
	Columns  int  // of the screen; 0 is 80
}

// Shown is a command and its present state.
type Shown struct {
	Command        string
	Output         string // safe to show
	Running        bool
	Cancelled      bool
	TimedOut       bool
	Code           int
	TimeoutSeconds float64          // 0 shows none
	Truncation     *sink.Truncation // with the artifact's id, if there is one
}

// Render returns a command as text for a person: its first line, its output or the end
// of that, a warning if output is missing, and its state. The text ends with a LF.
func Render(s Shown, v View) string {
	if v.Columns <= 0 {
		v.Columns = 80
	}
	lines := []string{clampLine("$ " + strings.ReplaceAll(s.Command, "\n", "\n  "))}
	shown, left := outputLines(s.Output, v)
	if left > 0 {
		lines = append(lines, fmt.Sprintf("… %d earlier %s", left, plural(left, "line")))
	}
	lines = append(lines, shown...)
	if warning := s.warning(); warning != "" {
		lines = append(lines, warning)
	}
	if footer := s.footer(); footer != "" {
		lines = append(lines, footer)
	}
	return strings.Join(lines, "\n") + "\n"
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// outputLines returns the lines to show, and how many lines before them are hidden.
func outputLines(output string, v View) (lines []string, left int) {
	output = strings.TrimSuffix(output, "\n")
	if output == "" {
		return nil, 0
	}
	for line := range strings.SplitSeq(output, "\n") {
		line = clampLine(strings.ReplaceAll(line, "\t", "   "))
		if v.Surface == AgentCall && !v.Expanded {
			lines = append(lines, wrap(line, v.Columns)...)
			continue
		}
		lines = append(lines, line)
	}
	most := userLines
	if v.Surface == AgentCall {
		most = callLines
	}
	if v.Expanded || len(lines) <= most {
		return lines, 0
	}
	return lines[len(lines)-most:], len(lines) - most
}

// clampLine cuts a line at 4,000 characters.
func clampLine(line string) string {
	text, cut := cutLine(line, maxLineChars)
	if !cut {
		return line
	}
	omitted := len([]rune(line)) - maxLineChars
	return fmt.Sprintf("%s [%d %s omitted]", text, omitted, plural(omitted, "character"))
}

// wrap breaks a line as a screen does. A character counts as one column.
func wrap(line string, columns int) []string {
	var lines []string
	runes := []rune(line)
	for len(runes) > columns {
		lines = append(lines, string(runes[:columns]))
		runes = runes[columns:]
	}
	return append(lines, string(runes))
}

// warning says which output is missing, and where it is kept.
func (s Shown) warning() string {
	t := s.Truncation
	if t == nil {
		return ""
	}
	var parts []string
	switch t.TruncatedBy {
	case sink.ByLines:
		parts = append(parts, fmt.Sprintf("%d of %d lines shown", t.OutputLines, t.TotalLines))
	case sink.ByMiddle:
		parts = append(parts, fmt.Sprintf("%s in the middle left out", sink.FormatBytes(t.ElidedBytes)))
	default:
		parts = append(parts, fmt.Sprintf("%s of %s shown", sink.FormatBytes(t.OutputBytes), sink.FormatBytes(t.TotalBytes)))
	}
	if t.ArtifactID != "" {
		parts = append(parts, "artifact://"+t.ArtifactID)
	}
	return "[Truncated: " + strings.Join(parts, "; ") + "]"
}

// footer says in which state the command is.
func (s Shown) footer() string {
	var parts []string
	switch {
	case s.Running:
		parts = append(parts, "running")
	case s.Cancelled:
		parts = append(parts, "cancelled")
	case s.TimedOut:
		parts = append(parts, "timed out")
	case s.Code != 0:
		parts = append(parts, fmt.Sprintf("exit %d", s.Code))
	}
	if s.TimeoutSeconds > 0 {
		parts = append(parts, fmt.Sprintf("timeout: %ss", jsNumber(s.TimeoutSeconds)))
	}
	if len(parts) == 0 {
		return ""
	}
	return "[" + strings.Join(parts, "; ") + "]"
}
