package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/sandboxbash/sandboxbash/network"
)

// NetworkLimits bound what the connections of a session may cost. Where 0 is possible it means no
// limit.
type NetworkLimits struct {
	Connections int     // at least 1
	Rate        float64 // a second; positive
	Burst       int     // at least 1
	Bytes       int64
	Idle        time.Duration
	Total       time.Duration
	Header      int64 // bytes, at least 1 KiB and at most 1 MiB
	Body        int64 // bytes
	Rules       []NetworkRuleLimit
}

// NetworkRuleLimit limits what one allow rule lets through. In the file an entry of network.allow with
// limits is a table: {rule: example.com, bytes: 100m, rate: 10/s}.
type NetworkRuleLimit struct {
	Rule  network.Rule
	Bytes int64   // 0: no limit
	Rate  float64 // new connections and requests a second; 0: no limit
}

// Bounds of network.limits.header.
const (
	minNetworkHeader = 1 << 10
	maxNetworkHeader = 1 << 20
)

// NoProxy is the value of network.proxy for no proxy, not even that of the environment.
const NoProxy = "none"

// splitRuleLimits replaces the tables in the file's network.allow by their rules, and keeps the rest
// of them for completeNetworkLimits.
func (r *reader) splitRuleLimits(table map[string]any) error {
	list, ok := table["allow"].([]any)
	if !ok || !slices.ContainsFunc(list, func(entry any) bool { _, is := entry.(map[string]any); return is }) {
		return nil
	}
	r.ruleLimits = map[int]map[string]any{}
	texts := slices.Clone(list)
	for i, entry := range list {
		limits, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		rule, _ := limits["rule"].(string)
		if texts[i] = rule; rule == "" {
			return fmt.Errorf("network.allow: entry %d is a table without a rule, which is a text: write {rule: example.com, bytes: 100m, rate: 10/s}", i+1)
		}
		r.ruleLimits[i] = limits
	}
	return r.v.MergeConfigMap(map[string]any{networkKey: map[string]any{"allow": texts}})
}

// completeNetworkLimits checks the limits and the proxy.
func (r *reader) completeNetworkLimits(n *NetworkRules) {
	l := &n.Limits
	if l.Connections < 1 {
		r.bad("network.limits.connections", "it must be at least 1", "")
	}
	if l.Burst < 1 {
		r.bad("network.limits.burst", "it must be at least 1", "")
	}
	if l.Rate <= 0 {
		r.bad("network.limits.rate", "it must be more than 0", "")
	}
	if l.Header < minNetworkHeader || l.Header > maxNetworkHeader {
		r.bad("network.limits.header", "it must be at least 1k and at most 1m", "")
	}
	if l.Idle > 0 && l.Idle < 100*time.Millisecond {
		r.bad("network.limits.idle", "it must be at least 100ms", "")
	}
	if n.Proxy != "" && n.Proxy != NoProxy {
		if _, err := network.ParseUpstream(n.Proxy); err != nil {
			r.bad("network.proxy", "it cannot be used", err.Error()) // the text may hold a password
		}
	}
	if r.from["network.allow"] != r.file || len(n.Allow) != len(n.AllowText) {
		return // a flag or a variable has replaced the list, or it is wrong
	}
	for _, i := range slices.Sorted(maps.Keys(r.ruleLimits)) {
		if limit, ok := r.ruleLimit(i, r.ruleLimits[i]); ok {
			limit.Rule = n.Allow[i]
			l.Rules = append(l.Rules, limit)
		}
	}
}

// ruleLimit reads the limits of one entry of network.allow.
func (r *reader) ruleLimit(at int, table map[string]any) (limit NetworkRuleLimit, ok bool) {
	bad := func(key, text, hint string) {
		r.bad("network.allow", fmt.Sprintf("entry %d, %s: %s", at+1, key, text), hint)
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		text := fmt.Sprint(table[key])
		switch strings.ToLower(key) {
		case "rule":
		case "bytes":
			n, err := units.RAMInBytes(text)
			if err != nil || n <= 0 {
				bad(key, shown(text)+" is not a size", "give bytes, or a number with a unit k, m, g or t, as in 100m")
				return limit, false
			}
			limit.Bytes = n
		case "rate":
			n, err := strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
			if err != nil || n <= 0 || math.IsInf(n, 0) || math.IsNaN(n) {
				bad(key, shown(text)+" is not a rate", "give a number of new connections and requests a second, as in 10/s")
				return limit, false
			}
			limit.Rate = n
		default:
			bad(shown(key), "it is unknown", "it can be rule, bytes or rate")
			return limit, false
		}
	}
	return limit, true
}
