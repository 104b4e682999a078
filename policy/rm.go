package policy

import (
	"path"
	"strings"
)

var rmGrammar = grammar{
	short: "fiIrRdvPW",
	long:  "force interactive? one-file-system no-preserve-root preserve-root? recursive dir verbose presume-input-tty help version",
}

// rmOptions tells whether rm is recursive and forced, and what it removes.
func rmOptions(args []arg) (recursive, force bool, operands []arg) {
	o := rmGrammar.permuted(args)
	for _, opt := range o.given {
		switch opt.name {
		case "r", "R", "recursive":
			recursive = true
		case "f", "force":
			force = true
		}
	}
	return recursive, force, o.rest
}

// ruleRm refuses a forced, recursive rm of what is dear.
func ruleRm(w *walker, args []arg, _ stream) {
	recursive, force, operands := rmOptions(args[1:])
	if !recursive || !force {
		return
	}
	for _, a := range operands {
		if what := w.dear(a); what != "" {
			w.deny(checkRm, args[0].at, "rm -rf of "+what+": "+quote(a.text))
			return
		}
	}
}

// dear says what makes the removal of a path a loss, or "".
func (w *walker) dear(a arg) string {
	if a.text == "" || a.parts == nil && w.shell.dir == "" && strings.Trim(a.text, "/.") != "" &&
		!strings.Contains(a.text, ".git") && !strings.Contains(a.text, "..") {
		return "" // most of what is removed
	}
	if inHome(a) {
		return "a home directory"
	}
	switch w.resolve(a) {
	case "/":
		return "the root"
	case "~":
		return "a home directory"
	}
	return dearPattern(a)
}

// inHome tells whether a path begins with a home directory. $HOME.bak is beside
// it; ${HOME}.bak is refused all the same, as the contract has it.
func inHome(a arg) bool {
	if a.parts == nil || a.parts[0].kind != home {
		return false
	}
	beside := len(a.parts) > 1 && a.parts[1].kind == literal && !strings.HasPrefix(a.parts[1].text, "/")
	return !beside || !strings.HasPrefix(a.text, "$HOME")
}

// dearPattern judges a path by its elements: the last may be .git, or a pattern
// that matches it or everything.
func dearPattern(a arg) string {
	elements := splitPath(a)
	if len(elements) == 0 {
		return "" // made at run time
	}
	last := elements[len(elements)-1]
	pattern, isPattern, known := last.pattern()
	switch {
	case !known:
		return ""
	case !isPattern && pattern == ".git":
		return ".git"
	case !isPattern && pattern == ".." && parents(elements):
		return "the directory above"
	case isPattern && strings.Trim(pattern, "*?") == "" && (len(elements) == 1 || topLevel(elements)):
		return "everything there"
	case isPattern && strings.HasPrefix(pattern, ".") && matchesAny(pattern, ".git", "..", ".x"):
		return ".git, by a pattern"
	case len(elements) == 1 && isPattern && matchesAny(pattern, ".git"):
		return ".git, by a pattern"
	}
	return ""
}

// element is what is between two slashes of a path.
type element []part

// pattern returns the element as a pattern for path.Match. It is not known if a
// part of it is made at run time.
func (e element) pattern() (text string, isPattern, known bool) {
	var b strings.Builder
	for _, p := range e {
		switch p.kind {
		case literal:
			b.WriteString(p.text)
		case glob:
			isPattern = true
			b.WriteString(p.text)
		default:
			return "", false, false
		}
	}
	return b.String(), isPattern, true
}

// splitPath returns the elements of a path without those that change nothing. The
// first is empty if the path is absolute.
func splitPath(a arg) []element {
	var out []element
	cur := element{}
	end := func() {
		text, isPattern, known := cur.pattern()
		switch {
		case known && !isPattern && (text == "" || text == ".") && len(out) > 0:
		case known && !isPattern && text == ".":
		case known && !isPattern && text == ".." && len(out) > 0 && isName(out[len(out)-1]):
			out = out[:len(out)-1]
		default:
			out = append(out, cur)
		}
		cur = element{}
	}
	for _, p := range a.all() {
		if p.kind != literal {
			cur = append(cur, p)
			continue
		}
		for i, text := range strings.Split(p.text, "/") {
			if i > 0 {
				end()
			}
			if text != "" {
				cur = append(cur, part{text: text})
			}
		}
	}
	end()
	return out
}

// isName tells whether .. after an element leads back before it.
func isName(e element) bool {
	text, isPattern, known := e.pattern()
	return known && !isPattern && text != ".." && text != ""
}

// parents tells whether a path is .. and nothing else, any number of times.
func parents(elements []element) bool {
	for _, e := range elements {
		if text, isPattern, known := e.pattern(); !known || isPattern || text != ".." {
			return false
		}
	}
	return true
}

// topLevel tells whether the last element is directly in the root, or in the
// directory above.
func topLevel(elements []element) bool {
	before := elements[:len(elements)-1]
	text, isPattern, known := before[0].pattern()
	return len(before) == 1 && known && !isPattern && text == "" || parents(before)
}

// matchesAny tells whether a pattern matches one of some names.
func matchesAny(pattern string, names ...string) bool {
	for _, name := range names {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}
