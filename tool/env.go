package tool

import (
	"maps"
	"slices"
	"strings"
)

// Env is variables of a command's environment.
type Env map[string]string

// List is the variables as K=V, in the order of their names.
func (e Env) List() []string {
	list := make([]string, 0, len(e))
	for _, name := range slices.Sorted(maps.Keys(e)) {
		list = append(list, name+"="+e[name])
	}
	return list
}

// NonInteractive returns the variables that contract agent sets for every command,
// so that programs do not wait for a user. Variables that the agent sets win.
func NonInteractive() Env {
	return Env{
		// Pagers.
		"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat", "SYSTEMD_PAGER": "cat", "BAT_PAGER": "cat",
		"DELTA_PAGER": "cat", "GH_PAGER": "cat", "GLAB_PAGER": "cat", "PSQL_PAGER": "cat", "MYSQL_PAGER": "cat",
		"AWS_PAGER": "", "HOMEBREW_PAGER": "cat", "LESS": "FRX",
		// The terminal.
		"TERM": "dumb", "GPG_TTY": "not a tty", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1",
		// Editors and questions.
		"GIT_EDITOR": "true", "VISUAL": "true", "EDITOR": "true", "GIT_TERMINAL_PROMPT": "0",
		"SSH_ASKPASS": "/usr/bin/false", "CI": "1",
		// Package managers.
		"npm_config_yes": "true", "npm_config_update_notifier": "false", "npm_config_fund": "false",
		"npm_config_audit": "false", "npm_config_progress": "false",
		"PNPM_DISABLE_SELF_UPDATE_CHECK": "true", "PNPM_UPDATE_NOTIFIER": "false",
		"YARN_ENABLE_TELEMETRY": "0", "YARN_ENABLE_PROGRESS_BARS": "0", "CARGO_TERM_PROGRESS_WHEN": "never",
		"DEBIAN_FRONTEND": "noninteractive", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
		// Others.
		"TF_INPUT": "0", "TF_IN_AUTOMATION": "1", "GH_PROMPT_DISABLED": "1", "COMPOSER_NO_INTERACTION": "1",
		"CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
	}
}

// shellsOwn are variables that the shell sets itself, or that change how it starts.
// They are ignored if the agent sets them.
var shellsOwn = map[string]bool{
	"BASH_ENV": true, "ENV": true, "PS0": true, "PS1": true, "PS2": true, "PS4": true, "PWD": true, "OLDPWD": true,
	"SHLVL": true, "SHELL": true, "IFS": true, "UID": true, "EUID": true, "PPID": true, "RANDOM": true,
	"SECONDS": true, "HOSTNAME": true, "HOSTTYPE": true, "OSTYPE": true, "MACHTYPE": true, "LINENO": true,
	"BASH": true, "BASHOPTS": true, "BASHPID": true, "BASH_VERSION": true, "BASH_VERSINFO": true, "SHELLOPTS": true,
	"BASH_SUBSHELL": true, "BASH_COMMAND": true, "BASH_SOURCE": true, "BASH_LINENO": true, "FUNCNAME": true,
	"BASH_ARGV": true, "BASH_ARGC": true, "BASH_ARGV0": true, "BASH_EXECUTION_STRING": true, "BASH_REMATCH": true,
	"BASH_ALIASES": true, "BASH_CMDS": true, "BASH_MONOSECONDS": true, "BASH_TRAPSIG": true,
	"SRANDOM": true, "EPOCHSECONDS": true, "EPOCHREALTIME": true, "GROUPS": true, "DIRSTACK": true, "PIPESTATUS": true, "_": true,
}

// heeded reports whether a variable that an agent sets has an effect.
func heeded(name string) bool {
	return !shellsOwn[name] && !strings.HasPrefix(name, "BASH_FUNC_")
}

// WithheldByModes reports whether contract modes keeps a variable of the session
// from commands. The start of the name decides, and case matters.
func WithheldByModes(name string) bool {
	return slices.ContainsFunc(withheldPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

var withheldPrefixes = []string{"ANTHROPIC_", "OPENAI_", "GEMINI_", "AWS_SECRET", "PHOENIX_"}
