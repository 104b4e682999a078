package policy

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// sedRuns and sedWrites match the commands of sed that run a command of the shell, or write
// a file. Other ways to do so in sed are not looked at.
var (
	sedRuns = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)(?:^|[;{}$/0-9!])[ \t]*e[ \t]+([^\n]+)$`)
	})
	sedWrites = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)(?:^|[;{}$/0-9!gIpeM])[ \t]*[wW][ \t]+([^\n;}]+)$`)
	})
)

// ruleSed looks at the commands e and w of sed.
func ruleSed(c call) {
	if !slices.ContainsFunc(c.args[1:], func(a arg) bool { return sedMayRun(a.text) }) {
		return
	}
	o := grammar{
		short: "nrEsuzbi?e:f:l:",
		long:  "quiet silent debug expression= file= follow-symlinks in-place? line-length= posix regexp-extended separate sandbox unbuffered null-data zero-terminated help version",
	}.permuted(c.args[1:])
	var scripts []arg
	for _, opt := range o.given {
		if opt.name == "e" || opt.name == "expression" {
			scripts = append(scripts, opt.value)
		}
	}
	if !given(o, "e expression f file") && len(o.rest) > 0 {
		scripts = o.rest[:1]
	}
	for _, s := range scripts {
		for _, m := range sedRuns().FindAllStringSubmatch(s.text, -1) {
			c.refuse(setExec+"/option", "sed "+quote(s.text))
			c.hidden(m[1], "sed", c.at())
		}
		for _, m := range sedWrites().FindAllStringSubmatch(s.text, -1) {
			c.writes(lit(strings.TrimSpace(m[1]), c.at()), "sed w")
		}
	}
}

// sedMayRun reports whether text has e, w or W before a blank, as a quick test.
func sedMayRun(text string) bool {
	for i := 1; i < len(text); i++ {
		if (text[i] == ' ' || text[i] == '\t') && strings.IndexByte("ewW", text[i-1]) >= 0 {
			return true
		}
	}
	return false
}

// ruleMake refuses to set make's shell to a program that is not a shell.
func ruleMake(c call) {
	for _, a := range c.args[1:] {
		if key, value, ok := a.cut("="); ok && (key == "SHELL" || key == ".SHELLFLAGS") && !shells[base(value.text)] {
			c.refuse(setExec+"/option", "make "+quote(a.text))
		}
	}
}

// ruleCargo refuses settings that make cargo run a program.
func ruleCargo(c call) {
	eachValue(c.args, "--config", func(v arg, _ int) {
		key, value, ok := v.cut("=")
		for _, end := range []string{"runner", "rustc", "rustc-wrapper", "rustc-workspace-wrapper", "rustdoc", "linker", "credential-process"} {
			if ok && strings.HasSuffix(strings.TrimSpace(key), "."+end) {
				c.refuse(setExec+"/option", "cargo --config "+quote(v.text))
				c.hidden(strings.Trim(value.text, ` "'[]`), "cargo", c.at())
			}
		}
	})
}
