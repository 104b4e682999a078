package tool

import "strings"

// LeadingCd takes `cd DIR && ` off a command whose working directory was not
// given. DIR is one word of the shell, on one line, at the very begin; its quotes
// and escapes are resolved. It is not ok, and the command is left to the shell,
// where the word has an expansion or where anything else stands before the &&.
// Patterns, ~ and - in the word are taken as they are.
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

// shellWord reads the word that text begins with: what it means, and what follows
// it. It is not ok if a quote stays open or the line ends inside it.
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
