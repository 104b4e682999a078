package policy

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call walks a simple command.
func (w *walker) call(s *syntax.Stmt, c *syntax.CallExpr, in stream) {
	at := w.position(c)
	for _, a := range c.Assigns {
		w.assignment(a, len(c.Args) > 0)
	}
	if len(c.Args) == 0 {
		return
	}
	args := make([]arg, 0, len(c.Args))
	for _, word := range c.Args {
		w.nested(word)
		args = w.fields(args, word)
	}
	w.oddCharacters(c, args, in)
	if len(args) > 0 {
		args[0].at = at
		w.argv(args, in)
		w.emptied(s, args)
	}
}

// argv looks at one command in its canonical form.
func (w *walker) argv(args []arg, in stream) {
	if len(args) == 0 || !w.step() || !w.wordy(len(args)) {
		return
	}
	node := w.node
	w.record(args)
	if w.within++; w.within > maxDepth {
		w.stop(tooDeep)
	} else {
		w.look(args, in)
	}
	w.within--
	w.node = node
}

func (w *walker) look(args []arg, in stream) {
	name, certain := commandName(args[0])
	if certain && args[0].byVar && w.shell.surveyed().wild {
		w.notKnown(opaqueName, args[0].at, "the variable in "+quote(args[0].text)+" may have been set by eval or source")
	}
	if !certain {
		w.notKnown(opaqueName, args[0].at, quote(args[0].text))
		w.scan(args)
		if name == "" {
			return
		}
	}
	if name == "" {
		return
	}
	if text, ok := w.shell.aliases[args[0].text]; ok {
		w.callAlias(text, args, in)
		return
	}
	f := w.shell.funcs[args[0].text]
	if f != nil {
		w.callFunction(f, args, in)
	}
	if check := rulesFor[name]; check != nil {
		check(w, args, in)
	}
	if strings.HasPrefix(name, "mkfs") {
		w.deny(setDisk+"/shred", args[0].at, name)
	}
	switch handle, ok := handlers[name]; {
	case ok:
		handle(w, name, args, in)
	case wrappers[name] != nil:
		w.unwrap(name, wrappers[name], args, in)
	case name == "!!" || len(name) > 1 && name[0] == '!':
		w.notKnown(opaqueHistory, args[0].at, quote(name))
	case f == nil && !plain[name] && certain:
		w.scan(args)
	}
}

// commandName returns the last element of the path that names a command. It is
// not certain if it, or how many words there are before it, is made at run time.
func commandName(a arg) (name string, certain bool) {
	if text, ok := a.literal(); ok {
		return base(text), true
	}
	last := a.parts[len(a.parts)-1]
	certain = true
	for _, p := range a.parts {
		certain = certain && p.kind != split && p.kind != glob
	}
	if last.kind != literal || !strings.Contains(last.text, "/") {
		return "", false
	}
	return base(last.text), certain
}

func base(text string) string {
	if text == "" || !strings.Contains(text, "/") {
		return text
	}
	return path.Base(path.Clean(text))
}

// scan looks for commands that are denied among the words of a command that may
// be a wrapper: of what else it runs, nothing is known.
func (w *walker) scan(args []arg) {
	if w.scans > 0 {
		return
	}
	const most = 8 // candidates; each is looked at with all the words after it
	w.quiet++
	w.scans++
	found := 0
	for i := 1; i < len(args) && found < most; i++ {
		text, ok := args[i].literal()
		if ok && denied[base(text)] {
			found++
			w.argv(args[i:], stream{})
		}
		if ok && textOptions[text] && i+1 < len(args) {
			found++
			w.shellText(inner{text: args[i+1], via: args[0].text + " " + text, kind: opaqueShell})
		}
	}
	if name, certain := commandName(args[0]); !certain && name == "" && len(args) > 2 {
		if text, ok := args[1].literal(); ok && len(text) > 1 && text[0] == '-' && strings.HasSuffix(text, "c") {
			handlers["sh"](w, "sh", args, stream{})
		}
	}
	w.scans--
	w.quiet--
}

// textOptions are the options that give a script, in programs that have such.
var textOptions = set("-c --command --run --exec --cmd")

// denied are the commands that scan looks for.
var denied = set("rm git bash sh dash zsh ksh")

// plain are commands that take words for text or for names of files, and run none
// of them: what looks like a command among them is none.
var plain = set(`: [ [[ ack addgroup adduser ag apk apt apt-cache apt-get arch ar as awk b2sum base32 base64
 basename bat bc brew bunzip2 bzcat bzip2 cal cargo cat chgrp chmod chown cksum clang clear cmake cmp col
 column comm cowsay cp cpio curl cut date dd df diff dig dir dircolors dirname dmesg dnf dpkg du echo egrep
 expand expr factor false fd fgrep figlet file fmt fold free gawk gcc getconf gh git go gpg grep groups gunzip gzip
 head help hexdump host hostname iconv id info install ip jobs join jq kill killall less link ln locate logger
 login look ls lsblk lscpu lsof make man mawk md5sum mkdir mkfifo mknod mktemp more mount mv nano nl nm npm
 numfmt objdump od openssl pacman paste patch pgrep ping pip pip3 pkill pnpm pr printenv printf ps pwd read
 readlink realpath rename return rev rg rm rmdir rpm rsync say sed seq sha1sum sha256sum sha512sum shift shopt shuf
 sleep sort split sqlite3 ss stat strings stty sum svn sync tac tail tar tee test tldr touch tput tr tree true
 truncate tsort tty type ulimit umask umount uname unexpand uniq unlink unzip uptime useradd usermod users
 vdir vi vim wait wc wget whatis whereis which who whoami write xxd xz yarn yes yum zcat zip`)

// record notes a command in the tree that is explained.
func (w *walker) record(args []arg) {
	if w.node == nil || w.quiet > 0 {
		return
	}
	n := &Node{
		Position: w.run.lines.position(args[0].at),
		Via:      w.via, Verdict: Allow, Children: []*Node{},
	}
	for _, a := range args {
		n.Argv = append(n.Argv, Word{Text: a.text, Known: a.parts == nil})
	}
	w.node.Children = append(w.node.Children, n)
	w.node = n
}

// spend counts text that is made, and tells whether to go on.
func (w *walker) spend(n int) bool {
	w.run.bytes += n
	if w.run.bytes > maxScript {
		w.stop(tooLong)
	}
	return w.run.over == nil
}

// quote shortens and quotes text for a reason.
func quote(text string) string {
	const most = 60
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return "`" + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text) + "`"
}
