package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// assignment looks at NAME=value, alone or before a command.
func (w *walker) assignment(a *syntax.Assign, before bool) {
	at := w.position(a)
	if a.Index != nil {
		w.nested(a.Index)
	}
	if a.Array != nil {
		for _, e := range a.Array.Elems {
			if e.Index != nil {
				w.nested(e.Index)
			}
			if e.Value != nil {
				w.nested(e.Value)
			}
		}
	}
	if a.Value != nil {
		w.nested(a.Value)
	}
	if a.Name == nil || a.Array != nil {
		return
	}
	value := w.one(a.Value)
	w.variable(a.Name.Value, value, at)
	if !before && a.Index == nil && !a.Append && !a.Naked {
		w.shell.assign(a.Name.Value, value)
	}
}

// declare walks export, declare and such, which the parser knows.
func (w *walker) declare(c *syntax.DeclClause) {
	args := []arg{lit(c.Variant.Value, w.position(c))}
	node := w.node
	for _, a := range c.Args {
		if a.Naked && a.Value != nil {
			w.nested(a.Value)
			args = w.fields(args, a.Value)
			continue
		}
		text := lit(w.source(a), w.position(a))
		if a.Value != nil && a.Name != nil && a.Index == nil && !a.Append {
			text = joinedWith(a.Name.Value+"=", w.one(a.Value))
		}
		args = append(args, text)
	}
	w.record(args)
	for _, a := range c.Args {
		if !a.Naked {
			w.assignment(a, false)
		}
	}
	for _, a := range args[1:] {
		if name, value, ok := a.cut("="); ok {
			w.variable(name, value, a.at)
		}
	}
	w.node = node
}

// joinedWith puts text before a word.
func joinedWith(text string, a arg) arg {
	return makeArg(append([]part{{text: text}}, a.all()...), a.at)
}

// declaration looks at the builtins that assign, where they are reached by a way
// that hides them from the parser: builtin export, command export.
func (w *walker) declaration(_ string, args []arg, _ stream) {
	for _, a := range args[1:] {
		if name, value, ok := a.cut("="); ok {
			w.variable(name, value, a.at)
		}
	}
}

// setParams follows set -- a b c.
func (w *walker) setParams(_ string, args []arg, _ stream) {
	for i, a := range args {
		if a.is("--") {
			w.shell.args, w.shell.argsKnown, w.shell.argsSet = args[i+1:], true, true
			return
		}
	}
}

// later walks the text of a command that is kept for later.
func (w *walker) later(via string, text arg) {
	w.maybe(func() {
		w.shellText(inner{text: text, via: via, kind: opaqueDeferred, here: true})
	})
}

func (w *walker) trap(_ string, args []arg, _ stream) {
	args = args[1:]
	if len(args) > 0 && args[0].is("--") {
		args = args[1:]
	}
	if len(args) < 2 || args[0].is("-") || args[0].is("-p") || args[0].is("-l") {
		return
	}
	w.later("trap", args[0])
}

// alias keeps definitions: their text is code where they are used.
func (w *walker) alias(_ string, args []arg, _ stream) {
	for _, a := range args[1:] {
		name, value, ok := a.cut("=")
		if !ok {
			continue
		}
		if w.shell.aliases == nil {
			w.shell.aliases = map[string]string{}
		}
		w.shell.aliases[name] = skeleton(value)
		w.hiddenDenial(func() { w.shellText(inner{text: value, via: "alias " + name, kind: opaqueDeferred}) }, a.at, "alias "+quote(a.text))
	}
}

// hiddenDenial walks code that is defined and not run: what is denied in it is an
// alias for it.
func (w *walker) hiddenDenial(f func(), at int, reason string) {
	denial, opaque, node := w.denial, w.opaque, w.node
	w.denial, w.node = nil, nil
	w.quiet++
	f()
	w.quiet--
	hidden := w.denial != nil
	w.denial, w.opaque, w.node = denial, opaque, node
	if hidden {
		w.deny(setExec+"/alias", at, reason)
	}
}

// callAlias walks the text of an alias with the words of its use after it.
func (w *walker) callAlias(text string, args []arg, in stream) {
	name := args[0].text
	delete(w.shell.aliases, name) // an alias is not expanded within itself
	parts := []part{{text: text}}
	for _, a := range args[1:] {
		parts = append(parts, part{text: " " + quoteArg(a)})
	}
	w.shellText(inner{text: makeArg(parts, args[0].at), via: "alias " + name, kind: opaqueDeferred, here: true, in: in})
	w.shell.aliases[name] = text
}

// quoteArg writes a word so that it is read as the same word again.
func quoteArg(a arg) string {
	var b strings.Builder
	for _, p := range a.all() {
		switch p.kind {
		case literal:
			b.WriteString("'" + strings.ReplaceAll(p.text, "'", `'\''`) + "'")
		case home:
			b.WriteString("${HOME}")
		case glob:
			b.WriteString(p.text)
		default:
			b.WriteString("${unknown}")
		}
	}
	return b.String()
}

// complete looks at complete -C command.
func (w *walker) complete(name string, args []arg, _ stream) {
	o := grammar{short: "abcdefgjksuvprDEIo:A:G:W:F:C:X:P:S:"}.parse(args[1:])
	if text, ok := o.get("C"); ok {
		w.later(name+" -C", text)
		w.deny(setExec+"/deferred", args[0].at, name+" -C "+quote(text.text))
	}
}

// mapfile looks at mapfile -C callback.
func (w *walker) mapfile(name string, args []arg, _ stream) {
	o := grammar{short: "td:n:O:s:u:C:c:"}.parse(args[1:])
	if text, ok := o.get("C"); ok {
		w.later(name+" -C", text)
		w.deny(setExec+"/deferred", args[0].at, name+" -C "+quote(text.text))
	}
}

// bind looks at bind -x '"keys": command'.
func (w *walker) bind(name string, args []arg, _ stream) {
	o := grammar{short: "lvpsVPSXm:f:q:u:r:x:"}.parse(args[1:])
	text, ok := o.get("x")
	if !ok {
		return
	}
	if _, command, found := text.cut(":"); found {
		text = command
	}
	if trimmed := strings.TrimSpace(text.text); text.parts == nil && len(trimmed) > 1 && trimmed[0] == '"' {
		text.text = strings.Trim(trimmed, `"`)
	}
	w.later(name+" -x", text)
	w.deny(setExec+"/deferred", args[0].at, name+" -x "+quote(text.text))
}

// enable looks at enable -f file, which loads a builtin from a file.
func (w *walker) enable(name string, args []arg, _ stream) {
	o := grammar{short: "adnpsf:"}.parse(args[1:])
	if file, ok := o.get("f"); ok {
		w.notKnown(opaqueDeferred, args[0].at, name+" -f "+quote(file.text))
		w.deny(setExec+"/deferred", args[0].at, name+" -f "+quote(file.text))
	}
}

// hash looks at hash -p file name, after which a name is another program.
func (w *walker) hash(name string, args []arg, _ stream) {
	o := grammar{short: "lrtdp:"}.parse(args[1:])
	if file, ok := o.get("p"); ok {
		w.notKnown(opaqueDeferred, args[0].at, name+" -p "+quote(file.text))
		w.deny(setExec+"/deferred", args[0].at, name+" -p "+quote(file.text))
	}
}

// fc runs a command of the history, unless it is only to list them.
func (w *walker) fc(_ string, args []arg, _ stream) {
	if len(args) > 1 && strings.HasPrefix(args[1].text, "-l") {
		return
	}
	w.notKnown(opaqueHistory, args[0].at, "fc")
}

// printf looks at printf -v NAME.
func (w *walker) printf(_ string, args []arg, _ stream) {
	if len(args) > 3 && args[1].is("-v") && args[2].parts == nil {
		value := args[3]
		if printed, ok := printed(append([]arg{args[0]}, args[3:]...)); ok {
			value = printed
		}
		w.variable(args[2].text, value, args[0].at)
	}
}
