package config_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/config"
)

// Each setting that is not free text refuses a value that is none of its kind, says what it
// accepts, and names the variable, the file or the flag that gave the value.
func TestEachSettingSaysWhatItAccepts(t *testing.T) {
	t.Parallel()
	refused := 0
	for s := range config.Flags() {
		wantRefusal(t, s, &refused)
	}
	for s := range config.Settings() {
		if s.Flag == "" {
			wantRefusal(t, s, &refused)
		}
	}
	if refused < 60 {
		t.Errorf("%d settings have refused a value; want all but texts", refused)
	}
}

func wantRefusal(t *testing.T, s config.Setting, refused *int) {
	t.Helper()
	const bad = "no such value"
	var want string
	switch s.Kind {
	case config.Choice:
		want = `"no such value" is unknown: it can be ` + strings.Join(s.Choices, " or ")
	case config.Duration:
		want = `"no such value" is not a duration: give a number with a unit ms, s, m, h or d, as in 30s or 5m; a bare number is seconds`
	case config.Size:
		want = `"no such value" is not a size: give bytes, or a number with a unit k, m, g or t, as in 512m or 2g`
	case config.Count:
		want = `"no such value" is not a count: give a whole number from 0 on, as in 512`
	case config.Number:
		want = `"no such value" is not a number: give a number from 0 on, as in 2 or 1.5`
	case config.Switch:
		want = `"no such value" is neither true nor false`
	case config.List:
		if len(s.Choices) == 0 {
			return
		}
		want = `"no such value" is unknown: it can be ` + strings.Join(s.Choices, ", ")
	case config.Text, config.Lines:
		return
	}
	*refused++
	sources := map[string]config.Source{}
	if s.Flag != "" && s.Kind != config.Switch { // pflag itself refuses the value of a switch
		sources["--"+s.Flag] = config.Source{Flags: flags(t, "--"+s.Flag+"="+bad)}
	}
	if !s.PerCall {
		sources[s.Env()] = config.Source{Environ: []string{s.Env() + "=" + bad}}
		file := write(t, yaml([]string{bad}, s))
		sources[file] = config.Source{File: file}
	}
	for origin, src := range sources {
		where := s.Key + " (from " + origin + ")"
		if s.PerCall {
			where = origin
		}
		cfg, err := config.Load(src)
		if err == nil || cfg != nil || err.Error() != where+": "+want {
			t.Errorf("%s = %q: %v, %v; want the error %s: %s", s.Key, bad, cfg, err, where, want)
		}
	}
}

// To give a setting its default says nothing new, except where the text of a default stands
// for what another setting decides.
func TestDefaultsAreValues(t *testing.T) {
	t.Parallel()
	base, err := config.Load(config.Source{})
	if err != nil {
		t.Fatal(err)
	}
	for s := range config.Settings() {
		if s.Default == "" || s.Key == "policy.contract" { // a server's default is another
			continue
		}
		got, err := config.Load(config.Source{Environ: []string{s.Env() + "=" + s.Default}})
		if err != nil {
			t.Errorf("%s refuses its default: %v", s.Key, err)
		} else if diff := cmp.Diff(base, got); diff != "" {
			t.Errorf("%s=%s is not the default (-default +variable):\n%s", s.Env(), s.Default, diff)
		}
	}
}

// A value of the wrong shape is an error, and never the text of a list or a table.
func TestWrongShapes(t *testing.T) {
	t.Parallel()
	const single, list = "it must be a single value, not a list or a table", "it must be a list of texts"
	for _, test := range []struct{ text, key, want string }{
		{"timeout: [5s]", "timeout", single},
		{"json: [true]", "json", single},
		{"image: 2001-01-01", "image", single}, // YAML has times
		{"limits: {cpus: []}", "limits.cpus", single},
		{"env: {pass: 5}", "env.pass", list},
		{"env: {pass: true}", "env.pass", list},
		{"env: {set: [A=1, 5]}", "env.set", list + ": put quotes around each"},
		{"policy: {tools: [[read]]}", "policy.tools", list + ": put quotes around each"},
	} {
		file := write(t, test.text+"\n")
		_, err := config.Load(config.Source{File: file})
		all := []string{}
		if err != nil {
			all = strings.Split(err.Error(), "\n")
		}
		if want := test.key + " (from " + file + "): " + test.want; !slices.Contains(all, want) {
			t.Errorf("Load(%s) = %v; want %s", test.text, err, want)
		}
	}
}

// A list of one source replaces that of another, and an empty one does too.
func TestListsReplace(t *testing.T) {
	t.Parallel()
	file := write(t, "policy: {tools: [a, b], checks: [rm]}\n")
	for _, test := range []struct {
		name          string
		environ, args []string
		tools, checks []string
	}{
		{"file", nil, nil, []string{"a", "b"}, []string{"rm"}},
		{"variable", []string{"SANDBOXBASH_POLICY_TOOLS= c ,,d"}, nil, []string{"c", "d"}, []string{"rm"}},
		{"nothing but separators", []string{"SANDBOXBASH_POLICY_TOOLS=, ,", "SANDBOXBASH_POLICY_CHECKS=,"}, nil, nil, []string{}},
		{"unset variable", []string{"SANDBOXBASH_POLICY_CHECKS="}, nil, []string{"a", "b"}, []string{"rm"}},
		{"flag", []string{"SANDBOXBASH_POLICY_CHECKS=push"}, []string{"--check=add"}, []string{"a", "b"}, []string{"add"}},
	} {
		c, err := config.Load(config.Source{File: file, Environ: test.environ, Flags: flags(t, test.args...)})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if diff := cmp.Diff([][]string{test.tools, test.checks}, [][]string{c.Policy.Tools, c.Policy.Checks}); diff != "" {
			t.Errorf("%s: tools and checks differ (-want +got):\n%s", test.name, diff)
		}
	}
}

// The forms in which YAML writes the same keys.
func TestKeysInFiles(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"limits: {memory: 1g}\nagent: {maxJobs: 7}\n",
		"limits:\n  memory: 1g\nagent:\n  maxJobs: 7\n",
		"limits.memory: 1g\nagent.maxJobs: 7\n",
		"Limits: {MEMORY: 1g}\nagent: {maxjobs: 7}\n",
		"limits.memory: 1g\nlimits: {cpus: ~}\nagent: {maxJobs: '7', async: }\ntimeout: null\n",
	} {
		c, err := config.Load(config.Source{File: write(t, text)})
		if err != nil || c.Limits.Memory != 1<<30 || c.Agent.MaxJobs != 7 || c.Limits.CPUs != 0 || c.Timeout.Seconds() != 300 {
			t.Errorf("Load(%q) = %+v, %v; want 1g of memory and 7 jobs", text, c, err)
		}
	}
}

// The error for an unknown key names the key that is probably meant, or the flag if there
// is only a flag. All unknown keys are reported at once.
func TestUnknownKeyTexts(t *testing.T) {
	t.Parallel()
	file := write(t, "netwerk: bridge\nrun: {stdin: true}\nzzzzzzzz: 1\npty: {quiet-for: 5s}\n")
	_, err := config.Load(config.Source{File: file})
	want := []string{
		`: unknown key "netwerk" (did you mean network?)`,
		`: unknown key "pty.quiet-for" (it applies to a single call: give --quiet-for)`,
		`: unknown key "run.stdin" (it applies to a single call: give --stdin)`,
		`: unknown key "zzzzzzzz"`,
	}
	if err == nil {
		t.Fatal("Load() has accepted it")
	}
	if diff := cmp.Diff(want, strings.Split(strings.ReplaceAll(err.Error(), file, ""), "\n")); diff != "" {
		t.Errorf("Load() differs (-want +got):\n%s", diff)
	}
	if bad, ok := errors.AsType[*config.UnknownKeyError](err); !ok || bad.File != file {
		t.Errorf("Load() = %#v; want the file in it", err)
	}
}

// Load uses its Source only: not the environment of this process, and nothing of a Load before.
func TestLoadUsesItsSourceOnly(t *testing.T) {
	t.Setenv("SANDBOXBASH_TIMEOUT", "17s")
	t.Setenv("SANDBOXBASH_CONFIG", "/no/such/file")
	if _, err := config.Load(config.Source{Environ: []string{"SANDBOXBASH_GRACE=9s", "SANDBOXBASH_POLICY_TOOLS=a"}}); err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(config.Source{})
	if err != nil || got.Timeout.Seconds() != 300 || got.Grace.Milliseconds() != 250 || got.Policy.Tools != nil {
		t.Errorf("Load() = %+v, %v; want the defaults", got, err)
	}
}

// Lists of one configuration share no memory, with each other or with the flags.
func TestListsAreCopies(t *testing.T) {
	t.Parallel()
	set := flags(t, "--tool-name=a", "--set=git-destructive")
	src := config.Source{Environ: []string{"SANDBOXBASH_POLICY_TOOLS=x,y"}}
	c, err := config.Load(src)
	if err != nil || !slices.Equal(c.Agent.ToolNames, []string{"x", "y"}) {
		t.Fatalf("Load() = %+v, %v", c, err)
	}
	c.Agent.ToolNames[0] = "changed"
	if c.Policy.Tools[0] != "x" {
		t.Error("the agent's tools are the policy's slice")
	}
	src.Flags = set
	first, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	first.Agent.ToolNames[0], first.Policy.Sets[0] = "changed", "changed"
	second, err := config.Load(src)
	if err != nil || second.Agent.ToolNames[0] != "a" || second.Policy.Sets[0] != "git-destructive" {
		t.Errorf("Load() = %+v, %v; want what the flags say", second, err)
	}
}
