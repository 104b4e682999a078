package policy

import (
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// env looks at the variables that env sets and at the command it runs.
func (c call) env() {
	words, o, known := c.envOptions(c.args[1:])
	if o.unknown != "" {
		c.unclear(opaqueOption, c.name+" "+quote(o.unknown))
	}
	if o.unknown != "" || !known {
		c.scan(append([]arg{c.args[0]}, words...))
	}
	if !known {
		return
	}
	rest := o.rest
	for len(rest) > 0 && strings.Contains(rest[0].lead(), "=") {
		more := c.environment(rest)
		if len(more) == len(rest) {
			more = rest[1:] // env sets a variable of any name
		}
		rest = more
	}
	c.reached(c.name, func() { c.argv(rest, c.in) })
}

// envOptions reads the options of env from the words after its name. It puts the words of -S
// where -S stands, and reads on from there, as env does. It returns the words as they are
// after the last -S, and what they say. They are not known if a text of -S is not.
func (w *walker) envOptions(args []arg) (words []arg, o options, known bool) {
	words, known = args, true
	unknown := ""
	for level := w.depth; ; level++ {
		o = wrappers["env"].parse(words)
		if unknown == "" {
			unknown = o.unknown
		}
		o.unknown = unknown
		text, ok := o.get("S", "split-string")
		if !ok {
			break
		}
		if level >= maxDepth {
			w.stop(tooDeep)
		}
		if text.parts != nil {
			w.notKnown(opaqueShell, args[0].at, "env -S "+quote(text.text))
			text, known = lit(skeleton(text), text.at), false
		}
		words = append(splitEnv(text), o.rest...)
		if !w.spend(len(text.text)) || !w.wordy(len(words)) {
			return words, options{}, false
		}
	}
	if len(o.rest) > 0 && o.rest[0].is("-") {
		o.rest = o.rest[1:] // the same as -i, after the other options
	}
	return words, o, known
}

// splitEnv splits a text into words as env -S does. ${HOME} is a home directory, and any
// other variable is not known: without quotes, an empty one is not even a word. Where env
// would refuse the text, splitEnv reads on.
func splitEnv(text arg) []arg {
	b := words{at: text.at, byVar: text.byVar}
	var run []byte
	flush := func() {
		if len(run) > 0 {
			b.add(part{text: string(run)})
			run = run[:0]
		}
	}
	end := func() {
		flush()
		b.end()
	}
	var q byte
	s := text.text
scan:
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s) && (q != '\'' || s[i+1] == '\\' || s[i+1] == '\''):
			i++
			switch {
			case s[i] == '_' && q == 0:
				end()
			case s[i] == 'c' && q == 0:
				break scan
			default:
				run = append(run, envEscape(s[i]))
			}
		case q != 0 && c == q:
			q = 0
		case q == 0 && (c == '\'' || c == '"'):
			q = c
			flush()
			b.add(part{})
		case q == 0 && strings.IndexByte(" \t\n\v\f\r", c) >= 0:
			end()
		case q == 0 && c == '#' && len(run) == 0 && !b.any:
			break scan
		case c == '$' && q != '\'':
			flush()
			p := part{kind: unknown, text: envVariable(s[i:])}
			if p.text == "${HOME}" {
				p.kind = home
			} else if q == 0 {
				p.kind = split
			}
			b.add(p)
			i += len(p.text) - 1
		default:
			run = append(run, c)
		}
	}
	end()
	return b.out
}

// envVariable returns the ${NAME} that a text begins with, or its $ if no name follows.
func envVariable(text string) string {
	end := 1
	for end < len(text) && (end == 1 && text[end] == '{' || end > 1 && !strings.ContainsRune("${}\\'\" \t\n", rune(text[end]))) {
		end++
	}
	if end > 1 && end < len(text) && text[end] == '}' {
		return text[:end+1]
	}
	return "$"
}

// envEscape returns what a backslash and c stand for in a text of env -S, within a word.
func envEscape(c byte) byte {
	const letters, bytes = "_fnrtv", " \f\n\r\t\v"
	if i := strings.IndexByte(letters, c); i >= 0 {
		return bytes[i]
	}
	return c
}

// su looks at su -c text, and at runuser -u user command.
func (c call) su() {
	o := grammar{
		short: "flmpPTc:g:G:s:u:w:",
		long:  "fast login preserve-environment pty no-pty command= session-command= group= supp-group= shell= user= whitelist-environment=",
	}.permuted(c.args[1:])
	if o.unknown != "" {
		c.unclear(opaqueOption, c.name+" "+quote(o.unknown))
	}
	text, ok := o.get("c", "command", "session-command")
	rest := o.rest
	if len(rest) > 0 && rest[0].is("-") {
		rest = rest[1:]
	}
	switch {
	case ok:
		script := inner{text: text, via: c.name + " -c", kind: opaqueShell, in: c.in}
		if len(rest) > 1 { // the words after the user
			script.zero, script.args = rest[1], rest[2:]
		}
		c.shellText(script)
	case c.name == "runuser" && given(o, "u user"):
		c.reached(c.name, func() { c.argv(c.environment(rest), c.in) })
	default:
		if len(rest) > 0 {
			rest = rest[1:] // the user; the shell gets the other words
		}
		c.reached(c.name, func() { c.argv(append([]arg{lit("sh", c.at())}, rest...), c.in) })
	}
}

// flock looks at flock file command, and flock file -c text.
func (c call) flock() {
	g := grammar{
		short: "sxenoFuvw:E:c:",
		long:  "shared exclusive nonblock nb unlock close no-fork timeout= wait= conflict-exit-code= command= verbose",
	}
	o := g.parse(c.args[1:])
	if text, ok := o.get("c", "command"); ok {
		c.shellText(inner{text: text, via: "flock -c", kind: opaqueShell, in: c.in})
	}
	if len(o.rest) < 2 {
		return
	}
	rest := o.rest[1:]
	if rest[0].is("-c") || rest[0].is("--command") {
		if len(rest) > 1 {
			c.shellText(inner{text: rest[1], via: "flock -c", kind: opaqueShell, in: c.in})
		}
		return
	}
	c.reached(c.name, func() { c.argv(rest, c.in) })
}

// typescript looks at script -c text file, and at script file command.
func (c call) typescript() {
	g := grammar{
		short: "aefqrt?c:I:O:B:T:m:o:E:",
		long:  "append command= echo= force flush log-in= log-out= log-io= log-timing= logging-format= output-limit= quiet return timing?",
	}
	o := g.permuted(c.args[1:])
	if text, ok := o.get("c", "command"); ok {
		c.shellText(inner{text: text, via: "script -c", kind: opaqueShell, in: c.in})
		return
	}
	if rest := g.parse(c.args[1:]).rest; len(rest) > 1 { // its options are the command's
		c.reached(c.name, func() { c.argv(rest[1:], c.in) })
		return
	}
	c.reached(c.name, func() { c.argv([]arg{lit("sh", c.at())}, c.in) })
}

// coreutils looks at coreutils --coreutils-prog=rm -rf /.
func (c call) coreutils() {
	if len(c.args) < 2 {
		return
	}
	rest := c.args[1:]
	if key, program, ok := rest[0].cut("="); ok && strings.HasPrefix(key, "--coreutils-prog") {
		rest = append([]arg{program}, rest[1:]...)
	} else if rest[0].is("--coreutils-prog") || rest[0].is("--coreutils-prog-shebang") {
		rest = rest[1:]
	}
	c.reached(c.name, func() { c.argv(rest, c.in) })
}

// xargsGrammar is the grammar of GNU's xargs.
var xargsGrammar = grammar{
	short: "0oprtxe?i?l?a:d:E:I:J:R:L:n:P:s:S:",
	long: "null arg-file= delimiter= eof? replace? max-lines? max-args= max-procs= max-chars= interactive no-run-if-empty open-tty" +
		" process-slot-var= show-limits verbose exit",
}

// xargs looks at the command that xargs runs with words of its input.
func (c call) xargs() {
	o := xargsGrammar.parse(c.args[1:])
	if o.unknown != "" {
		c.unclear(opaqueOption, c.name+" "+quote(o.unknown))
		c.scan(c.args)
	}
	if len(o.rest) == 0 {
		return
	}
	replace, isReplace := o.get("I", "i", "J", "replace")
	if isReplace && replace.text == "" {
		replace = lit("{}", 0)
	}
	items, known := c.xargsItems(o, c.in, isReplace)
	if !known {
		items = []arg{{text: "…", parts: []part{{kind: split, text: "…"}}, at: c.at()}}
		c.removes(c.name, o.rest)
		if command, runs := scriptOfInput(c.unwrapped(o.rest), replace); c.in.pipe && runs {
			c.refuse(setDecode+"/pipe", c.name+" "+command+" -c runs "+quote(c.read(c.in).text))
		}
	}
	if len(items) == 0 && (isReplace || given(o, "r no-run-if-empty")) {
		return // without -r, GNU's xargs runs the command once without them
	}
	c.reached(c.name, func() {
		if !isReplace {
			for _, some := range xargsChunks(o, items) {
				c.argv(append(slices.Clone(o.rest), some...), stream{})
			}
			return
		}
		const most = 64 // lines of input that are looked at one by one
		if len(items) > most {
			c.removes(c.name, o.rest)
			items = []arg{{text: "…", parts: []part{{kind: split, text: "…"}}, at: c.at()}}
		}
		for _, item := range items {
			c.argv(replaced(o.rest, replace.text, item), stream{})
		}
	})
}

// scriptOfInput reports whether a command is a shell whose script is what xargs adds to it: at
// the end, or in the place of mark.
func scriptOfInput(args []arg, mark arg) (command string, ok bool) {
	if len(args) == 0 {
		return "", false
	}
	command, _ = commandName(args[0])
	last := len(args) - 1
	ok = shells[command] && (args[last].is("-c") || last > 0 && args[last-1].is("-c") && mark.text != "" && args[last].is(mark.text))
	return command, ok
}

// xargsChunks returns the words that xargs adds to each call of its command.
func xargsChunks(o options, items []arg) [][]arg {
	if n, ok := o.get("n", "max-args"); ok {
		most, err := strconv.Atoi(n.text)
		const calls = 64 // calls that are looked at one by one
		if err == nil && most > 0 && len(items) <= calls*most && len(items) > 0 {
			return slices.Collect(slices.Chunk(items, most))
		}
	}
	if len(items) > 1 && given(o, "n max-args L l max-lines s max-chars") {
		// Any of them may be together in a call, and all may be.
		return [][]arg{{{text: "…", parts: []part{{kind: split, text: "…"}}, at: items[0].at}}, items}
	}
	return [][]arg{items}
}

// xargsItems returns the words or lines that xargs reads, if they are known.
func (w *walker) xargsItems(o options, in stream, lines bool) ([]arg, bool) {
	if !in.set || given(o, "a arg-file e eof E") {
		return nil, false
	}
	input := w.read(in)
	if !isKnown(input) {
		return nil, false
	}
	text, at := skeleton(input), input.at
	if text == "" {
		return nil, true
	}
	d, delimited := o.get("d", "delimiter")
	var items []string
	switch {
	case given(o, "0 null"):
		items = strings.Split(strings.TrimSuffix(text, "\x00"), "\x00")
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

// replaced returns words in which mark is replaced by another word.
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

// removes refuses a forced, recursive rm whose operands are not known: the command that args
// are, or one in the script that they give to a shell.
func (w *walker) removes(name string, args []arg) {
	if !removesTrees(w.unwrapped(args)) {
		return
	}
	w.deny(setDisk+"/mass-delete", args[0].at, name+" rm -rf with names that are not known")
	w.notKnown(opaqueOperands, args[0].at, name+" rm -rf")
}

func removesTrees(args []arg) bool {
	if len(args) == 0 {
		return false
	}
	if command, _ := commandName(args[0]); command == "rm" {
		recursive, force, _ := rmOptions(args[1:])
		return recursive && force
	}
	return slices.ContainsFunc(shellCalls(args), func(words []string) bool {
		if base(words[0]) != "rm" || !slices.ContainsFunc(words, func(text string) bool { return strings.Contains(text, madeAtRunTime) }) {
			return false
		}
		var rest []arg
		for _, text := range words[1:] {
			rest = append(rest, lit(text, 0))
		}
		recursive, force, _ := rmOptions(rest)
		return recursive && force
	})
}

// unwrapped returns the command that a chain of wrappers such as sudo, env and nice runs, or
// args if no wrapper is among them.
func (w *walker) unwrapped(args []arg) []arg {
	const most = 8 // wrappers
	for range most {
		if len(args) == 0 {
			return args
		}
		name, _ := commandName(args[0])
		wr := wrappers[name]
		if wr == nil {
			return args
		}
		rest := wr.parse(args[1:]).rest
		if name == "env" {
			_, o, _ := w.envOptions(args[1:])
			rest = o.rest
		}
		rest = rest[min(wr.operands, len(rest)):]
		for wr.assigns && len(rest) > 0 && strings.Contains(rest[0].lead(), "=") {
			rest = rest[1:]
		}
		args = rest
	}
	return args
}

// shellCalls returns the simple commands in the script that a shell is given after -c, as
// their words without quotes.
func shellCalls(args []arg) [][]string {
	name, _ := commandName(args[0])
	if !shells[name] {
		return nil
	}
	i := slices.IndexFunc(args, func(a arg) bool {
		text, _ := a.literal()
		return len(text) > 1 && text[0] == '-' && text[1] != '-' && strings.HasSuffix(text, "c")
	})
	if i < 0 || i+1 >= len(args) {
		return nil
	}
	var calls [][]string
	visit(parse(skeleton(args[i+1])).stmts, func(n syntax.Node, _ int) bool {
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 {
			words := make([]string, len(c.Args))
			for i, word := range c.Args {
				words[i] = literalText(word)
			}
			calls = append(calls, words)
		}
		return true
	})
	return calls
}

// find looks at the commands that find runs for each file.
func (c call) find() {
	ruleFind(c)
	for i := 1; i < len(c.args); i++ {
		text, ok := c.args[i].literal()
		if !ok || text != "-exec" && text != "-execdir" && text != "-ok" && text != "-okdir" {
			continue
		}
		start := i + 1
		end := start
		for end < len(c.args) && !c.args[end].is(";") && !(c.args[end].is("+") && c.args[end-1].is("{}")) {
			end++
		}
		file := arg{text: "{}", parts: []part{{kind: unknown, text: "{}"}}, at: c.args[i].at}
		if end > start {
			c.reached(c.name+" "+text, func() { c.argv(replaced(c.args[start:end], "{}", file), stream{}) })
		}
		i = end
	}
}

// parallelGrammar has the most common options of GNU parallel.
var parallelGrammar = grammar{
	short: "0kmXqtvurxj:P:N:n:L:I:S:a:d:C:s:E:l:i?J:",
	long: "null keep-order xargs quote verbose ungroup no-run-if-empty jobs= max-procs= max-args= max-replace-args= arg-file= delimiter= colsep= replace=" +
		" dry-run dryrun bar eta progress will-cite citation pipe linebuffer line-buffer lb tag tagstring= group joblog= results= retries= load= memfree= tmpdir= workdir= wd=" +
		" env= sshlogin= sshloginfile= halt= halt-on-error= nice= rpl= delay= timeout= shuf resume resume-failed header= link fg bg wait semaphore id= block= round-robin shell-quote" +
		" max-lines? max-chars= basefile= return= cleanup transfer no-notice silent nonall onall plain profile= trim= record-env session use-cpus-instead-of-cores use-cores-instead-of-threads",
}

// parallel looks at the command that parallel passes to a shell for each argument.
func (c call) parallel() {
	o := parallelGrammar.parse(c.args[1:])
	if o.unknown != "" {
		c.unclear(opaqueOption, c.name+" "+quote(o.unknown))
		c.scan(c.args)
	}
	template, values, listed := cutArgs(o.rest)
	if given(o, "dry-run dryrun pipe") {
		listed = false
	}
	if len(template) == 0 {
		if !listed {
			c.stdinScript(c.name, c.in, nil)
		}
		for _, v := range values {
			c.shellText(inner{text: v, via: c.name, kind: opaqueShell})
		}
		return
	}
	if !listed {
		if known, ok := c.xargsItems(options{}, c.in, true); ok {
			values = known
		} else {
			c.removes(c.name, template)
			values = []arg{{text: "…", parts: []part{{kind: unknown, text: "…"}}, at: c.at()}}
		}
	}
	const most = 64 // values that are looked at one by one
	if len(values) > most {
		c.removes(c.name, template)
		values = append(values[:most:most], arg{text: "…", parts: []part{{kind: unknown, text: "…"}}, at: c.at()})
	}
	for _, v := range values {
		words := replaced(template, "{}", v)
		if !strings.Contains(joined(template).text, "{") {
			words = append(slices.Clone(template), v)
		}
		c.shellText(inner{text: shellQuoted(words, v), via: c.name, kind: opaqueShell})
	}
}

// shellQuoted returns the script that parallel makes of its template and a value, which it
// quotes: a value that is not known stays one word.
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

// batch looks at what at and batch read: a script for sh.
func (c call) batch() {
	o := grammar{short: "Vlbdvmrcf:q:t:"}.parse(c.args[1:])
	if given(o, "l d r c V f") {
		return
	}
	c.stdinScript(c.name, c.in, nil)
}

// terminal looks for scripts among the words of tmux and screen. It does not put keys
// together that are sent one by one.
func (c call) terminal() {
	c.silently(func() {
		for _, a := range c.args[1:] {
			if strings.Contains(a.text, " ") {
				c.shellText(inner{text: a, via: c.name, kind: opaqueShell})
			}
		}
	})
	c.scan(c.args)
}

// splitFilter looks at split --filter=text.
func (c call) splitFilter() {
	o := grammar{
		short: "a:b:C:d?en:l:t:ux?",
		long:  "suffix-length= additional-suffix= bytes= line-bytes= numeric-suffixes? hex-suffixes? elide-empty-files filter= lines= number= separator= unbuffered verbose",
	}.permuted(c.args[1:])
	if text, ok := o.get("filter"); ok {
		c.shellText(inner{text: text, via: c.name + " --filter", kind: opaqueShell, args: nil})
	}
}
