package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is the width of help in columns: the default of terminals.
const helpWidth = 80

// usageTemplate is cobra's, with flags that fit the width of help.
func usageTemplate(root *cobra.Command) string {
	return strings.NewReplacer(
		"Flags.FlagUsages ", "Flags.FlagUsagesWrapped 80 ",
		`Use "{{.CommandPath}} [command] --help" for more information about a command.`, `See "{{.CommandPath}} [command] --help" for more about a command.`,
	).Replace(root.UsageTemplate())
}

// fitted returns a text with no line wider than width: paragraphs are filled again, and
// the words of an indented line that do not fit go on below it with the same indentation.
func fitted(text string, width int) string {
	var out, paragraph []string
	fill := func() {
		if len(paragraph) > 0 {
			out = append(out, wrapped("", strings.Join(paragraph, " "), width)...)
			paragraph = nil
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.TrimLeft(line, " ")
		switch indent := line[:len(line)-len(words)]; {
		case words == "":
			fill()
			out = append(out, "")
		case indent == "":
			paragraph = append(paragraph, words)
		case len(line) <= width:
			fill()
			out = append(out, line)
		default:
			fill()
			out = append(out, wrapped(indent, words, width)...)
		}
	}
	fill()
	return strings.Join(out, "\n")
}

// wrapped returns the words of a text in indented lines of at most width columns, or of
// one word if that is wider.
func wrapped(indent, text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = indent + word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = indent + word
		}
	}
	return append(lines, line)
}
