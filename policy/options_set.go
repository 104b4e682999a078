package policy

import (
	"strings"
)

// optionRules are the rules of programs with options that run a command, by the command's name.
var optionRules = map[string]ruleFunc{
	"tar": ruleTar, "gtar": ruleTar, "bsdtar": ruleTar,
	"rsync": ruleRsync,
	"scp":   ruleScp, "sftp": ruleScp,
	"zip":  ruleZip,
	"man":  ruleMan,
	"sort": ruleProgramOption("--compress-program"), "tcpdump": ruleProgramOption("-z"),
	"less": ruleLess, "more": ruleLess,
	"apt": ruleApt, "apt-get": ruleApt,
}

// compressors are the programs that tar is given to compress with.
var tarOptions = []string{"--use-compress-program", "--to-command", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command"}

// ruleTar refuses the options of tar that run a command.
func ruleTar(w *walker, args []arg, _ stream) {
	at := args[0].at
	for i := 1; i < len(args); i++ {
		text := args[i].lead()
		name, value, attached := args[i].cut("=")
		if !attached {
			name = text
			if i+1 < len(args) {
				value = args[i+1]
			}
		}
		switch {
		case abbreviates(name, "--checkpoint-action", 14):
			if strings.HasPrefix(value.lead(), "exec") {
				w.deny(setExec+"/option", at, "tar "+name+"="+quote(value.text))
				if _, command, ok := value.cut("="); ok && command.known() {
					w.hidden(command.text, "tar "+name, at)
				}
			}
		case abbreviatesAny(name, tarOptions):
			w.program("tar "+name, value, at)
		case strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "--") && len(text) > 1 && (text[1] == 'I' || text[1] == 'F'):
			if len(args[i].text) > 2 {
				value = args[i].from(2)
			}
			w.program("tar "+text[:2], value, at)
		case i == 1 && strings.HasSuffix(text, "I") && !strings.HasPrefix(text, "--") && i+1 < len(args) && len(text) > 1:
			// -cvI prog: the value of a letter that ends a cluster.
			w.program("tar -I", args[i+1], at)
		}
	}
}

// abbreviates tells whether text is an option or a beginning of it of at least n
// bytes.
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

// optionValues calls f with the values of an option, long or of one letter.
func optionValues(args []arg, option string, f func(arg)) {
	for i := 1; i < len(args); i++ {
		text := args[i].lead()
		name, value, attached := args[i].cut("=")
		switch {
		case attached && name == option:
			f(value)
		case text == option && i+1 < len(args):
			f(args[i+1])
			i++
		case len(option) == 2 && strings.HasPrefix(text, option):
			f(args[i].from(2))
		}
	}
}

// ruleRsync refuses a remote shell that is none.
func ruleRsync(w *walker, args []arg, _ stream) {
	for i, a := range args[1:] {
		text := a.lead()
		switch {
		case strings.HasPrefix(text, "--rsh"):
			optionValues(args[i:], "--rsh", func(v arg) { w.program("rsync --rsh", v, a.at) })
		case len(text) > 1 && text[0] == '-' && text[1] != '-' && strings.Contains(text, "e"):
			e := strings.IndexByte(text, 'e')
			value := a.from(e + 1)
			if value.text == "" && i+2 < len(args) {
				value = args[i+2]
			}
			// A letter e is also what ends a cluster such as -ae.
			if e == len(text)-1 || strings.HasPrefix(text, "-e") {
				w.program("rsync -e", value, args[0].at)
			}
		case strings.HasPrefix(text, "--delete"), strings.HasPrefix(text, "--remove-source"), abbreviates(text, "--delete", 5):
			w.deny(setDisk+"/mass-delete", args[0].at, "rsync "+quote(text))
		}
	}
}

// sshOptions are the options of ssh that run a command here.
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

// ruleScp refuses programs that scp and sftp are given in the place of ssh.
func ruleScp(w *walker, args []arg, _ stream) {
	at := args[0].at
	optionValues(args, "-S", func(v arg) { w.program("scp -S", v, at) })
	optionValues(args, "-o", func(v arg) { w.sshOption("scp", v, at) })
}

var sshGrammar = grammar{short: "46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:"}

// ssh looks at the command that another machine is to run, as if it ran here.
func (w *walker) ssh(name string, args []arg, in stream) {
	o := sshGrammar.parse(args[1:])
	for _, opt := range o.given {
		if opt.name == "o" {
			w.sshOption(name, opt.value, args[0].at)
		}
	}
	if len(o.rest) == 0 || given(o, "V Q G O") {
		return
	}
	// Options may follow the host.
	host, rest := o.rest[0], sshGrammar.parse(o.rest[1:])
	for _, opt := range rest.given {
		if opt.name == "o" {
			w.sshOption(name, opt.value, args[0].at)
		}
	}
	if strings.HasPrefix(host.lead(), "-") {
		w.notKnown(opaqueOption, args[0].at, name+" "+quote(host.text))
	}
	if len(rest.rest) == 0 {
		w.stdinScript(name, in, nil)
		return
	}
	command := joined(rest.rest)
	if destroys(command) {
		w.deny(setExec+"/remote", args[0].at, name+" … "+quote(command.text))
	}
	w.shellText(inner{text: command, via: name, kind: opaqueShell, in: in})
}

// destroyers are the commands that another machine is not to be given.
var destroyers = set("rm rmdir unlink shred dd mkfs wipefs truncate reboot shutdown halt poweroff kill killall pkill docker podman kubectl userdel iptables systemctl sh bash eval")

// destroys tells whether a word of a remote command is one of them.
func destroys(a arg) bool {
	for _, word := range strings.FieldsFunc(a.text, func(r rune) bool { return strings.ContainsRune(" \t\n;|&()'\"", r) }) {
		if destroyers[base(word)] {
			return true
		}
	}
	return false
}

// ruleZip refuses zip -TT command.
func ruleZip(w *walker, args []arg, _ stream) {
	for i, a := range args {
		if text := a.lead(); text == "-TT" || strings.HasPrefix(text, "--unzip-command") {
			value := a
			if i+1 < len(args) {
				value = args[i+1]
			}
			w.deny(setExec+"/option", args[0].at, "zip "+a.text+" "+quote(value.text))
			if value.known() {
				w.hidden(value.text, "zip -TT", args[0].at)
			}
		}
	}
}

// ruleMan refuses pagers and browsers that are none.
func ruleMan(w *walker, args []arg, _ stream) {
	for _, option := range []string{"-P", "--pager", "-H", "--html"} {
		optionValues(args, option, func(v arg) { w.program("man "+option, v, args[0].at) })
	}
}

// ruleLess refuses a first command that runs another.
func ruleLess(w *walker, args []arg, _ stream) {
	for _, a := range args[1:] {
		if text := a.lead(); strings.HasPrefix(text, "+") && strings.ContainsAny(text, "!|") {
			w.deny(setExec+"/option", args[0].at, quote(args[0].text+" "+a.text))
			w.hidden(strings.TrimLeft(a.text, "+!"), "less", args[0].at)
		}
	}
}

// ruleApt refuses hooks: -o APT::Update::Pre-Invoke::=command.
func ruleApt(w *walker, args []arg, _ stream) {
	for _, a := range args[1:] {
		if key, value, ok := a.cut("="); ok && strings.Contains(strings.ToLower(key), "-invoke") {
			w.deny(setExec+"/option", args[0].at, quote(a.text))
			w.hidden(value.text, "apt", args[0].at)
		}
	}
}

// ruleProgramOption refuses a program that an option names.
func ruleProgramOption(option string) func(*walker, []arg, stream) {
	return func(w *walker, args []arg, _ stream) {
		optionValues(args, option, func(v arg) { w.program(args[0].text+" "+option, v, args[0].at) })
	}
}
