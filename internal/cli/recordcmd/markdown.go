package recordcmd

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/sink"
)

// Bounds of what a pull request takes: its description has at most 65,536 characters.
const (
	maxMarkdown  = 60_000  // bytes in all
	maxShown     = 6 << 10 // bytes of one output, from its end
	maxSummary   = 120     // bytes of a command in its summary
	maxShownText = 4 << 10 // bytes of a command
)

// writeMarkdown writes a summary, and each command with its output to be opened.
func writeMarkdown(w io.Writer, rec *recording, secrets *sink.Secrets) error {
	var b bytes.Buffer
	commands, failed := 0, 0
	for _, i := range rec.items {
		if i.isCommand() {
			commands++
			if i.failed() {
				failed++
			}
		}
	}
	fmt.Fprintf(&b, "### What was run in %s\n\n", inlineCode(oneLine(rec.title(), secrets)))
	fmt.Fprintf(&b, "%d commands, %d of them failed", commands, failed)
	if len(rec.items) > 0 {
		first, last := rec.items[0].Time, rec.items[len(rec.items)-1].last
		fmt.Fprintf(&b, "; %s to %s", first.UTC().Format(time.DateTime), last.UTC().Format(time.DateTime+" MST"))
	}
	if rec.session.Image != "" {
		fmt.Fprintf(&b, "; image %s", inlineCode(oneLine(rec.session.Image, secrets)))
	}
	b.WriteString(".\n\n")
	for n, i := range rec.items {
		text := i.markdown(secrets)
		if b.Len()+len(text) > maxMarkdown {
			fmt.Fprintf(&b, "%d more entries are left out: a pull request takes no more. `sandboxbash session log` shows them.\n", len(rec.items)-n)
			break
		}
		b.WriteString(text)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (i *item) markdown(secrets *sink.Secrets) string {
	if !i.isCommand() {
		text := i.about()
		if text == "" {
			return ""
		}
		if i.isTransfer() {
			text += " [" + i.outcome() + "]"
		}
		return "- " + inlineCode(cut(oneLine(text, secrets), maxSummary*2)) + "\n\n"
	}
	mark := "✔"
	switch {
	case i.failed():
		mark = "✘"
	case i.ending() == nil:
		mark = "…"
	}
	var b strings.Builder
	command := cleanText(i.Command, secrets)
	fmt.Fprintf(&b, "<details><summary>%s <code>%s</code> %s</summary>\n\n", mark,
		html.EscapeString(cut(oneLine(i.Command, secrets), maxSummary)), html.EscapeString(cut(oneLine(i.outcome(), secrets), maxSummary*2)))
	if strings.Contains(command, "\n") || len(command) > maxSummary {
		b.WriteString(fenced("sh", cut(command, maxShownText)))
	}
	var text strings.Builder
	for _, part := range i.parts(secrets) {
		if part.skipped > 0 {
			text.WriteString("\n" + leftOut(part.skipped) + "\n")
		}
		text.WriteString(part.text)
	}
	shown := text.String()
	if over := len(shown) - maxShown; over > 0 {
		for over < len(shown) && !utf8.RuneStart(shown[over]) {
			over++
		}
		b.WriteString(fmt.Sprintf("The first %d bytes are left out.\n\n", over))
		shown = shown[over:]
	}
	if strings.TrimSpace(shown) == "" {
		b.WriteString("No output.\n")
	} else {
		b.WriteString(fenced("text", strings.TrimRight(shown, "\n")))
	}
	b.WriteString("\n</details>\n\n")
	return b.String()
}

// fenced is a block that its text cannot end: the fence is longer than any run of its characters in the text.
func fenced(language, text string) string {
	fence := strings.Repeat("`", max(3, longestRun(text)+1))
	return fence + language + "\n" + text + "\n" + fence + "\n"
}

// inlineCode is a line of code that its text cannot end.
func inlineCode(text string) string {
	if text == "" {
		return "``"
	}
	fence := strings.Repeat("`", longestRun(text)+1)
	return fence + " " + text + " " + fence
}

// longestRun is the length of the longest run of backticks.
func longestRun(text string) (longest int) {
	run := 0
	for _, c := range text {
		if run++; c != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

// cut shortens a text to about n bytes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
