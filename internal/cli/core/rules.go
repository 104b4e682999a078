package core

import (
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// PolicyOptions is what the configuration says, with checks for where it says
// nothing of them.
func PolicyOptions(c config.Policy, checks []string) policy.Options {
	o := policy.Options{
		Tools: c.Tools, Match: policy.Match(c.Match), Strict: c.Strict,
		Checks: checks, Sets: c.Sets, Mode: policy.Mode(c.Mode),
	}
	if c.Checks != nil {
		o.Checks = c.Checks
	}
	if c.Interceptor {
		o.Rules = InterceptorRules(c)
	}
	return o
}

// InterceptorRules are those that the interceptor has when it is on.
func InterceptorRules(c config.Policy) []policy.Rule {
	if c.Rules == nil {
		return policy.DefaultRules()
	}
	rules := make([]policy.Rule, 0, len(c.Rules))
	for _, r := range c.Rules {
		rules = append(rules, policy.Rule(r))
	}
	return rules
}

// Admit refuses a command that must not or cannot run, before a session is looked for or
// started for it. It returns the policy that has decided, for Sessions.
func (c *Connection) Admit(command sandbox.Command) (*policy.Policy, error) {
	if err := command.Check(); err != nil { // before the policy's notes
		return nil, err
	}
	rules, err := runPolicy(c.cfg.Policy, c.notes.Add)
	if err != nil {
		return nil, err
	}
	err = sandbox.Admit(&command, rules)
	if o := c.observers.Observer(); err != nil && o != nil {
		o.Note(sandbox.Denial(c.cfg.Session.ID, command, command.Decided, c.secrets.Known()))
	}
	return rules, err
}

// runPolicy makes the policy of run and session exec, which has no rules that the
// configuration does not have. It is nil if there is nothing that it could refuse.
func runPolicy(c config.Policy, note func(text string)) (*policy.Policy, error) {
	o := PolicyOptions(c, nil)
	if len(o.Rules)+len(o.Checks)+len(o.Sets) == 0 && o.Mode != policy.Guarded {
		return nil, nil //nolint:nilnil // nil is a policy that allows all
	}
	return NewPolicy(o, note)
}

// NewPolicy compiles a policy and notes what is left out of it.
func NewPolicy(o policy.Options, note func(text string)) (*policy.Policy, error) {
	rules, warnings, err := policy.New(o)
	if err != nil {
		return nil, badPolicy(err)
	}
	for _, w := range warnings {
		note(w.Text)
	}
	if text := Idle(o); text != "" {
		note(text)
	}
	return rules, nil
}

// badPolicy is a rule that cannot be compiled, with policy.strict.
func badPolicy(err error) error {
	return exit.Misuse("correct the rule in the configuration file, or turn policy.strict off to leave it out", "%v", err)
}

// Idle says that the interceptor is on and has nothing to do.
func Idle(o policy.Options) string {
	if len(o.Rules) == 0 || slices.ContainsFunc(o.Rules, func(r policy.Rule) bool { return slices.Contains(o.Tools, r.Tool) }) {
		return ""
	}
	return "the interceptor is on, but none of its rules applies: policy.tools names none of " + strings.Join(ToolsOf(o.Rules), ", ")
}

// ToolsOf are the tools that rules name, each once.
func ToolsOf(rules []policy.Rule) []string {
	var tools []string
	for _, r := range rules {
		if !slices.Contains(tools, r.Tool) {
			tools = append(tools, r.Tool)
		}
	}
	return tools
}
