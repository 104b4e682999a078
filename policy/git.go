package policy

import (
	"slices"
	"strings"
)

var gitGrammar = grammar{
	short: "C:c:pPvh",
	long: "git-dir= work-tree= namespace= exec-path? super-prefix= config-env= attr-source= list-cmds= paginate no-pager bare no-replace-objects" +
		" no-lazy-fetch no-optional-locks no-advice literal-pathspecs glob-pathspecs noglob-pathspecs icase-pathspecs html-path man-path info-path version help",
}

// ruleGit looks at what git is told to do.
func ruleGit(w *walker, args []arg, in stream) {
	o := gitGrammar.parse(args[1:])
	at := args[0].at
	inline := map[string]string{}
	for _, opt := range o.given {
		switch opt.name {
		case "c":
			key, value, ok := opt.value.cut("=")
			if !ok {
				key, value = opt.value.text, lit("true", at)
			}
			w.gitSetting(key, value, at)
			if name, isAlias := aliasName(key); isAlias {
				inline[name] = skeleton(value)
			}
		case "config-env":
			w.deny(setExec+"/git-config", at, "git --config-env="+opt.value.text)
		case "exec-path":
			if opt.value.text != "" {
				w.deny(setExec+"/git-config", at, "git --exec-path="+opt.value.text)
			}
		}
	}
	if len(o.rest) == 0 {
		return
	}
	command, ok := o.rest[0].literal()
	if !ok {
		w.notKnown(opaqueGit, at, "git "+quote(o.rest[0].text))
		return
	}
	rest := o.rest[1:]
	if text, is := inline[command]; is {
		w.gitAlias(command, text, rest, in)
		return
	}
	if !gitCommands[command] {
		w.notKnown(opaqueGit, at, "git "+quote(command))
		return
	}
	w.gitChecks(command, rest, at)
	w.gitRuns(command, rest, at, in)
	if check := gitSet[command]; check != nil {
		check(w, rest, at)
	}
}

// aliasName returns the alias that a key of git's configuration defines.
func aliasName(key string) (string, bool) {
	if len(key) < len("alias.") || !strings.EqualFold(key[:len("alias.")], "alias.") {
		return "", false
	}
	return key[len("alias."):], true
}

// gitAlias walks what an alias of git stands for.
func (w *walker) gitAlias(name, text string, more []arg, in stream) {
	at := 0
	if len(more) > 0 {
		at = more[0].at
	}
	if w.node != nil {
		at = w.node.Position.Offset
	}
	via := "git alias " + name
	if command, ok := strings.CutPrefix(text, "!"); ok {
		w.shellText(inner{text: lit(command, at), via: via, kind: opaqueShell, args: more, in: in})
		return
	}
	words := append([]arg{lit("git", at)}, splitWords(text, at)...)
	w.reached(via, func() { w.argv(append(words, more...), in) })
}

// gitChecks are the checks of contract modes.
func (w *walker) gitChecks(command string, args []arg, at int) {
	switch command {
	case "add", "stage":
		if what := addsAll(args); what != "" {
			w.deny(checkAdd, at, "git "+command+" "+quote(what))
		}
	case "push":
		if what := forces(args); what != "" {
			w.deny(checkPush, at, "git push "+quote(what))
		}
	}
}

var addGrammar = grammar{
	short: "nvipefuNA",
	long: "dry-run verbose interactive patch edit force update renormalize intent-to-add all no-ignore-removal ignore-removal refresh" +
		" ignore-errors ignore-missing sparse chmod= pathspec-from-file= pathspec-file-nul no-all",
}

// addsAll returns what makes a git add take everything, or "".
func addsAll(args []arg) string {
	o := addGrammar.permuted(args)
	for _, opt := range o.given {
		if opt.name == "A" || opt.name == "all" || opt.name == "no-ignore-removal" {
			return "-A"
		}
	}
	for _, a := range o.rest {
		if everything(a) {
			return a.text
		}
	}
	return ""
}

// everything tells whether a pathspec is the whole tree. Git has patterns of its
// own, so that quotes around a star make no difference.
func everything(a arg) bool {
	for _, p := range a.all() {
		if p.kind != literal && p.kind != glob {
			return false
		}
	}
	text := a.text
	if magic, rest, ok := strings.Cut(text, ")"); ok && strings.HasPrefix(magic, ":(") && !strings.Contains(magic, "exclude") {
		return rest == "" || wholeTree[strings.TrimPrefix(rest, "/")]
	}
	if strings.HasPrefix(text, ":/") || text == ":" {
		text = strings.TrimLeft(text[1:], "/")
		return text == "" || wholeTree[text]
	}
	for strings.HasPrefix(text, "./") {
		text = strings.TrimLeft(text[1:], "/")
	}
	if text == "" {
		return a.text != ""
	}
	return wholeTree[strings.TrimRight(text, "/")]
}

var wholeTree = set(". * ** *.* **/* ?*")

var pushGrammar = grammar{
	short: "vqnfud46o:",
	long: "verbose quiet repo= all branches mirror delete tags dry-run porcelain force force-with-lease? force-if-includes recurse-submodules=" +
		" no-recurse-submodules thin no-thin receive-pack= exec= set-upstream progress prune no-verify verify follow-tags no-follow-tags signed? no-signed atomic push-option= ipv4 ipv6",
}

// forces returns what makes a push a forced one, or "".
func forces(args []arg) string {
	o := pushGrammar.permuted(args)
	for _, opt := range o.given {
		if opt.name == "f" || opt.name == "force" {
			return "--force"
		}
		// A beginning that only options that force have; git may find it ambiguous.
		if len(opt.name) > 2 && strings.HasPrefix("force", opt.name) {
			return "--" + opt.name
		}
	}
	for _, a := range o.rest {
		if strings.HasPrefix(a.lead(), "+") {
			return a.text
		}
	}
	return ""
}

// gitRuns looks at the commands that git is given to run.
func (w *walker) gitRuns(command string, args []arg, at int, in stream) {
	text := func(a arg, how string) {
		w.shellText(inner{text: a, via: "git " + command + how, kind: opaqueShell, in: in})
	}
	switch command {
	case "config":
		w.gitConfig(args, at)
	case "bisect":
		if len(args) > 1 && args[0].is("run") {
			w.reached("git bisect run", func() { w.argv(args[1:], in) })
		}
	case "submodule":
		i := slices.IndexFunc(args, func(a arg) bool { return a.is("foreach") })
		if i < 0 {
			return
		}
		rest := args[i+1:]
		for len(rest) > 0 && strings.HasPrefix(rest[0].lead(), "-") {
			rest = rest[1:]
		}
		if len(rest) > 0 {
			text(joined(rest), " foreach")
		}
	case "rebase":
		o := grammar{short: "ivqfnmpsx:X:C:S?r?", long: "exec= onto= strategy= strategy-option= keep-base interactive root autosquash autostash" +
			" no-autostash abort continue skip quit edit-todo show-current-patch rebase-merges? empty= whitespace= gpg-sign? verbose quiet stat no-stat" +
			" no-verify verify force-rebase fork-point no-fork-point ignore-whitespace committer-date-is-author-date reset-author-date update-refs apply merge"}.permuted(args)
		for _, opt := range o.given {
			if opt.name == "x" || opt.name == "exec" {
				text(opt.value, " --exec")
			}
		}
	case "filter-branch":
		for i, a := range args {
			if strings.HasSuffix(a.lead(), "-filter") && i+1 < len(args) {
				text(args[i+1], " "+a.text)
			}
		}
	case "difftool", "mergetool":
		o := grammar{short: "dyx:t:g", long: "extcmd= tool= dir-diff no-prompt prompt tool-help gui"}.permuted(args)
		if a, ok := o.get("x", "extcmd"); ok {
			text(a, " --extcmd")
			w.program("git "+command+" --extcmd", a, at)
		}
	}
}

// gitConfig looks at a setting that git config makes.
func (w *walker) gitConfig(args []arg, at int) {
	o := grammar{
		short: "f:t:zle",
		long: "global system local worktree file= blob= type= bool int bool-or-int path expiry-date null add replace-all get get-all get-regexp" +
			" get-urlmatch unset unset-all rename-section remove-section list edit show-origin show-scope name-only includes no-includes default= comment= fixed-value append all value= regexp url=",
	}.permuted(args)
	if given(o, "get get-all get-regexp unset unset-all list l rename-section remove-section edit e") {
		return
	}
	rest := o.rest
	if len(rest) > 2 && rest[0].is("set") {
		rest = rest[1:]
	}
	if len(rest) < 2 {
		return
	}
	key, ok := rest[0].literal()
	if !ok {
		return
	}
	w.gitSetting(key, rest[1], at)
	if name, isAlias := aliasName(key); isAlias {
		// It is for later: what it stands for is judged as if it were used.
		w.maybe(func() { w.gitAlias(name, skeleton(rest[1]), nil, stream{}) })
	}
}

// gitCommands are the commands of git itself, and the most used of others.
var gitCommands = set(`add am annotate apply archimport archive backfill bisect blame branch bugreport bundle cat-file
 check-attr check-ignore check-mailmap check-ref-format checkout checkout-index cherry cherry-pick citool clean clone
 column commit commit-graph commit-tree config count-objects credential credential-cache credential-store cvsexportcommit
 cvsimport cvsserver daemon describe diagnose diff diff-files diff-index diff-pairs diff-tree difftool fast-export
 fast-import fetch fetch-pack filter-branch filter-repo fmt-merge-msg for-each-ref for-each-repo format-patch fsck
 fsck-objects fsmonitor--daemon gc get-tar-commit-id grep gui hash-object help hook http-backend http-fetch http-push
 imap-send index-pack init init-db instaweb interpret-trailers last-modified lfs log ls-files ls-remote ls-tree mailinfo
 mailsplit maintenance merge merge-base merge-file merge-index merge-octopus merge-one-file merge-ours merge-recursive
 merge-resolve merge-subtree merge-tree mergetool mktag mktree multi-pack-index mv name-rev notes p4 pack-objects
 pack-redundant pack-refs patch-id prune prune-packed pull push quiltimport range-diff read-tree rebase receive-pack
 reflog refs remote repack replace replay repo request-pull rerere reset restore rev-list rev-parse revert rm scalar
 send-email send-pack shell shortlog show show-branch show-index show-ref sh-i18n sh-setup sparse-checkout stage stash
 status stripspace submodule subtree svn switch symbolic-ref tag unpack-file unpack-objects update-index update-ref
 update-server-info upload-archive upload-pack var verify-commit verify-pack verify-tag version web--browse whatchanged
 worktree write-tree`)
