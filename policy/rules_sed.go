package policy

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// sedRuns and sedWrites match the commands of sed that run a command of the shell, or write
// a file. sedEvaluates finds the flag e.
var (
	sedRuns = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)(?:^|[;{}$/0-9!])[ \t]*e[ \t]+([^\n]+)$`)
	})
	sedWrites = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)(?:^|[;{}$/0-9!gIpeM])[ \t]*[wW][ \t]+([^\n;}]+)$`)
	})
)

var sedGrammar = grammar{
	short: "nrEsuzbi?e:f:l:",
	long:  "quiet silent debug expression= file= follow-symlinks in-place? line-length= posix regexp-extended separate sandbox unbuffered null-data zero-terminated help version",
}

// sedWords returns the scripts and the files among the words of sed.
func sedWords(args []arg) (o options, scripts, files []arg) {
	o = sedGrammar.permuted(args[1:])
	for _, opt := range o.given {
		if opt.name == "e" || opt.name == "expression" {
			scripts = append(scripts, opt.value)
		}
	}
	files = o.rest
	if !given(o, "e expression f file") && len(files) > 0 {
		scripts, files = files[:1], files[1:]
	}
	return o, scripts, files
}

// ruleSed looks at the commands e and w of sed, at the flag e, and at the files that sed -i
// changes.
func ruleSed(c call) {
	inPlace := slices.ContainsFunc(c.args[1:], func(a arg) bool { return strings.HasPrefix(a.lead(), "-") && strings.Contains(a.text, "i") })
	if !inPlace && !slices.ContainsFunc(c.args[1:], func(a arg) bool { return sedMayRun(a.text) }) {
		return
	}
	o, scripts, files := sedWords(c.args)
	if given(o, "i in-place") {
		for _, file := range files {
			c.writes(file, "sed -i")
		}
	}
	for _, s := range scripts {
		for _, m := range sedRuns().FindAllStringSubmatch(s.text, -1) {
			c.refuse(setExec+"/option", "sed "+quote(s.text))
			c.hidden(m[1], "sed", c.at())
		}
		for _, m := range sedWrites().FindAllStringSubmatch(s.text, -1) {
			c.writes(lit(strings.TrimSpace(m[1]), c.at()), "sed w")
		}
		if command, ok := sedEvaluates(s.text); ok {
			c.hidden(command, "sed", c.at()) // maintainer scripts do so with names of files
		}
	}
}

// sedEvaluates returns the replacement of the first command s in a script of sed that has the
// flag e: sed runs what the line has become. It knows scripts that begin with s, or have it
// after a newline, a semicolon or a brace.
func sedEvaluates(text string) (replacement string, ok bool) {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != 's' || i > 0 && strings.IndexByte(" \t\n;{}$/0123456789!", text[i-1]) < 0 || isLetter(text[i+1]) || strings.IndexByte(" \n\\;0123456789", text[i+1]) >= 0 {
			continue
		}
		between := func(from int) int {
			for from < len(text) && text[from] != text[i+1] {
				if text[from] == '\\' {
					from++
				}
				from++
			}
			return from
		}
		middle := between(i + 2)
		end := between(middle + 1)
		if end >= len(text) {
			continue
		}
		flags := text[end+1:]
		if stop := strings.IndexAny(flags, " ;\n}w"); stop >= 0 {
			flags = flags[:stop]
		}
		if strings.Contains(flags, "e") && strings.Trim(flags, "gpiIemM0123456789") == "" {
			return strings.ReplaceAll(text[middle+1:end], `\`+text[i+1:i+2], text[i+1:i+2]), true
		}
		i = end
	}
	return "", false
}

// sedMayRun reports whether text has e, w or W before a blank, or begins or ends as a command
// with the flag e may, as a quick test.
func sedMayRun(text string) bool {
	if i := strings.IndexByte(text, 's'); i >= 0 && strings.Contains(text[i+1:], "e") {
		return true
	}
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
