package networkcmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/network"
)

type checkJSON struct {
	Verdict   string         `json:"verdict"` // allow or deny
	Reason    network.Reason `json:"reason"`
	Host      string         `json:"host,omitempty"` // in its canonical spelling
	Port      int            `json:"port"`
	Method    string         `json:"method,omitempty"` // of a request that was judged
	Target    string         `json:"target,omitempty"`
	Rule      string         `json:"rule,omitempty"`
	Origin    string         `json:"origin,omitempty"` // where the rule comes from
	Intercept bool           `json:"intercept"`
	Detail    string         `json:"detail,omitempty"`
	Ask       string         `json:"ask,omitempty"`
	Message   string         `json:"message"`
	Addresses []addressJSON  `json:"addresses,omitempty"`
}

type addressJSON struct {
	Verdict string         `json:"verdict"`
	Reason  network.Reason `json:"reason"`
	Rule    string         `json:"rule,omitempty"`
	Address string         `json:"address"`
	Detail  string         `json:"detail,omitempty"`
}

func word(v network.Verdict) string {
	if v.Allowed {
		return "allow"
	}
	return "deny"
}

// origin is where the rule that decided comes from.
func origin(n config.NetworkRules, v network.Verdict) string {
	switch {
	case v.Rule.IsZero():
		return ""
	case v.Reason == network.RuleDenies:
		return n.DenyFrom
	}
	return n.AllowFrom
}

func (a *commands) printCheck(c check) error {
	v, from := c.verdict, origin(a.cfg.NetworkRules, c.verdict)
	if !a.cfg.JSON {
		_, err := io.WriteString(a.streams.Stdout, a.streams.Clean(c.text(a.streams.Safe(from))))
		return err
	}
	j := checkJSON{
		Verdict: word(v), Reason: v.Reason, Host: v.Host, Port: c.question.port, Rule: v.Rule.String(), Origin: from,
		Intercept: v.Intercept, Detail: v.Detail, Ask: v.Ask, Message: v.String(),
	}
	if c.request {
		j.Method, j.Target = c.question.method, c.question.target
	}
	for _, one := range c.addresses {
		j.Addresses = append(j.Addresses, addressJSON{word(one), one.Reason, one.Rule.String(), one.Addr.String(), one.Detail})
	}
	return stdio.PrintJSON(a.streams.Stdout, j)
}

// text is the verdict and what decided, and below it the reason and what to do.
func (c check) text(from string) string {
	var b strings.Builder
	v := c.verdict
	b.WriteString(word(v) + "  ")
	if v.Rule.IsZero() {
		b.WriteString(string(v.Reason))
	} else {
		b.WriteString(v.Rule.String())
	}
	if from != "" {
		b.WriteString("  from " + from)
	}
	fmt.Fprintf(&b, "\n  %s\n", v)
	switch {
	case v.Intercept && !c.request:
		b.WriteString("  its requests are judged one by one: give a URL to check one\n")
	case v.Allowed && !v.Intercept && c.question.target != "":
		b.WriteString("  all requests are allowed, and are not looked at\n")
	}
	for _, one := range c.addresses {
		fmt.Fprintf(&b, "  %s  %s", word(one), one.Addr)
		if one.Detail != "" {
			b.WriteString("  " + one.Detail)
		}
		b.WriteByte('\n')
	}
	if v.Ask != "" {
		// One word of the shell, whatever the path holds: it is there to be copied.
		fmt.Fprintf(&b, "  to allow it: --allow '%s'\n", strings.ReplaceAll(v.Ask, "'", `'\''`))
	}
	return b.String()
}

type ruleJSON struct {
	Rule      string   `json:"rule"`
	Origin    string   `json:"origin"`
	Intercept bool     `json:"intercept"`
	Stands    []string `json:"standsFor,omitempty"`   // of a preset
	Overruled string   `json:"overruledBy,omitempty"` // the deny rule because of which it never allows anything
}

type rulesJSON struct {
	Default string     `json:"default"` // deny
	Deny    []ruleJSON `json:"deny"`
	Allow   []ruleJSON `json:"allow"`
}

// rules are the rules as they are shown. A preset that denies stands for its hosts.
func (a *commands) rules() rulesJSON {
	n, p := a.cfg.NetworkRules, a.policy()
	all := rulesJSON{Default: "deny", Deny: []ruleJSON{}, Allow: []ruleJSON{}}
	for _, r := range n.Deny {
		all.Deny = append(all.Deny, ruleJSON{Rule: r.String(), Origin: n.DenyFrom, Intercept: r.DenyIntercepts(), Stands: others(r, r.ExpandDeny())})
	}
	for _, r := range n.Allow {
		j := ruleJSON{Rule: r.String(), Origin: n.AllowFrom, Intercept: r.Intercepts(), Stands: others(r, r.Expand())}
		if by, ok := p.Overruled(r); ok {
			j.Overruled = by.String()
		}
		all.Allow = append(all.Allow, j)
	}
	return all
}

// others are the rules that one stands for, if they are not itself.
func others(r network.Rule, parts []network.Rule) []string {
	var texts []string
	for _, part := range parts {
		if !part.Equal(r) {
			texts = append(texts, part.String())
		}
	}
	return texts
}

func (a *commands) printRules() error {
	all := a.rules()
	if a.cfg.JSON {
		return stdio.PrintJSON(a.streams.Stdout, all)
	}
	var b strings.Builder
	write := func(word string, rules []ruleJSON) {
		for _, r := range rules {
			fmt.Fprintf(&b, "%-5s  %s  from %s", word, r.Rule, a.streams.Safe(r.Origin))
			if r.Intercept {
				b.WriteString("; requests are judged one by one")
			}
			if r.Overruled != "" {
				b.WriteString("; never allows anything, because " + r.Overruled + " is denied")
			}
			b.WriteByte('\n')
			for _, part := range r.Stands {
				b.WriteString("         " + part + "\n")
			}
		}
	}
	write("deny", all.Deny)
	write("allow", all.Allow)
	b.WriteString("deny   everything else, and addresses that are private, local or this machine's unless an address rule names them\n")
	_, err := io.WriteString(a.streams.Stdout, a.streams.Clean(b.String()))
	return err
}
