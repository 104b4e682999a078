package policy

import (
	"slices"
	"strings"
)

// gitSet are the rules of the sets for single commands of git.
var gitSet = map[string]func(w *walker, args []arg, at int){
	"reset":         gitReset,
	"read-tree":     gitReadTree,
	"checkout":      gitCheckout,
	"switch":        gitSwitch,
	"restore":       gitRestore,
	"clean":         gitClean,
	"stash":         gitStash,
	"branch":        gitBranch,
	"update-ref":    gitRefs,
	"reflog":        gitReflog,
	"gc":            gitGC,
	"prune":         gitGC,
	"filter-branch": gitHistory,
	"filter-repo":   gitHistory,
	"push":          gitPush,
	"worktree":      gitWorktree,
	"submodule":     gitWorktree,
	"grep":          gitGrep,
	"clone":         gitTransport,
	"fetch":         gitTransport,
	"pull":          gitTransport,
	"ls-remote":     gitTransport,
	"fetch-pack":    gitTransport,
	"send-pack":     gitTransport,
	"archive":       gitTransport,
	"remote":        gitTransport,
}

// flags are the options of a command whose grammar does not matter here: short
// ones by letter and long ones by name, and the operands.
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
				if len(n) > 1 && len(s) > 2 && strings.HasPrefix(n, s) {
					return true
				}
			}
		}
		return false
	}, operands
}

func gitReset(w *walker, args []arg, at int) {
	if has, _ := flags(args); has("hard") {
		w.deny(setGit+"/reset", at, "git reset --hard")
	}
}

func gitReadTree(w *walker, args []arg, at int) {
	if has, _ := flags(args); has("reset") {
		w.deny(setGit+"/reset", at, "git read-tree --reset")
	}
}

func gitCheckout(w *walker, args []arg, at int) {
	has, operands := flags(args)
	if has("f", "force") {
		w.deny(setGit+"/checkout", at, "git checkout --force")
	}
	if slices.ContainsFunc(operands, everything) || slices.ContainsFunc(args, func(a arg) bool { return a.is("--") }) {
		w.deny(setGit+"/checkout", at, "git checkout of paths, over their changes")
	}
}

func gitSwitch(w *walker, args []arg, at int) {
	if has, _ := flags(args); has("f", "force", "discard-changes") {
		w.deny(setGit+"/checkout", at, "git switch --discard-changes")
	}
}

func gitRestore(w *walker, args []arg, at int) {
	has, operands := flags(args)
	if has("staged", "S") && !has("worktree", "W") {
		return // the index only
	}
	if slices.ContainsFunc(operands, everything) {
		w.deny(setGit+"/restore", at, "git restore of everything")
	}
}

func gitClean(w *walker, args []arg, at int) {
	if has, _ := flags(args); has("f", "force") && !has("n", "dry-run") {
		w.deny(setGit+"/clean", at, "git clean --force")
	}
}

func gitStash(w *walker, args []arg, at int) {
	if len(args) > 0 && (args[0].is("drop") || args[0].is("clear")) {
		w.deny(setGit+"/stash", at, "git stash "+args[0].text)
	}
}

func gitBranch(w *walker, args []arg, at int) {
	has, _ := flags(args)
	if has("D", "f", "force", "M", "C") {
		w.deny(setGit+"/branch", at, "git branch, forced")
	}
}

func gitRefs(w *walker, args []arg, at int) {
	if has, _ := flags(args); has("d", "stdin") {
		w.deny(setGit+"/refs", at, "git update-ref -d")
	}
}

func gitReflog(w *walker, args []arg, at int) {
	if len(args) > 0 && (args[0].is("expire") || args[0].is("delete") || args[0].is("drop")) {
		w.deny(setGit+"/refs", at, "git reflog "+args[0].text)
	}
}

func gitGC(w *walker, args []arg, at int) {
	for _, a := range args {
		if a.is("--prune=now") || a.is("--prune=all") || a.is("--expire=now") || a.is("--expire") {
			w.deny(setGit+"/refs", at, "git gc or prune, at once")
		}
	}
}

func gitHistory(w *walker, _ []arg, at int) {
	w.deny(setGit+"/history", at, "a rewrite of the history")
}

func gitPush(w *walker, args []arg, at int) {
	gitTransport(w, args, at)
	o := pushGrammar.permuted(args)
	if given(o, "d delete mirror prune") {
		w.deny(setGit+"/push", at, "git push that deletes")
	}
	for i, a := range o.rest {
		if i > 0 && strings.HasPrefix(a.lead(), ":") && a.text != ":" {
			w.deny(setGit+"/push", at, "git push "+quote(a.text))
		}
	}
}

func gitWorktree(w *walker, args []arg, at int) {
	has, operands := flags(args)
	if has("f", "force") && len(operands) > 0 && (operands[0].is("remove") || operands[0].is("deinit")) {
		w.deny(setGit+"/worktree", at, "git … "+operands[0].text+" --force")
	}
}

// gitGrep refuses a pager that git grep is given.
func gitGrep(w *walker, args []arg, at int) {
	for _, a := range args {
		text := a.lead()
		if a.is("--") {
			return
		}
		if strings.HasPrefix(text, "-O") || strings.HasPrefix(text, "--open") {
			w.deny(setExec+"/option", at, "git grep "+quote(a.text))
		}
	}
}

// gitTransport refuses a remote that is a command, and a program for the other
// end.
func gitTransport(w *walker, args []arg, at int) {
	for i, a := range args {
		text := a.lead()
		name, value, ok := a.cut("=")
		switch {
		case strings.HasPrefix(text, "ext::"):
			w.deny(setExec+"/git-transport", at, quote(a.text))
		case name == "--upload-pack" || name == "--receive-pack" || name == "--exec":
			if !ok && i+1 < len(args) {
				value = args[i+1]
			}
			w.remoteProgram(value, at)
		case !ok && (text == "--upload-pack" || text == "--receive-pack" || text == "--exec" || text == "-u") && i+1 < len(args) && value.text == "":
			w.remoteProgram(args[i+1], at)
		case (text == "-c" || text == "--config") && i+1 < len(args):
			if key, v, found := args[i+1].cut("="); found {
				w.gitSetting(key, v, at)
			}
		case name == "--config" && ok:
			if key, v, found := value.cut("="); found {
				w.gitSetting(key, v, at)
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

// programKeys are the settings of git whose value is a program; a * stands for
// any text between dots.
var programKeys = strings.Fields(`core.pager core.editor core.sshcommand core.fsmonitor core.askpass core.gitproxy core.alternaterefscommand
 sequence.editor pager.* credential.helper credential.*.helper diff.external diff.*.command diff.*.textconv difftool.*.cmd difftool.*.path
 mergetool.*.cmd mergetool.*.path merge.*.driver filter.*.clean filter.*.smudge filter.*.process gpg.program gpg.*.program
 gpg.ssh.defaultkeycommand interactive.difffilter uploadpack.packobjectshook remote.*.uploadpack remote.*.receivepack browser.*.cmd
 browser.*.path man.*.cmd man.*.path guitool.*.cmd sendemail.sendmailcmd sendemail.tocmd sendemail.cccmd sendemail.headercmd
 sendemail.smtpserver trailer.*.command trailer.*.cmd tar.*.command web.browser instaweb.httpd imap.tunnel submodule.*.update
 help.browser difftool.guitool`)

// pathKeys are those whose value is a file or directory that git obeys.
var pathKeys = strings.Fields(`core.hookspath include.path includeif.*.path init.templatedir core.attributesfile protocol.ext.allow`)

// gitSetting refuses settings that make git run a command.
func (w *walker) gitSetting(key string, value arg, at int) {
	key = strings.ToLower(key)
	if _, ok := aliasName(key); ok {
		if strings.HasPrefix(value.lead(), "!") || value.lead() == "" && value.text != "" {
			w.deny(setExec+"/git-config", at, key+"="+quote(value.text))
		}
		return
	}
	switch {
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
