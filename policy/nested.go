package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// inner is a script within a script.
type inner struct {
	text arg
	via  string
	kind string // the kind of opaque if the text is not known
	here bool   // the current shell runs it, as by eval
	zero arg    // its $0, unless here
	args []arg  // its positional parameters, unless here
	in   stream
}

// shellText visits a script within a script. If a part of it is not known, that part is
// opaque, and the rest is still searched for denials.
func (w *walker) shellText(s inner) {
	text := s.text.text
	partly := !s.text.known()
	switch {
	case partly:
		w.notKnown(s.kind, s.text.at, quote(text))
		w.smuggled(s)
		text = skeleton(s.text)
	case s.text.byVar && w.shell.surveyed().anyName:
		w.notKnown(s.kind, s.text.at, "a variable in "+quote(text)+" may have been set by eval or source")
	case s.text.parts != nil:
		text = skeleton(s.text)
	}
	if strings.TrimSpace(text) == "" || !w.spend(len(text)) {
		return
	}
	if partly {
		w.silent++
		defer func() { w.silent-- }()
	}
	w.deeper(func() { w.scriptWithin(parse(text), s) })
}

func (w *walker) scriptWithin(p *script, s inner) {
	old := w.context
	w.text, w.base, w.via = p.text, s.text.at, s.via
	if s.here {
		w.shell.also(p.stmts)
	} else {
		w.shell = &shell{roots: p.stmts, dir: old.shell.dir, zero: s.zero, args: s.args, argsKnown: true}
	}
	w.sources = append(w.sources, source{p, s.text.at})
	switch {
	case p.over != nil:
		w.stop(p.over)
	case s.here:
		w.stmts(p.stmts, s.in)
		if p.broken != nil {
			w.notKnown(opaqueParse, s.text.at, p.broken.Error()+", in "+s.via)
		}
	default:
		w.script(p)
	}
	w.context = old
}

// madeAtRunTime stands in a script for a part that is not known. It is an expansion that
// is never known, whatever the script assigns.
const madeAtRunTime = "${unknown-}"

// skeleton returns a text for the parser, with madeAtRunTime for its unknown parts and
// $HOME for a home directory.
func skeleton(a arg) string {
	var b strings.Builder
	for _, p := range a.all() {
		switch p.kind {
		case home:
			b.WriteString("$HOME")
		case unknown, split:
			b.WriteString(madeAtRunTime)
		default:
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// smuggled refuses a script that is the output of a command that downloads or decodes.
func (w *walker) smuggled(s inner) {
	for _, p := range s.text.all() {
		switch n := p.node.(type) {
		case *syntax.CmdSubst:
			if fetches(n.Stmts) {
				w.deny(setDecode+"/substitution", s.text.at, s.via+" runs the output of "+quote(p.text))
			}
		case *syntax.ProcSubst:
			w.deny(setDecode+"/substitution", s.text.at, s.via+" runs the output of "+quote(p.text))
		}
	}
}

// fetchers are the commands whose output must not be run unread.
var fetchers = set(`curl wget nc ncat netcat socat fetch aria2c lynx base64 base32 basenc xxd uudecode openssl
 gpg gzip gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat zstd zstdcat rev tr tac od hexdump sed awk perl python
 python3 ruby node php jq dig host ssh scp ftp`)

// fetches reports whether the statements name one of fetchers.
func fetches(list []*syntax.Stmt) bool {
	found := false
	visit(list, func(n syntax.Node, _ int) bool {
		if c, ok := n.(*syntax.CallExpr); ok {
			for _, word := range c.Args {
				found = found || fetchers[base(word.Lit())]
			}
		}
		return !found
	})
	return found
}

// stdinScript visits the script that a shell reads from its standard input.
func (w *walker) stdinScript(via string, in stream, args []arg) {
	if !in.set {
		return
	}
	text := w.read(in)
	if !isKnown(text) {
		rule := "/file"
		if in.pipe {
			rule = "/pipe"
		}
		w.deny(setDecode+rule, text.at, via+" runs "+quote(text.text))
	}
	w.shellText(inner{text: text, via: via, kind: opaqueStdin, args: args})
}

// joined joins words with spaces, as eval and ssh do.
func joined(args []arg) arg {
	var parts []part
	byVar := false
	for i, a := range args {
		if i > 0 {
			parts = append(parts, part{text: " "})
		}
		parts = append(parts, a.all()...)
		byVar = byVar || a.byVar
	}
	at := 0
	if len(args) > 0 {
		at = args[0].at
	}
	a := makeArg(parts, at)
	a.byVar = byVar
	return a
}

// splitWords splits text into words at blanks, with quotes and backslashes, as git's
// aliases and xargs do. A $ is not known.
func splitWords(text string, at int) []arg {
	b := words{at: at}
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
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && q != '\'' && i+1 < len(text):
			i++
			run = append(run, text[i])
		case q != 0 && c == q:
			q = 0
		case q == 0 && (c == '\'' || c == '"'):
			q = c
			flush()
			b.add(part{})
		case q == 0 && (c == ' ' || c == '\t' || c == '\n'):
			end()
		case c == '$' && q != '\'':
			flush()
			b.add(part{kind: unknown, text: "$"})
		default:
			run = append(run, c)
		}
	}
	end()
	return b.out
}
