package policy

import (
	"path"
	"strings"
)

// shells are the programs that run a shell's script.
var shells = set("sh bash rbash dash ash zsh ksh ksh93 mksh lksh pdksh oksh yash posh fish csh tcsh hush")

// shellCommand looks at what a shell runs: the text after -c, a file, or its input.
func (c call) shellCommand() {
	from, rest, ok := c.shellOptions(c.name, c.args)
	switch {
	case !ok:
		c.unclear(opaqueShell, quote(c.name+" with options that are not known"))
		c.shellGuess(c.name, rest, c.in)
	case from == fromText && len(rest) > 0:
		script := inner{text: rest[0], via: c.name + " -c", kind: opaqueShell, in: c.in}
		if len(rest) > 1 {
			script.zero, script.args = rest[1], rest[2:]
		}
		c.shellText(script)
	case from == fromText:
	case from == fromInput || len(rest) == 0:
		c.stdinScript(c.name, c.in, rest)
	case rest[0].parts == nil && stdinNames[rest[0].text]:
		c.stdinScript(c.name, c.in, rest[1:])
	default:
		c.shellFile(c.name, rest, c.in)
	}
}

// shellFile looks at a script in a file, if the file is a process substitution. Other files
// are not read.
func (w *walker) shellFile(name string, rest []arg, in stream) {
	if text, ok := rest[0].literal(); ok && isDescriptor(text) {
		w.stdinScript(name+" "+text, stream{set: true, text: unknownText(text, rest[0].at)}, rest[1:])
		return
	}
	if sub := substitution(rest[0]); sub != nil {
		w.stdinScript(name+" <(…)", w.substituted(rest[0]), rest[1:])
		return
	}
	for _, p := range rest[0].parts {
		if p.kind == split {
			// The word may be empty and vanish, or be -c.
			w.notKnown(opaqueShell, rest[0].at, quote(name+" "+rest[0].text))
			w.shellGuess(name, rest, in)
			return
		}
	}
}

// isDescriptor reports whether a path is an open file of the process by its number.
func isDescriptor(file string) bool {
	file = path.Clean(file)
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if n, ok := strings.CutPrefix(file, dir); ok && n != "" && strings.Trim(n, "0123456789") == "" {
			return true
		}
	}
	return false
}

// substituted returns what a process substitution writes.
func (w *walker) substituted(a arg) stream {
	sub := substitution(a)
	text := w.outputOf(sub.Stmts, stream{})
	if !isKnown(text) {
		w.deny(setDecode+"/substitution", a.at, "an interpreter runs the output of "+quote(a.text))
	}
	return stream{set: true, text: text}
}

// shellGuess looks for a script after -c if some options are not known.
func (w *walker) shellGuess(name string, rest []arg, in stream) {
	for i, a := range rest {
		text, ok := a.literal()
		if ok && len(text) > 1 && text[0] == '-' && text[1] != '-' && strings.Contains(text, "c") && i+1 < len(rest) {
			w.silently(func() {
				w.shellText(inner{text: rest[i+1], via: name + " -c", kind: opaqueShell, in: in})
			})
			return
		}
	}
	w.stdinScript(name, in, nil)
}

// shellLong are the long options of shells; = ends one that takes a value.
const shellLong = "rcfile= init-file= norc noprofile login posix restricted verbose noediting debugger" +
	" dump-strings dump-po-strings help version pretty-print emulate= no-config private no-execute interactive"

// scriptSource says where a shell takes its script from.
type scriptSource uint8

const (
	fromFile  scriptSource = iota // the first word names it; without words it is the input
	fromText                      // -c: the first word is the script
	fromInput                     // -s: all words are its arguments
)

// shellOptions reads a shell's options. It returns where the script is, and the words after
// the options. ok is false if an option is not known; then rest starts with it.
func (w *walker) shellOptions(name string, args []arg) (from scriptSource, rest []arg, ok bool) {
	const letters = "abcefhiklmnprstuvxBCEHPTDV"
	g := grammar{long: shellLong}
	i := 1
	for i < len(args) {
		text := args[i].lead()
		if len(text) < 2 || text[0] != '-' && text[0] != '+' || args[i].is("--") {
			break
		}
		if args[i].parts != nil {
			return from, args[i:], false
		}
		if strings.HasPrefix(text, "--") {
			bare, _, attached := strings.Cut(text[2:], "=")
			full, known := g.fullName(bare)
			if !known {
				return from, args[i:], false
			}
			i++
			if strings.HasSuffix(full, "=") && !attached && i < len(args) {
				if sub := substitution(args[i]); sub != nil {
					w.stdinScript(name+" "+text, w.substituted(args[i]), nil)
				}
				i++
			}
			continue
		}
		values := 0
		for _, c := range text[1:] {
			switch {
			case c == 'c' && text[0] == '-':
				from = fromText
			case c == 's' && text[0] == '-' && from != fromText:
				from = fromInput
			case c == 'o' || c == 'O':
				values++
			case !strings.ContainsRune(letters, c):
				return from, args[i:], false
			}
		}
		i += 1 + values
	}
	if i < len(args) && (args[i].is("--") || from != fromFile && args[i].is("-")) {
		i++
	}
	return from, args[min(i, len(args)):], true
}

// eval visits what eval runs, in the current shell.
func (c call) eval() {
	args := c.args
	args = args[1:]
	if len(args) > 0 && args[0].is("--") {
		args = args[1:]
	}
	c.shellText(inner{text: joined(args), via: "eval", kind: opaqueEval, here: true, in: c.in})
}

// sourced visits what source runs, if that is not in a file.
func (c call) sourced() {
	args := c.args
	if len(args) > 1 && args[1].is("--") {
		args = args[1:]
	}
	if len(args) < 2 {
		return
	}
	file := args[1]
	switch {
	case substitution(file) != nil:
		c.sourceText(c.name+" <(…)", c.substituted(file), args[2:])
	case file.parts == nil && stdinNames[file.text] && file.text != "-":
		if text := c.read(c.in); c.in.set && !isKnown(text) {
			c.deny(setDecode+"/file", file.at, c.name+" runs "+quote(text.text))
		}
		c.sourceText(c.name, c.in, args[2:])
	default:
		c.unclear(opaqueSource, quote(c.name+" "+file.text))
	}
}

// sourceText visits what source reads. Words after the file's name are the positional
// parameters meanwhile.
func (w *walker) sourceText(via string, in stream, args []arg) {
	if !in.set {
		return
	}
	sh := w.shell
	params, known := sh.args, sh.argsKnown
	if len(args) > 0 {
		sh.args, sh.argsKnown = args, true
	}
	w.shellText(inner{text: w.read(in), via: via, kind: opaqueSource, here: true})
	if len(args) > 0 {
		sh.args, sh.argsKnown = params, known
	}
}

// interpreters maps the programs that run a program in their own language to the options
// whose value is that program.
var interpreters = map[string]string{
	"python": "c", "python2": "c", "python3": "c", "pypy": "c", "pypy3": "c",
	"perl": "e E", "ruby": "e", "node": "e p eval print", "nodejs": "e p eval print", "deno": "", "bun": "e",
	"php": "r", "lua": "e", "luajit": "e", "tclsh": "", "Rscript": "e", "osascript": "e", "groovy": "e", "julia": "e",
}

// interpreter refuses a program that is read from a pipe and not known. It does not look
// into programs. Standard leaves them to the container, and guarded refuses them.
func (c call) interpreter() {
	for i := 1; i < len(c.args); i++ {
		text := c.args[i].lead()
		if substitution(c.args[i]) != nil {
			c.substituted(c.args[i])
			return
		}
		if stdinNames[text] && c.args[i].parts == nil {
			break
		}
		if !strings.HasPrefix(text, "-") {
			return // a file, or a command of the interpreter
		}
		if interpretsText(c.name, text) {
			if c.p.mode == Guarded {
				c.unclear(opaqueInterpreter, c.name+" "+quote(text))
			}
			return
		}
		if text == "-m" || strings.HasPrefix(text, "--version") || text == "-V" || text == "-v" || text == "-h" || text == "--help" {
			return
		}
	}
	if !c.in.set || !c.in.pipe {
		return
	}
	if text := c.read(c.in); !isKnown(text) {
		c.refuse(setDecode+"/pipe", c.name+" runs "+quote(text.text))
		if c.p.mode == Guarded {
			c.unclear(opaqueInterpreter, c.name+" runs "+quote(text.text))
		}
	}
}

// escapes maps programs whose own language can run commands to the texts that do so.
var escapes = map[string][]string{
	"awk": {"system(", `| "`, `"|`, "getline"}, "gawk": {"system(", `| "`, "getline"}, "mawk": {"system(", `| "`, "getline"}, "nawk": {"system(", `| "`, "getline"},
	"vim": {"!", "system("}, "vi": {"!"}, "nvim": {"!", "system("}, "ex": {"!"}, "view": {"!"}, "emacs": {"--eval", "shell-command"},
	"sed": {"/e", ";e ", "1e ", "e rm", "$e "}, "gdb": {"!", "shell "}, "make": {"--eval", "-f-", "/dev/stdin"},
}

// escape makes a call of such a program opaque in mode guarded.
func (c call) escape() {
	if c.p.mode != Guarded {
		return
	}
	words := c.args[1:]
	if c.name == "sed" { // a file may be named as a command of sed is
		_, words, _ = sedWords(c.args)
	}
	for i, a := range words {
		for _, mark := range escapes[c.name] {
			if strings.Contains(a.text, mark) || c.name == "make" && a.is("-") && c.args[i].is("-f") {
				c.unclear(opaqueInterpreter, c.name+" "+quote(a.text))
				return
			}
		}
	}
}

// interpretsText reports whether the value of an option is the program to run.
func interpretsText(name, text string) bool {
	for opt := range strings.FieldsSeq(interpreters[name]) {
		if len(opt) > 1 && strings.HasPrefix(text, "--"+opt) || len(opt) == 1 && len(text) > 1 && text[1] != '-' && strings.Contains(text, opt) {
			return true
		}
	}
	return false
}
