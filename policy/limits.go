package policy

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
)

// Limits on what is looked at. A script beyond one is TooComplex.
const (
	maxScript = 2 << 20 // bytes, of a script and of all the scripts within it together
	maxDepth  = 200     // levels of nesting, scripts within scripts included
	maxNodes  = 100_000 // commands and expansions, by the count of what separates them
	// maxSteps bounds the commands that are looked at, those of a function once
	// for each call. Nodes alone do not bound them: functions call each other.
	maxSteps = 300_000
	maxArgs  = 2_000_000 // words of those commands, by the same count
	maxText  = 4 << 10   // bytes of a variable's value; a longer one is not known
	maxWords = 512       // that braces of one word make; beyond, the word is not known
)

// limit is a limit that a script is beyond.
type limit struct {
	what string
	most int
}

func (l limit) reason() string { return fmt.Sprintf("the script has more than %d %s", l.most, l.what) }

var (
	tooLong  = &limit{"bytes", maxScript}
	tooDeep  = &limit{"levels of nesting", maxDepth}
	tooMany  = &limit{"commands and expansions", maxNodes}
	tooWordy = &limit{"words to look at", maxArgs}
	tooBusy  = &limit{"commands to look at, those of a function once for each call", maxSteps}
	errDepth = errors.New("nested too deeply")
)

// The parser recurses, and a Go stack that overflows ends the process. So its
// input is handed to it through a reader that looks how deep it is by now.
// A level takes 6 to 27 of its calls, and 200 levels of the worst, parentheses
// of arithmetic, about 5,600. Between two looks it can go no deeper than there
// are bytes, about 3 KiB of stack each: some 25 MiB at worst.
const (
	maxFrames  = 6500
	frameCheck = 8 << 10 // bytes; looking costs up to a millisecond
)

// guardedReader is an io.Reader over a script for the parser.
type guardedReader struct {
	text   string
	read   int
	looked int // the value of read at the last look
}

func (r *guardedReader) Read(p []byte) (int, error) {
	if r.read-r.looked >= frameCheck {
		r.looked = r.read
		var pc [1]uintptr
		if runtime.Callers(maxFrames, pc[:]) > 0 {
			return 0, errDepth
		}
	}
	n := copy(p, r.text[r.read:])
	r.read += n
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// countNodes counts, in one pass over the bytes, what separates commands and
// begins expansions, outside quotes, comments and here-documents, as well as that
// can be told without a parser. It is the bound on memory for what is honest;
// what deceives it is bounded by maxScript, and found out by maxSteps. It stops
// after most.
func countNodes(text string, most int) int {
	n := 0
	search := 2 * maxScript // bytes that the ends of here-documents are looked for in
	blank := true           // nothing but spaces since the last separator or line
	for i := 0; i < len(text) && n <= most; i++ {
		switch c := text[i]; c {
		case ' ', '\t', '\r':
			continue
		case '\n':
			if !blank {
				n++
			}
			blank = true
			continue
		case ';', '&', '|', '(', '`':
			n++
			blank = true
			continue
		case '#':
			if blank || text[i-1] == ' ' || text[i-1] == '\t' {
				i = indexFrom(text, "\n", i) - 1
				continue
			}
		case '\\':
			i++
		case '\'':
			i = indexFrom(text, "'", i+1)
		case '"':
			var inside int
			i, inside = skipDouble(text, i+1)
			n += inside
		case '$':
			n++
			if i+1 < len(text) && text[i+1] == '\'' {
				i = skipANSI(text, i+2)
			}
		case '<':
			if strings.HasPrefix(text[i:], "<<") && !strings.HasPrefix(text[i:], "<<<") {
				var inside, looked int
				i, inside, looked = skipHeredoc(text, i+2, search)
				search -= looked
				n += 1 + inside
				blank = true
				continue
			}
		}
		blank = false
	}
	return n
}

// indexFrom is where s is next, or the end of text.
func indexFrom(text, s string, from int) int {
	if from < len(text) {
		if i := strings.Index(text[from:], s); i >= 0 {
			return from + i
		}
	}
	return len(text)
}

// skipDouble returns where a double quote ends, and how many expansions there are
// before.
func skipDouble(text string, i int) (end, nodes int) {
	for ; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i, nodes
		case '\\':
			i++
		case '$', '`':
			nodes++
		}
	}
	return i, nodes
}

func skipANSI(text string, i int) int {
	for ; i < len(text) && text[i] != '\''; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i
}

// skipHeredoc returns the last byte of a here-document whose delimiter begins at
// i, or of the delimiter if the rest of the line has more to say, how many
// expansions there are in it, and how many bytes were looked at, of those that may.
func skipHeredoc(text string, i, most int) (end, nodes, looked int) {
	if most <= 0 {
		return i - 1, 0, 0
	}
	if i < len(text) && text[i] == '-' {
		i++
	}
	for i < len(text) && (text[i] == ' ' || text[i] == '\t') {
		i++
	}
	start := i
	for i < len(text) && !strings.ContainsRune(" \t\n;&|<>()", rune(text[i])) {
		i++
	}
	delimiter := strings.NewReplacer("'", "", `"`, "", `\`, "").Replace(text[start:i])
	line := indexFrom(text, "\n", i)
	if delimiter == "" || strings.Contains(text[i:line], "<<") {
		return i - 1, 0, line - i
	}
	expands := delimiter == text[start:i]
	for at := line; at < len(text) && at-line < most; {
		next := indexFrom(text, "\n", at+1)
		body := text[at+1 : max(next, at+1)]
		if strings.TrimLeft(body, "\t") == delimiter {
			return next - 1, nodes, at - line
		}
		if expands {
			nodes += strings.Count(body, "$") + strings.Count(body, "`")
		}
		looked = next - line
		at = next
	}
	return i - 1, 0, looked
}
