package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/network"
)

func texts(rules []network.Rule) string {
	var all []string
	for _, r := range rules {
		all = append(all, r.String())
	}
	return strings.Join(all, "|")
}

// The network's name and its rules come from any mix of sources, and none hides another.
func TestNetwork(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, file  string
		environ     []string
		args        []string
		network     string
		allow, deny string
		allowFrom   string // "file" is the file
	}{
		{"nothing", "", nil, nil, "none", "", "", ""},
		{"a name", "network: bridge\n", nil, nil, "bridge", "", "", ""},
		{"a table", "network: {allow: [\"@npm\", 'GET,HEAD pypi.org/simple/*'], deny: [evil.example]}\n", nil, nil, "none", "@npm|GET,HEAD pypi.org/simple/*", "evil.example", "file"},
		{"a table with the name", "network: {mode: bridge, allow: [\"@npm\"]}\n", nil, nil, "bridge", "@npm", "", "file"},
		{"one rule without a list", "network: {allow: example.com}\n", nil, nil, "none", "example.com", "", "file"},
		{"nothing in the table", "network: {}\n", nil, nil, "none", "", "", ""},
		{"rules of the file, name of a variable", "network: {allow: [\"@npm\"]}\n", []string{"SANDBOXBASH_NETWORK=bridge"}, nil, "bridge", "@npm", "", "file"},
		{"rules of the file, name of a flag", "network: {allow: [\"@npm\"]}\n", nil, []string{"--network=bridge"}, "bridge", "@npm", "", "file"},
		{"name of the file, rules of a variable", "network: bridge\n", []string{"SANDBOXBASH_NETWORK_ALLOW=GET,HEAD a.example\nb.example"}, nil, "bridge", "GET,HEAD a.example|b.example", "", "SANDBOXBASH_NETWORK_ALLOW"},
		{"name of the file, rules of a flag", "network: bridge\n", nil, []string{"--allow=GET,HEAD a.example", "--allow=b.example"}, "bridge", "GET,HEAD a.example|b.example", "", "--allow"},
		{"a flag's deny rules add to the others", "network: {deny: [evil.example]}\n", []string{"SANDBOXBASH_NETWORK_DENY=one.example\ntwo.example"}, []string{"--deny=three.example"}, "none", "", "evil.example|one.example|two.example|three.example", ""},
		{"a variable's deny rules add to the file's", "network: {deny: [evil.example]}\n", []string{"SANDBOXBASH_NETWORK_DENY=one.example"}, nil, "none", "", "evil.example|one.example", ""},
		{"a flag replaces the file's rules, and only those", "network: {allow: [\"@npm\"], deny: [evil.example]}\n", nil, []string{"--allow=@go"}, "none", "@go", "evil.example", "--allow"},
		{"other settings of the file stay", "timeout: 5s\nnetwork: none\nenv: {pass: [LANG]}\n", nil, nil, "none", "", "", ""},
	} {
		src := config.Source{Environ: tt.environ, Flags: flags(t, tt.args...)}
		if tt.file != "" {
			src.File = write(t, tt.file)
		}
		c, err := config.Load(src)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		from := tt.allowFrom
		if from == "file" {
			from = src.File
		}
		n := c.NetworkRules
		if c.Network != tt.network || texts(n.Allow) != tt.allow || texts(n.Deny) != tt.deny || n.AllowFrom != from {
			t.Errorf("%s: network %s, allow %s from %q, deny %s; want %s, %s from %q, %s", tt.name,
				c.Network, texts(n.Allow), n.AllowFrom, texts(n.Deny), tt.network, tt.allow, from, tt.deny)
		}
		if strings.Contains(tt.file, "timeout") && (c.Timeout.Seconds() != 5 || len(c.Env.Pass) != 1) {
			t.Errorf("%s: timeout %v, env.pass %v", tt.name, c.Timeout, c.Env.Pass)
		}
	}
}

func TestNetworkErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ file, key, want string }{
		{"network: {allow: [a.example, 'GET b.example:x']}\n", "network.allow", "entry 2, column 15: this is not a port: write a number"},
		{"network: {deny: [localhost]}\n", "network.deny", "entry 1, column 1: the rule can never match"},
		{"network: {mode: bridges}\n", "network", `"bridges" is unknown`},
		{"network: bridges\n", "network", `"bridges" is unknown`},
		{"network: [none]\n", "network", "single value"},
		{"network: {allow: {a: b}}\n", "", `unknown key "network.allow.a"`},
		{"network: {alow: [a.example]}\n", "", "did you mean network.allow?"},
		{"network: {resolve: true}\n", "", "give --resolve"},
	} {
		_, err := config.Load(config.Source{File: write(t, tt.file)})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v; want %q", tt.file, err, tt.want)
			continue
		}
		if bad, ok := errors.AsType[*config.Error](err); ok && bad.Key != tt.key || !ok && tt.key != "" {
			t.Errorf("%q: %v; want an error of %q", tt.file, err, tt.key)
		}
	}
}

// An entry of the file's list may be a table with limits, which hold as long as the list is the file's.
func TestNetworkLimits(t *testing.T) {
	t.Parallel()
	file := write(t, "network:\n  allow:\n    - \"@npm\"\n    - {rule: a.example, bytes: 100m, rate: 10/s}\n  limits: {connections: 5, idle: 90s}\n")
	c, err := config.Load(config.Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	l := c.NetworkRules.Limits
	if len(l.Rules) != 1 || l.Rules[0].Rule.String() != "a.example" || l.Rules[0].Bytes != 100<<20 || l.Rules[0].Rate != 10 || l.Connections != 5 || l.Idle.Seconds() != 90 || l.Rate != 1000 {
		t.Errorf("Load() = %+v; want the limits of the file", l)
	}
	if got := texts(c.NetworkRules.Allow); got != "@npm|a.example" {
		t.Errorf("the rules are %s", got)
	}
	c, err = config.Load(config.Source{File: file, Flags: flags(t, "--allow=b.example")})
	if err != nil || len(c.NetworkRules.Limits.Rules) != 0 {
		t.Errorf("Load() = %+v, %v; want no limits for rules that a flag has replaced", c, err)
	}
	for _, tt := range []struct{ file, want string }{
		{"network: {allow: [{bytes: 1m}]}\n", "entry 1 is a table without a rule"},
		{"network: {allow: [a.example, {rule: b.example, bytes: lots}]}\n", `entry 2, bytes: "lots" is not a size`},
		{"network: {allow: [{rule: a.example, rate: -1}]}\n", `entry 1, rate: "-1" is not a rate`},
		{"network: {allow: [{rule: a.example, byte: 1m}]}\n", `entry 1, "byte": it is unknown`},
		{"network: {limits: {connections: 0}}\n", "network.limits.connections"},
		{"network: {limits: {header: 2m}}\n", "it must be at least 1k and at most 1m"},
		{"network: {proxy: 'ftp://user:hunter2hunter2@proxy.example'}\n", "it cannot be used"},
	} {
		_, err := config.Load(config.Source{File: write(t, tt.file)})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v; want %q, and no password", tt.file, err, tt.want)
		}
	}
}
