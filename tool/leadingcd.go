package tool

import "strings"

// LeadingCd removes `cd DIR && ` from the start of a command whose working directory
// was not given. DIR is one word of the shell on the first line; its quotes and
// escapes are resolved. ok is false, and the shell runs the command as it is, if the
// word has an expansion, or if anything but the word precedes the &&. Patterns, ~
// and - in the word are taken literally.
func LeadingCd(command string) (dir, rest string, ok bool) {
	after, found := strings.CutPrefix(command, "cd")
	word := strings.TrimLeft(after, blanks)
	if !found || len(word) == len(after) {
		return "", command, false
	}
	dir, after, ok = shellWord(word)
	if !ok || dir == "" || strings.ContainsAny(dir, "$`(") {
		return "", command, false
	}
	after, ok = strings.CutPrefix(strings.TrimLeft(after, blanks), "&&")
	if !ok {
		return "", command, false
	}
	return dir, strings.TrimLeft(after, blanks), true
}

const blanks = " \t"

// shellWord reads the word at the start of text: its meaning, and the text after it.
// ok is false if a quote stays open or the line ends inside the word.
func shellWord(text string) (word, rest string, ok bool) {
	if strings.HasPrefix(text, "#") {
		return "", "", false // a comment
	}
	var b strings.Builder
	var quote byte // the open one, or 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == quote && c != 0:
			quote = 0
		case quote != 0 && (c == '\n' || c == '\r'):
			return "", "", false
		case quote == '\'':
			b.WriteByte(c)
		case c == '\\':
			i++
			if i == len(text) || text[i] == '\n' || text[i] == '\r' {
				return "", "", false
			}
			if quote == '"' && strings.IndexByte("\"\\$`", text[i]) < 0 {
				b.WriteByte(c)
			}
			b.WriteByte(text[i])
		case quote == '"':
			b.WriteByte(c)
		case c == '\'' || c == '"':
			quote = c
		case strings.IndexByte(" \t\r\n&|;<>()", c) >= 0:
			return b.String(), text[i:], true
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), "", quote == 0
}
