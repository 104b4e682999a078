package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/viper"

	"github.com/sandboxbash/sandboxbash/network"
)

// NetworkRules say what a session without a network may reach.
type NetworkRules struct {
	AllowText   []string // as they were given
	DenyText    []string
	ExcludeText []string
	Allow       []network.Rule
	Deny        []network.Rule
	Exclude     []network.Rule // hosts
	AllowFrom   string         // the flag, variable or file that Allow comes from; "" if there are no rules
	DenyFrom    string
	Resolve     bool // of network check
	Ask         bool // a person is asked about what no rule allows
	AskTime     time.Duration
	// Of session allow, session deny and session network.
	RemoveText []string
	Remove     []network.Rule
	Limit      int

	Proxy  string // "": what the environment says; "none"; or an address, which may hold a password
	Limits NetworkLimits

	ForwardText []string // as they were given
	Forward     []Forward
}

// networkSettings are about what a session without a network may reach.
func networkSettings(c *Config) []Setting {
	return []Setting{
		{Key: "network.allow", to: &c.NetworkRules.AllowText, Flag: "allow", Kind: Lines, Holder: "RULE", Usage: "what a session without a network may reach: a host, an address or a preset, such as example.com:443 or @npm; may be repeated"},
		{Key: "network.deny", to: &c.NetworkRules.DenyText, Flag: "deny", Kind: Lines, Holder: "RULE", adds: true, Usage: "what such a session may not reach, even if a rule allows it; adds to the rules of the variable and the file; may be repeated"},
		{Key: "network.exclude", to: &c.NetworkRules.ExcludeText, Kind: Lines, Usage: "hosts whose TLS connections are never read, for programs that accept only the host's own certificate"},
		{Key: "network.ask", to: &c.NetworkRules.Ask, PerCall: true, Flag: "ask-network", Kind: Switch, Default: "false", Usage: "ask whether to allow what no rule allows, and wait for the answer"},
		{Key: "network.ask-timeout", to: &c.NetworkRules.AskTime, Flag: "ask-timeout", Kind: Duration, Holder: "D", Default: "30s", Usage: "how long --ask-network waits for an answer; without one, the connection is refused"},
		{Key: "network.resolve", to: &c.NetworkRules.Resolve, PerCall: true, Flag: "resolve", Kind: Switch, Default: "false", Usage: "look up the name on this machine, and check its addresses too"},
		{Key: "network.proxy", to: &c.NetworkRules.Proxy, Usage: "proxy that the connections of sessions go through: http://HOST:PORT, socks5://HOST:PORT or none (default: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY)"},
		{Key: "network.limits.connections", to: &c.NetworkRules.Limits.Connections, Kind: Count, Default: "1024", Usage: "maximum number of open connections of a session"},
		{Key: "network.limits.rate", to: &c.NetworkRules.Limits.Rate, Kind: Number, Default: "1000", Usage: "maximum number of new connections of a session per second"},
		{Key: "network.limits.burst", to: &c.NetworkRules.Limits.Burst, Kind: Count, Default: "5000", Usage: "maximum number of new connections of a session at once, after a pause"},
		{Key: "network.limits.bytes", to: &c.NetworkRules.Limits.Bytes, Kind: Size, Usage: "maximum size of what all connections of a session carry together, in both directions (default: no limit)"},
		{Key: "network.limits.idle", to: &c.NetworkRules.Limits.Idle, Kind: Duration, Default: "0s", Usage: "reset a connection that has carried nothing for this long (0s: never)"},
		{Key: "network.limits.total", to: &c.NetworkRules.Limits.Total, Kind: Duration, Default: "0s", Usage: "reset a connection after this long (0s: never)"},
		{Key: "network.limits.header", to: &c.NetworkRules.Limits.Header, Kind: Size, Default: "64k", Usage: "maximum size of the header of a request, if rules check requests"},
		{Key: "network.limits.body", to: &c.NetworkRules.Limits.Body, Kind: Size, Usage: "maximum size of the body of a request, if rules check requests (default: no limit)"},
		{Key: "network.remove", to: &c.NetworkRules.RemoveText, PerCall: true, Flag: "remove", Kind: Lines, Holder: "RULE", Usage: "take this rule back; may be repeated"},
		{Key: "network.limit", to: &c.NetworkRules.Limit, PerCall: true, Flag: "limit", Kind: Count, Default: "0", Holder: "N", Usage: "show the last N only (0: all that are remembered)"},
		{Key: "network.forward", to: &c.NetworkRules.ForwardText, PerCall: true, Flag: "forward", Short: "p", Kind: List, Holder: "[HOST:]PORT:PORT[/http]", Usage: "while the script runs, listen on this machine and forward connections to a port of the session, with /http, only requests that carry the printed token; may be repeated"},
	}
}

// Keys of the settings about networks. In the file network is the name of one, or a table
// whose mode is that name: `network: none`, or `network: {mode: none, allow: [@npm]}`.
const (
	networkKey     = "network"
	networkModeKey = "network.mode"
)

// stored returns the key under which viper has a setting's value. Viper cannot have a value for
// network and values for the keys below it.
func stored(key string) string {
	if key == networkKey {
		return networkModeKey
	}
	return key
}

// tabulate makes `network: none` in the file the table that it is short for.
func (r *reader) tabulate() error {
	switch value := r.v.Get(networkKey).(type) {
	case nil:
		return nil
	case map[string]any:
		return r.splitRuleLimits(value)
	default:
		all := r.v.AllSettings()
		all[networkKey] = map[string]any{"mode": value}
		r.v = viper.New()
		return r.v.MergeConfigMap(all)
	}
}

// completeNetwork parses the rules.
func (r *reader) completeNetwork(n *NetworkRules) {
	n.Allow = r.networkRules("network.allow", n.AllowText)
	r.denyRules(n)
	n.Exclude = r.networkRules("network.exclude", n.ExcludeText)
	n.Remove = r.networkRules("network.remove", n.RemoveText)
	r.completeNetworkLimits(n)
	for _, text := range n.ForwardText {
		forward, err := ParseForward(text)
		if err != nil {
			r.bad("network.forward", err.Error(), forwardHint)
			return
		}
		n.Forward = append(n.Forward, forward)
	}
	if n.Allow != nil {
		n.AllowFrom = r.from["network.allow"]
	}
}

// denyRules parses the deny rules of all sources: a flag or a variable never lifts a rule of the
// file, because a deny rule wins.
func (r *reader) denyRules(n *NetworkRules) {
	const key = "network.deny"
	all := append(r.earlier[key], listed{r.from[key], n.DenyText})
	n.DenyText = nil
	var from []string
	for _, one := range all {
		if len(one.texts) == 0 {
			continue
		}
		r.from[key] = one.from // for what is wrong with them
		n.DenyText = append(n.DenyText, one.texts...)
		n.Deny = append(n.Deny, r.networkRules(key, one.texts)...)
		from = append(from, one.from)
	}
	n.DenyFrom = strings.Join(from, " and ")
}

func (r *reader) networkRules(key string, texts []string) []network.Rule {
	var rules []network.Rule
	for i, text := range texts {
		rule, err := network.ParseRule(text)
		if bad, ok := errors.AsType[*network.RuleError](err); ok {
			r.bad(key, fmt.Sprintf("entry %d, column %d: %s", i+1, bad.Column, bad.Text), bad.Hint)
			return nil
		}
		rules = append(rules, rule)
	}
	return rules
}

// checkSecretHosts parses the rules for the requests that get a secret.
func (r *reader) checkSecretHosts(s *Secret) {
	if s.In != "" && s.In != InHeader && s.In != InQuery {
		r.badSecret(fmt.Sprintf("%s: in is %s", s.Name, shown(string(s.In))), "it can be header or query")
	}
	if s.HostsText == nil {
		if s.In != "" {
			r.badSecret(s.Name+": in says where in requests to its hosts it may be, and it has none", "name its hosts, as in hosts: [api.example.com]")
		}
		return
	}
	switch {
	case len(s.HostsText) == 0:
		r.badSecret(s.Name+" has an empty list of hosts", "name those that it is for, as in hosts: [api.example.com], or leave out hosts")
	case s.Inject:
		r.badSecret(s.Name+" has both inject and hosts", "with inject commands get the value itself, and with hosts a placeholder: leave out one of the two")
	case !envName().MatchString(s.Name):
		r.badSecret(s.Name+" cannot have hosts", "its name becomes a variable's: use letters, digits and _, and begin with no digit")
	}
	for i, text := range s.HostsText {
		rule, err := network.ParseRule(text)
		if bad, ok := errors.AsType[*network.RuleError](err); ok {
			r.badSecret(fmt.Sprintf("%s: hosts, entry %d, column %d: %s", s.Name, i+1, bad.Column, bad.Text), bad.Hint)
			return
		}
		if err := rule.CheckSecret(); err != nil {
			r.badSecret(fmt.Sprintf("%s: hosts, entry %d: %v", s.Name, i+1, err), "")
			return
		}
		s.Hosts = append(s.Hosts, rule)
	}
}
