package policy

import (
	"slices"
	"strings"
)

// gitSet are the rules of the sets about git, by the command of git.
var gitSet = map[string]func(gitCall){
	"reset":          gitReset,
	"read-tree":      gitReadTree,
	"checkout":       gitCheckout,
	"checkout-index": gitCheckoutIndex,
	"switch":         gitSwitch,
	"restore":        gitRestore,
	"clean":          gitClean,
	"stash":          gitStash,
	"branch":         gitBranch,
	"update-ref":     gitRefs,
	"symbolic-ref":   gitSymbolicRef,
	"fast-import":    gitFastImport,
	"rm":             gitRm,
	"reflog":         gitReflog,
	"gc":             gitGC,
	"prune":          gitPrune,
	"filter-branch":  gitHistory,
	"filter-repo":    gitHistory,
	"push":           gitPush,
	"send-pack":      gitPush,
	"http-push":      gitHTTPPush,
	"worktree":       gitWorktree,
	"submodule":      gitWorktree,
	"grep":           gitGrep,
	"clone":          gitClone,
	"init":           gitTemplate,
	"merge-index":    gitMergeIndex,
	"fetch":          gitTransport,
	"pull":           gitTransport,
	"ls-remote":      gitTransport,
	"fetch-pack":     gitTransport,
	"archive":        gitTransport,
	"remote":         gitTransport,
}

// flags returns the options and operands of a command, without knowing which options have
// values. has reports whether one of some options is given: a letter, a long name, or an
// abbreviation of one.
func flags(args []arg) (has func(names ...string) bool, operands []arg) {
	seen := map[string]bool{}
	for i, a := range args {
		text := a.lead()
		switch {
		case a.is("--"):
			operands = append(operands, args[i+1:]...)
			args = nil
		case strings.HasPrefix(text, "--"):
			name, _, _ := strings.Cut(text[2:], "=")
			seen[name] = true
		case len(text) > 1 && text[0] == '-':
			for _, c := range text[1:] {
				seen[string(c)] = true
			}
		default:
			operands = append(operands, a)
		}
		if args == nil {
			break
		}
	}
	return func(names ...string) bool {
		for _, n := range names {
			if seen[n] {
				return true
			}
			for s := range seen { // an abbreviation
				if len(n) > 1 && len(s) > 1 && strings.HasPrefix(n, s) {
					return true
				}
			}
		}
		return false
	}, operands
}

func gitReset(c gitCall) {
	if has, _ := flags(c.words); has("hard") {
		c.refuse(setGit+"/reset", "git reset --hard")
	}
}

func gitReadTree(c gitCall) {
	if has, _ := flags(c.words); has("reset") {
		c.refuse(setGit+"/reset", "git read-tree --reset")
	}
}

func gitCheckout(c gitCall) {
	has, operands := flags(c.words)
	if has("f", "force") {
		c.refuse(setGit+"/checkout", "git checkout --force")
	}
	if has("B") {
		c.refuse(setGit+"/branch", "git checkout -B")
	}
	paths := has("pathspec-from-file") || slices.ContainsFunc(c.words, func(a arg) bool { return a.is("--") })
	if paths || slices.ContainsFunc(operands, everything) {
		c.refuse(setGit+"/checkout", "git checkout of paths, over their changes")
	}
}

func gitCheckoutIndex(c gitCall) {
	if has, _ := flags(c.words); has("f", "force") && has("a", "all") && !has("prefix", "temp") {
		c.refuse(setGit+"/checkout", "git checkout-index --force --all")
	}
}

func gitSwitch(c gitCall) {
	has, _ := flags(c.words)
	if has("f", "force", "discard-changes") {
		c.refuse(setGit+"/checkout", "git switch --discard-changes")
	}
	if has("C", "force-create") {
		c.refuse(setGit+"/branch", "git switch --force-create")
	}
}

func gitRestore(c gitCall) {
	has, operands := flags(c.words)
	if has("staged", "S") && !has("worktree", "W") {
		return // the index only
	}
	if slices.ContainsFunc(operands, everything) {
		c.refuse(setGit+"/restore", "git restore of everything")
	}
}

func gitClean(c gitCall) {
	if has, _ := flags(c.words); has("f", "force") && !has("n", "dry-run") {
		c.refuse(setGit+"/clean", "git clean --force")
	}
}

func gitStash(c gitCall) {
	if len(c.words) > 0 && (c.words[0].is("drop") || c.words[0].is("clear")) {
		c.refuse(setGit+"/stash", "git stash "+c.words[0].text)
	}
}

func gitBranch(c gitCall) {
	has, _ := flags(c.words)
	if has("D", "f", "force", "M", "C") {
		c.refuse(setGit+"/branch", "git branch, forced")
	}
}

func gitRefs(c gitCall) {
	if has, _ := flags(c.words); has("d", "stdin") {
		c.refuse(setGit+"/refs", "git update-ref -d")
	}
}

func gitSymbolicRef(c gitCall) {
	if has, _ := flags(c.words); has("d", "delete") {
		c.refuse(setGit+"/refs", "git symbolic-ref --delete")
	}
}

func gitFastImport(c gitCall) {
	if has, _ := flags(c.words); has("force") {
		c.refuse(setGit+"/refs", "git fast-import --force")
	}
}

// gitRm refuses to remove the whole tree with the changes in it. With --cached, git rm
// changes the index only; without --force, it refuses to lose changes.
func gitRm(c gitCall) {
	has, operands := flags(c.words)
	if has("r") && has("f", "force") && !has("cached", "n", "dry-run") && slices.ContainsFunc(operands, everything) {
		c.refuse(setDisk+"/mass-delete", "git rm -rf of everything")
	}
}

func gitReflog(c gitCall) {
	if len(c.words) > 0 && (c.words[0].is("expire") || c.words[0].is("delete") || c.words[0].is("drop")) {
		c.refuse(setGit+"/refs", "git reflog "+c.words[0].text)
	}
}

func gitGC(c gitCall) {
	for _, a := range c.words {
		if name, value, ok := a.cut("="); ok && abbreviates(name, "--prune", 5) && expiresSoon(value) {
			c.refuse(setGit+"/refs", "git gc "+quote(a.text))
		}
	}
}

// gitPrune refuses git prune, which removes every unreachable object at once unless it is
// told to keep those of some age.
func gitPrune(c gitCall) {
	o := grammar{short: "nv", long: "dry-run verbose progress no-progress expire= exclude-promisor-objects"}.permuted(c.words)
	if given(o, "n dry-run") {
		return
	}
	if age, ok := o.get("expire"); !ok || expiresSoon(age) {
		c.refuse(setGit+"/refs", "git prune of what is not old")
	}
}

// expiresSoon reports whether a date of git's is less than a day ago, or not known: now, or
// an hour ago, but not two weeks ago.
func expiresSoon(date arg) bool {
	text, ok := date.literal()
	if !ok {
		return true
	}
	text = strings.ToLower(text)
	if text == "never" || text == "false" || strings.Contains(text, "yesterday") {
		return false
	}
	old := slices.ContainsFunc([]string{"day", "week", "month", "year"}, func(unit string) bool { return strings.Contains(text, unit) })
	return (!old || strings.HasPrefix(text, "0")) && !isDate(text)
}

// isDate reports whether text begins like 2024-01-31.
func isDate(text string) bool {
	year, _, ok := strings.Cut(text, "-")
	return ok && len(year) == 4 && strings.Trim(year, "0123456789") == ""
}

func gitHistory(c gitCall) {
	c.refuse(setGit+"/history", "a rewrite of the history")
}

func gitPush(c gitCall) {
	gitTransport(c)
	o := pushGrammar.permuted(c.words)
	if given(o, "d delete mirror prune") {
		c.refuse(setGit+"/push", "git push that deletes")
	}
	for i, a := range o.rest {
		if i > 0 && strings.HasPrefix(a.lead(), ":") && a.text != ":" {
			c.refuse(setGit+"/push", "git push "+quote(a.text))
		}
	}
}

func gitHTTPPush(c gitCall) {
	if has, _ := flags(c.words); has("d", "D") {
		c.refuse(setGit+"/push", "git http-push that deletes")
	}
}

func gitWorktree(c gitCall) {
	has, operands := flags(c.words)
	if len(operands) == 0 {
		return
	}
	verb := operands[0]
	if has("f", "force") && (verb.is("remove") || verb.is("deinit") || c.command == "submodule" && verb.is("update")) {
		c.refuse(setGit+"/worktree", "git … "+verb.text+" --force")
	}
	if has("B") && verb.is("add") {
		c.refuse(setGit+"/branch", "git worktree add -B")
	}
}

// gitGrep refuses git grep -O, which runs a pager.
func gitGrep(c gitCall) {
	for _, a := range c.words {
		text := a.lead()
		if a.is("--") {
			return
		}
		if strings.HasPrefix(text, "-O") || strings.HasPrefix(text, "--open") {
			c.refuse(setExec+"/option", "git grep "+quote(a.text))
		}
	}
}

// gitMergeIndex looks at the program that git merge-index runs for each file.
func gitMergeIndex(c gitCall) {
	for _, a := range c.words {
		if strings.HasPrefix(a.lead(), "-") {
			continue
		}
		if !a.is("git-merge-one-file") {
			c.program("git merge-index", a, c.at())
		}
		return
	}
}

func gitClone(c gitCall) {
	gitTemplate(c)
	gitTransport(c)
}

// gitTemplate refuses a template, whose hooks git copies into the new repository.
func gitTemplate(c gitCall) {
	eachValue(append([]arg{lit("git", c.at())}, c.words...), "--template", func(v arg, _ int) {
		c.gitSetting("init.templatedir", v, c.at())
	})
}

// gitTransport refuses a remote that is a command, and options that name the program to run
// at the remote.
func gitTransport(c gitCall) {
	for i, a := range c.words {
		text := a.lead()
		name, value, ok := a.cut("=")
		switch {
		case strings.HasPrefix(text, "ext::"):
			c.refuse(setExec+"/git-transport", quote(a.text))
		case name == "--upload-pack" || name == "--receive-pack" || name == "--exec":
			if !ok && i+1 < len(c.words) {
				value = c.words[i+1]
			}
			c.remoteProgram(value, c.at())
		case !ok && (text == "--upload-pack" || text == "--receive-pack" || text == "--exec" || text == "-u") && i+1 < len(c.words) && value.text == "":
			c.remoteProgram(c.words[i+1], c.at())
		case (text == "-c" || text == "--config") && i+1 < len(c.words):
			if key, v, found := c.words[i+1].cut("="); found {
				c.gitSetting(key, v, c.at())
			}
		case name == "--config" && ok:
			if key, v, found := value.cut("="); found {
				c.gitSetting(key, v, c.at())
			}
		}
	}
}

func (w *walker) remoteProgram(a arg, at int) {
	text := base(a.text)
	if text == "git-upload-pack" || text == "git-receive-pack" || text == "git-upload-archive" || !strings.ContainsAny(a.text, " /;|&$`") {
		return
	}
	w.deny(setExec+"/git-transport", at, quote(a.text))
}

// programKeys are the settings of git whose value is a program. A * stands for any text.
var programKeys = strings.Fields(`core.pager core.editor core.sshcommand core.fsmonitor core.askpass core.gitproxy core.alternaterefscommand
 sequence.editor pager.* credential.helper credential.*.helper diff.external diff.*.command diff.*.textconv difftool.*.cmd difftool.*.path
 mergetool.*.cmd mergetool.*.path merge.*.driver filter.*.clean filter.*.smudge filter.*.process gpg.program gpg.*.program
 gpg.ssh.defaultkeycommand interactive.difffilter uploadpack.packobjectshook remote.*.uploadpack remote.*.receivepack browser.*.cmd
 browser.*.path man.*.cmd man.*.path guitool.*.cmd sendemail.sendmailcmd sendemail.tocmd sendemail.cccmd sendemail.headercmd
 sendemail.smtpserver trailer.*.command trailer.*.cmd tar.*.command web.browser instaweb.httpd imap.tunnel submodule.*.update
 help.browser difftool.guitool`)

// pathKeys are the settings whose value is a file or directory with programs or settings.
var pathKeys = strings.Fields(`core.hookspath include.path includeif.*.path init.templatedir core.attributesfile protocol.ext.allow protocol.allow`)

// expiryKeys are the settings that say how long git keeps what nothing refers to.
var expiryKeys = set("gc.pruneexpire gc.reflogexpire gc.reflogexpireunreachable")

// gitSetting refuses settings that make git run a command, and those that stand for an
// option that a rule refuses.
func (w *walker) gitSetting(key string, value arg, at int) {
	key = strings.ToLower(key)
	if _, ok := aliasName(key); ok {
		if strings.HasPrefix(value.lead(), "!") || value.lead() == "" && value.text != "" {
			w.deny(setExec+"/git-config", at, key+"="+quote(value.text))
		}
		return
	}
	if strings.HasPrefix(key, "remote.") {
		switch {
		case strings.HasSuffix(key, ".push") && strings.HasPrefix(value.lead(), "+"):
			w.deny(checkPush, at, key+"="+quote(value.text))
		case strings.HasSuffix(key, ".push") && strings.HasPrefix(value.lead(), ":") && value.text != ":",
			strings.HasSuffix(key, ".mirror") && !value.is("false"):
			w.deny(setGit+"/push", at, key+"="+quote(value.text))
		}
	}
	switch {
	case key == "clean.requireforce" && (value.is("false") || value.is("no") || value.is("off") || value.is("0")):
		w.deny(setGit+"/clean", at, key+"="+quote(value.text))
	case expiryKeys[key] && expiresSoon(value):
		w.deny(setGit+"/refs", at, key+"="+quote(value.text))
	case matchesKey(pathKeys, key):
		if !value.is("/dev/null") && !value.is("") && !value.is("never") {
			w.deny(setExec+"/git-config", at, key+"="+quote(value.text))
		}
	case matchesKey(programKeys, key):
		if !benignProgram(value) && !(strings.HasPrefix(key, "credential.") && !strings.ContainsAny(value.text, "!/;|&$` ")) {
			w.deny(setExec+"/git-config", at, key+"="+quote(value.text))
		}
	}
	if matchesKey(programKeys, key) && value.known() {
		w.hidden(strings.TrimPrefix(value.text, "!"), key, at)
	}
}

func matchesKey(keys []string, key string) bool {
	for _, k := range keys {
		before, after, star := strings.Cut(k, "*")
		if key == k || star && len(key) > len(before)+len(after) && strings.HasPrefix(key, before) && strings.HasSuffix(key, after) {
			return true
		}
	}
	return false
}
