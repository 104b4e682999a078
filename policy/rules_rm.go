package policy

import (
	"path"
	"strings"
)

var rmGrammar = grammar{
	short: "fiIrRdvPW",
	long:  "force interactive? one-file-system no-preserve-root preserve-root? recursive dir verbose presume-input-tty help version",
}

// rmOptions returns whether rm is recursive, whether it is forced, and what it removes.
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

// ruleRm refuses a forced, recursive rm of what would be a grave loss: see loss.
func ruleRm(c call) {
	recursive, force, operands := rmOptions(c.args[1:])
	if recursive {
		for _, a := range operands {
			if full := c.resolve(container(a)); wholeTrees[full] || isWorkingDir(container(a)) {
				c.refuse(setDisk+"/mass-delete", "rm -r of "+quote(a.text))
			}
		}
	}
	if !recursive || !force {
		return
	}
	for _, a := range operands {
		if what := c.loss(a); what != "" {
			c.refuse(checkRm, "rm -rf of "+what+": "+quote(a.text))
			return
		}
	}
}

// loss returns what makes the removal of a path a grave loss, or "".
func (w *walker) loss(a arg) string {
	w.shell.usesState = true
	if a.text == "" || a.parts == nil && w.shell.dir == "" && strings.Trim(a.text, "/.") != "" &&
		!strings.Contains(a.text, ".git") && !strings.Contains(a.text, "..") {
		return "" // the common case
	}
	if inHome(a) && !deepInHome(a) {
		return "a home directory"
	}
	switch w.resolve(a) {
	case "/":
		return "the root"
	case "~":
		return "a home directory"
	}
	return lossByPattern(a)
}

// inHome reports whether a path begins with a home directory. $HOME.bak does not;
// ${HOME}.bak counts nevertheless, as the contract demands.
func inHome(a arg) bool {
	if a.parts == nil || a.parts[0].kind != home {
		return false
	}
	longer := len(a.parts) > 1 && a.parts[1].kind == literal && !strings.HasPrefix(a.parts[1].text, "/")
	return !longer || !strings.HasPrefix(a.text, "$HOME")
}

// keptInHome are the directories of a home whose content cannot be made again.
var keptInHome = set(".ssh .gnupg .aws .kube .password-store")

// deepInHome reports whether a path is at least two levels below a home directory, and the
// two levels are known: ~/x/build, but not ~/x and not ~/x/*.
func deepInHome(a arg) bool {
	if strings.ContainsAny(a.parts[0].text, "%#") {
		return false // $HOME without a part of it
	}
	elements := splitPath(a)
	if len(elements) < 3 {
		return false
	}
	for _, e := range elements[1:3] {
		if text, isPattern, known := e.pattern(); !known || isPattern || text == ".." || keptInHome[text] {
			return false
		}
	}
	return true
}

// lossByPattern is loss for the elements of a path: the last may be .git, the directory
// above, or a pattern that matches .git or everything.
func lossByPattern(a arg) string {
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

// element is the part of a path between two slashes.
type element []part

// pattern returns the element as a pattern for path.Match. known is false if a part of it is
// made at run time.
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

// splitPath returns the elements of a path, cleaned. The first is empty if the path is
// absolute.
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

// isName reports whether an element is a name, so that .. after it cancels it.
func isName(e element) bool {
	text, isPattern, known := e.pattern()
	return known && !isPattern && text != ".." && text != ""
}

// parents reports whether all elements are "..".
func parents(elements []element) bool {
	for _, e := range elements {
		if text, isPattern, known := e.pattern(); !known || isPattern || text != ".." {
			return false
		}
	}
	return true
}

// topLevel reports whether the last element is in the root, or in a directory above.
func topLevel(elements []element) bool {
	before := elements[:len(elements)-1]
	text, isPattern, known := before[0].pattern()
	return len(before) == 1 && known && !isPattern && text == "" || parents(before)
}

// matchesAny reports whether a pattern of the shell matches one of the names.
func matchesAny(pattern string, names ...string) bool {
	pattern = goPattern(pattern)
	for _, name := range names {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}

// characterClasses are the ASCII characters of the classes in bracket expressions.
var characterClasses = strings.NewReplacer(
	"[:alpha:]", "a-zA-Z", "[:lower:]", "a-z", "[:upper:]", "A-Z", "[:digit:]", "0-9", "[:alnum:]", "a-zA-Z0-9", "[:word:]", "a-zA-Z0-9_",
	"[:xdigit:]", "0-9a-fA-F", "[:ascii:]", " -~", "[:print:]", " -~", "[:graph:]", "!-~",
)

// goPattern writes a pattern of the shell for path.Match, which has ^ alone for what is not
// in brackets, and no classes.
func goPattern(pattern string) string {
	if !strings.Contains(pattern, "[") {
		return pattern
	}
	pattern = strings.ReplaceAll(characterClasses.Replace(pattern), "[!", "[^")
	return strings.NewReplacer("[]", `[\]`, "[^]", `[^\]`).Replace(pattern)
}
