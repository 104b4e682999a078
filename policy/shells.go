package policy

import (
	"strings"
)

// shells are the programs that run a shell's script.
var shells = set("sh bash rbash dash ash zsh ksh ksh93 mksh lksh pdksh oksh yash posh fish csh tcsh hush")

// shellCommand looks at what a shell is given to run: a text after -c, a file, or
// its standard input.
func (w *walker) shellCommand(name string, args []arg, in stream) {
	command, rest, ok := w.shellOptions(name, args)
	switch {
	case !ok:
		w.notKnown(opaqueShell, args[0].at, quote(name+" with options that are not known"))
		w.shellGuess(name, rest, in)
	case command && len(rest) > 0:
		script := inner{text: rest[0], via: name + " -c", kind: opaqueShell, in: in}
		if len(rest) > 1 {
			script.zero, script.args = rest[1], rest[2:]
		}
		w.shellText(script)
	case command:
	case len(rest) == 0 || rest[0].parts == nil && stdinNames[rest[0].text]:
		w.stdinScript(name, in, nil)
	default:
		w.shellFile(name, rest, in)
	}
}

// shellFile looks at a script that is named, as far as it is here to see.
func (w *walker) shellFile(name string, rest []arg, in stream) {
	if sub := substitution(rest[0]); sub != nil {
		w.stdinScript(name+" <(…)", w.substituted(rest[0]), rest[1:])
		return
	}
	for _, p := range rest[0].parts {
		if p.kind == split {
			// It may be nothing, or -c.
			w.notKnown(opaqueShell, rest[0].at, quote(name+" "+rest[0].text))
			w.shellGuess(name, rest, in)
			return
		}
	}
}

// substituted is what a process substitution writes.
func (w *walker) substituted(a arg) stream {
	sub := substitution(a)
	text := w.outputOf(sub.Stmts, stream{})
	if !isKnown(text) {
		w.deny(setDecode+"/substitution", a.at, "a shell runs the output of "+quote(a.text))
	}
	return stream{set: true, text: text}
}

// shellGuess looks for a script after -c where options are not known.
func (w *walker) shellGuess(name string, rest []arg, in stream) {
	for i, a := range rest {
		text, ok := a.literal()
		if ok && len(text) > 1 && text[0] == '-' && text[1] != '-' && strings.Contains(text, "c") && i+1 < len(rest) {
			w.quiet++
			w.shellText(inner{text: rest[i+1], via: name + " -c", kind: opaqueShell, in: in})
			w.quiet--
			return
		}
	}
	w.stdinScript(name, in, nil)
}

// shellLong are the long options of shells; = ends one that takes a value.
const shellLong = "rcfile= init-file= norc noprofile login posix restricted verbose noediting debugger" +
	" dump-strings dump-po-strings help version pretty-print emulate= no-config private no-execute interactive"

// shellOptions reads a shell's options: whether there is a -c, and the words after
// the options. It reports false if one is not known; rest is then where it is.
func (w *walker) shellOptions(name string, args []arg) (command bool, rest []arg, ok bool) {
	const letters = "abcefhiklmnprstuvxBCEHPTDV"
	g := grammar{long: shellLong}
	i := 1
	for i < len(args) {
		text := args[i].lead()
		if len(text) < 2 || text[0] != '-' && text[0] != '+' || args[i].is("--") {
			break
		}
		if args[i].parts != nil {
			return command, args[i:], false
		}
		if strings.HasPrefix(text, "--") {
			bare, _, attached := strings.Cut(text[2:], "=")
			full, known := g.fullName(bare)
			if !known {
				return command, args[i:], false
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
				command = true
			case c == 'o' || c == 'O':
				values++
			case !strings.ContainsRune(letters, c):
				return command, args[i:], false
			}
		}
		i += 1 + values
		if strings.Contains(text, "s") && text[0] == '-' && !command {
			// The script is the standard input, and the words are its arguments.
			return false, nil, true
		}
	}
	if i < len(args) && (args[i].is("--") || command && args[i].is("-")) {
		i++
	}
	return command, args[min(i, len(args)):], true
}

// eval walks what eval runs, in the shell that is there.
func (w *walker) eval(_ string, args []arg, in stream) {
	args = args[1:]
	if len(args) > 0 && args[0].is("--") {
		args = args[1:]
	}
	w.shellText(inner{text: joined(args), via: "eval", kind: opaqueEval, here: true, in: in})
}

// source_ walks what source runs; a file is not read.
func (w *walker) source_(name string, args []arg, in stream) {
	if len(args) > 1 && args[1].is("--") {
		args = args[1:]
	}
	if len(args) < 2 {
		return
	}
	file := args[1]
	switch {
	case substitution(file) != nil:
		w.sourceText(name+" <(…)", w.substituted(file))
	case file.parts == nil && stdinNames[file.text] && file.text != "-":
		if text := w.read(in); in.set && !isKnown(text) {
			w.deny(setDecode+"/file", file.at, name+" runs "+quote(text.text))
		}
		w.sourceText(name, in)
	default:
		w.notKnown(opaqueSource, args[0].at, quote(name+" "+file.text))
	}
}

func (w *walker) sourceText(via string, in stream) {
	if in.set {
		w.shellText(inner{text: w.read(in), via: via, kind: opaqueSource, here: true})
	}
}

// interpreters are the programs that run a text in a language of their own, with
// the options that give it.
var interpreters = map[string]string{
	"python": "c", "python2": "c", "python3": "c", "pypy": "c", "pypy3": "c",
	"perl": "e E", "ruby": "e", "node": "e p eval print", "nodejs": "e p eval print", "deno": "", "bun": "e",
	"php": "r", "lua": "e", "luajit": "e", "tclsh": "", "Rscript": "e", "osascript": "e", "groovy": "e", "julia": "e",
}

// interpreter looks at a program that is read from a pipe. What it does is not
// looked into: that is left to the container, and guarded refuses it.
func (w *walker) interpreter(name string, args []arg, in stream) {
	for i := 1; i < len(args); i++ {
		text := args[i].lead()
		if text == "-" && args[i].parts == nil {
			break
		}
		if !strings.HasPrefix(text, "-") {
			return // a file, or a command of the interpreter
		}
		if interpretsText(name, text) {
			if w.p.mode == Guarded {
				w.notKnown(opaqueInterpreter, args[0].at, name+" "+quote(text))
			}
			return
		}
		if text == "-m" || strings.HasPrefix(text, "--version") || text == "-V" || text == "-v" || text == "-h" || text == "--help" {
			return
		}
	}
	if !in.set || !in.pipe {
		return
	}
	if text := w.read(in); !isKnown(text) {
		w.deny(setDecode+"/pipe", args[0].at, name+" runs "+quote(text.text))
		if w.p.mode == Guarded {
			w.notKnown(opaqueInterpreter, args[0].at, name+" runs "+quote(text.text))
		}
	}
}

// escapes are the programs that run commands out of a language of their own, and
// what in their words does that.
var escapes = map[string][]string{
	"awk": {"system(", `| "`, `"|`, "getline"}, "gawk": {"system(", `| "`, "getline"}, "mawk": {"system(", `| "`, "getline"}, "nawk": {"system(", `| "`, "getline"},
	"vim": {"!", "system("}, "vi": {"!"}, "nvim": {"!", "system("}, "ex": {"!"}, "view": {"!"}, "emacs": {"--eval", "shell-command"},
	"sed": {"/e", ";e ", "1e ", "e rm", "$e "}, "gdb": {"!", "shell "}, "make": {"--eval", "-f-", "/dev/stdin"},
}

// escape says, where a mode asks for it, that such a program is not looked into.
func (w *walker) escape(name string, args []arg, _ stream) {
	if w.p.mode != Guarded {
		return
	}
	for i, a := range args[1:] {
		for _, mark := range escapes[name] {
			if strings.Contains(a.text, mark) || name == "make" && a.is("-") && args[i].is("-f") {
				w.notKnown(opaqueInterpreter, args[0].at, name+" "+quote(a.text))
				return
			}
		}
	}
}

// interpretsText tells whether an option gives the text to run.
func interpretsText(name, text string) bool {
	for opt := range strings.FieldsSeq(interpreters[name]) {
		if len(opt) > 1 && strings.HasPrefix(text, "--"+opt) || len(opt) == 1 && len(text) > 1 && text[1] != '-' && strings.Contains(text, opt) {
			return true
		}
	}
	return false
}
