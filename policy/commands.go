package policy

import (
	"strings"
	"sync"
)

// call is one command in its canonical form, as rules and handlers get it.
type call struct {
	*walker
	name string // the last element of the program's path
	args []arg  // its words; args[0] names the program as the script does
	in   stream // what it reads
}

func (c call) at() int { return c.args[0].at }

// refuse notes that a rule refuses the command.
func (c call) refuse(id, reason string) { c.deny(id, c.at(), reason) }

// unclear notes that what the command runs cannot be known.
func (c call) unclear(kind, reason string) { c.notKnown(kind, c.at(), reason) }

// with returns the call with other words after the program's name.
func (c call) with(words []arg) call {
	c.args = append([]arg{c.args[0]}, words...)
	return c
}

// command is what the policy knows of the programs of one name.
type command struct {
	rules   []func(call) // its safety rules, in order; they look at the command alone
	runs    func(call)   // visits what it runs, if it does so in a way of its own
	wrapper *wrapper     // how its words are a command, if they are
	plain   bool         // its words are text or names of files, and it runs none of them
}

// knownCommands returns what the policy knows of commands, by name. A walker gets the
// table by its Policy, because its functions look into the table that they are in.
var knownCommands = sync.OnceValue(func() map[string]*command {
	table := map[string]*command{}
	of := func(name string) *command {
		if table[name] == nil {
			table[name] = &command{}
		}
		return table[name]
	}
	for name := range strings.FieldsSeq(plain) {
		of(name).plain = true
	}
	for name, wr := range wrappers {
		of(name).wrapper = wr
	}
	for name, run := range runners() {
		of(name).runs = run
	}
	for _, rules := range []map[string]func(call){{"rm": ruleRm, "git": ruleGit}, diskRules, optionRules, remoteRules} {
		for name, rule := range rules {
			of(name).rules = append(of(name).rules, rule)
		}
	}
	for name, options := range programs {
		of(name).rules = append(of(name).rules, options.rule)
	}
	for name, like := range sameOptions {
		of(name).rules = append(of(name).rules, programs[like].rule)
	}
	for name := range shellMarks {
		of(name).rules = append(of(name).rules, call.shellMarked)
	}
	return table
})

// runners returns the commands that run others in ways of their own.
func runners() map[string]func(call) {
	forgetDir := func(c call) { c.shell.dir = "" }
	table := map[string]func(call){
		"eval":   call.eval,
		"source": call.sourced,
		".":      call.sourced,
		"trap":   call.trap,
		"alias":  call.alias,

		"complete":  call.complete,
		"compgen":   call.complete,
		"mapfile":   call.mapfile,
		"readarray": call.mapfile,
		"bind":      call.bind,
		"enable":    call.enable,
		"hash":      call.hash,
		"fc":        call.fc,
		"printf":    call.printf,

		"export":   call.declaration,
		"declare":  call.declaration,
		"typeset":  call.declaration,
		"local":    call.declaration,
		"readonly": call.declaration,

		"cd":    call.changeDir,
		"pushd": forgetDir,
		"popd":  forgetDir,
		"set":   call.setParams,
		"shift": func(c call) { c.shell.argsKnown = false },

		"env":       call.env,
		"su":        call.su,
		"runuser":   call.su,
		"xargs":     call.xargs,
		"gxargs":    call.xargs,
		"find":      call.find,
		"gfind":     call.find,
		"flock":     call.flock,
		"script":    call.typescript,
		"parallel":  call.parallel,
		"sem":       call.parallel,
		"coreutils": call.coreutils,
		"ssh":       call.ssh,
		"at":        call.batch,
		"batch":     call.batch,
		"tmux":      call.terminal,
		"screen":    call.terminal,
		"split":     call.splitFilter,

		"sg":                call.sg,
		"ip":                call.ip,
		"start-stop-daemon": call.startStopDaemon,
		"crontab":           call.crontab,
	}
	for name := range runVerbs {
		table[name] = call.runVerb
	}
	for name := range shells {
		table[name] = call.shellCommand
	}
	for name := range interpreters {
		table[name] = call.interpreter
	}
	for name := range escapes {
		table[name] = call.escape
	}
	return table
}
