package policy

import (
	"slices"
	"strings"
)

// optionRules are the rules about options that run a command, by the program's name.
var optionRules = map[string]func(call){
	"tar": ruleTar, "gtar": ruleTar, "bsdtar": ruleTar,
	"rsync": ruleRsync,
	"scp":   ruleScp, "sftp": ruleScp,
	"zip": ruleZip,
	"sed": ruleSed, "gsed": ruleSed,
	"make": ruleMake, "gmake": ruleMake,
	"cargo": ruleCargo,
	"man":   ruleMan,
	"less":  ruleLess, "more": ruleLess,
	"apt": ruleApt, "apt-get": ruleApt,
}

// tarOptions are the long options of tar whose value is a program.
var tarOptions = []string{"--use-compress-program", "--to-command", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command"}

// ruleTar refuses the options of tar that run a command, and looks at what it writes.
func ruleTar(c call) {
	at := c.at()
	c.tarWrites()
	for i := 1; i < len(c.args); i++ {
		text := c.args[i].lead()
		name, value, attached := c.args[i].cut("=")
		if !attached {
			name = text
			if i+1 < len(c.args) {
				value = c.args[i+1]
			}
		}
		switch {
		case abbreviates(name, "--checkpoint-action", 14):
			if strings.HasPrefix(value.lead(), "exec") {
				c.refuse(setExec+"/option", "tar "+name+"="+quote(value.text))
				if _, command, ok := value.cut("="); ok && command.known() {
					c.hidden(command.text, "tar "+name, at)
				}
			}
		case abbreviatesAny(name, tarOptions):
			c.program("tar "+name, value, at)
		case len(text) > 1 && text[0] == '-' && text[1] != '-':
			// A value is the rest of the word, or the next one.
			letter := strings.IndexAny(text, tarValues)
			if letter < 0 || text[letter] != 'I' && text[letter] != 'F' {
				continue
			}
			if len(c.args[i].text) > letter+1 {
				value = c.args[i].from(letter + 1)
			} else if i+1 < len(c.args) {
				value = c.args[i+1]
			}
			c.program("tar -"+text[letter:letter+1], value, at)
		case i == 1 && len(text) > 1 && strings.Trim(text, tarLetters) == "":
			c.tarLetters(text, c.args[2:])
		}
	}
}

// tarWrites looks at the directory that tar extracts to, the archive that it makes, and the
// files that it removes.
func (c call) tarWrites() {
	words := c.args[1:]
	if len(words) > 0 && len(words[0].lead()) > 1 && words[0].lead()[0] != '-' { // the old way to write options
		words = append([]arg{lit("-"+words[0].lead(), words[0].at)}, words[1:]...)
		words = tarOldOptions(words)
	}
	o := tarGrammar.permuted(words)
	dir, inDir := o.get("C", "directory")
	file, hasFile := o.get("f", "file")
	switch {
	case given(o, "x extract get") && inDir:
		c.writes(dir, "tar -C")
		if c.resolve(dir) == "/" {
			c.refuse(setDisk+"/system-file", "tar -C /")
		}
	case given(o, "c create r append u update A catenate delete") && hasFile:
		c.writes(file, "tar -f")
	}
	if given(o, "remove-files") {
		for _, a := range o.rest {
			if what := c.loss(a); what != "" || a.is(".") {
				c.refuse(setDisk+"/mass-delete", "tar --remove-files of "+quote(a.text))
			}
		}
	}
}

// tarOldOptions puts the value of each letter in the first word behind that letter, in a word
// of its own.
func tarOldOptions(words []arg) []arg {
	letters, values := words[0].text[1:], words[1:]
	var out []arg
	for _, letter := range letters {
		option := lit("-"+string(letter), words[0].at)
		out = append(out, option)
		if strings.ContainsRune(tarValues, letter) && len(values) > 0 {
			out = append(out, values[0])
			values = values[1:]
		}
	}
	return append(out, values...)
}

// tarGrammar has the options of tar that say what it does and where.
var tarGrammar = grammar{
	short: "AcdrtuxGgnSkUWOmopsMLzZjJahBilPRvwC:f:F:b:I:K:N:T:V:X:H:",
	long: "extract get create append update catenate delete list diff directory= file= remove-files files-from= exclude= exclude-from= transform= xform= strip-components=" +
		" use-compress-program= to-command= checkpoint? checkpoint-action= owner= group= mode= mtime= format= label= one-top-level? gzip bzip2 xz zstd verbose",
}

// tarLetters are the options of tar in a first word without a dash. Their values follow, in
// the order of the letters.
const tarLetters = "AcdrtuxGgnSkUWOmopsMfFLbBiaIjJzZhlNPCKTVXRvw"

// tarValues are the letters among them that take a value.
const tarValues = "bCfFgIKLNTVX"

func (w *walker) tarLetters(letters string, values []arg) {
	for _, c := range letters {
		if !strings.ContainsRune(tarValues, c) || len(values) == 0 {
			continue
		}
		if c == 'I' || c == 'F' {
			w.program("tar "+string(c), values[0], values[0].at)
		}
		values = values[1:]
	}
}

// abbreviates reports whether text is an option, or its start of at least n bytes.
func abbreviates(text, option string, n int) bool {
	return len(text) >= n && strings.HasPrefix(option, text)
}

func abbreviatesAny(text string, all []string) bool {
	for _, option := range all {
		if abbreviates(text, option, 5) {
			return true
		}
	}
	return false
}

// optionValues calls f with each value of some options, which are letters and long names.
// The grammar says which other letters take a value.
func (g grammar) optionValues(args []arg, names string, f func(name string, value arg)) {
	for _, opt := range g.permuted(args[1:]).given {
		if slices.Contains(strings.Fields(names), opt.name) {
			f(opt.name, opt.value)
		}
	}
}

// ruleRsync refuses a remote shell that is not a common one, and deletions. It looks at the
// directory that rsync writes to.
func ruleRsync(c call) {
	if last := c.args[len(c.args)-1]; len(c.args) > 2 && !strings.HasPrefix(last.lead(), "-") && !strings.Contains(last.lead(), ":") {
		c.writes(last, "rsync")
	}
	for i, a := range c.args[1:] {
		text := a.lead()
		switch {
		case strings.HasPrefix(text, "--rsh"):
			_, value, attached := a.cut("=")
			if !attached && i+2 < len(c.args) {
				value = c.args[i+2]
			}
			c.program("rsync --rsh", value, a.at)
		case len(text) > 1 && text[0] == '-' && text[1] != '-' && strings.Contains(text, "e"):
			e := strings.IndexByte(text, 'e')
			value := a.from(e + 1)
			if value.text == "" && i+2 < len(c.args) {
				value = c.args[i+2]
			}
			// The e may end a cluster such as -ae, or be a letter in one.
			if e == len(text)-1 || strings.HasPrefix(text, "-e") || strings.IndexByte("./~", text[e+1]) >= 0 {
				c.program("rsync -e", value, c.at())
			}
		case strings.HasPrefix(text, "--delete"), strings.HasPrefix(text, "--remove-source"), abbreviates(text, "--delete", 5):
			c.refuse(setDisk+"/mass-delete", "rsync "+quote(text))
		}
	}
}

// sshOptions are the options of ssh that run a local command.
var sshOptions = []string{"proxycommand", "localcommand", "permitlocalcommand", "knownhostscommand", "pkcs11provider", "securitykeyprovider", "xauthlocation"}

// sshOption refuses -o ProxyCommand=… and such.
func (w *walker) sshOption(name string, value arg, at int) {
	text := strings.ToLower(strings.TrimSpace(value.text))
	for _, o := range sshOptions {
		if !strings.HasPrefix(text, o) {
			continue
		}
		rest := strings.TrimLeft(text[len(o):], " =\t")
		if rest != "none" && rest != "no" {
			w.deny(setExec+"/option", at, name+" -o "+quote(value.text))
		}
	}
}

// ruleScp refuses programs that scp and sftp run in place of ssh.
func ruleScp(c call) {
	g := grammar{short: "346ABCOpqrRTvfNac:D:F:i:J:l:o:P:S:X:b:s:"}
	g.optionValues(c.args, "S o", func(name string, v arg) {
		if name == "S" {
			c.program("scp -S", v, c.at())
		} else {
			c.sshOption("scp", v, c.at())
		}
	})
}

var sshGrammar = grammar{short: "46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:"}

// ssh looks at the command for another machine as if it ran on this one.
func (c call) ssh() {
	o := sshGrammar.parse(c.args[1:])
	for _, opt := range o.given {
		if opt.name == "o" {
			c.sshOption(c.name, opt.value, c.at())
		}
	}
	if len(o.rest) == 0 || given(o, "V Q G O") {
		return
	}
	// Options may follow the host.
	host, rest := o.rest[0], sshGrammar.parse(o.rest[1:])
	for _, opt := range rest.given {
		if opt.name == "o" {
			c.sshOption(c.name, opt.value, c.at())
		}
	}
	if strings.HasPrefix(host.lead(), "-") {
		c.unclear(opaqueOption, c.name+" "+quote(host.text))
	}
	if len(rest.rest) == 0 {
		c.stdinScript(c.name, c.in, nil)
		return
	}
	command := joined(rest.rest)
	if destroys(command) {
		c.refuse(setExec+"/remote", c.name+" … "+quote(command.text))
	}
	c.shellText(inner{text: command, via: c.name, kind: opaqueShell, in: c.in})
}

// destroyers are the commands that must not run on another machine.
var destroyers = set("rm rmdir unlink shred dd mkfs wipefs truncate reboot shutdown halt poweroff kill killall pkill docker podman kubectl userdel iptables systemctl sh bash eval")

// destroys reports whether a word of a remote command is one of destroyers.
func destroys(a arg) bool {
	for _, word := range strings.FieldsFunc(a.text, func(r rune) bool { return strings.ContainsRune(" \t\n;|&()'\"", r) }) {
		if destroyers[base(word)] {
			return true
		}
	}
	return false
}

// ruleZip refuses zip -TT command.
func ruleZip(c call) {
	for i, a := range c.args {
		if text := a.lead(); text == "-TT" || strings.HasPrefix(text, "--unzip-command") {
			value := a
			if i+1 < len(c.args) {
				value = c.args[i+1]
			}
			c.refuse(setExec+"/option", "zip "+a.text+" "+quote(value.text))
			if value.known() {
				c.hidden(value.text, "zip -TT", c.at())
			}
		}
	}
}

// ruleMan refuses pagers and browsers that are not common ones.
func ruleMan(c call) {
	g := grammar{
		short: "adDfhiIkKltTuVwWZ7cC:R:L:m:M:S:s:e:P:r:E:p:T?X?H?",
		long:  "pager= html? config-file= encoding= extension= locale= manpath= preprocessor= prompt= recode= sections= systems= all apropos whatis where regex wildcard",
	}
	g.optionValues(c.args, "P pager H html", func(name string, v arg) { c.program("man -"+name, v, c.at()) })
}

// ruleLess refuses an initial command of less that runs a program, and a file of keys, which
// can set the variables that less runs programs by.
func ruleLess(c call) {
	for _, option := range []string{"-k", "--lesskey-file", "--lesskey-src", "--lesskey-content"} {
		eachValue(c.args, option, func(v arg, _ int) { c.refuse(setExec+"/option", "less "+option+" "+quote(v.text)) })
	}
	for _, a := range c.args[1:] {
		if text := a.lead(); strings.HasPrefix(text, "+") && strings.ContainsAny(text, "!|") {
			c.refuse(setExec+"/option", quote(c.args[0].text+" "+a.text))
			c.hidden(strings.TrimLeft(a.text, "+!"), "less", c.at())
		}
	}
}

// ruleApt refuses hooks: -o APT::Update::Pre-Invoke::=command.
func ruleApt(c call) {
	for _, a := range c.args[1:] {
		if key, value, ok := a.cut("="); ok && strings.Contains(strings.ToLower(key), "-invoke") {
			c.refuse(setExec+"/option", quote(a.text))
			c.hidden(value.text, "apt", c.at())
		}
	}
}
