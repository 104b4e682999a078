package policy

import "maps"

// handler looks at what a command runs beside itself. args[0] is its name as
// written, name is the last element of that.
type handler func(w *walker, name string, args []arg, in stream)

// handlers are the commands that run others in ways of their own. The map is made
// here because its functions look into it.
var handlers map[string]handler

func init() {
	handlers = map[string]handler{
		"eval":   (*walker).eval,
		"source": (*walker).source_,
		".":      (*walker).source_,
		"trap":   (*walker).trap,
		"alias":  (*walker).alias,

		"complete":  (*walker).complete,
		"compgen":   (*walker).complete,
		"mapfile":   (*walker).mapfile,
		"readarray": (*walker).mapfile,
		"bind":      (*walker).bind,
		"enable":    (*walker).enable,
		"hash":      (*walker).hash,
		"fc":        (*walker).fc,
		"printf":    (*walker).printf,

		"export":   (*walker).declaration,
		"declare":  (*walker).declaration,
		"typeset":  (*walker).declaration,
		"local":    (*walker).declaration,
		"readonly": (*walker).declaration,

		"cd":    func(w *walker, _ string, args []arg, _ stream) { w.changeDir(args) },
		"pushd": func(w *walker, _ string, _ []arg, _ stream) { w.shell.dir = "" },
		"popd":  func(w *walker, _ string, _ []arg, _ stream) { w.shell.dir = "" },
		"set":   (*walker).setParams,
		"shift": func(w *walker, _ string, _ []arg, _ stream) { w.shell.argsKnown = false },

		"env":       (*walker).env,
		"su":        (*walker).su,
		"runuser":   (*walker).su,
		"xargs":     (*walker).xargs,
		"gxargs":    (*walker).xargs,
		"find":      (*walker).find,
		"gfind":     (*walker).find,
		"flock":     (*walker).flock,
		"script":    (*walker).script_,
		"parallel":  (*walker).parallel,
		"sem":       (*walker).parallel,
		"coreutils": (*walker).coreutils,
		"ssh":       (*walker).ssh,
		"at":        (*walker).at,
		"tmux":      (*walker).terminal,
		"screen":    (*walker).terminal,
		"batch":     (*walker).at,
		"split":     (*walker).split_,
	}
	for name := range shells {
		handlers[name] = (*walker).shellCommand
	}
	for name := range interpreters {
		handlers[name] = (*walker).interpreter
	}
	for name := range escapes {
		handlers[name] = (*walker).escape
	}
}

// ruleFunc is the safety rules of one command. It looks at no other.
type ruleFunc func(w *walker, args []arg, in stream)

// rulesFor are the safety rules of commands by name, made here for the same
// reason.
var rulesFor = map[string]ruleFunc{}

func init() {
	for _, rules := range []map[string]ruleFunc{{"rm": ruleRm, "git": ruleGit}, diskRules, optionRules, remoteRules} {
		maps.Copy(rulesFor, rules)
	}
}
