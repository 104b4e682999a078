package config_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
)

// Keys of agent have capitals in them, as their documents have.
func TestAgentSettings(t *testing.T) {
	t.Parallel()
	file := write(t, "agent:\n  toolNames: [read, edit]\n  clientTerminal: true\n  autoBackground: true\n  autoBackgroundAfter: 5s\n  rc: rc.sh\n  skills: [skills, /abs]\npolicy:\n  contract: plain\n")
	c, err := config.Load(config.Source{File: file, Environ: []string{"SANDBOXBASH_AGENT_MAX_JOBS=7", "SANDBOXBASH_AGENT_RULES=rule.md"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	a := c.Agent
	if a.Contract != "plain" || !slices.Equal(a.ToolNames, []string{"read", "edit"}) || !a.ClientTerminal || !a.AutoBackground ||
		a.AutoBackgroundAfter != 5*time.Second || a.MaxJobs != 7 || a.RC != filepath.Join(dir, "rc.sh") ||
		!slices.Equal(a.Skills, []string{filepath.Join(dir, "skills"), "/abs"}) || !slices.Equal(a.Rules, []string{"rule.md"}) {
		t.Errorf("Load() = %+v", a)
	}
}

// The names of the agent's tools are those of the policy unless it says so itself.
func TestAgentToolNames(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		environ []string
		want    []string
	}{
		{nil, nil},
		{[]string{"SANDBOXBASH_POLICY_TOOLS=read"}, []string{"read"}},
		{[]string{"SANDBOXBASH_POLICY_TOOLS=read", "SANDBOXBASH_AGENT_TOOL_NAMES=find"}, []string{"find"}},
	} {
		c, err := config.Load(config.Source{Environ: test.environ})
		if err != nil || !slices.Equal(c.Agent.ToolNames, test.want) {
			t.Errorf("Load(%q): %q, %v; want %q", test.environ, c.Agent.ToolNames, err, test.want)
		}
	}
}

func TestAgentSettingsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"agent: {maxJobs: 0}", "agent: {maxJobs: 101}", "agent: {window: 0}", "agent: {window: 1g}", "agent: {pollWait: 7s}",
		"agent: {async: perhaps}", "agent: {toolnames: {a: b}}", "serve: {tls-cert: a}", "serve: {tls-key: a}", "agent: {clientTerminals: true}",
	} {
		if _, err := config.Load(config.Source{File: write(t, text)}); err == nil {
			t.Errorf("Load(%q) took it", text)
		}
	}
}
