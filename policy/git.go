package policy

import (
	"slices"
	"strings"
	"sync"
)

var gitGrammar = grammar{
	short: "C:c:pPvh",
	long: "git-dir= work-tree= namespace= exec-path? super-prefix= config-env= attr-source= list-cmds= paginate no-pager bare no-replace-objects" +
		" no-lazy-fetch no-optional-locks no-advice literal-pathspecs glob-pathspecs noglob-pathspecs icase-pathspecs html-path man-path info-path version help",
}

// gitCall is a call of one of git's commands. args has all words of git, and words those
// after the command.
type gitCall struct {
	call
	command string
	words   []arg
}

// ruleGit looks at git's own options, and then at the command.
func ruleGit(c call) {
	o := gitGrammar.parse(c.args[1:])
	inline := map[string]string{} // aliases, whose names have no case
	for _, opt := range o.given {
		switch opt.name {
		case "c":
			key, value, ok := opt.value.cut("=")
			if !ok {
				key, value = opt.value.text, lit("true", c.at())
			}
			c.gitSetting(key, value, c.at())
			if name, isAlias := aliasName(key); isAlias {
				inline[strings.ToLower(name)] = skeleton(value)
			}
		case "config-env":
			c.refuse(setExec+"/git-config", "git --config-env="+opt.value.text)
		case "exec-path":
			if opt.value.text != "" {
				c.refuse(setExec+"/git-config", "git --exec-path="+opt.value.text)
			}
		}
	}
	if len(o.rest) == 0 {
		return
	}
	command, ok := o.rest[0].literal()
	if !ok {
		c.unclear(opaqueGit, "git "+quote(o.rest[0].text))
		return
	}
	rest := o.rest[1:]
	if text, is := inline[strings.ToLower(command)]; is {
		c.gitAlias(command, text, rest)
		if !gitCommands()[command] {
			return
		}
		// A command that git has wins over an alias, and may be missing here.
	}
	if !gitCommands()[command] {
		c.unclear(opaqueGit, "git "+quote(command))
		return
	}
	g := gitCall{c, command, rest}
	g.checks()
	g.runs()
	if check := gitSet[command]; check != nil {
		check(g)
	}
}

// aliasName returns the alias that a key of git's configuration defines.
func aliasName(key string) (string, bool) {
	if len(key) < len("alias.") || !strings.EqualFold(key[:len("alias.")], "alias.") {
		return "", false
	}
	return key[len("alias."):], true
}

// gitAlias visits the command that an alias of git stands for.
func (c call) gitAlias(name, text string, more []arg) {
	via := "git alias " + name
	if command, ok := strings.CutPrefix(text, "!"); ok {
		script := inner{text: lit(command, c.at()), via: via, kind: opaqueShell, args: more, in: c.in}
		if len(more) > 0 { // git adds them, and gives them to the shell
			script.text = lit(command+` "$@"`, c.at())
		}
		c.shellText(script)
		return
	}
	words := append([]arg{lit("git", c.at())}, splitWords(text, c.at())...)
	c.reached(via, func() { c.argv(append(words, more...), c.in) })
}

// checks are the checks of contract modes.
func (c gitCall) checks() {
	switch c.command {
	case "add", "stage":
		if what := addsAll(c.words); what != "" {
			c.refuse(checkAdd, "git "+c.command+" "+quote(what))
		}
	case "push", "send-pack", "http-push":
		if what := forces(c.words); what != "" {
			c.refuse(checkPush, "git "+c.command+" "+quote(what))
		}
	}
}

var addGrammar = grammar{
	short: "nvipefuNA",
	long: "dry-run verbose interactive patch edit force update renormalize intent-to-add all no-ignore-removal ignore-removal refresh" +
		" ignore-errors ignore-missing sparse chmod= pathspec-from-file= pathspec-file-nul no-all",
}

// addsAll returns the word that makes git add take everything, or "".
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

// everything reports whether a pathspec means the whole tree. Git expands patterns itself,
// so that a star means the same with quotes around it.
func everything(a arg) bool {
	if isWorkingDir(a) {
		return true
	}
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

// workingDirs are the expansions that are the working directory, or the whole tree above it.
var workingDirs = set("$PWD ${PWD} $(pwd) `pwd`")

// isWorkingDir reports whether a word is the working directory by another name.
func isWorkingDir(a arg) bool {
	if len(a.parts) == 0 || !workingDirs[a.parts[0].text] || a.parts[0].kind == literal {
		return false
	}
	return len(a.parts) == 1 || len(a.parts) == 2 && a.parts[1].kind == literal && strings.Trim(a.parts[1].text, "/.") == "" && !strings.Contains(a.parts[1].text, "..")
}

var wholeTree = set(". * ** *.* **/* ?*")

var pushGrammar = grammar{
	short: "vqnfud46o:",
	long: "verbose quiet repo= all branches mirror delete tags dry-run porcelain force force-with-lease? force-if-includes recurse-submodules=" +
		" no-recurse-submodules thin no-thin receive-pack= exec= set-upstream progress prune no-verify verify follow-tags no-follow-tags signed? no-signed atomic push-option= ipv4 ipv6",
}

// forces returns the word that forces a push, or "".
func forces(args []arg) string {
	o := pushGrammar.permuted(args)
	for _, opt := range o.given {
		if opt.name == "f" || opt.name == "force" {
			return "--force"
		}
		// An abbreviation of options that force. Git may refuse it as ambiguous.
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

// runs looks at the commands that this command of git runs.
func (c gitCall) runs() {
	text := func(a arg, how string) {
		c.shellText(inner{text: a, via: "git " + c.command + how, kind: opaqueShell, in: c.in})
	}
	switch c.command {
	case "config":
		c.config()
	case "for-each-repo":
		rest := c.words
		for len(rest) > 0 && strings.HasPrefix(rest[0].lead(), "--") {
			rest = rest[1:]
		}
		c.reached("git for-each-repo", func() { c.argv(append([]arg{lit("git", c.at())}, rest...), c.in) })
	case "send-email", "daemon", "instaweb", "web--browse":
		for _, option := range []string{"--sendmail-cmd", "--smtp-server", "--to-cmd", "--cc-cmd", "--access-hook", "--httpd", "--browser"} {
			eachValue(append([]arg{lit("git", c.at())}, c.words...), option, func(v arg, _ int) {
				switch {
				case strings.HasPrefix(v.text, "git "):
					c.hidden(v.text, "git "+c.command+" "+option, c.at())
				case option != "--smtp-server" || strings.ContainsAny(v.text, "/ "):
					c.program("git "+c.command+" "+option, v, c.at())
				}
			})
		}
	case "log", "diff", "show", "diff-tree", "format-patch", "archive":
		for _, option := range []string{"--output", "--output-directory", "-o"} {
			eachValue(append([]arg{lit("git", c.at())}, c.words...), option, func(v arg, _ int) { c.writes(v, "git "+c.command+" "+option) })
		}
	case "bisect":
		if len(c.words) > 1 && c.words[0].is("run") {
			c.reached("git bisect run", func() { c.argv(c.words[1:], c.in) })
		}
	case "submodule":
		i := slices.IndexFunc(c.words, func(a arg) bool { return a.is("foreach") })
		if i < 0 {
			return
		}
		rest := c.words[i+1:]
		for len(rest) > 0 && strings.HasPrefix(rest[0].lead(), "-") {
			rest = rest[1:]
		}
		if len(rest) > 0 {
			text(joined(rest), " foreach")
		}
	case "rebase":
		o := grammar{short: "ivqfnmpsx:X:C:S?r?", long: "exec= onto= strategy= strategy-option= keep-base interactive root autosquash autostash" +
			" no-autostash abort continue skip quit edit-todo show-current-patch rebase-merges? empty= whitespace= gpg-sign? verbose quiet stat no-stat" +
			" no-verify verify force-rebase fork-point no-fork-point ignore-whitespace committer-date-is-author-date reset-author-date update-refs apply merge"}.permuted(c.words)
		for _, opt := range o.given {
			if opt.name == "x" || opt.name == "exec" {
				text(opt.value, " --exec")
			}
		}
	case "filter-branch":
		for i, a := range c.words {
			if strings.HasSuffix(a.lead(), "-filter") && i+1 < len(c.words) {
				text(c.words[i+1], " "+a.text)
			}
		}
	case "difftool", "mergetool":
		o := grammar{short: "dyx:t:g", long: "extcmd= tool= dir-diff no-prompt prompt tool-help gui"}.permuted(c.words)
		if a, ok := o.get("x", "extcmd"); ok {
			text(a, " --extcmd")
			c.program("git "+c.command+" --extcmd", a, c.at())
		}
	}
}

// config looks at the setting that git config makes.
func (c gitCall) config() {
	o := grammar{
		short: "f:t:zle",
		long: "global system local worktree file= blob= type= bool int bool-or-int path expiry-date null add replace-all get get-all get-regexp" +
			" get-urlmatch unset unset-all rename-section remove-section list edit show-origin show-scope name-only includes no-includes default= comment= fixed-value append all value= regexp url=",
	}.permuted(c.words)
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
	c.gitSetting(key, rest[1], c.at())
	if name, isAlias := aliasName(key); isAlias {
		// The alias is for later. It is looked at as if it were called.
		c.in = stream{}
		c.maybe(func() { c.gitAlias(name, skeleton(rest[1]), nil) })
	}
}

// gitCommands are the commands of git itself, and the most common ones that others add.
var gitCommands = sync.OnceValue(func() map[string]bool {
	return set(`add am annotate apply archimport archive backfill bisect blame branch bugreport bundle cat-file
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
})
