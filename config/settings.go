// Package config is the typed configuration of the command line. Load merges
// the defaults, one file, the environment and the flags, in increasing order of
// precedence, and checks the result once: an unknown key or a bad value stops
// the program, with an error that says where it came from.
//
// The only files read are the one that the user names and the one in the user's
// configuration directory. Files in a workspace or in the current directory may
// be hostile and are never read.
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

// Setting is one value of the configuration. A lasting setting has a key in the
// file and a variable, and perhaps a flag. A per-call setting is a flag and nothing
// else, so that nothing left in a file or an environment makes `image rm` remove
// every image.
type Setting struct {
	Key     string // as in the file, levels separated by dots; unique
	PerCall bool   // the setting is a flag only: no key in the file, no variable
	Flag    string // long name; "" if there is none
	Short   string // one letter; "" if there is none
	Kind    Kind
	Default string   // "" if there is none
	Choices []string // of Choice; of List, if there are any
	Holder  string   // placeholder of the flag's value in help, as in "DIR"
	Usage   string   // one line, lower case

	env  string // the variable, without EnvPrefix; "" if it follows from the key
	to   any    // points to the field of a Config that it fills; nil: a check reads it
	path bool   // it names files or directories of this machine
	word string // with path: the one value that is not a path; "" if there is none
	adds bool   // of Lines: the lists of all sources count, and not the last one alone
}

// EnvPrefix is the prefix of all our environment variables.
const EnvPrefix = "SANDBOXBASH_"

// EnvFile is the variable that names the configuration file.
const EnvFile = EnvPrefix + "CONFIG"

// Env returns the name of the setting's environment variable: SANDBOXBASH_RUN_CWD
// for run.cwd, SANDBOXBASH_AGENT_TOOL_NAMES for agent.toolNames, and SANDBOXBASH_SESSION
// for session.id. It returns "" for a per-call setting, which has none.
func (s Setting) Env() string {
	if s.PerCall {
		return ""
	}
	return s.variable()
}

// variable returns the name of the setting's variable, also for a per-call setting.
func (s Setting) variable() string {
	if s.env != "" {
		return EnvPrefix + s.env
	}
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

// Lookup returns the setting with a key.
func Lookup(key string) (Setting, bool) {
	at, ok := known().at[key]
	if !ok {
		return Setting{}, false
	}
	return known().all[at], true
}

// Settings returns all lasting settings except secrets and policy.rules, which are
// lists of tables and exist in the file only.
func Settings() iter.Seq[Setting] { return slices.Values(known().lasting) }

// Flags returns all settings that have a flag, per-call settings included.
func Flags() iter.Seq[Setting] {
	return func(yield func(Setting) bool) {
		for _, s := range known().all {
			if s.Flag != "" && !yield(s) {
				return
			}
		}
	}
}

type settings struct {
	all     []Setting
	lasting []Setting
	at      map[string]int // by key, in all
}

// known is computed once, because every flag and every value is looked up in it.
var known = sync.OnceValue(func() settings {
	k := settings{
		all: settingsOf(&Config{}),
		at:  map[string]int{},
	}
	for i, s := range k.all {
		k.at[s.Key] = i
		if !s.PerCall {
			k.lasting = append(k.lasting, s)
		}
	}
	return k
})

// settingsOf returns all settings, in the order of the documentation. Each is one line, and
// fills one field of c.
func settingsOf(c *Config) []Setting {
	return slices.Concat(
		sessionSettings(c), commandSettings(c), outputSettings(c), policySettings(c), networkSettings(c), ptySettings(c), agentSettings(c), serveSettings(c), recordSettings(c))
}

func sessionSettings(c *Config) []Setting {
	return []Setting{
		{Key: "engine", to: &c.Engine, Flag: "engine", Holder: "ADDRESS", Usage: "address of the container engine, such as unix:///var/run/docker.sock (default: as the docker command finds it)"},
		{Key: "image", to: &c.Image, Flag: "image", Holder: "REF", Usage: "image to start from: a reference, an image ID, or host for a snapshot of this machine's programs (default: debian:stable-slim, else host)"},
		{Key: "profile", to: &c.Profile, Flag: "profile", Kind: Choice, Choices: []string{"strict", "dev"}, Default: "strict", Usage: "strict: an ordinary user on a read-only root; dev: uid 0 in the container, for installing packages"},
		{Key: "network", to: &c.Network, Flag: "network", Kind: Choice, Choices: []string{"none", "bridge"}, Default: "none", Usage: "network of the session: none, or the engine's bridge"},
		{Key: "runtime", to: &c.Runtime, Flag: "runtime", Holder: "NAME", Usage: "OCI runtime of the engine, such as runsc (default: the engine's)"},
		{Key: "user", to: &c.User, Flag: "user", Holder: "UID[:GID]", Usage: "numeric user and group that commands run as (default: the profile's, or the owner of a bound directory)"},
		{Key: "user-name", to: &c.UserName, Flag: "user-name", Holder: "NAME", Usage: "name of that user in passwd, group and USER, unless the image has one for it (default: agent)"},
		{Key: "workspace", to: &c.Workspace, Flag: "workspace", Holder: "SPEC", Default: "volume", Usage: "working directory: copy:DIR, bind:DIR[:ro][:at=PATH], or volume for an empty one"},
		{Key: "mounts", to: &c.Mounts, Flag: "mount", Kind: Lines, Holder: "DIR:PATH[:ro]", Usage: "show the session a directory of this machine at PATH, read-only with :ro; may be repeated"},
		{Key: "caches", to: &c.Caches, Flag: "cache", Kind: Lines, Holder: "NAME:PATH[:ro]", Usage: "give the session a cache that is kept between sessions at PATH, read-only with :ro; may be repeated"},
		{Key: "cache.unused-for", to: &c.Cache.UnusedFor, PerCall: true, Flag: "unused-for", Kind: Duration, Default: "30d", Holder: "D", Usage: "remove caches that no session has started with for this long"},
		{Key: "limits.memory", to: &c.Limits.Memory, Flag: "memory", Kind: Size, Holder: "SIZE", Usage: "memory of the session, including swap (default 2g)"},
		{Key: "limits.cpus", to: &c.Limits.CPUs, Flag: "cpus", Kind: Number, Holder: "N", Usage: "processors of the session, such as 1.5 (default 2)"},
		{Key: "limits.pids", to: &c.Limits.Pids, Flag: "pids", Kind: Count, Holder: "N", Usage: "processes and threads of the session (default 512; 4096 in profile dev)"},
		{Key: "limits.disk", to: &c.Limits.Disk, Flag: "disk", Kind: Size, Holder: "SIZE", Usage: "limit the workspace to this size, and keep it in memory; not for a bind (default: no limit, on disk)"},
		{Key: "limits.home", to: &c.Limits.Home, Flag: "home", Kind: Size, Holder: "SIZE", Usage: "size of the home directory, kept in memory (default: a quarter of the memory, at most 512m; none in profile dev)"},
		{Key: "limits.tmp", to: &c.Limits.Tmp, Flag: "tmp", Kind: Size, Holder: "SIZE", Usage: "size of /tmp, kept in memory (default: a quarter of the memory, at most 512m)"},
		{Key: "host.add", to: &c.Build.Add, PerCall: true, Flag: "add", Kind: List, Holder: "TOOL,...", Usage: "tools of this machine to add"},
		{Key: "build.base", to: &c.Build.Base, Flag: "base", Holder: "REF", Usage: "base image to build on: the Dockerfile's argument BASE"},
		{Key: "build.args", to: &c.Build.Args, Flag: "build-arg", Kind: Lines, Holder: "NAME=VALUE", Usage: "build argument, such as http_proxy=...; may be repeated"},
		{Key: "build.network", to: &c.Build.Network, Flag: "build-network", Kind: Choice, Choices: []string{"engine", "host", "none"}, Default: "engine", Usage: "network of the build: the engine's default, its host's, or none"},
		{Key: "session.id", to: &c.Session.ID, env: "SESSION", Flag: "session", Short: "s", Holder: "SESSION", Usage: "the session: its name or id, a unique part of one, last, or - for the one used last"},
		{Key: "session.name", to: &c.Session.Name, PerCall: true, Flag: "name", Holder: "NAME", Usage: "name of the session: up to 63 of a-z, 0-9 and - (default: one is made up)"},
		{Key: "session.idle", to: &c.Session.Idle, Flag: "idle", Kind: Duration, Default: "2h", Holder: "D", Usage: "end the session after it has been idle for this long (0: it does not end by itself)"},
		{Key: "session.home-in-workspace", to: &c.Session.HomeInside, Flag: "home-in-workspace", Kind: Switch, Default: "false", Usage: "put the home into the workspace, at .home: on disk, and kept with it; diff and apply leave it out"},
		{Key: "session.image-env", to: &c.Session.ImageEnv, Flag: "image-env", Kind: Switch, Default: "false", Usage: "give the session's commands the variables of the image's ENV, but for HOME, USER and such"},
		{Key: "session.for", to: &c.Session.For, PerCall: true, Flag: "for", Kind: Duration, Default: "0s", Holder: "D", Usage: "keep the session for this long, as in 8h or 3d (default: until it is stopped; 0: end it as --idle of its start says)"},
		{Key: "session.warm", to: &c.Session.Warm, Kind: Count, Default: "0", Usage: "number of sessions that a long-lived process prepares in advance"},
		{Key: "session.ahead", to: &c.Session.Ahead, Kind: Count, Default: "1", Usage: "number of runners that a long-lived process keeps open in each session"},
		{Key: "keep.for", to: &c.Keep.For, Kind: Duration, Default: "24h", Usage: "how long to keep the workspace of a session that has ended by itself, for diff and pull (0s: not at all)"},
		{Key: "keep.count", to: &c.Keep.Count, Kind: Count, Default: "10", Usage: "number of such workspaces to keep on an engine, newest first (0: none)"},
		{Key: "keep.disk", to: &c.Keep.Disk, Kind: Size, Default: "10g", Usage: "disk space that such workspaces may take together (0: none are kept)"},
	}
}

func commandSettings(c *Config) []Setting {
	return []Setting{
		{Key: "shell", to: &c.Shell, Flag: "shell", Kind: Choice, Choices: []string{"bash", "sh"}, Default: "bash", Usage: "shell that runs the script"},
		{Key: "timeout", to: &c.Timeout, Flag: "timeout", Kind: Duration, Default: "300s", Holder: "D", Usage: "kill the command after this long"},
		{Key: "grace", to: &c.Grace, Flag: "grace", Kind: Duration, Default: "250ms", Holder: "D", Usage: "time from SIGTERM to SIGKILL when a command is killed"},
		{Key: "run.cwd", to: &c.Run.Dir, Flag: "cwd", Holder: "DIR", Usage: "working directory in the session (default: the workspace; relative to it)"},
		{Key: "run.stdin", to: &c.Run.Stdin, PerCall: true, Flag: "stdin", Kind: Switch, Default: "false", Usage: "give the command this standard input whatever it is (default: if it is a pipe or a file)"},
		{Key: "run.no-stdin", to: &c.Run.NoStdin, PerCall: true, Flag: "no-stdin", Short: "n", Kind: Switch, Default: "false", Usage: "have the command read nothing"},
		{Key: "run.exclusive", to: &c.Run.Exclusive, PerCall: true, Flag: "exclusive", Kind: Switch, Default: "false", Usage: "fail if another command is running in the session, instead of waiting"},
		{Key: "run.background", to: &c.Run.Background, PerCall: true, Flag: "background", Kind: Switch, Default: "false", Usage: "start the script as a job of the session, print the job's id, and return; a job has no timeout unless --timeout sets one"},
		{Key: "run.background-after", to: &c.Run.BackgroundAfter, PerCall: true, Flag: "background-after", Kind: Duration, Default: "0s", Holder: "D", Usage: "turn the script into a job if it is still running after this long (0s: never); there is no timeout unless --timeout sets one"},
		{Key: "run.merge", to: &c.Run.Merge, PerCall: true, Flag: "merge", Kind: Switch, Default: "false", Usage: "give the script one stream for standard output and error, and print both to standard output in the order written"},
		{Key: "run.command", to: &c.Run.Script, PerCall: true, Flag: "command", Short: "c", Holder: "SCRIPT", Usage: "run SCRIPT; all words are its arguments, $1 and so on"},
		{Key: "run.file", to: &c.Run.File, path: true, word: "-", PerCall: true, Flag: "file", Short: "f", Holder: "FILE", Usage: "read the script from FILE, or - from standard input; all words are its arguments"},
		{Key: "run.preview", to: &c.Run.Preview, PerCall: true, Flag: "preview", Kind: Switch, Default: "false", Usage: "when the script has ended, print it and the last 20 lines of its output, as clients show a call to an agent's user"},
		{Key: "job.follow", to: &c.Job.Follow, PerCall: true, Flag: "follow", Short: "f", Kind: Switch, Default: "false", Usage: "keep printing until the job has ended"},
		{Key: "env.set", to: &c.Env.Set, Flag: "env", Short: "e", Kind: Lines, Holder: "K[=V]", Usage: "set an environment variable of the command, or of all commands of a session; K alone takes the value from this environment; may be repeated"},
		{Key: "env.unsafe", Flag: "env-unsafe", Kind: Lines, Holder: "K=V", Usage: "like --env, for variables that make programs load or run something (LD_PRELOAD, BASH_ENV, NODE_OPTIONS and such)"},
		{Key: "env.pass", to: &c.Env.Pass, Kind: List, Usage: "names of variables of this environment to pass to commands"},
		{Key: "json", to: &c.JSON, Flag: "json", Kind: Switch, Default: "false", Usage: "print JSON"},
		{Key: "quiet", to: &c.Quiet, Flag: "quiet", Short: "q", Kind: Switch, Default: "false", Usage: "do not print notes, warnings or progress"},
		{Key: "diff.exit-code", to: &c.ExitCode, PerCall: true, Flag: "exit-code", Kind: Switch, Default: "false", Usage: "exit with status 1 if there are differences"},
		{Key: "rm.all", to: &c.All, PerCall: true, Flag: "all", Kind: Switch, Default: "false", Usage: "remove all of them, without naming them"},
	}
}

func outputSettings(c *Config) []Setting {
	return []Setting{
		{Key: "ci", to: &c.CI, Flag: "ci", Kind: Choice, Choices: []string{"auto", "github", "gitlab", "azure", "teamcity", "none"}, Holder: "RUNNER", Default: "auto", Usage: "CI runner whose commands are neutralised in the output; auto detects it"},
		{Key: "color", to: &c.Color, Flag: "color", Kind: Choice, Choices: []string{"auto", "always", "never"}, Holder: "WHEN", Default: "auto", Usage: "when to show colours; auto: on a terminal, unless NO_COLOR or CLICOLOR=0 is set"},
		{Key: "report.junit", to: &c.Report.JUnit, path: true, Flag: "junit", Holder: "FILE", Usage: "add the command as a test case to a JUnit report: its outcome, time and the end of its output"},
		{Key: "report.junit-name", to: &c.Report.Name, Flag: "junit-name", Holder: "NAME", Usage: "name of the test case in the JUnit report (default: the script's first line)"},
		{Key: "report.summary", to: &c.Report.Summary, path: true, word: "auto", Flag: "summary", Holder: "FILE", Usage: "append the command's outcome to FILE as Markdown; auto is GitHub's job summary"},
		{Key: "output.limit", to: &c.Output.Limit, Flag: "output-limit", Kind: Size, Holder: "BYTES", Usage: "kill a command that writes more than this (default: no limit)"},
		{Key: "output.window", to: &c.Output.Window, Kind: Size, Default: "50k", Usage: "how much of the end of each stream a JSON result holds"},
		{Key: "artifacts.dir", to: &c.Artifacts.Dir, path: true, Usage: "directory of the full outputs (default: artifacts in the user's state directory)"},
		{Key: "artifacts.mode", to: &c.Artifacts.Mode, Flag: "artifacts", Kind: Choice, Choices: []string{"overflow", "always", "never"}, Default: "overflow", Usage: "when to keep the full output"},
		{Key: "artifacts.retention", to: &c.Artifacts.Retention, Kind: Duration, Default: "14d", Usage: "how long to keep artifacts"},
		{Key: "artifacts.max", to: &c.Artifacts.Max, Kind: Size, Default: "1g", Usage: "maximum size of an artifact"},
		{Key: "artifacts.session-max", to: &c.Artifacts.SessionMax, Kind: Size, Default: "4g", Usage: "maximum size of a session's artifacts"},
		{Key: "artifacts.total-max", to: &c.Artifacts.TotalMax, Kind: Size, Default: "20g", Usage: "maximum size of all artifacts"},
		{Key: "artifacts.bytes", to: &c.Artifacts.Bytes, PerCall: true, Flag: "bytes", Holder: "A-B", Usage: "print bytes A to B, counted from 0 and without B; either may be left out"},
		{Key: "artifacts.lines", to: &c.Artifacts.Lines, PerCall: true, Flag: "lines", Holder: "A-B", Usage: "print lines A to B, counted from 1 and including B; either may be left out"},
	}
}

// policySettings are about which scripts may run. A test of the command line checks
// that their choices are those of package policy.
func policySettings(c *Config) []Setting {
	return []Setting{
		{Key: "policy.contract", to: &c.Policy.Contract, Flag: "contract", Kind: Choice, Choices: []string{"agent", "plain", "modes"}, Default: "modes", Usage: "tool contract: servers offer it (default: agent), and policy commands apply its checks"},
		{Key: "policy.jsonl", to: &c.Policy.JSONL, PerCall: true, Flag: "jsonl", Kind: Switch, Default: "false", Usage: "read one JSON object per line from standard input, and answer each with one"},
		{Key: "policy.checks", to: &c.Policy.Checks, Flag: "check", Kind: List, Choices: []string{"add", "push", "rm"}, Holder: "NAME", Usage: "safety check to apply; may be repeated (default: all three under contract modes, else none)"},
		{Key: "policy.sets", to: &c.Policy.Sets, Flag: "set", Kind: List, Choices: []string{"git-destructive", "exec-smuggling", "env-poisoning", "decode-to-shell", "disk-destruction"}, Holder: "NAME", Usage: "additional set of safety rules to apply; may be repeated (default: none)"},
		{Key: "policy.mode", to: &c.Policy.Mode, Flag: "policy-mode", Kind: Choice, Choices: []string{"standard", "guarded"}, Default: "standard", Usage: "if not all commands of a script can be known, standard runs it and reports so, and guarded refuses it"},
		{Key: "policy.strict", to: &c.Policy.Strict, Kind: Switch, Default: "false", Usage: "refuse to start if an interceptor rule does not compile (default: leave it out, with a note)"},
		{Key: "policy.interceptor", to: &c.Policy.Interceptor, Kind: Switch, Default: "false", Usage: "check scripts against the interceptor's rules; setting policy.rules turns this on too"},
		{Key: "policy.match", to: &c.Policy.Match, Kind: Choice, Choices: []string{"whole", "segments"}, Default: "whole", Usage: "what the interceptor's rules match: the whole script, or each simple command as well"},
		{Key: "policy.tools", to: &c.Policy.Tools, Kind: List, Usage: "names of the tools that the agent has; only rules that name one of them apply"},
	}
}

// Keys of lists of tables, which are not a Setting.
const (
	secretsKey = "secrets"
	rulesKey   = "policy.rules"
)

// nearest returns the known key that is closest to an unknown one by edit distance,
// or "" if none is close.
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

// distance returns the edit distance of a and b.
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
