package policy

import (
	"slices"
	"strings"
)

// env looks at the variables that env sets and at the command it runs.
func (w *walker) env(name string, args []arg, in stream) {
	wr := wrappers["env"]
	words := args[1:]
	const most = 8 // -S within -S
	for range most {
		if len(words) > 0 && words[0].is("-") {
			words = words[1:]
			continue
		}
		o := wr.parse(words)
		text, ok := o.get("S", "split-string")
		if !ok {
			w.unwrap(name, wr, append([]arg{args[0]}, words...), in)
			return
		}
		if text.parts != nil {
			w.notKnown(opaqueShell, args[0].at, "env -S "+quote(text.text))
			w.scan(append([]arg{args[0]}, splitWords(skeleton(text), text.at)...))
			return
		}
		words = append(splitWords(text.text, text.at), o.rest...)
	}
	w.notKnown(opaqueOption, args[0].at, "env -S")
}

// su looks at su -c text, and at runuser -u user command.
func (w *walker) su(name string, args []arg, in stream) {
	o := grammar{
		short: "flmpPTc:g:G:s:u:w:",
		long:  "fast login preserve-environment pty no-pty command= session-command= group= supp-group= shell= user= whitelist-environment=",
	}.permuted(args[1:])
	if o.unknown != "" {
		w.notKnown(opaqueOption, args[0].at, name+" "+quote(o.unknown))
	}
	text, ok := o.get("c", "command", "session-command")
	rest := o.rest
	if len(rest) > 0 && rest[0].is("-") {
		rest = rest[1:]
	}
	switch {
	case ok:
		w.shellText(inner{text: text, via: name + " -c", kind: opaqueShell, in: in})
	case name == "runuser" && given(o, "u user"):
		w.reached(name, func() { w.argv(w.environment(rest), in) })
	default:
		if len(rest) > 0 {
			rest = rest[1:] // the user; the shell has the other words
		}
		w.reached(name, func() { w.argv(append([]arg{lit("sh", args[0].at)}, rest...), in) })
	}
}

// flock looks at flock file command, and flock file -c text.
func (w *walker) flock(name string, args []arg, in stream) {
	g := grammar{
		short: "sxenoFuvw:E:c:",
		long:  "shared exclusive nonblock nb unlock close no-fork timeout= wait= conflict-exit-code= command= verbose",
	}
	o := g.parse(args[1:])
	if text, ok := o.get("c", "command"); ok {
		w.shellText(inner{text: text, via: "flock -c", kind: opaqueShell, in: in})
	}
	if len(o.rest) < 2 {
		return
	}
	rest := o.rest[1:]
	if rest[0].is("-c") || rest[0].is("--command") {
		if len(rest) > 1 {
			w.shellText(inner{text: rest[1], via: "flock -c", kind: opaqueShell, in: in})
		}
		return
	}
	w.reached(name, func() { w.argv(rest, in) })
}

// script_ looks at script -c text file, and at script file command.
func (w *walker) script_(name string, args []arg, in stream) {
	o := grammar{
		short: "aefqrt?c:I:O:B:T:m:o:E:",
		long:  "append command= echo= force flush log-in= log-out= log-io= log-timing= logging-format= output-limit= quiet return timing?",
	}.permuted(args[1:])
	if text, ok := o.get("c", "command"); ok {
		w.shellText(inner{text: text, via: "script -c", kind: opaqueShell, in: in})
		return
	}
	if len(o.rest) > 1 {
		w.reached(name, func() { w.argv(o.rest[1:], in) })
		return
	}
	w.reached(name, func() { w.argv([]arg{lit("sh", args[0].at)}, in) })
}

// coreutils looks at coreutils --coreutils-prog=rm -rf /.
func (w *walker) coreutils(name string, args []arg, in stream) {
	if len(args) < 2 {
		return
	}
	rest := args[1:]
	if key, program, ok := rest[0].cut("="); ok && strings.HasPrefix(key, "--coreutils-prog") {
		rest = append([]arg{program}, rest[1:]...)
	} else if rest[0].is("--coreutils-prog") || rest[0].is("--coreutils-prog-shebang") {
		rest = rest[1:]
	}
	w.reached(name, func() { w.argv(rest, in) })
}

// xargsGrammar is that of GNU's xargs.
var xargsGrammar = grammar{
	short: "0oprtxe?i?l?a:d:E:I:J:R:L:n:P:s:S:",
	long: "null arg-file= delimiter= eof? replace? max-lines? max-args= max-procs= max-chars= interactive no-run-if-empty open-tty" +
		" process-slot-var= show-limits verbose exit",
}

// xargs looks at the command that xargs runs with words of its input.
func (w *walker) xargs(name string, args []arg, in stream) {
	o := xargsGrammar.parse(args[1:])
	if o.unknown != "" {
		w.notKnown(opaqueOption, args[0].at, name+" "+quote(o.unknown))
		w.scan(args)
	}
	if len(o.rest) == 0 {
		return
	}
	replace, isReplace := o.get("I", "i", "J", "replace")
	if isReplace && replace.text == "" {
		replace = lit("{}", 0)
	}
	items, known := w.xargsItems(o, in, isReplace)
	if !known {
		items = []arg{{text: "…", parts: []part{{kind: split, text: "…"}}, at: args[0].at}}
		w.removes(name, o.rest)
		if command, _ := commandName(o.rest[0]); in.pipe && shells[command] && o.rest[len(o.rest)-1].is("-c") {
			w.deny(setDecode+"/pipe", args[0].at, name+" "+command+" -c runs "+quote(w.read(in).text))
		}
	}
	if len(items) == 0 {
		return
	}
	w.reached(name, func() {
		if !isReplace {
			w.argv(append(slices.Clone(o.rest), items...), stream{})
			return
		}
		const most = 64 // lines of known input; what is beyond is not looked at one by one
		if len(items) > most {
			items = []arg{{text: "…", parts: []part{{kind: split, text: "…"}}, at: args[0].at}}
		}
		for _, item := range items {
			w.argv(replaced(o.rest, replace.text, item), stream{})
		}
	})
}

// xargsItems is the words or lines that xargs reads, if they are known.
func (w *walker) xargsItems(o options, in stream, lines bool) ([]arg, bool) {
	if !in.set || given(o, "a arg-file e eof E") {
		return nil, false
	}
	input := w.read(in)
	if !isKnown(input) {
		return nil, false
	}
	text, at := skeleton(input), input.at
	d, delimited := o.get("d", "delimiter")
	var items []string
	switch {
	case given(o, "0 null"):
		items = strings.Split(text, "\x00")
	case delimited:
		items = strings.Split(strings.TrimSuffix(text, "\n"), unescapeANSI(d.text))
	case lines:
		items = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	default:
		return splitWords(text, at), true
	}
	var out []arg
	for _, item := range items {
		out = append(out, lit(strings.TrimLeft(item, " \t"), at))
	}
	return out, true
}

// replaced is words in which a text stands for another word.
func replaced(args []arg, mark string, by arg) []arg {
	if mark == "" {
		return args
	}
	out := make([]arg, 0, len(args))
	for _, a := range args {
		if !strings.Contains(a.text, mark) {
			out = append(out, a)
			continue
		}
		var parts []part
		for _, p := range a.all() {
			if p.kind != literal {
				parts = append(parts, p)
				continue
			}
			for i, piece := range strings.Split(p.text, mark) {
				if i > 0 {
					for _, q := range by.all() {
						if q.kind == split {
							q.kind = unknown
						}
						parts = append(parts, q)
					}
				}
				parts = append(parts, part{text: piece})
			}
		}
		out = append(out, makeArg(parts, a.at))
	}
	return out
}

// removes says that a forced, recursive rm is given names that are not known.
func (w *walker) removes(name string, args []arg) {
	inner := args
	if o := wrappers["sudo"].parse(args[1:]); args[0].is("sudo") && len(o.rest) > 0 {
		inner = o.rest
	}
	if command, _ := commandName(inner[0]); command != "rm" {
		return
	}
	recursive, force, _ := rmOptions(inner[1:])
	if recursive && force {
		w.deny(setDisk+"/mass-delete", args[0].at, name+" rm -rf with names that are not known")
		w.notKnown(opaqueOperands, args[0].at, name+" rm -rf")
	}
}

// find looks at what find runs for each file.
func (w *walker) find(name string, args []arg, in stream) {
	ruleFind(w, args)
	for i := 1; i < len(args); i++ {
		text, ok := args[i].literal()
		if !ok || text != "-exec" && text != "-execdir" && text != "-ok" && text != "-okdir" {
			continue
		}
		start := i + 1
		end := start
		for end < len(args) && !args[end].is(";") && !(args[end].is("+") && args[end-1].is("{}")) {
			end++
		}
		file := arg{text: "{}", parts: []part{{kind: unknown, text: "{}"}}, at: args[i].at}
		if end > start {
			w.reached(name+" "+text, func() { w.argv(replaced(args[start:end], "{}", file), stream{}) })
		}
		i = end
	}
}

// parallelGrammar is the most used of GNU parallel's options.
var parallelGrammar = grammar{
	short: "0kmXqtvurxj:P:N:n:L:I:S:a:d:C:s:E:l:i?J:",
	long: "null keep-order xargs quote verbose ungroup no-run-if-empty jobs= max-procs= max-args= max-replace-args= arg-file= delimiter= colsep= replace=" +
		" dry-run dryrun bar eta progress will-cite citation pipe linebuffer line-buffer lb tag tagstring= group joblog= results= retries= load= memfree= tmpdir= workdir= wd=" +
		" env= sshlogin= sshloginfile= halt= halt-on-error= nice= rpl= delay= timeout= shuf resume resume-failed header= link fg bg wait semaphore id= block= round-robin shell-quote" +
		" max-lines? max-chars= basefile= return= cleanup transfer no-notice silent nonall onall plain profile= trim= record-env session use-cpus-instead-of-cores use-cores-instead-of-threads",
}

// parallel looks at the command that parallel gives to a shell for each argument.
func (w *walker) parallel(name string, args []arg, in stream) {
	o := parallelGrammar.parse(args[1:])
	if o.unknown != "" {
		w.notKnown(opaqueOption, args[0].at, name+" "+quote(o.unknown))
		w.scan(args)
	}
	template, values, listed := cutArgs(o.rest)
	if given(o, "dry-run dryrun pipe") {
		listed = false
	}
	if len(template) == 0 {
		if !listed {
			w.stdinScript(name, in, nil)
		}
		for _, v := range values {
			w.shellText(inner{text: v, via: name, kind: opaqueShell})
		}
		return
	}
	if !listed {
		if known, ok := w.xargsItems(options{}, in, true); ok {
			values = known
		} else {
			w.removes(name, template)
			values = []arg{{text: "…", parts: []part{{kind: unknown, text: "…"}}, at: args[0].at}}
		}
	}
	const most = 64
	for _, v := range values[:min(len(values), most)] {
		words := replaced(template, "{}", v)
		if !strings.Contains(joined(template).text, "{") {
			words = append(slices.Clone(template), v)
		}
		w.shellText(inner{text: shellQuoted(words, v), via: name, kind: opaqueShell})
	}
}

// shellQuoted is the script that parallel makes: its template as it is, and the
// values quoted. One that is not known stays one word.
func shellQuoted(words []arg, value arg) arg {
	a := joined(words)
	if value.known() {
		return a
	}
	return lit(skeleton(a), a.at)
}

// cutArgs splits parallel's words at the first :::.
func cutArgs(args []arg) (template, values []arg, listed bool) {
	for i, a := range args {
		if text, ok := a.literal(); ok && strings.HasPrefix(text, ":::") {
			if strings.HasPrefix(text, "::::") {
				return args[:i], nil, false // files
			}
			for _, v := range args[i+1:] {
				if !strings.HasPrefix(v.lead(), ":::") {
					values = append(values, v)
				}
			}
			return args[:i], values, true
		}
	}
	return args, nil, false
}

// at looks at what at and batch read: a script for sh.
func (w *walker) at(name string, args []arg, in stream) {
	o := grammar{short: "Vlbdvmrcf:q:t:"}.parse(args[1:])
	if given(o, "l d r c V f") {
		return
	}
	w.stdinScript(name, in, nil)
}

// terminal looks for scripts among what tmux and screen are given. Keys that are
// sent one by one are not put together.
func (w *walker) terminal(name string, args []arg, _ stream) {
	w.quiet++
	for _, a := range args[1:] {
		if strings.Contains(a.text, " ") {
			w.shellText(inner{text: a, via: name, kind: opaqueShell})
		}
	}
	w.quiet--
	w.scan(args)
}

// split_ looks at split --filter=text.
func (w *walker) split_(name string, args []arg, _ stream) {
	o := grammar{
		short: "a:b:C:d?en:l:t:ux?",
		long:  "suffix-length= additional-suffix= bytes= line-bytes= numeric-suffixes? hex-suffixes? elide-empty-files filter= lines= number= separator= unbuffered verbose",
	}.permuted(args[1:])
	if text, ok := o.get("filter"); ok {
		w.shellText(inner{text: text, via: name + " --filter", kind: opaqueShell, args: nil})
	}
}
