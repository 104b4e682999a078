package policy

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// diskRules are the rules about commands that destroy local data, by the command's name.
var diskRules = map[string]func(call){
	"dd": ruleDd, "tee": ruleTee, "truncate": ruleTruncate, "ln": ruleLn, "gln": ruleLn,
	"cp": ruleCp, "install": ruleInstall, "mv": ruleMv,
	"shred": ruleErase, "wipefs": ruleErase, "blkdiscard": ruleErase, "wipe": ruleErase, "srm": ruleErase, "sfill": ruleErase,
	"fdisk": ruleDisk, "sfdisk": ruleDisk, "sgdisk": ruleDisk, "parted": ruleDisk, "gdisk": ruleDisk, "cfdisk": ruleDisk,
	"hdparm": ruleDisk, "mkswap": ruleDisk, "cryptsetup": ruleDisk, "lvremove": ruleErase, "vgremove": ruleErase, "pvremove": ruleErase,
	"mke2fs": ruleErase, "mkdosfs": ruleErase, "mkntfs": ruleErase, "newfs": ruleErase,
	"zpool": ruleVolumes, "zfs": ruleVolumes, "btrfs": ruleVolumes, "mdadm": ruleVolumes, "nvme": ruleVolumes, "badblocks": ruleVolumes, "diskutil": ruleVolumes,
	"sponge": ruleSponge, "perl": ruleInPlace, "ruby": ruleInPlace, "gawk": ruleInPlace, "awk": ruleInPlace,
	"ed": ruleLineEditor, "ex": ruleLineEditor,
	"unzip": ruleUnpack, "7z": ruleUnpack, "7za": ruleUnpack, "7zz": ruleUnpack,
	"chmod": ruleTree, "chown": ruleTree, "chgrp": ruleTree,
}

// writes looks at a file that a command writes.
func (w *walker) writes(file arg, how string) {
	if file.parts == nil && w.shell.dir == "" && !strings.ContainsAny(file.text, "./~") {
		return // a name in the working directory that has no special meaning
	}
	if startupFile(file.text) || file.parts == nil && startupFile(w.resolve(file)) {
		w.deny(setEnv+"/startup-file", file.at, how+" to "+quote(file.text))
	}
	if w.systemFile(file) {
		w.deny(setDisk+"/system-file", file.at, how+" to "+quote(file.text))
	}
}

// systemTrees are the directories that only the system should write to.
var systemTrees = strings.Fields("/etc /boot /bin /sbin /lib /lib32 /lib64 /usr /sys /proc/sys /proc/sysrq-trigger /var/lib /var/spool/cron /root /efi")

// systemFile reports whether a path is a system file or a disk. The files below another root
// are not the system's.
func (w *walker) systemFile(a arg) bool {
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
			return w.chroots == 0 && text != "/usr/local" && !strings.HasPrefix(text, "/usr/local/") && !strings.HasPrefix(text, "/usr/src/")
		}
	}
	return false
}

// startupNames are the files that shells, ssh, git and others read or run at start.
var startupNames = set(`.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .kshrc .cshrc .tcshrc
 .inputrc .gitconfig .ssh/authorized_keys .ssh/config .ssh/rc .ssh/environment .npmrc .pythonrc .config/fish/config.fish .config/git/config .vimrc .exrc .netrc
 .git/config .pam_environment .xprofile .xinitrc .xsession .login .logout .gdbinit .lldbinit .Rprofile .irbrc .pypirc`)

func startupFile(text string) bool {
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

// emptied refuses a redirection that only empties a file, because the command writes
// nothing.
func (w *walker) emptied(s *syntax.Stmt, args []arg) {
	if len(s.Redirs) == 0 {
		return
	}
	name, _ := commandName(args[0])
	switch {
	case name == ":" || name == "true" || name == "false",
		name == "cat" && len(args) == 2 && args[1].is("/dev/null"),
		name == "echo" && len(args) == 2 && args[1].is("-n"),
		(name == "echo" && len(args) == 3 && args[1].is("-n") || name == "printf" && len(args) == 2) && args[len(args)-1].is(""):
		w.bareRedirect(s)
	}
}

// bareRedirect refuses the output redirections of a statement that writes nothing.
func (w *walker) bareRedirect(s *syntax.Stmt) {
	for _, r := range s.Redirs {
		file := w.one(r.Word)
		empties := r.Op == syntax.RdrOut || r.Op == syntax.RdrClob || r.Op == syntax.RdrAll
		if r.Op == syntax.DplOut && r.N == nil { // >&file is as &>file, unless it names a descriptor
			empties = file.known() && !writesNoFile(r)
		}
		if empties && !harmlessSink(file) {
			w.deny(setDisk+"/empty", w.position(r), "the file "+quote(file.text)+" is emptied")
		}
	}
}

// harmlessSink reports whether writing to a file loses nothing.
func harmlessSink(a arg) bool {
	text := a.lead()
	return strings.HasPrefix(text, "/dev/") && (strings.HasPrefix(text, "/dev/null") || strings.HasPrefix(text, "/dev/std") ||
		strings.HasPrefix(text, "/dev/fd/") || strings.HasPrefix(text, "/dev/tty") || strings.HasPrefix(text, "/dev/pts/") || strings.HasPrefix(text, "/dev/shm/"))
}

func ruleDd(c call) {
	for _, a := range c.args[1:] {
		if key, file, ok := a.cut("="); ok && key == "of" {
			if c.systemFile(file) && strings.HasPrefix(file.lead(), "/dev/") {
				c.refuse(setDisk+"/shred", "dd "+quote(a.text))
			}
			c.writes(file, "dd")
			if slices.ContainsFunc(c.args, func(a arg) bool { return a.is("if=/dev/null") }) {
				c.refuse(setDisk+"/empty", "dd of nothing over "+quote(file.text))
			}
		}
	}
}

func ruleTee(c call) {
	has, operands := flags(c.args[1:])
	for _, file := range operands {
		c.writes(file, "tee")
		if !has("a", "append") && !harmlessSink(file) && !file.is("-") && substitutionOf(file) == nil {
			c.refuse(setDisk+"/empty", "tee "+quote(file.text))
		}
	}
}

// substitutionOf returns the process substitution that a word is, of either kind, or nil.
func substitutionOf(a arg) *syntax.ProcSubst {
	if len(a.parts) != 1 {
		return nil
	}
	sub, _ := a.parts[0].node.(*syntax.ProcSubst)
	return sub
}

func ruleTruncate(c call) {
	o := grammar{short: "cor:s:", long: "no-create io-blocks reference= size="}.permuted(c.args[1:])
	size, ok := o.get("s", "size")
	zero := ok && strings.Trim(size.text, "0<%/KMGTPEZYB") == ""
	for _, file := range o.rest {
		c.writes(file, "truncate")
		if zero {
			c.refuse(setDisk+"/empty", "truncate of "+quote(file.text)+" to nothing")
		}
	}
}

func ruleLn(c call) {
	has, operands := flags(c.args[1:])
	if !has("f", "force") {
		return
	}
	if len(operands) > 0 {
		c.writes(operands[len(operands)-1], "ln -f")
	}
	c.refuse(setDisk+"/empty", "ln -f, which replaces what is there")
}

// copyGrammar has the options of cp and mv.
var copyGrammar = grammar{
	short: "abdfiHlLnPpRrsS:t:TuvxZ",
	long: "archive attributes-only backup? context? copy-contents debug dereference force help interactive link no-clobber no-copy no-dereference no-preserve= no-target-directory" +
		" one-file-system parents preserve? recursive reflink? remove-destination sparse= strip-trailing-slashes suffix= symbolic-link target-directory= update? verbose version",
}

// copied returns what a command copies, and where to. ok is false if it copies nothing.
func copied(g grammar, args []arg) (from []arg, to arg, ok bool) {
	o := g.permuted(args)
	if to, ok = o.get("t", "target-directory"); ok {
		return o.rest, to, len(o.rest) > 0
	}
	last := len(o.rest) - 1
	if last < 1 {
		return nil, arg{}, false
	}
	return o.rest[:last], o.rest[last], true
}

func ruleCp(c call) {
	if from, to, ok := copied(copyGrammar, c.args[1:]); ok {
		c.copies(from, to)
	}
}

// copies looks at files that are copied to another file, or into a directory.
func (c call) copies(from []arg, to arg) {
	c.lands(from, to)
	for _, a := range from {
		if a.is("/dev/null") || a.is("/dev/zero") || a.is("/dev/urandom") {
			c.refuse(setDisk+"/empty", "cp of "+a.text+" over "+quote(to.text))
		}
	}
}

// startupDirs are the directories that files are copied into to be run or obeyed at start.
var startupDirs = set("~ ~/.ssh ~/.config/fish ~/.config/git")

// lands looks at the files that a copy or a move writes: to, or files in it.
func (c call) lands(from []arg, to arg) {
	c.writes(to, c.args[0].text)
	dir := strings.TrimRight(to.text, "/")
	if !startupDirs[c.resolve(to)] && dir != ".git/hooks" && !strings.HasSuffix(dir, "/.git/hooks") {
		return
	}
	for _, a := range from {
		if text, ok := a.literal(); ok && text != "" {
			c.writes(makeArg(append(slices.Clone(to.all()), part{text: "/" + path.Base(text)}), to.at), c.args[0].text)
		}
	}
}

func ruleInstall(c call) {
	g := grammar{
		short: "bcCdDpsTvZg:m:o:S:t:",
		long:  "backup? compare directory group= mode= owner= preserve-timestamps strip strip-program= suffix= target-directory= no-target-directory verbose preserve-context context?",
	}
	o := g.permuted(c.args[1:])
	if given(o, "d directory") {
		return
	}
	if program, ok := o.get("strip-program"); ok {
		c.program("install --strip-program", program, c.at())
	}
	if from, to, ok := copied(g, c.args[1:]); ok {
		c.copies(from, to)
	}
}

func ruleMv(c call) {
	from, to, ok := copied(copyGrammar, c.args[1:])
	if !ok {
		return
	}
	if to.is("/dev/null") {
		c.refuse(setDisk+"/empty", "mv to /dev/null")
	}
	c.lands(from, to)
	for _, a := range from {
		what := c.loss(a)
		if what == "everything there" && !strings.HasPrefix(a.lead(), "/") {
			continue // mv * d
		}
		if what != "" {
			c.refuse(setDisk+"/mass-delete", "mv of "+what)
		}
	}
}

// ruleErase refuses a command, whatever its words.
func ruleErase(c call) {
	if has, _ := flags(c.args[1:]); has("help", "version") && len(c.args) == 2 {
		return
	}
	c.refuse(setDisk+"/shred", quote(joined(c.args).text))
}

// volumeErasers are the words of volume managers and disk tools that erase what is there.
var volumeErasers = map[string]map[string]bool{
	"zpool": set("destroy labelclear"), "zfs": set("destroy rollback"), "btrfs": set("delete"),
	"mdadm": set("--zero-superblock"), "nvme": set("format sanitize"), "badblocks": set("-w -ws -wsv"),
	"diskutil": set("eraseDisk eraseVolume zeroDisk randomDisk secureErase partitionDisk"),
}

// ruleVolumes refuses the commands of volume managers that erase, which may be the second word.
func ruleVolumes(c call) {
	for _, a := range c.args[1:min(len(c.args), 3)] {
		if text, ok := a.literal(); ok && volumeErasers[c.name][text] {
			c.refuse(setDisk+"/shred", quote(joined(c.args).text))
		}
	}
}

// ruleSponge looks at the file that sponge writes once it has read all, which is the way to
// change a file by a pipeline.
func ruleSponge(c call) {
	_, operands := flags(c.args[1:])
	for _, file := range operands {
		c.writes(file, "sponge")
	}
}

// ruleInPlace looks at the files that perl -i, ruby -i and gawk -i inplace change.
func ruleInPlace(c call) {
	inPlace := false
	for i, a := range c.args[1:] {
		text := a.lead()
		switch {
		case c.name == "awk" || c.name == "gawk":
			inPlace = inPlace || text == "-iinplace" || a.is("inplace") && (c.args[i].is("-i") || c.args[i].is("--include"))
		case len(text) > 1 && text[0] == '-' && text[1] != '-':
			letters, _, _ := strings.Cut(text[1:], "e") // a program may follow -e
			inPlace = inPlace || strings.Contains(letters, "i") && strings.Trim(letters[:strings.IndexByte(letters, 'i')], "pnlaw0s") == ""
		}
	}
	if inPlace {
		c.changes(c.args[1:])
	}
}

// changes looks at the words of a command that changes the files among them.
func (c call) changes(words []arg) {
	for _, a := range words {
		if !strings.HasPrefix(a.lead(), "-") {
			c.writes(a, c.name+" in place")
		}
	}
}

// ruleLineEditor looks at the files that ed and ex are given.
func ruleLineEditor(c call) {
	if has, _ := flags(c.args[1:]); !has("R") {
		c.changes(c.args[1:])
	}
}

// ruleUnpack looks at the directory that unzip and 7z write to.
func ruleUnpack(c call) {
	option := "-d"
	if c.name != "unzip" {
		option = "-o"
	}
	for i, a := range c.args[1:] {
		dir, ok := a, a.is(option) && option == "-d" && i+2 < len(c.args)
		if ok {
			dir = c.args[i+2]
		} else if ok = strings.HasPrefix(a.lead(), option) && len(a.text) > len(option); ok {
			dir = a.from(len(option))
		}
		if ok {
			c.writes(dir, c.name+" "+option)
		}
	}
}

// ruleDisk refuses a command on a disk, unless the command only lists.
func ruleDisk(c call) {
	has, operands := flags(c.args[1:])
	if has("l", "list", "print", "p", "i", "I", "help", "version") {
		return
	}
	for _, a := range operands {
		if strings.HasPrefix(a.text, "/dev/") {
			c.refuse(setDisk+"/shred", quote(joined(c.args).text))
		}
	}
}

// ruleTree refuses to change the permissions of a whole system or home.
func ruleTree(c call) {
	has, operands := flags(c.args[1:])
	if !has("R", "recursive") {
		return
	}
	for _, a := range operands { // the first may be the mode or the owner, which does not matter: it does not name one of these
		if full := c.resolve(container(a)); full == "/" || full == "~" || wholeTrees[full] {
			c.refuse(setDisk+"/mass-delete", quote(joined(c.args).text))
		}
	}
}

// wholeTrees are the directories that a system cannot lose, except for / and a home.
var wholeTrees = set("/bin /boot /etc /home /lib /lib32 /lib64 /root /sbin /usr /usr/bin /usr/lib /usr/local /var /var/lib")

// container returns the directory d if a word is d/*, and the word itself otherwise.
func container(a arg) arg {
	if n := len(a.parts); n > 1 && a.parts[n-1].kind == glob && strings.Trim(a.parts[n-1].text, "*") == "" {
		return makeArg(a.parts[:n-1], a.at)
	}
	return a
}

// findStart removes the options of find that come before its directories.
func findStart(args []arg) []arg {
	i := 1
	for i < len(args) {
		text := args[i].text
		switch {
		case text == "-H" || text == "-L" || text == "-P" || strings.HasPrefix(text, "-O"):
			i++
		case text == "-D" && i+1 < len(args):
			i += 2
		case text == "--":
			i++
		default:
			return append([]arg{args[0]}, args[i:]...)
		}
	}
	return args[:1]
}

// ruleFind refuses find -delete and the like if it starts at a directory whose loss is
// grave: see loss.
func ruleFind(c call) {
	args := findStart(c.args)
	begin := slices.IndexFunc(args[1:], func(a arg) bool {
		return strings.HasPrefix(a.lead(), "-") || a.is("(") || a.is("!")
	})
	start := args[1:]
	if begin >= 0 {
		start = start[:begin]
	}
	if len(start) == 0 {
		start = []arg{lit(".", c.at())}
	}
	removes, tests, repository := false, false, false
	for i, a := range args {
		switch text, _ := a.literal(); text {
		case "-delete":
			removes = true
		case "-exec", "-execdir", "-ok", "-okdir":
			if i+1 < len(args) {
				removes = removes || removesFiles(c.unwrapped(args[i+1:]))
			}
		case "-fprint", "-fprintf", "-fls", "-fprint0":
			if i+1 < len(args) {
				c.writes(args[i+1], "find "+text)
			}
		case "-name", "-iname", "-path", "-regex", "-mtime", "-size", "-newer", "-mmin", "-user", "-empty", "-atime", "-ctime":
			tests = true
			repository = repository || i+1 < len(args) && (args[i+1].is(".git") || args[i+1].is("*/.git"))
		}
	}
	if !removes {
		return
	}
	if repository {
		c.refuse(setDisk+"/mass-delete", "find of .git that removes")
	}
	for _, a := range start {
		grave := c.loss(a) != "" || a.parts == nil && a.text != "" && path.Clean(a.text) == "."
		full := c.resolve(a)
		if grave && (!tests || full == "/" || full == "~") || !tests && wholeTrees[full] {
			c.refuse(setDisk+"/mass-delete", "find "+quote(a.text)+" that removes")
		}
	}
}

// fileRemovers are the commands that remove each file that they are given.
var fileRemovers = set("rm shred unlink")

// removesFiles reports whether a command removes files, or is a shell that runs one that
// does.
func removesFiles(args []arg) bool {
	if len(args) == 0 {
		return false
	}
	name, _ := commandName(args[0])
	return fileRemovers[name] || slices.ContainsFunc(shellCalls(args), func(words []string) bool { return fileRemovers[base(words[0])] })
}
