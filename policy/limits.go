package policy

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
)

// Limits on what is looked at. A script beyond one is TooComplex, except for the last two.
// They allow a MiB of ordinary script, and keep a check of the worst one of 2 MiB within
// some seconds: see TestBombs.
const (
	maxScript = 2 << 20 // bytes of a script, and of all scripts within it together
	maxDepth  = 200     // levels of nesting, scripts within scripts included
	maxNodes  = 100_000 // commands and expansions, as countNodes counts them
	// maxSteps bounds the commands that are visited. Those of a function count at
	// each call: functions that call each other make more commands than there are nodes.
	maxSteps = 300_000
	maxArgs  = 2_000_000 // words of these commands

	maxText  = 4 << 10 // bytes of a variable's value; a longer one is not known
	maxWords = 512     // words that the braces of a word make; with more it is not known
)

// limit is a limit, for the reason of a decision.
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

// budget is what the walk of a script has used up of the limits. All scripts within it
// and all calls of its functions count.
type budget struct {
	steps int
	words int
	bytes int
	over  *limit // the first limit that was reached; nothing more is looked at then
}

func (b *budget) stop(l *limit) {
	if b.over == nil {
		b.over = l
	}
}

// step counts a command, and reports whether to go on.
func (b *budget) step() bool {
	if b.steps++; b.steps > maxSteps {
		b.stop(tooBusy)
	}
	return b.over == nil
}

// wordy counts words, and reports whether to go on.
func (b *budget) wordy(n int) bool {
	if b.words += n; b.words > maxArgs {
		b.stop(tooWordy)
	}
	return b.over == nil
}

// spend counts bytes of text that the walk makes, and reports whether to go on.
func (b *budget) spend(n int) bool {
	if b.bytes += n; b.bytes > maxScript {
		b.stop(tooLong)
	}
	return b.over == nil
}

// The parser recurses, and a Go stack that overflows ends the process. So the parser gets
// its input from a guardedReader, which measures the depth of the stack at each read. A
// level of nesting takes 6 to 27 calls; 200 levels of the worst, parentheses in
// arithmetic, take about 5,600. Between two measurements, each byte may add a level of
// about 3 KiB of stack, which makes 25 MiB at worst.
const (
	maxFrames  = 6500
	frameCheck = 8 << 10 // bytes between measurements; one takes up to a millisecond
)

// guardedReader is an io.Reader over a script. It fails with errDepth once the parser that
// reads from it has recursed too deeply.
type guardedReader struct {
	text   string
	read   int
	looked int // the value of read at the last measurement
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

// countNodes counts what separates commands and starts expansions, in one pass over the
// bytes, and stops after most. It skips quotes, comments and here-documents as well as it
// can without a parser. It bounds the memory that the parser takes for an ordinary script.
// A script that is made to deceive it is bounded by maxScript and maxSteps.
func countNodes(text string, most int) int {
	n := 0
	search := 2 * maxScript // bytes left for searching the ends of here-documents
	blank := true           // only spaces since the last separator or newline
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
			if strings.HasPrefix(text[i:], "<<<") {
				i += 2
			} else if strings.HasPrefix(text[i:], "<<") {
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

// indexFrom returns the index of the next s, or the length of text.
func indexFrom(text, s string, from int) int {
	if from < len(text) {
		if i := strings.Index(text[from:], s); i >= 0 {
			return from + i
		}
	}
	return len(text)
}

// skipDouble returns the index of the closing double quote, and how many expansions there
// are before it.
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

// skipHeredoc skips the here-document whose delimiter starts at i. It returns the index of
// its last byte, or that of the delimiter if the rest of the line starts another
// here-document; how many expansions it has; and how many bytes it took to find its end,
// which are at most most.
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
