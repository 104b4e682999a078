package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// assignment looks at NAME=value, alone or before a command.
func (w *walker) assignment(a *syntax.Assign, before bool) {
	at := w.position(a)
	if a.Index != nil {
		w.evaluates = true
		w.nested(a.Index)
	}
	if a.Array != nil {
		// The parser takes text right after the parenthesis for another assignment.
		if end := int(a.End().Offset()); end < len(w.text) && strings.IndexByte(" \t\r\n;&|<>)`", w.text[end]) < 0 {
			w.notKnown(opaqueParse, at, "text after an array: "+quote(w.source(a)))
		}
		for _, e := range a.Array.Elems {
			if e.Index != nil {
				w.evaluates = true
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
	if a.Name == nil {
		return
	}
	if a.Array != nil {
		if a.Name.Value == "PROMPT_COMMAND" { // no other array is used as one value, or exported
			for _, e := range a.Array.Elems {
				w.variable(a.Name.Value, w.one(e.Value), at)
			}
		}
		return
	}
	value := w.one(a.Value)
	name := a.Name.Value
	if a.Append {
		name += "+"
	}
	w.variable(name, value, at)
	if !before && a.Index == nil && !a.Append && !a.Naked {
		w.shell.assign(a.Name.Value, value)
	}
}

// declare visits export, declare and such, which the parser has a node for.
func (w *walker) declare(c *syntax.DeclClause) {
	args := []arg{lit(c.Variant.Value, w.position(c))}
	node := w.node
	for _, a := range c.Args {
		if a.Naked && a.Value != nil {
			w.nested(a.Value)
			args = w.fields(args, a.Value)
			continue
		}
		if a.Naked && a.Index != nil {
			w.evaluates = true
			w.nested(a.Index)
		}
		text := lit(w.source(a), w.position(a))
		if a.Value != nil && a.Name != nil && a.Index == nil && !a.Append {
			text = joinedWith(a.Name.Value+"=", w.one(a.Value))
		}
		args = append(args, text)
	}
	w.record(w.via, args)
	w.evaluatesCall(c.Variant.Value, args)
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

// declaration looks at the builtins that assign, if the parser did not recognise them: in
// builtin export and command export, for example.
func (c call) declaration() {
	for _, a := range c.args[1:] {
		if name, value, ok := a.cut("="); ok {
			c.variable(name, value, a.at)
		}
	}
}

// setParams follows set -- a b c.
func (c call) setParams() {
	for i, a := range c.args {
		if a.is("--") {
			c.shell.args, c.shell.argsKnown, c.shell.argsSet = c.args[i+1:], true, true
			return
		}
	}
}

// later visits the text of a command that the shell keeps for later.
func (w *walker) later(via string, text arg) {
	w.maybe(func() {
		w.shellText(inner{text: text, via: via, kind: opaqueDeferred, here: true})
	})
}

func (c call) trap() {
	args := c.args
	args = args[1:]
	if len(args) > 0 && args[0].is("--") {
		args = args[1:]
	}
	if len(args) < 2 || args[0].is("-") || args[0].is("-p") || args[0].is("-l") {
		return
	}
	c.later("trap", args[0])
	c.shell.traps = append(c.shell.traps, args[0])
}

// alias remembers definitions, because their text is code where they are used.
func (c call) alias() {
	for _, a := range c.args[1:] {
		name, value, ok := a.cut("=")
		if !ok {
			continue
		}
		if c.shell.aliases == nil {
			c.shell.aliases = map[string]string{}
		}
		c.shell.aliases[name] = skeleton(value)
		if !value.known() {
			c.notKnown(opaqueDeferred, a.at, "alias "+quote(a.text))
		}
		c.hiddenDenial(setExec+"/alias", a.at, "alias "+quote(a.text), func() {
			c.shellText(inner{text: value, via: "alias " + name, kind: opaqueDeferred})
		})
	}
}

// callAlias visits the text of an alias, followed by the words of its call.
func (w *walker) callAlias(text string, args []arg, in stream) {
	name := args[0].text
	if p := parse(text); p.broken != nil || strings.Contains(text, "<<") || strings.TrimRight(text, " \t\n") != text {
		w.notKnown(opaqueDeferred, args[0].at, "the alias "+quote(name)+" is more than commands")
	}
	delete(w.shell.aliases, name) // an alias is not expanded within itself
	parts := []part{{text: text}}
	for _, a := range args[1:] {
		parts = append(parts, part{text: " " + quoteArg(a)})
	}
	w.shellText(inner{text: makeArg(parts, args[0].at), via: "alias " + name, kind: opaqueDeferred, here: true, in: in})
	w.shell.aliases[name] = text
}

// quoteArg writes a word so that a shell reads the same word again.
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
			b.WriteString(madeAtRunTime)
		}
	}
	return b.String()
}

// complete looks at complete -C command.
func (c call) complete() {
	o := grammar{short: "abcdefgjksuvprDEIo:A:G:W:F:C:X:P:S:"}.parse(c.args[1:])
	if text, ok := o.get("C"); ok {
		c.later(c.name+" -C", called(text))
		c.refuse(setExec+"/deferred", c.name+" -C "+quote(text.text))
	}
}

// called returns the text of a command that bash calls with words of its own after it.
func called(text arg) arg {
	if !text.known() {
		return text
	}
	return lit(skeleton(text)+" "+madeAtRunTime, text.at)
}

// mapfile looks at mapfile -C callback.
func (c call) mapfile() {
	o := grammar{short: "td:n:O:s:u:C:c:"}.parse(c.args[1:])
	if text, ok := o.get("C"); ok {
		c.later(c.name+" -C", called(text))
		c.refuse(setExec+"/deferred", c.name+" -C "+quote(text.text))
	}
}

// bind looks at bind -x '"keys": command'.
func (c call) bind() {
	o := grammar{short: "lvpsVPSXm:f:q:u:r:x:"}.parse(c.args[1:])
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
	c.later(c.name+" -x", text)
	c.refuse(setExec+"/deferred", c.name+" -x "+quote(text.text))
}

// enable looks at enable -f file, which loads a builtin from a file.
func (c call) enable() {
	o := grammar{short: "adnpsf:"}.parse(c.args[1:])
	if file, ok := o.get("f"); ok {
		c.unclear(opaqueDeferred, c.name+" -f "+quote(file.text))
		c.refuse(setExec+"/deferred", c.name+" -f "+quote(file.text))
	}
}

// hash looks at hash -p file name, which makes the name mean another program.
func (c call) hash() {
	o := grammar{short: "lrtdp:"}.parse(c.args[1:])
	if file, ok := o.get("p"); ok {
		c.unclear(opaqueDeferred, c.name+" -p "+quote(file.text))
		c.refuse(setExec+"/deferred", c.name+" -p "+quote(file.text))
	}
}

// fc looks at fc, which runs a command of the history unless it only lists them.
func (c call) fc() {
	if len(c.args) > 1 && strings.HasPrefix(c.args[1].text, "-l") {
		return
	}
	c.unclear(opaqueHistory, "fc")
}

// printf looks at printf -v NAME.
func (c call) printf() {
	if len(c.args) > 3 && c.args[1].is("-v") && c.args[2].parts == nil {
		value := c.args[3]
		if printed, ok := printed(append([]arg{c.args[0]}, c.args[3:]...)); ok {
			value = printed
		}
		c.variable(c.args[2].text, value, c.at())
	}
}
