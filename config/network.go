package config

import (
	"errors"
	"fmt"

	"github.com/spf13/viper"

	"github.com/sandboxbash/sandboxbash/network"
)

// NetworkRules say what a session without a network may reach.
type NetworkRules struct {
	AllowText []string // as they were given
	DenyText  []string
	Allow     []network.Rule
	Deny      []network.Rule
	AllowFrom string // the flag, variable or file that Allow comes from; "" if there are no rules
	DenyFrom  string
	Resolve   bool // of network check
}

// networkSettings are about what a session without a network may reach.
func networkSettings(c *Config) []Setting {
	return []Setting{
		{Key: "network.allow", to: &c.NetworkRules.AllowText, Flag: "allow", Kind: Lines, Holder: "RULE", Usage: "what a session without a network may reach: a host, an address or a preset, such as example.com:443 or @npm; may be repeated"},
		{Key: "network.deny", to: &c.NetworkRules.DenyText, Flag: "deny", Kind: Lines, Holder: "RULE", Usage: "what it may not reach although a rule allows it; may be repeated"},
		{Key: "network.resolve", to: &c.NetworkRules.Resolve, PerCall: true, Flag: "resolve", Kind: Switch, Default: "false", Usage: "look the name up on this machine, and judge its addresses too"},
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
	case nil, map[string]any:
		return nil
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
	n.Deny = r.networkRules("network.deny", n.DenyText)
	if n.Allow != nil {
		n.AllowFrom = r.from["network.allow"]
	}
	if n.Deny != nil {
		n.DenyFrom = r.from["network.deny"]
	}
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
