package main

import (
	"fmt"
	"regexp"
	"strings"
)

// listed is a line of a help page that names a command and says what it does.
var listed = regexp.MustCompile(`^  ([a-z]+)  +\S`)

// manual returns a page of section 1 for each command: its help, as the program prints it.
func (r *release) manual() ([]file, error) {
	native, err := r.native()
	if err != nil {
		return nil, err
	}
	var pages []file
	var add func(words []string) error
	add = func(words []string) error {
		help, err := output(native, append(words, "--help")...)
		if err != nil {
			return err
		}
		command := strings.Join(append([]string{"sandboxbash"}, words...), " ")
		if !strings.HasPrefix(help, "Usage: "+command) {
			if len(words) == 0 {
				return fmt.Errorf("the help of %s begins with %.40q", command, help)
			}
			return nil // a word of another list
		}
		if len(words) == 0 {
			for _, topic := range []string{"status", "flags"} {
				text, err := output(native, "help", topic)
				if err != nil {
					return err
				}
				if _, after, ok := strings.Cut(text, "\n\n"); ok && strings.HasPrefix(text, "Usage: ") {
					text = after
				}
				help += "\n\n" + text
			}
		}
		pages = append(pages, file{"man/man1/" + strings.ReplaceAll(command, " ", "-") + ".1", 0o644, []byte(r.roff(command, help))})
		for line := range strings.Lines(help) {
			if m := listed.FindStringSubmatch(line); m != nil && m[1] != "help" {
				if err := add(append(words[:len(words):len(words)], m[1])); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return pages, add(nil)
}

// roff sets a help page: its first line is the synopsis and its second paragraph the name. A line without an
// indent that ends in a colon begins a section, whose lines stay as they are; all else is description.
func (r *release) roff(command, help string) string {
	usage, rest, _ := strings.Cut(strings.TrimPrefix(help, "Usage: "), "\n\n")
	short, rest, _ := strings.Cut(rest, "\n\n")
	name := strings.ReplaceAll(command, " ", "-")
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 %s \"sandboxbash %s\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.nf\n%s\n.fi\n",
		strings.ToUpper(name), r.time.Format("2006-01-02"), r.version, name, set(strings.TrimSuffix(short, ".")), set(usage))
	described := false
	for part := range strings.SplitSeq(rest, "\n\n") {
		head, body, _ := strings.Cut(part, "\n")
		title, isTitle := strings.CutSuffix(head, ":")
		switch {
		case isTitle && strings.HasPrefix(body, " "):
			fmt.Fprintf(&b, ".SH %s\n.nf\n.in 0\n%s\n.fi\n", strings.ToUpper(set(title)), set(body))
			described = false
		default:
			if !described {
				b.WriteString(".SH DESCRIPTION\n")
				described = true
			}
			if strings.Contains(part, "\n ") { // a table
				fmt.Fprintf(&b, ".PP\n.nf\n%s\n.fi\n", set(part))
			} else {
				fmt.Fprintf(&b, ".PP\n%s\n", set(part))
			}
		}
	}
	return b.String()
}

// set escapes a text for roff.
func set(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
