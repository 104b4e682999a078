// Package config is the typed configuration of the command line. It comes from
// defaults, one file, the environment and flags, each above the one before, and
// is checked once, when it is loaded: an unknown key or a bad value stops the
// program and says where it came from.
//
// No file is read but the one of the user's configuration directory and the one
// that the user names: what lies in a workspace or in the current directory may
// be hostile.
package config

import (
	"iter"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Kind says how the text of a setting is read.
type Kind int

// Kinds of settings.
const (
	Text     Kind = iota
	Choice        // one of Setting.Choices
	Duration      // as in 30s, 5m, 14d; a bare number is seconds
	Size          // bytes, as in 512m, 2g
	Count         // a whole number from 0 on
	Number        // a decimal number from 0 on
	Switch        // true or false
	List          // texts; in the environment separated by commas
	Lines         // texts that may hold commas; in the environment one a line
)

// Setting is one key of the configuration. Every flag of every command is a
// Setting, so that it has a key and a variable too.
type Setting struct {
	Key     string // as in the file, levels separated by dots
	Flag    string // long name; "" if there is none
	Short   string // one letter; "" if there is none
	Kind    Kind
	Default string   // "" is no value
	Choices []string // of Choice; of List, if there are any
	Holder  string   // what a flag's value is called in help, as in "DIR"
	Usage   string   // one line, lower case
}

// EnvPrefix begins the names of all variables of ours.
const EnvPrefix = "SANDBOXBASH_"

// EnvFile is the variable that names the configuration file.
const EnvFile = EnvPrefix + "CONFIG"

// Env returns the name of the variable that holds the setting: SANDBOXBASH_RUN_CWD
// for run.cwd, SANDBOXBASH_AGENT_TOOL_NAMES for agent.toolNames.
func (s Setting) Env() string {
	var b strings.Builder
	for _, r := range s.Key {
		switch {
		case r == '.' || r == '-':
			r = '_'
		case unicode.IsUpper(r):
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return EnvPrefix + b.String()
}

// Lookup returns the setting of a key, or of a flag with Flag names.
func Lookup(key string) (Setting, bool) {
	at, ok := known().at[key]
	if !ok {
		return Setting{}, false
	}
	return known().all[at], true
}

// Settings returns all settings but secrets and policy.rules, which are lists of
// tables and in the file only.
func Settings() iter.Seq[Setting] { return slices.Values(known().all) }

type settings struct {
	all []Setting
	at  map[string]int // by key
}

// known is made once: every flag and every value of every start asks for it.
var known = sync.OnceValue(func() settings {
	k := settings{
		all: slices.Concat(
			sessionSettings(), commandSettings(), outputSettings(), policySettings(), ptySettings(), agentSettings(), serveSettings(), recordSettings()),
		at: map[string]int{},
	}
	for i, s := range k.all {
		k.at[s.Key] = i
	}
	return k
})

func sessionSettings() []Setting {
	return []Setting{
		{Key: "engine", Flag: "engine", Holder: "ADDRESS", Usage: "where the container engine is, as in unix:///var/run/docker.sock (default: as the docker command finds it)"},
		{Key: "image", Flag: "image", Holder: "REF", Usage: "image to start from: a reference, an image ID, or host for a snapshot of this machine's programs (default: debian:stable-slim, else host)"},
		{Key: "profile", Flag: "profile", Kind: Choice, Choices: []string{"strict", "dev"}, Default: "strict", Usage: "strict: an ordinary user on a read-only root; dev: uid 0 in the container, for installing packages"},
		{Key: "network", Flag: "network", Kind: Choice, Choices: []string{"none", "bridge"}, Default: "none", Usage: "what commands can reach: none, or whatever the engine's bridge reaches"},
		{Key: "runtime", Flag: "runtime", Holder: "NAME", Usage: "OCI runtime of the engine, as in runsc (default: the engine's)"},
		{Key: "user", Flag: "user", Holder: "UID[:GID]", Usage: "numeric user of the commands (default: the profile's, or the owner of a bound directory)"},
		{Key: "workspace", Flag: "workspace", Holder: "SPEC", Default: "volume", Usage: "working directory: copy:DIR, bind:DIR[:ro][:at=PATH], or volume for an empty one"},
		{Key: "limits.memory", Flag: "memory", Kind: Size, Holder: "SIZE", Usage: "memory of the session, swap included (default 2g)"},
		{Key: "limits.cpus", Flag: "cpus", Kind: Number, Holder: "N", Usage: "processors of the session, as in 1.5 (default 2)"},
		{Key: "limits.pids", Flag: "pids", Kind: Count, Holder: "N", Usage: "processes and threads of the session (default 512; 4096 in profile dev)"},
		{Key: "limits.disk", Flag: "disk", Kind: Size, Holder: "SIZE", Usage: "size of a workspace that is no bind; it is then kept in memory (default: no limit, on disk)"},
		{Key: "build.base", Flag: "base", Holder: "REF", Usage: "image that a built image begins with: the Dockerfile's argument BASE"},
		{Key: "build.args", Flag: "build-arg", Kind: Lines, Holder: "NAME=VALUE", Usage: "argument of a Dockerfile, as in http_proxy=...; may be repeated"},
		{Key: "build.network", Flag: "build-network", Kind: Choice, Choices: []string{"engine", "host", "none"}, Default: "engine", Usage: "network of what a Dockerfile runs: what the engine gives it, that of its machine, or none"},
		{Key: "session.id", Flag: "session", Holder: "ID", Usage: "session, by its id or the begin of one"},
		{Key: "session.idle", Flag: "idle", Kind: Duration, Default: "2h", Holder: "D", Usage: "how long a session lives without a word from anybody"},
		{Key: "session.warm", Kind: Count, Default: "0", Usage: "sessions that a long-lived process keeps prepared"},
		{Key: "session.ahead", Kind: Count, Default: "1", Usage: "runners that a long-lived process keeps open in each session"},
	}
}

func commandSettings() []Setting {
	return []Setting{
		{Key: "shell", Flag: "shell", Kind: Choice, Choices: []string{"bash", "sh"}, Default: "bash", Usage: "shell that runs the script"},
		{Key: "timeout", Flag: "timeout", Kind: Duration, Default: "300s", Holder: "D", Usage: "time that the command has, of any length"},
		{Key: "grace", Flag: "grace", Kind: Duration, Default: "250ms", Holder: "D", Usage: "time between SIGTERM and SIGKILL when a command is ended"},
		{Key: "run.cwd", Flag: "cwd", Holder: "DIR", Usage: "working directory in the session (default: the workspace; relative to it)"},
		{Key: "run.stdin", Flag: "stdin", Kind: Switch, Default: "false", Usage: "give standard input to the command (default: it reads nothing)"},
		{Key: "run.exclusive", Flag: "exclusive", Kind: Switch, Default: "false", Usage: "refuse if another command runs in the session, instead of queueing"},
		{Key: "run.background", Flag: "background", Kind: Switch, Default: "false", Usage: "start the script as a job of the session, print its id, pid and output file, and return at once"},
		{Key: "run.background-after", Flag: "background-after", Kind: Duration, Default: "0s", Holder: "D", Usage: "let the script go on as a job if it has not ended by then (0s: never)"},
		{Key: "run.file", Flag: "file", Short: "f", Holder: "FILE", Usage: "read the script from FILE; all words are then its arguments"},
		{Key: "run.preview", Flag: "preview", Kind: Switch, Default: "false", Usage: "show the script and the last 20 lines of its output when it has ended, as a harness shows a call, instead of the output as it comes"},
		{Key: "job.follow", Flag: "follow", Short: "f", Kind: Switch, Default: "false", Usage: "go on until the job has ended"},
		{Key: "env.set", Flag: "env", Short: "e", Kind: Lines, Holder: "K=V", Usage: "environment variable of the command; may be repeated"},
		{Key: "env.pass", Kind: List, Usage: "names of variables of this environment that commands get too"},
		{Key: "json", Flag: "json", Kind: Switch, Default: "false", Usage: "print JSON"},
		{Key: "quiet", Flag: "quiet", Short: "q", Kind: Switch, Default: "false", Usage: "print no notes, warnings or progress"},
		{Key: "diff.exit-code", Flag: "exit-code", Kind: Switch, Default: "false", Usage: "exit with 1 if there are differences"},
		{Key: "rm.all", Flag: "all", Kind: Switch, Default: "false", Usage: "everything that sandboxbash has made"},
	}
}

func outputSettings() []Setting {
	return []Setting{
		{Key: "ci", Flag: "ci", Kind: Choice, Choices: []string{"auto", "github", "gitlab", "azure", "teamcity", "none"}, Default: "auto", Usage: "CI runner that reads the output: what it would take for commands gets a space into it (auto: by the runner's variable)"},
		{Key: "report.junit", Flag: "junit", Holder: "FILE", Usage: "add the command as a test case to a JUnit report, with its outcome, time and the end of its output"},
		{Key: "report.summary", Flag: "summary", Holder: "FILE", Usage: "append the same as Markdown to FILE; auto is the file of GitHub's job summary"},
		{Key: "output.limit", Flag: "output-limit", Kind: Size, Holder: "BYTES", Usage: "end a command that writes more than this (default: no limit)"},
		{Key: "output.window", Kind: Size, Default: "50k", Usage: "how much of each stream a JSON result holds: its end"},
		{Key: "artifacts.dir", Usage: "where full outputs are kept (default: artifacts of the user's state directory)"},
		{Key: "artifacts.mode", Flag: "artifacts", Kind: Choice, Choices: []string{"overflow", "always", "never"}, Default: "overflow", Usage: "when the full output is kept"},
		{Key: "artifacts.retention", Kind: Duration, Default: "14d", Usage: "how long artifacts are kept"},
		{Key: "artifacts.max", Kind: Size, Default: "1g", Usage: "largest size of an artifact"},
		{Key: "artifacts.session-max", Kind: Size, Default: "4g", Usage: "largest size of a session's artifacts"},
		{Key: "artifacts.total-max", Kind: Size, Default: "20g", Usage: "largest size of all artifacts"},
		{Key: "artifacts.bytes", Flag: "bytes", Holder: "A-B", Usage: "bytes from A up to and without B, counted from 0; either may be left out"},
		{Key: "artifacts.lines", Flag: "lines", Holder: "A-B", Usage: "lines from A up to and with B, counted from 1; either may be left out"},
	}
}

// policySettings steer which scripts may run. Their choices are those of package
// policy, which a test of the command line holds them to.
func policySettings() []Setting {
	return []Setting{
		{Key: "policy.contract", Flag: "contract", Kind: Choice, Choices: []string{"agent", "plain", "modes"}, Default: "modes", Usage: "tool contract: what a server offers (there agent unless given), and whose checks the policy commands use"},
		{Key: "policy.jsonl", Flag: "jsonl", Kind: Switch, Default: "false", Usage: "check many scripts: read a JSON object a line from standard input, and answer each with one"},
		{Key: "policy.checks", Flag: "check", Kind: List, Choices: []string{"add", "push", "rm"}, Holder: "NAME", Usage: "safety check that is on; may be repeated (default: all three under contract modes, else none)"},
		{Key: "policy.sets", Flag: "set", Kind: List, Choices: []string{"git-destructive", "exec-smuggling", "env-poisoning", "decode-to-shell", "disk-destruction"}, Holder: "NAME", Usage: "further set of safety rules that is on; may be repeated (default: none)"},
		{Key: "policy.mode", Flag: "policy-mode", Kind: Choice, Choices: []string{"standard", "guarded"}, Default: "standard", Usage: "what is done with a script whose commands cannot all be known: run it and say so, or refuse it"},
		{Key: "policy.strict", Kind: Switch, Default: "false", Usage: "refuse to start if a rule of the interceptor cannot be compiled (default: it is left out, with a note)"},
		{Key: "policy.interceptor", Kind: Switch, Default: "false", Usage: "check scripts against the interceptor's rules; policy.rules alone turns it on too"},
		{Key: "policy.match", Kind: Choice, Choices: []string{"whole", "segments"}, Default: "whole", Usage: "what those rules look at: the whole script, or each simple command too"},
		{Key: "policy.tools", Kind: List, Usage: "names of the tools that the agent has; only rules that name one of them apply"},
	}
}

// Keys that are no Setting: lists of tables.
const (
	secretsKey = "secrets"
	rulesKey   = "policy.rules"
)

// nearest returns the known key that is most like an unknown one, or "" if none
// is much like it.
func nearest(key string, known []string) string {
	best, least := "", max(2, len(key)/3)+1
	for _, k := range known {
		d := distance(key, k)
		if last := k[strings.LastIndexByte(k, '.')+1:]; last == key {
			d = 0 // a level was forgotten
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of characters to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
