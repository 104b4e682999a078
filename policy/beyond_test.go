package policy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// TestBeyondLimits puts a removal beyond each limit. A policy may say that it does not know
// the script, or that it is too complex, but not that it is allowed.
func TestBeyondLimits(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: CheckNames(), Sets: SetNames(), Mode: Guarded})
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "a%d ", i)
		}
		return b.String()
	}
	for _, tt := range []struct {
		name, script string
		want         Verdict
	}{
		{"braces that make 512 words", "rm -rf " + strings.Repeat("{a,b}", 9) + " /", Deny},
		{"braces that make too many words", "rm -rf x" + strings.Repeat("{a,b}", 10), Opaque},
		{"too many braces", "rm -rf " + strings.Repeat("{a,b}x", maxBraces+1), Opaque},
		{"as many braces as are matched", "echo " + strings.Repeat("{a}", maxBraces), Allow},
		{"words beyond the limit", strings.Repeat("echo {1..90};", 1000), Allow},
		{"a value that is as long as is kept", "x=/" + strings.Repeat("/", maxText-1) + "; rm -rf $x", Deny},
		{"64 values of parallel", "parallel rm -rf ::: " + names(63) + "/", Deny},
		{"65 values of parallel", "parallel rm -rf ::: " + names(64) + "/", Deny},
		{"200 values of parallel that lose nothing", "parallel echo ::: " + names(200), Allow},
		{"64 lines of xargs -I", "printf '%s\\n' " + names(63) + "/ | xargs -I X rm -rf X", Deny},
		{"65 lines of xargs -I", "printf '%s\\n' " + names(64) + "/ | xargs -I X rm -rf X", Deny},
		{"65 lines of xargs -I that lose nothing", "printf '%s\\n' " + names(65) + " | xargs -I X echo X", Allow},
		{"65 calls of xargs -n 1", "echo " + names(65) + "/ | xargs -n 1 rm -rf", Deny},
		{"8 words of a loop", "for x in 1 2 3 4 5 6 7 /; do rm -rf $x; done", Deny},
		{"two loops", "for x in 1 /; do for y in 2 3; do rm -rf $x; done; done", Deny},
		{"wrappers in wrappers", strings.Repeat("env ", maxDepth) + "rm -rf /", TooComplex},
		{"as many wrappers as there may be", strings.Repeat("env ", maxDepth-1) + "rm -rf /", Deny},
		{"env -S within env -S", "env -S 'env -S \"rm -rf /\"'", Deny},
		{"as many -S as there may be", "env " + strings.Repeat("-S ", maxDepth) + "rm -rf /", Deny},
		{"too many -S", "env " + strings.Repeat("-S ", maxDepth+1) + "rm -rf /", TooComplex},
		{"evals", strings.Repeat("eval ", 150) + "rm -rf /", Deny},
		{"too many evals", strings.Repeat("eval ", maxDepth+1) + "rm -rf /", TooComplex},
		{"functions that call more than there are steps", calls(60), TooComplex},
		{"too many words of commands", strings.Repeat("true "+strings.Repeat("a ", 100)+"\n", 10_000), Allow},
		{"a script within a script that is too long", "x='" + strings.Repeat("a", maxText-1) + "'\n" + strings.Repeat("eval \"$x\"\n", maxScript/maxText+2) + "rm -rf /", TooComplex},
	} {
		if d := p.Check(Input{Script: tt.script}); d.Verdict != tt.want || d.Blocked != (tt.want != Allow) {
			t.Errorf("%s: Check = %s by %s (%s), blocked %v; want %s", tt.name, d.Verdict, d.Rule, d.Reason, d.Blocked, tt.want)
		}
	}
}

// randomPattern writes a pattern without lookaround or backreferences.
func randomPattern(r *rand.Rand, depth int) string {
	atoms := []string{"a", "b", "c", ".", `\s`, `\S`, `\w`, `\W`, `\d`, `\D`, "[ab]", "[^a]", "[a-c ]", `[\w-]`, `\b`, `\B`, "^", "$", `\.`, " ", `\n`, "é", `\x61`, `\u0062`, "(?:)", "_", "A"}
	if depth == 0 {
		return atoms[r.IntN(len(atoms))]
	}
	switch r.IntN(6) {
	case 0:
		return "(" + randomPattern(r, depth-1) + "|" + randomPattern(r, depth-1) + ")"
	case 1:
		return "(?:" + randomPattern(r, depth-1) + ")" + []string{"*", "+", "?", "{2}", "{1,3}", "{0,}", "*?", "+?", "??"}[r.IntN(9)]
	case 2:
		return atoms[r.IntN(len(atoms))]
	default:
		return randomPattern(r, depth-1) + randomPattern(r, depth-1)
	}
}

// negated matches patterns with a class of all characters but a few.
var negated = regexp.MustCompile(`\\[SWD]|\[\^`)

// TestAutomatonAsRegexp2 compares automata with package regexp2, which backtracks as an
// ECMAScript engine does, on random patterns and texts.
func TestAutomatonAsRegexp2(t *testing.T) {
	t.Parallel()
	const patterns, texts = 800, 10
	// Package regexp2 takes tens of milliseconds to compile a negated class that ignores case,
	// and more than a second under the race detector.
	costly := 24 / slowdown
	r := rand.New(rand.NewPCG(1, 2))
	letters := []rune("aabbcAB_ .1\n\t\u00e9\u00a0-")
	automata, found := 0, 0
	for range patterns {
		pattern := randomPattern(r, 3)
		flags := []string{"", "i", "m", "s", "im", "is"}[r.IntN(6)]
		if negated.MatchString(pattern) && strings.Contains(flags, "i") {
			if costly--; costly < 0 {
				flags = strings.Trim(flags, "i")
			}
		}
		m, err := compileECMAScript(pattern, flags)
		if err != nil {
			continue
		}
		a, linear := m.(*automaton)
		if !linear {
			continue
		}
		options := regexp2.ECMAScript
		for flag, option := range map[string]regexp2.RegexOptions{"i": regexp2.IgnoreCase, "s": regexp2.Singleline, "m": regexp2.Multiline} {
			if strings.Contains(flags, flag) {
				options |= option
			}
		}
		oracle, err := regexp2.Compile(pattern, options)
		if err != nil {
			continue
		}
		oracle.MatchTimeout = 50 * time.Millisecond
		automata++
		for range texts {
			text := make([]rune, r.IntN(12))
			for i := range text {
				text[i] = letters[r.IntN(len(letters))]
			}
			got, decided := matches(a, string(text))
			want, err := oracle.MatchString(string(text))
			if err != nil {
				continue // it took too long
			}
			if want {
				found++
			}
			if !decided || got != want {
				t.Fatalf("/%s/%s.test(%q) = %v, decided %v; regexp2 says %v", pattern, flags, string(text), got, decided, want)
			}
		}
	}
	if automata < patterns/2 || found < automata/2 {
		t.Errorf("%d of %d patterns were automata, with %d matches; want more", automata, patterns, found)
	}
}

// TestImportChangesNoGlobal reads the package's own source: no init function, and no variable
// or function of another package that is assigned or set, but for the one setting that New
// documents, which is set in a function that runs on demand.
func TestImportChangesNoGlobal(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	settings := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		imported := map[string]bool{}
		for _, spec := range f.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			base := filepath.Base(path)
			if strings.HasPrefix(base, "v") && strings.Trim(base[1:], "0123456789") == "" {
				base = filepath.Base(filepath.Dir(path))
			}
			imported[base] = true
		}
		foreign := func(x ast.Expr) bool {
			sel, ok := x.(*ast.SelectorExpr)
			if !ok {
				return false
			}
			id, ok := sel.X.(*ast.Ident)
			return ok && imported[id.Name]
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					t.Errorf("%v: init runs when the package is imported", set.Position(n.Pos()))
				}
			case *ast.AssignStmt:
				for _, x := range n.Lhs {
					if foreign(x) {
						t.Errorf("%v: a variable of another package is assigned", set.Position(x.Pos()))
					}
				}
			case *ast.CallExpr:
				sel, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || !foreign(sel) || !strings.HasPrefix(sel.Sel.Name, "Set") {
					return true
				}
				if settings++; name != "interceptor_regexp.go" || sel.Sel.Name != "SetTimeoutCheckPeriod" {
					t.Errorf("%v: %s changes another package", set.Position(n.Pos()), sel.Sel.Name)
				}
			}
			return true
		})
	}
	if settings != 1 {
		t.Errorf("%d calls set something of another package; want the one that New documents", settings)
	}
}
