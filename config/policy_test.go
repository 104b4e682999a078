package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/config"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	unset := config.Policy{Contract: "modes", Mode: "standard", Match: "whole"}
	with := func(change func(*config.Policy)) config.Policy {
		p := unset
		change(&p)
		return p
	}
	rule := config.Rule{Pattern: `^git\s+commit`, Flags: "i", Tool: "commit", Message: "Use it.", ID: "mine"}
	const ruleText = `{pattern: '^git\s+commit', flags: i, tool: commit, message: Use it., id: mine}`
	for _, test := range []struct {
		name string
		file string
		src  config.Source
		want config.Policy
	}{
		{"nothing", "", config.Source{}, unset},
		{
			"file", "policy: {contract: agent, checks: [rm, push], sets: [git-destructive], mode: guarded, strict: true, interceptor: true, match: segments, tools: [read]}\n",
			config.Source{},
			config.Policy{
				Contract: "agent", Checks: []string{"rm", "push"}, Sets: []string{"git-destructive"}, Mode: "guarded", Strict: true,
				Interceptor: true, Match: "segments", Tools: []string{"read"},
			},
		},
		{
			"environment", "policy: {checks: [rm]}\n",
			config.Source{Environ: []string{"SANDBOXBASH_POLICY_CHECKS=add, push", "SANDBOXBASH_POLICY_TOOLS=read,write", "SANDBOXBASH_POLICY_INTERCEPTOR=true"}},
			with(func(p *config.Policy) {
				p.Checks, p.Tools, p.Interceptor = []string{"add", "push"}, []string{"read", "write"}, true
			}),
		},
		{
			"flags", "policy: {checks: [rm], sets: [env-poisoning]}\n",
			config.Source{Flags: flags(t, "--contract=plain", "--check=add", "--set=decode-to-shell", "--set=disk-destruction", "--policy-mode=guarded")},
			with(func(p *config.Policy) {
				p.Contract, p.Checks, p.Sets, p.Mode = "plain", []string{"add"}, []string{"decode-to-shell", "disk-destruction"}, "guarded"
			}),
		},
		{"no checks", "policy: {checks: []}\n", config.Source{}, with(func(p *config.Policy) { p.Checks = []string{} })},
		{"no rules", "policy: {rules: []}\n", config.Source{}, with(func(p *config.Policy) { p.Rules = []config.Rule{} })},
		{
			"rules turn the interceptor on", "policy: {rules: [" + ruleText + "]}\n",
			config.Source{},
			with(func(p *config.Policy) { p.Interceptor, p.Rules = true, []config.Rule{rule} }),
		},
		{
			"unless it is off", "policy: {interceptor: false, rules: [" + ruleText + "]}\n",
			config.Source{},
			with(func(p *config.Policy) { p.Rules = []config.Rule{rule} }),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.file != "" {
				test.src.File = write(t, test.file)
			}
			got, err := config.Load(test.src)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.Policy); diff != "" {
				t.Errorf("Load() differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPolicyErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, file, key, want string }{
		{"unknown check", "policy: {checks: [rm, fetch]}", "policy.checks", `"fetch" is unknown: it can be add, push, rm`},
		{"unknown set", "policy: {sets: [git]}", "policy.sets", `"git" is unknown: it can be git-destructive, exec-smuggling, env-poisoning, decode-to-shell, disk-destruction`},
		{"unknown mode", "policy: {mode: ask}", "policy.mode", `"ask" is unknown: it can be standard or guarded`},
		{"rules are a text", "policy: {rules: default}", "policy.rules", "it is not understood"},
		{"field of no rule", "policy: {rules: [{pattern: x, tool: t, message: m, charge: y}]}", "policy.rules", "it is not understood"},
		{"no pattern", "policy: {rules: [{pattern: x, tool: t, message: m}, {tool: t, message: m}]}", "policy.rules", "entry 2 has no pattern"},
		{"no tool", "policy: {rules: [{pattern: x, message: m}]}", "policy.rules", "entry 1 has no tool"},
		{"no message", "policy: {rules: [{pattern: x, tool: t}]}", "policy.rules", "entry 1 has no message"},
		{"id twice", "policy: {rules: [{id: a, pattern: x, tool: t, message: m}, {id: a, pattern: y, tool: t, message: m}]}", "policy.rules", `entry 2 has the id "a"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			file := write(t, test.file+"\n")
			_, err := config.Load(config.Source{File: file})
			bad, ok := errors.AsType[*config.Error](err)
			if !ok || bad.Key != test.key || bad.Origin != file || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Load() = %v; want an *Error of %s from %s with %q", err, test.key, file, test.want)
			}
		})
	}
	_, err := config.Load(config.Source{Environ: []string{"SANDBOXBASH_POLICY_SETS=everything"}})
	if err == nil || !strings.Contains(err.Error(), "from SANDBOXBASH_POLICY_SETS") {
		t.Errorf("Load(unknown set in the environment) = %v; want it to name the variable", err)
	}
	// The rules are in the file only.
	if got := config.UnknownVariables([]string{"SANDBOXBASH_POLICY_RULES=x"}); len(got) != 1 {
		t.Errorf("UnknownVariables() = %v; want SANDBOXBASH_POLICY_RULES to be unknown", got)
	}
}
