package policy

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// diskRules are the rules of what destroys data here, by the command's name.
var diskRules = map[string]ruleFunc{
	"dd": ruleDd, "tee": ruleTee, "truncate": ruleTruncate, "ln": ruleLn, "gln": ruleLn,
	"cp": ruleCp, "install": ruleInstall, "mv": ruleMv,
	"shred": ruleErase, "wipefs": ruleErase, "blkdiscard": ruleErase, "wipe": ruleErase, "srm": ruleErase, "sfill": ruleErase,
	"fdisk": ruleDisk, "sfdisk": ruleDisk, "sgdisk": ruleDisk, "parted": ruleDisk, "gdisk": ruleDisk, "cfdisk": ruleDisk,
	"hdparm": ruleDisk, "mkswap": ruleDisk, "cryptsetup": ruleDisk, "lvremove": ruleErase, "vgremove": ruleErase, "pvremove": ruleErase,
	"chmod": ruleTree, "chown": ruleTree, "chgrp": ruleTree,
}

// redirect looks at a redirection: at the commands nested in it, and at what it
// writes to.
func (w *walker) redirect(r *syntax.Redirect) {
	w.nested(r.Word)
	if r.Hdoc != nil {
		w.nested(r.Hdoc)
	}
	if !w.p.watches {
		return
	}
	switch r.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.RdrInOut, syntax.DplOut:
		w.writes(w.one(r.Word), "a redirection")
	default: // an input
	}
}

// writes looks at a file that is written to.
func (w *walker) writes(file arg, how string) {
	if file.parts == nil && w.shell.dir == "" && !strings.ContainsAny(file.text, "./~") {
		return // a name in the working directory, and none with a meaning
	}
	if startup := startupFile(file); startup {
		w.deny(setEnv+"/startup-file", file.at, how+" to "+quote(file.text))
	}
	if systemFile(w, file) {
		w.deny(setDisk+"/system-file", file.at, how+" to "+quote(file.text))
	}
}

// systemTrees are the directories that the system, not the agent, writes to.
var systemTrees = strings.Fields("/etc /boot /bin /sbin /lib /lib32 /lib64 /usr /sys /proc/sys /proc/sysrq-trigger /var/lib /var/spool/cron /root /efi")

// systemFile tells whether a path is a system file or a disk.
func systemFile(w *walker, a arg) bool {
	text := a.lead()
	if a.parts == nil {
		if full := w.resolve(a); full != "" {
			text = full
		}
	}
	if text == "" || text[0] != '/' {
		return false
	}
	if disk, ok := strings.CutPrefix(text, "/dev/"); ok {
		for prefix := range strings.FieldsSeq("sd hd vd xvd nvme mmcblk mapper/ disk/ dm- md loop mem kmem port ram zram sr") {
			if strings.HasPrefix(disk, prefix) {
				return true
			}
		}
		return false
	}
	for _, tree := range systemTrees {
		if rest, ok := strings.CutPrefix(text, tree); ok && (rest == "" || rest[0] == '/') {
			return !strings.HasPrefix(text, "/usr/local/") && !strings.HasPrefix(text, "/usr/src/")
		}
	}
	return false
}

// startupNames are the files that shells, ssh and git obey at start.
var startupNames = set(`.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .kshrc .cshrc .tcshrc
 .inputrc .gitconfig .ssh/authorized_keys .ssh/config .ssh/rc .ssh/environment .npmrc .pythonrc .config/fish/config.fish .config/git/config .vimrc .exrc .netrc
 .git/config .pam_environment .xprofile .xinitrc .xsession .login .logout .gdbinit .lldbinit .Rprofile .irbrc .pypirc`)

func startupFile(a arg) bool {
	text := a.text
	if strings.Contains(text, ".git/hooks/") && !strings.HasSuffix(text, ".sample") {
		return true
	}
	if strings.HasPrefix(text, "/etc/profile") || strings.HasPrefix(text, "/etc/bash") || strings.HasPrefix(text, "/etc/environment") {
		return true
	}
	for i := len(text); i > 0; {
		i = strings.LastIndexByte(text[:i], '/')
		if startupNames[text[i+1:]] {
			return true
		}
		if i < 0 {
			break
		}
	}
	return false
}

// emptied refuses a redirection that does nothing but empty a file, by a command
// that writes nothing.
func (w *walker) emptied(s *syntax.Stmt, args []arg) {
	if len(s.Redirs) == 0 {
		return
	}
	name, _ := commandName(args[0])
	if name == ":" || name == "true" || name == "false" || name == "cat" && len(args) == 2 && args[1].is("/dev/null") {
		w.bareRedirect(s)
	}
}

// bareRedirect looks at a statement that only redirects, or as good as.
func (w *walker) bareRedirect(s *syntax.Stmt) {
	for _, r := range s.Redirs {
		if r.Op != syntax.RdrOut && r.Op != syntax.RdrClob || r.N != nil && r.N.Value != "1" {
			continue
		}
		if file := w.one(r.Word); !harmlessSink(file) {
			w.deny(setDisk+"/empty", w.position(r), "the file "+quote(file.text)+" is emptied")
		}
	}
}

// harmlessSink tells whether nothing is lost by writing to a file.
func harmlessSink(a arg) bool {
	text := a.lead()
	return strings.HasPrefix(text, "/dev/") && (strings.HasPrefix(text, "/dev/null") || strings.HasPrefix(text, "/dev/std") ||
		strings.HasPrefix(text, "/dev/fd/") || strings.HasPrefix(text, "/dev/tty") || strings.HasPrefix(text, "/dev/pts/") || strings.HasPrefix(text, "/dev/shm/"))
}

func ruleDd(w *walker, args []arg, _ stream) {
	for _, a := range args[1:] {
		if key, file, ok := a.cut("="); ok && key == "of" {
			if systemFile(w, file) && strings.HasPrefix(file.lead(), "/dev/") {
				w.deny(setDisk+"/shred", args[0].at, "dd "+quote(a.text))
			}
			w.writes(file, "dd")
		}
	}
}

func ruleTee(w *walker, args []arg, _ stream) {
	has, operands := flags(args[1:])
	for _, file := range operands {
		w.writes(file, "tee")
		if !has("a", "append") && !harmlessSink(file) && !file.is("-") && substitutionOf(file) == nil {
			w.deny(setDisk+"/empty", args[0].at, "tee "+quote(file.text))
		}
	}
}

// substitutionOf returns the process substitution, of either kind, that a word is.
func substitutionOf(a arg) *syntax.ProcSubst {
	if len(a.parts) != 1 {
		return nil
	}
	sub, _ := a.parts[0].node.(*syntax.ProcSubst)
	return sub
}

func ruleTruncate(w *walker, args []arg, _ stream) {
	o := grammar{short: "cor:s:", long: "no-create io-blocks reference= size="}.permuted(args[1:])
	size, ok := o.get("s", "size")
	zero := ok && strings.Trim(size.text, "0<%/KMGTPEZYB") == ""
	for _, file := range o.rest {
		w.writes(file, "truncate")
		if zero {
			w.deny(setDisk+"/empty", args[0].at, "truncate of "+quote(file.text)+" to nothing")
		}
	}
}

func ruleLn(w *walker, args []arg, _ stream) {
	has, operands := flags(args[1:])
	if !has("f", "force") {
		return
	}
	if len(operands) > 0 {
		w.writes(operands[len(operands)-1], "ln -f")
	}
	w.deny(setDisk+"/empty", args[0].at, "ln -f, which replaces what is there")
}

func ruleCp(w *walker, args []arg, _ stream) {
	_, operands := flags(args[1:])
	if len(operands) < 2 {
		return
	}
	to := operands[len(operands)-1]
	w.writes(to, args[0].text)
	for _, from := range operands[:len(operands)-1] {
		if from.is("/dev/null") || from.is("/dev/zero") || from.is("/dev/urandom") {
			w.deny(setDisk+"/empty", args[0].at, "cp of "+from.text+" over "+quote(to.text))
		}
	}
}

func ruleInstall(w *walker, args []arg, in stream) {
	o := grammar{
		short: "bcCdDpsTvZg:m:o:S:t:",
		long:  "backup? compare directory group= mode= owner= preserve-timestamps strip strip-program= suffix= target-directory= no-target-directory verbose preserve-context context?",
	}.permuted(args[1:])
	if given(o, "d directory") {
		return
	}
	if program, ok := o.get("strip-program"); ok {
		w.program("install --strip-program", program, args[0].at)
	}
	rest := o.rest
	if to, ok := o.get("t", "target-directory"); ok {
		rest = append(slices.Clip(rest), to)
	}
	ruleCp(w, append([]arg{args[0]}, rest...), in)
}

func ruleMv(w *walker, args []arg, _ stream) {
	has, operands := flags(args[1:])
	if len(operands) < 2 {
		return
	}
	to := operands[len(operands)-1]
	from := operands[:len(operands)-1]
	if has("t", "target-directory") {
		to, from = operands[0], operands[1:]
	}
	if to.is("/dev/null") {
		w.deny(setDisk+"/empty", args[0].at, "mv to /dev/null")
	}
	w.writes(to, "mv")
	for _, a := range from {
		if what := w.dear(a); what != "" && what != "everything there" {
			w.deny(setDisk+"/mass-delete", args[0].at, "mv of "+what)
		}
	}
}

// ruleErase refuses a command whatever it is given.
func ruleErase(w *walker, args []arg, _ stream) {
	if has, _ := flags(args[1:]); has("help", "version") && len(args) == 2 {
		return
	}
	w.deny(setDisk+"/shred", args[0].at, quote(joined(args).text))
}

// ruleDisk refuses a command that is given a disk, unless it only lists.
func ruleDisk(w *walker, args []arg, _ stream) {
	has, operands := flags(args[1:])
	if has("l", "list", "print", "p", "i", "I", "help", "version") {
		return
	}
	for _, a := range operands {
		if strings.HasPrefix(a.text, "/dev/") {
			w.deny(setDisk+"/shred", args[0].at, quote(joined(args).text))
		}
	}
}

// ruleTree refuses a change of rights of all there is.
func ruleTree(w *walker, args []arg, _ stream) {
	has, operands := flags(args[1:])
	if !has("R", "recursive") || len(operands) < 2 {
		return
	}
	for _, a := range operands[1:] {
		full := w.resolve(a)
		if full == "/" || full == "~" || full == "/etc" || full == "/usr" || full == "/home" || full == "/var" {
			w.deny(setDisk+"/mass-delete", args[0].at, quote(joined(args).text))
		}
	}
}

// ruleFind refuses find -delete, and its like, where it begins at what is dear.
func ruleFind(w *walker, args []arg) {
	at := args[0].at
	removes, tests := false, false
	start := args[1:]
	for i, a := range args {
		text, _ := a.literal()
		switch {
		case i > 0 && strings.HasPrefix(text, "-") && len(start) > i-1 && len(start) == len(args)-1:
			start = args[1:i]
			fallthrough
		default:
			switch text {
			case "-delete":
				removes = true
			case "-exec", "-execdir":
				if i+1 < len(args) {
					name, _ := commandName(args[i+1])
					removes = removes || name == "rm" || name == "shred" || name == "unlink"
				}
			case "-fprint", "-fprintf", "-fls", "-fprint0":
				if i+1 < len(args) {
					w.writes(args[i+1], "find "+text)
				}
			case "-name", "-iname", "-path", "-regex", "-mtime", "-size", "-newer", "-mmin", "-user", "-empty", "-atime", "-ctime":
				tests = true
			}
		}
	}
	if !removes {
		return
	}
	for _, a := range start {
		dear := w.dear(a) != "" || a.is(".")
		if full := w.resolve(a); dear && (!tests || full == "/" || full == "~") {
			w.deny(setDisk+"/mass-delete", at, "find "+quote(a.text)+" that removes")
		}
	}
}
