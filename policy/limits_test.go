package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// bombs are scripts that are made to make a parser, or what comes after it, take
// all the memory, stack or time there is.
func bombs(n int) map[string]string {
	b := map[string]string{
		"nothing":                   "",
		"spaces":                    strings.Repeat(" ", n),
		"NUL":                       strings.Repeat("\x00", n),
		"not UTF-8":                 strings.Repeat("\xff", n),
		"one word":                  strings.Repeat("a", n),
		"assignments":               strings.Repeat("a=b ", n/4),
		"doubling":                  "a=xxxxxxxx;" + doubling(200),
		"and substituted":           "echo " + strings.Repeat("$a", n/2),
		"elif":                      "if a; then b; " + strings.Repeat("elif a; then b; ", n/16) + "fi",
		"nested else":               strings.Repeat("if a; then b; else ", n/20) + "c" + strings.Repeat("; fi", n/20),
		"sum":                       "((" + strings.Repeat("1+", n/2) + "1))",
		"powers":                    "((" + strings.Repeat("1**", n/3) + "1))",
		"ternaries":                 "((" + strings.Repeat("1?1:", n/4) + "1))",
		"assigned sums":             "((" + strings.Repeat("a=", n/2) + "1))",
		"array":                     "a=(" + strings.Repeat("b ", n/2) + ")",
		"quoted braces":             "echo " + strings.Repeat("'{'", n/3),
		"brace product":             "rm -rf " + strings.Repeat("{a,b}", n/5),
		"brace products":            strings.Repeat("rm {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b} ", n/60),
		"brace sequence":            "rm -rf {1..1000000000}",
		"sequences":                 "rm -rf " + strings.Repeat("{1..90}", n/7),
		"nested braces":             strings.Repeat("{a,", n/6) + strings.Repeat("}", n/6),
		"brackets":                  "echo " + strings.Repeat("[*", n/2),
		"tests":                     "[[ " + strings.Repeat("a && ", n/5) + "a ]]",
		"case items":                "case x in " + strings.Repeat("a) b;; ", n/7) + "esac",
		"heredocs":                  strings.Repeat("cat <<a\n", n/8) + strings.Repeat("a\n", n/8),
		"one line of heredocs":      "cat " + strings.Repeat("<<a ", n/4) + "\n" + strings.Repeat("a\n", n/8),
		"heredoc lines":             "cat <<a\n" + strings.Repeat("b\n", n/2) + "a\n",
		"heredoc expansions":        "cat <<a\n" + strings.Repeat("$b\n", n/3) + "a\n",
		"evals":                     strings.Repeat("eval 'a=b';", n/11),
		"eval of itself":            `a='eval "$a"'; eval "$a"`,
		"bash -c":                   strings.Repeat("bash -c 'ls';", n/13),
		"functions that call twice": calls(60),
		"a function for each name":  functions(n / 20),
		"aliases of each other":     "alias a='b; b'; alias b='a; a'; a",
		"loops":                     strings.Repeat("for i in 1 2 3 4 5 6 7 8; do ", 150) + "ls" + strings.Repeat("; done", 150),
		"wrappers":                  strings.Repeat("sudo ", n/5) + "rm -rf /",
		"unknown wrappers":          strings.Repeat("foo rm ", n/7),
		"xargs of xargs":            strings.Repeat("echo a | xargs ", n/15),
		"find":                      "find . " + strings.Repeat("-exec rm {} + ", n/14),
		"find in find":              strings.Repeat("find -exec ", n/11),
		"env -S":                    "env -S '" + strings.Repeat("a ", n/2) + "'",
		"env -S of env -S":          "env " + strings.Repeat("-S", n/2),
		"many -S":                   "env " + strings.Repeat("-S ", n/3),
		"quotes in env -S":          "env -S '" + strings.Repeat("\"\" ", n/3) + "'",
		"variables in env -S":       "env -S '" + strings.Repeat("${", n/2) + "'",
		"parallel":                  "parallel rm ::: " + strings.Repeat("a ", n/2),
		"printf":                    "printf '%s' " + strings.Repeat("a ", n/2) + "| sh",
		"echo to a shell":           "echo '" + strings.Repeat("ls;", n/3) + "' | sh",
		"one path":                  "rm -rf " + strings.Repeat("a/", n/2),
		"parents":                   "rm -rf " + strings.Repeat("../", n/3),
		"unknown path":              "rm -rf " + strings.Repeat("$a/", n/3),
		"operands":                  "rm -rf " + strings.Repeat("a ", n/2),
		"PATH":                      "PATH=" + strings.Repeat(":a", n/2),
		"carriage returns":          strings.Repeat("a\r\n", n/3),
		"odd words":                 strings.Repeat("a\u00a0", n/3),
		"odd commands":              strings.Repeat("\u0430\n", n/3),
		"git options":               "git " + strings.Repeat("-c a=b ", n/7) + "push",
		"curly heredoc":             "{ cat <<a; } | sh\n" + strings.Repeat("ls\n", n/3) + "a\n",
	}
	for _, open := range []string{
		"$(", "(", "{ ", "`", "${a:-", "\"$(", "\"${a:-\"", "$((", "((", "$[", "<(", "[[ ( ", "[[ ! ", "! ", "if ", "if a; then ", "while ", "for i in a; do ",
		"case a in a) ", "f() { ", "f() ", "function f ", "time ", "coproc ", "\"", "'", "$'", "\\", "{", "a{b,", "${", "${a[", "$((a[", "a[", "a=(", "a[$(", "<<", "<<a ", "<<<", "a;", "a\n",
		"a&", ";", "a&&", "a||", "a|", "a|&", "!(", "@(a", "sudo ", "bash -c '", "eval ", "=", "select i in ", "${a/$(", "${a#${", "((-", "((~", "((!", "(((", "((a?", "let a=", "declare a=$(", ">", ">&", "&", "#", "\r", "\t$(", "until ",
		"`\\`", "$(cat <<a\n", "a $(", "export a=\"$(", "\"`", "${a:$((", "[ ", "~", "*", "?", "[", "{1..9}", "<(a ", ">(",
	} {
		b["repeated "+open] = strings.Repeat(open, n/len(open))
	}
	for open, closing := range map[string]string{"$(": ")", "(": ")", "{ ": ";}", "${a:-": "}", "\"$(": ")\"", "((": "))", "$((": "))", "[[ ( ": " ) ]]", "<(": ")", "a=$(": ")"} {
		b["closed "+open] = strings.Repeat(open, n/len(open)/2) + "a" + strings.Repeat(closing, n/len(open)/2)
		b["closed in turn "+open] = strings.Repeat(open+"a"+closing+" ", n/(len(open)+len(closing)+2))
	}
	// As deep as the parser may go, and long with it.
	for open, closing := range map[string]string{"$(": ")", "((": "))", "(": ")", "${a:-": "}", "[[ ( ": ""} {
		b["deep and long "+open] = strings.Repeat(open, 190) + strings.Repeat("b ", n/2) + strings.Repeat(closing, 190)
	}
	b["deep and long sum"] = "echo $((" + strings.Repeat("(", 195) + strings.Repeat("1+", n/2) + "1" + strings.Repeat(")", 197)
	return b
}

func doubling(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d=$a%s$a%s;", i+1, number(i), number(i))
	}
	return b.String() + fmt.Sprintf("$a%d", n)
}

func number(i int) string {
	if i == 0 {
		return ""
	}
	return fmt.Sprint(i)
}

func calls(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "f%d() { f%d \"$@\"; f%d \"$@\"; }\n", i, i+1, i+1)
	}
	return b.String() + "f0 a"
}

func functions(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "f%d() { $1; }\n", i)
	}
	return b.String()
}

// mostTimes is how often as long as plain command lines any script of the greatest
// size may take. What it is on this machine the benchmarks say.
const mostTimes = 25

// bestOf measures a check a few times: the machine may have other things to do.
// It stops at one that takes no longer than enough.
func bestOf(p *Policy, script string, enough time.Duration) (Decision, time.Duration) {
	var d Decision
	best := time.Hour
	for range 4 {
		start := time.Now()
		d = p.Check(Input{Script: script})
		if best = min(best, time.Since(start)); best < enough {
			break
		}
	}
	return d, best
}

// TestBombs proves that no script takes long, whatever it is made of: against one
// of the greatest size that is made of nothing special. That none ends the process
// is what it means for the test to end.
func TestBombs(t *testing.T) {
	sizes := []int{300_000, maxScript - 100}
	switch {
	case slowdown > 1: // the race detector finds nothing in more of the same
		sizes = []int{60_000}
	case testing.Short():
		sizes = sizes[:1]
	}
	p := newPolicy(t, Options{Checks: CheckNames(), Sets: SetNames(), Mode: Guarded})
	_, plain := bestOf(p, strings.Repeat("ls -l some/directory/of/a/tree another/file of/it and/one/more\n", maxScript/63), 0)
	t.Logf("plain: %v", plain)
	most := mostTimes * plain
	for _, size := range sizes {
		for name, script := range bombs(size) {
			if len(script) > maxScript {
				script = script[:maxScript]
			}
			d, took := bestOf(p, script, most)
			if took > most {
				t.Errorf("%s, %d bytes: %s in %v; want at most %v, %d times what plain lines take", name, len(script), d.Verdict, took, most, mostTimes)
			}
			if took > most/4 {
				t.Logf("%s, %d bytes: %s (%s) in %v", name, len(script), d.Verdict, d.Rule, took)
			}
		}
	}
}
