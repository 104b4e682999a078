package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// phrases are what this project's English goes without. A space stands for any
// white space, so that a phrase is found over the end of a line too.
var phrases = []struct {
	pattern *regexp.Regexp
	needle  string // is in lower case in every text that the pattern matches
	instead string
}{
	{phrase(`(?i)\bnobody(?:'s)?\b`), "nobody", `"no caller", "no process", "no one", or the passive: "is not read"`},
	{phrase(`(?i)\b(?:somebody|anybody)(?:'s)?\b`), "body", `the caller, the user, the process: say which`},
	{phrase(`(?i)\bwhoever\b`), "whoever", `"the caller", "the reader", "any process that"`},
	{phrase(`(?i)\b(?:is|are|was|were|be|been|not|never) told(?: (?:of|about|as|once|by|with|how|which|what|that|the)\b|[.,;:)])`), "told", `"reported", "the observer", "the listener", or say who is called with what`},
	{phrase(`(?i)\b(?:the|its|their|each|every|a) begin\b`), "begin", `"the start" or "the beginning"`},
	{phrase(`(?i)\bbeside\b`), "beside", `"next to" for a place; else "besides", "along with", "as well as", "in parallel with"`},
	{phrase(`(?i)\b(?:in (?:its|their|his|your) stead|for want of|want of memory)\b`), "", `"instead", "because there is no …", "too little …"`},
	{phrase(`(?i)\b(?:made|written|created|measured) anew\b`), "anew", `"again", or "rewritten"`},
	{phrase(`(?i)\bclears? up\b`), "clear", `"cleans up"`},
	{phrase(`(?i)\b(?:has|have|had|having) it that\b`), "that", `"says that"`},
	{phrase(`\bOf (?:a|an|the|what|those|these|that|it|its|them|whom)\b`), "of", `put the subject first: "the oldest of the …", not "Of the … the oldest"`},
	{phrase(`[;:] of (?:a|an|the|what|those|these|that|it|its|them|whom)\b`), "of", `put the subject first`},
	{phrase(`(?i)\b(?:is|are|was|were|be|been|being) no [a-z-]+`), "no", `"is not a …", "is not …", "there is no …"`},
}

// phrase compiles a pattern in which a space is any white space.
func phrase(pattern string) *regexp.Regexp {
	return regexp.MustCompile(strings.ReplaceAll(pattern, " ", `\s+`))
}

// Uses of "is no …" that are good English: "there is no file", "is no longer".
var (
	thereIs  = regexp.MustCompile(`(?i)\b(?:there|here)(?:\s+[a-z]+){0,2}\s+$`)
	noLonger = phrase(`(?i) no (?:longer|more|less|fewer|better|worse|larger|smaller|shorter|later|earlier|older|newer|slower|faster|higher|lower|one|matter)$`)
)

// metaphors are words that say nothing to a reader of a type's name.
var metaphors = map[string]string{
	"ear":    "listener",
	"doubt":  "health",
	"doubts": "health",
	"door":   "listener address",
	"birth":  "start time",
	"births": "start times",
	"worth":  "score",
	"wild":   "glob",
	"place":  "slot, position",
	"gate":   "semaphore, limiter",
	"box":    "what it holds",
	"look":   "snapshot, observation",
	"left":   "remaining, leftover",
}

// exceptions are files that may hold a phrase, each with its reason.
var exceptions = []struct{ path, text, reason string }{
	{"docs/words_test.go", "", "it lists them"},
	{"sandbox/engine_accounts_test.go", "somebody", "an account of that name"},
	{"internal/transfer/links.go", "be told:", "it is part of the runner, which a change of its text would build again"},
	{"images/host.go", "nobody", "the account of that name"},
	{"policy/bashtest/bash.go", "nobody", "the account of that name"},
	{"e2e/testdata/script/image-shells.txtar", "nobody", "the name of a user that no image has"},
}

// finding is a phrase that should be another.
type finding struct {
	line          int
	text, instead string
}

// TestWords keeps phrases that readers stumble over out of comments, strings,
// type names and documents.
func TestWords(t *testing.T) {
	t.Parallel()
	files, excepted := 0, make(map[int]bool)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		if d.IsDir() {
			if name == ".git" || name == "bin" || name == "dist" {
				return fs.SkipDir
			}
			return nil
		}
		if !hasProse(name) {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		found, err := inFile(name, string(source))
		if err != nil {
			return err
		}
		for _, f := range found {
			if i := exception(name, f.text); i >= 0 {
				excepted[i] = true
				continue
			}
			t.Errorf("%s:%d: %q: write %s", name, f.line, f.text, f.instead)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("looked at %d files; want all", files)
	}
	for i, e := range exceptions {
		if !excepted[i] {
			t.Errorf("no longer needed: the exception for %q in %s (%s)", e.text, e.path, e.reason)
		}
	}
}

// hasProse says whether a file has text of ours that people read.
func hasProse(name string) bool {
	switch filepath.Ext(name) {
	case ".go", ".md", ".txtar", ".sh", ".yml", ".yaml", ".json":
		return true
	}
	base := filepath.Base(name)
	return base == "Makefile" || base == "Dockerfile" || strings.HasPrefix(name, ".ci/")
}

// exception returns the index of the exception for a text in a file, or -1.
func exception(name, text string) int {
	for i, e := range exceptions {
		if e.path == name && (e.text == "" || e.text == text) {
			return i
		}
	}
	return -1
}

// inFile finds the phrases in a file: in all of its text, or for Go in its
// comments, its strings and the names of its types.
func inFile(name, source string) ([]finding, error) {
	if filepath.Ext(name) != ".go" {
		return inText(source, 1), nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []finding
	for _, group := range file.Comments {
		text := source[set.Position(group.Pos()).Offset:set.Position(group.End()).Offset]
		found = append(found, inText(uncommented.ReplaceAllString(text, ""), set.Position(group.Pos()).Line)...)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				text := n.Value
				if s, err := strconv.Unquote(text); err == nil && text[0] == '"' {
					text = s
				}
				found = append(found, inText(text, set.Position(n.Pos()).Line)...)
			}
		case *ast.TypeSpec:
			for _, word := range words(n.Name.Name) {
				if instead, ok := metaphors[word]; ok {
					found = append(found, finding{set.Position(n.Pos()).Line, "type " + n.Name.Name, "a name that says what it is, such as " + instead})
				}
			}
		}
		return true
	})
	return found, nil
}

// uncommented is what comes before the text on a line of a comment.
var uncommented = regexp.MustCompile(`(?m)^\s*//`)

// inText finds the phrases in a text whose first line has the number line.
func inText(text string, line int) []finding {
	type match struct {
		at   int
		what finding
	}
	var matches []match
	lower := strings.ToLower(text)
	for _, p := range phrases {
		if !strings.Contains(lower, p.needle) {
			continue
		}
		for _, at := range p.pattern.FindAllStringIndex(text, -1) {
			text, before := text[at[0]:at[1]], text[:at[0]]
			if noLonger.MatchString(text) || thereIs.MatchString(before[max(0, len(before)-60):]) {
				continue
			}
			text = strings.Join(strings.Fields(text), " ")
			matches = append(matches, match{at[0], finding{line + strings.Count(before, "\n"), text, p.instead}})
		}
	}
	slices.SortFunc(matches, func(a, b match) int { return a.at - b.at })
	found := make([]finding, len(matches))
	for i, m := range matches {
		found[i] = m.what
	}
	return found
}

// words splits a name in camel case into words of lower case.
func words(name string) []string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}

// TestWordsFound holds the check itself to what it should and should not find.
func TestWordsFound(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, source, want string }{
		{"a.md", "A line.\nThis is no\nerror.\n", `2 "is no error"`},
		{"a.md", "There is no error, there can be no error, it is no longer one and no fewer.\n", ""},
		{"a.md", "Whoever reads it has it that nobody asked.\n", `1 "Whoever" 1 "has it that" 1 "nobody"`},
		{"a.md", "Of a command it is gone; of the others not. One of the others.\n", `1 "Of a" 1 "; of the"`},
		{"a.go", "package a\n\n// f is for the caller\n// who is\n// told.\nfunc f() {}\n", `4 "is told."`},
		{"a.md", "It is told to end, told apart, and told of; it was told once.\n", `1 "was told once"`},
		{"a.md", "An error in its stead, for want of\na better one, made anew.\n", `1 "in its stead" 1 "for want of" 2 "made anew"`},
		{"a.go", "package a\n\nconst s = \"from the begin\" // beside it\n", `3 "beside" 3 "the begin"`},
		{"a.go", "package a\n\nconst s = `one\ntwo beside`\n", `4 "beside"`},
		{"a.go", "package a\n\ntype ttyLook struct{}\n\ntype Sandbox struct{ door int }\n\ntype gated int\n", `3 "type ttyLook"`},
		{"a.go", "package a\n\nvar nobody, beside int\n", ""},
	}
	for _, test := range tests {
		found, err := inFile(test.name, test.source)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range found {
			got = append(got, fmt.Sprintf("%d %q", f.line, f.text))
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("inFile(%q) found %s; want %s", test.source, got, test.want)
		}
	}
}
