package policy

import "slices"

// The three checks of contract modes, by id.
const (
	checkAdd  = "add"
	checkPush = "push"
	checkRm   = "rm"
)

// The named sets.
const (
	setGit    = "git-destructive"
	setExec   = "exec-smuggling"
	setEnv    = "env-poisoning"
	setDecode = "decode-to-shell"
	setDisk   = "disk-destruction"
)

// CheckNames returns the safety checks of contract modes.
func CheckNames() []string { return []string{checkAdd, checkPush, checkRm} }

// SetNames returns the further sets of safety rules.
func SetNames() []string { return []string{setGit, setExec, setEnv, setDecode, setDisk} }

// rule describes a safety rule. Code that refers to its id decides what it refuses.
type rule struct {
	set  string // "" for a check
	id   string
	what string // what it refuses, in the plural
	// hint is what to do instead, a sentence.
	hint string
	// message, if not "", replaces the text that what and hint make.
	message string
}

func (r rule) text() string {
	if r.message != "" {
		return r.message
	}
	return "permission denied: " + r.what + " are not allowed. " + r.hint
}

// safetyRules are all safety rules. The messages of the three checks are part of the
// contract, to the letter.
var safetyRules = []rule{
	{
		id: checkAdd, what: "git add of everything",
		message: "permission denied: blind git add commands (git add -A, git add ., git add --all, git add *) are not allowed, specify files explicitly",
	},
	{
		id: checkPush, what: "forced git pushes",
		message: "permission denied: git push --force is not allowed. Use --force-with-lease for safer force pushes, or push without force",
	},
	{
		id: checkRm, what: "forced recursive removals of .git, a home directory, the root or everything",
		message: "permission denied: this rm command could delete critical data (.git, home directory, or root). Specify the full path explicitly (no wildcards, ~, or $HOME)",
	},

	{set: setGit, id: "reset", what: "git resets that discard changes (git reset --hard, git read-tree --reset)", hint: "Keep the changes with git stash, or use git reset --keep"},
	{set: setGit, id: "checkout", what: "checkouts that discard changes (git checkout -- ., git checkout -f, git switch -f)", hint: "Keep the changes with git stash, or name the one file to check out"},
	{set: setGit, id: "restore", what: "git restores of a whole directory", hint: "Name the files to restore, or keep the changes with git stash"},
	{set: setGit, id: "clean", what: "git cleans that delete untracked files", hint: "List them with git clean -n, and remove by name what must go"},
	{set: setGit, id: "stash", what: "deletions of stashed changes (git stash drop, git stash clear)", hint: "Use git stash apply, which keeps them"},
	{set: setGit, id: "branch", what: "forced changes of branches (git branch -D, -f, -M, git checkout -B)", hint: "Use git branch -d, which refuses to lose commits"},
	{set: setGit, id: "refs", what: "changes of references that lose commits (git update-ref -d, git reflog expire, git prune, git gc --prune=now)", hint: "Leave the references and the reflog as they are"},
	{set: setGit, id: "history", what: "rewrites of the whole history (git filter-branch, git filter-repo)", hint: "Make a new commit instead"},
	{set: setGit, id: "push", what: "pushes that delete or overwrite remote references (git push --delete, --mirror, --prune)", hint: "Push one branch by name, without deleting"},
	{set: setGit, id: "worktree", what: "forced removals of worktrees and submodules", hint: "Remove them without force, which keeps changes"},

	{set: setExec, id: "option", what: "options that make a program run a command of their own (tar --checkpoint-action, rsync -e, ssh -o ProxyCommand and such)", hint: "Run the command by itself, in plain sight"},
	{set: setExec, id: "git-config", what: "git settings that make git run a command (git -c core.pager=…, aliases with !, --config-env, --exec-path)", hint: "Run git without them, and the command by itself"},
	{set: setExec, id: "git-transport", what: "git transports that run a command (ext::, --upload-pack, --receive-pack)", hint: "Use an https or ssh address"},
	{set: setExec, id: "deferred", what: "commands hidden in the shell's own hooks (complete -C, mapfile -C, bind -x, enable -f)", hint: "Run the command by itself, in plain sight"},
	{set: setExec, id: "alias", what: "aliases for a command that is not allowed", hint: "Use the command's own name and its safe form"},
	{set: setExec, id: "odd-character", what: "control characters, odd spaces, invisible and look-alike letters outside quotes", hint: "Write the command in plain ASCII, or quote the text"},
	{set: setExec, id: "remote", what: "commands run in other machines and containers, and containers ended or removed (ssh, docker run, docker rm, kubectl exec)", hint: "Run the command here, or ask for it to be run"},

	{set: setEnv, id: "variable", what: "variables that make programs run code (PAGER, EDITOR, LD_PRELOAD, GIT_SSH_COMMAND, BASH_ENV and such)", hint: "Run the command by itself, without changing the environment of others"},
	{set: setEnv, id: "path", what: "a PATH with relative, empty or world-writable directories", hint: "Name the program with its path, or add an absolute directory of your own"},
	{set: setEnv, id: "startup-file", what: "writes to files that shells, ssh or git run or obey at start (~/.bashrc, ~/.ssh, .git/hooks and such)", hint: "Set what is needed in the command itself"},

	{set: setDecode, id: "pipe", what: "pipes of unknown text into an interpreter", hint: "Save the text to a file, read it, and run the file"},
	{set: setDecode, id: "file", what: "redirections of unknown text into an interpreter", hint: "Read the file, and run it by its name"},
	{set: setDecode, id: "substitution", what: "shells that run the unknown output of a command (bash <(…), source <(…), eval \"$(curl …)\")", hint: "Save the text to a file, read it, and run the file"},

	{set: setDisk, id: "system-file", what: "writes over system files and devices, also by sed -i, tar -C and rsync", hint: "Write to a file of your own, and say what must be changed"},
	{set: setDisk, id: "empty", what: "commands that empty or overwrite a file without looking (: > f, tee f, cp /dev/null f, truncate -s 0, ln -sf)", hint: "Write a new file, or append with >> or tee -a"},
	{set: setDisk, id: "shred", what: "commands that erase files or disks beyond recovery (shred, mkfs, wipefs, dd of=/dev/…)", hint: "Remove single files by name with rm"},
	{set: setDisk, id: "mass-delete", what: "deletions of whole trees (rm -r /usr, find / -delete, xargs rm -rf, rsync --delete, chmod -R on /)", hint: "List what would go, and remove it by name"},
	{set: setDisk, id: "remote", what: "deletions of remote data (aws s3 rm, gh api -X DELETE, DROP TABLE, kubectl delete, terraform destroy and such)", hint: "Say what should be deleted, and let a person do it"},
}

// opaqueKinds are the reasons why a script is opaque, and how to write it otherwise.
var opaqueKinds = []rule{
	{id: opaqueName, what: "the command's name is made when the script runs", hint: "Write the command's name out"},
	{id: opaqueEval, what: "the text that eval runs is made when the script runs", hint: "Write the command out, without eval"},
	{id: opaqueShell, what: "the script that a shell is given is made when the script runs", hint: "Write the commands out, or pass values as arguments: bash -c 'cmd \"$1\"' _ value"},
	{id: opaqueStdin, what: "a shell reads its script from what cannot be known", hint: "Save the script to a file, read it, and run the file"},
	{id: opaqueSource, what: "a file's commands are run in this shell", hint: "Run the file as a script of its own, or write its commands out"},
	{id: opaqueParse, what: "the script cannot be parsed", hint: "Write it in plain bash"},
	{id: opaqueOption, what: "an option is not known, so that the command after it cannot be found", hint: "Run the command without the option, or by itself"},
	{id: opaqueGit, what: "the git subcommand is not one of git's own", hint: "Write out the git command that the alias stands for"},
	{id: opaqueOperands, what: "what is removed is made when the script runs", hint: "List it first, and name what is to be removed"},
	{id: opaqueBraces, what: "the braces make too many words to look at", hint: "Write fewer words at once"},
	{id: opaqueCharacter, what: "there is a control character, an odd space, or an invisible or look-alike letter outside quotes", hint: "Write the command in plain ASCII, or quote the text"},
	{id: opaqueHistory, what: "a command is taken from the shell's history", hint: "Write the command out"},
	{id: opaqueDeferred, what: "a command for later is made when the script runs", hint: "Write the command out"},
	{id: opaqueFault, what: "the policy itself has failed on the script", hint: "Report this, and write the script in another way"},
	{id: opaqueEvaluated, what: "a text that is evaluated may hold a command", hint: "Write the command out, and evaluate numbers only"},
	{id: opaqueInterpreter, what: "a program's text is run by an interpreter that is not looked into", hint: "Save the program to a file and run the file"},
}

const (
	opaqueName        = "opaque/command-name"
	opaqueEval        = "opaque/eval"
	opaqueShell       = "opaque/shell-script"
	opaqueStdin       = "opaque/stdin-script"
	opaqueSource      = "opaque/source"
	opaqueParse       = "opaque/parse-error"
	opaqueOption      = "opaque/wrapper-option"
	opaqueGit         = "opaque/git-subcommand"
	opaqueOperands    = "opaque/operands"
	opaqueBraces      = "opaque/braces"
	opaqueCharacter   = "opaque/odd-character"
	opaqueHistory     = "opaque/history"
	opaqueDeferred    = "opaque/deferred"
	opaqueEvaluated   = "opaque/evaluated"
	opaqueInterpreter = "opaque/interpreter"
	opaqueFault       = "opaque/fault"

	// tooComplexID is the rule in a decision about a script that is beyond a limit.
	tooComplexID = "opaque/too-complex"
)

// ruleID returns the id of a rule in decisions.
func (r rule) ruleID() string {
	if r.set == "" {
		return r.id
	}
	return r.set + "/" + r.id
}

// RuleInfo describes a rule.
type RuleInfo struct {
	Layer Layer  `json:"layer"`
	Set   string `json:"set"` // "" for the checks of contract modes and for reasons to be opaque
	ID    string `json:"id"`
	Text  string `json:"text"` // what it refuses, or what cannot be known
	// Message is the text for the agent.
	Message string `json:"message"`
}

// RuleInfos returns all safety rules: those of the checks, and then those of the sets, in
// the order of SetNames.
func RuleInfos() []RuleInfo { return infos(safetyRules) }

// OpaqueInfos returns the reasons why a script is opaque.
func OpaqueInfos() []RuleInfo { return infos(opaqueKinds) }

func infos(rules []rule) []RuleInfo {
	out := make([]RuleInfo, 0, len(rules))
	for _, r := range rules {
		text := r.text()
		if r.set == "" && r.message == "" {
			text = opaqueMessage(r)
		}
		out = append(out, RuleInfo{Layer: Safety, Set: r.set, ID: r.ruleID(), Text: r.what, Message: text})
	}
	return out
}

func opaqueMessage(r rule) string {
	return "permission denied: " + r.what + ", and such commands are not run here. " + r.hint
}

var (
	ruleByID   = byID(safetyRules)
	opaqueByID = byID(opaqueKinds)
)

func byID(rules []rule) map[string]rule {
	m := make(map[string]rule, len(rules))
	for _, r := range rules {
		m[r.ruleID()] = r
	}
	return m
}

// enabledRules returns the ids of the rules that checks and sets switch on.
func enabledRules(checks, sets []string) map[string]bool {
	on := map[string]bool{}
	for _, r := range safetyRules {
		if r.set == "" && slices.Contains(checks, r.id) || r.set != "" && slices.Contains(sets, r.set) {
			on[r.ruleID()] = true
		}
	}
	return on
}
