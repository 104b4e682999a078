package policy

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// simple visits a simple command.
func (w *walker) simple(s *syntax.Stmt, c *syntax.CallExpr, in stream) {
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

// argv looks at a command in its canonical form: its words after all expansions.
func (w *walker) argv(args []arg, in stream) {
	if len(args) == 0 || !w.step() || !w.wordy(len(args)) {
		return
	}
	node := w.node
	w.record(w.via, args)
	if w.within++; w.within > maxDepth {
		w.stop(tooDeep)
	} else {
		w.inspect(args, in)
	}
	w.within--
	w.node = node
}

func (w *walker) inspect(args []arg, in stream) {
	name, certain := commandName(args[0])
	if certain && args[0].byVar && w.shell.surveyed().anyName {
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
		// A shell that is not interactive ignores aliases: the rest is looked at too.
		w.callAlias(text, args, in)
	}
	f := w.shell.funcs[args[0].text]
	switch {
	case f != nil:
		w.callFunction(f, args, in)
	case w.functions > 0 && w.shell.surveyed().funcs[args[0].text]:
		w.shell.usesState = true // it may be defined when the function that calls it is called
	}
	if evaluators[name] {
		w.evaluatesCall(name, args)
	}
	if command, ok := strings.CutPrefix(name, "git-"); ok && gitCommands()[command] {
		// git-push is git push, in git's own directory of programs.
		name, args = "git", append([]arg{lit("git", args[0].at), lit(command, args[0].at)}, args[1:]...)
	}
	c := call{w, name, args, in}
	known := w.p.commands[name]
	if known == nil {
		known = &command{}
	}
	for _, rule := range known.rules {
		rule(c)
	}
	if strings.HasPrefix(name, "mkfs") {
		c.refuse(setDisk+"/shred", name)
	}
	switch {
	case known.runs != nil:
		known.runs(c)
	case known.wrapper != nil:
		c.unwrap(known.wrapper)
	case name == "!!" || len(name) > 1 && name[0] == '!':
		c.unclear(opaqueHistory, quote(name))
	case f == nil && !known.plain && certain:
		w.scan(args)
	}
}

// commandName returns the last element of the path that names a command. The name is not
// certain if a part of the path is made at run time and may be none or several words.
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

// scan looks among the words of a program that is not known for commands that rules are
// about: the program may run its words. What else it may run is not looked for.
func (w *walker) scan(args []arg) {
	if w.scans > 0 {
		return
	}
	const most = 8 // candidates; each is looked at with all words that follow it
	w.silently(func() {
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
				call{w, "sh", args, stream{}}.shellCommand()
			}
		}
		w.scans--
	})
}

// textOptions are the options that give a script to a program, for scan.
var textOptions = set("-c --command --run --exec --cmd")

// denied are the commands that scan looks for.
var denied = set("rm git bash sh dash zsh ksh")

// plain are the commands whose words are text or names of files. They run none of their
// words, so that scan skips them.
const plain = `: [ [[ ack addgroup adduser ag apk apt apt-cache apt-get arch ar as awk b2sum base32 base64
 basename bat bc brew bunzip2 bzcat bzip2 cal cargo cat chgrp chmod chown cksum clang clear cmake cmp col
 column comm cowsay cp cpio curl cut date dd df diff dig dir dircolors dirname dmesg dnf dpkg du echo egrep
 expand expr factor false fd fgrep figlet file fmt fold free gawk gcc getconf gh git go gpg grep groups gunzip gzip
 head help hexdump host hostname iconv id info install ip jobs join jq kill killall less link ln locate logger
 login look ls lsblk lscpu lsof make man mawk md5sum mkdir mkfifo mknod mktemp more mount mv nano nl nm npm
 numfmt objdump od openssl pacman paste patch pgrep ping pip pip3 pkill pnpm pr printenv printf ps pwd read
 readlink realpath rename return rev rg rm rmdir rpm rsync say sed seq sha1sum sha256sum sha512sum shift shopt shuf
 sleep sort split sqlite3 ss stat strings stty sum svn sync tac tail tar tee test tldr touch tput tr tree true
 truncate tsort tty type ulimit umask umount uname unexpand uniq unlink unzip uptime useradd usermod users
 vdir vi vim wait wc wget whatis whereis which who whoami write xxd xz yarn yes yum zcat zip`

// quote shortens text and puts it into backquotes, for a reason.
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
