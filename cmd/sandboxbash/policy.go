package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/tool"
)

const policyLong = `A policy steers an agent before anything runs. It is a guard rail, not a security
boundary: the container is. It has three layers: the interceptor, whose regular
expressions name a better tool; safety rules over the commands that a script is
seen to run; and what is done with what cannot be known before it runs.

run and session exec have no rules but those of the configuration. The commands
here have those of a tool contract, --contract, beside them. Nothing is run, and no
engine is needed.`

func (a *app) policyCommand() *cobra.Command {
	c := family("policy", "Ask which scripts may run, and why not",
		`  sandboxbash policy check 'git add . && git commit -m x'
  sandboxbash policy explain 'sudo sh -c "rm -rf /"'
  sandboxbash policy rules
  sandboxbash policy test cases.yaml`,
		a.policyCheckCommand(), a.policyExplainCommand(), a.policyRulesCommand(), a.policyTestCommand())
	c.Long = policyLong
	c.GroupID = groupSetup
	return c
}

// policyFlags are those of all commands that ask a policy.
var policyFlags = []string{"policy.contract", "policy.checks", "policy.sets", "policy.mode", "json"}

// asksPolicy makes an action that asks the configured policy a command's. Notes go
// to standard error, whatever is printed.
func (a *app) asksPolicy(do func(ctx context.Context, rules *policy.Policy, args []string) error) func(*cobra.Command, []string) error {
	return a.does(func(ctx context.Context, args []string) error {
		a.mu.Lock()
		a.gather = false
		a.mu.Unlock()
		rules, err := a.newPolicy(a.contractOptions())
		if err != nil {
			return err
		}
		return do(ctx, rules, args)
	})
}

func (a *app) policyCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [flags] [--] SCRIPT",
		Short: "Say whether a script may run",
		Long: `Say whether a script may run: allow, deny, opaque (not all of its commands can be
known) or too_complex. SCRIPT is one word; - reads it from standard input, --file
from a file. Exit status 126 if it is refused, else 0.

With --jsonl each line of standard input is an object, answered by one on a line of
its own, in order, as soon as it is there:
  {"command", "layer": "interceptor"|"safety", "toolNames": [names],
   "rules": "default"|[{"pattern", "flags", "tool", "message"}], "sets": [names]}
  {"verdict", "blocked", "rule", "suggestedTool", "message"}
All but the command may be left out. A line that cannot be checked is answered with
an error, blocked, and the exit status is 2 at the end; else it is 0.`,
		Example: `  sandboxbash policy check 'rm -rf ~'
  sandboxbash policy check --set git-destructive --json 'git reset --hard'
  sandboxbash policy check --contract agent --file build.sh
  echo '{"command": "cat f", "layer": "interceptor"}' | sandboxbash policy check --jsonl`,
	}
	addFlags(cmd, policyFlags...)
	addFlags(cmd, "policy.jsonl", "run.file")
	cmd.RunE = a.asksPolicy(func(ctx context.Context, rules *policy.Policy, args []string) error {
		if a.cfg.Policy.JSONL {
			if len(args) > 0 || a.cfg.Run.File != "" {
				return misuse("write the scripts to standard input, one JSON object a line", "with --jsonl there is no script on the command line")
			}
			p := &rowPolicies{app: a, made: map[string]*policy.Policy{}}
			return a.answerRows(ctx, "scripts", p.row)
		}
		script, err := a.oneScript(ctx, args)
		if err != nil {
			return err
		}
		d := rules.Check(a.policyInput(script))
		if err := a.printDecision(d); err != nil {
			return err
		}
		if d.Blocked {
			return statusError(statusDenied)
		}
		return nil
	})
	return cmd
}

func (a *app) policyExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [flags] [--] SCRIPT",
		Short: "Show the commands that a policy sees in a script",
		Long: `Show the commands that a policy sees in a script, each without quotes, escapes and
braces, below the command that would run it, and what the policy thinks of it.
SCRIPT is one word; - reads it from standard input, --file from a file.`,
		Example: `  sandboxbash policy explain 'sudo timeout 5 sh -c "git push -f"'
  sandboxbash policy explain --json --file build.sh`,
	}
	addFlags(cmd, policyFlags...)
	addFlags(cmd, "run.file")
	cmd.RunE = a.asksPolicy(func(ctx context.Context, rules *policy.Policy, args []string) error {
		script, err := a.oneScript(ctx, args)
		if err != nil {
			return err
		}
		return a.printExplanation(rules.Explain(a.policyInput(script)))
	})
	return cmd
}

func (a *app) policyRulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rules [flags]",
		Short:   "List all rules, and which of them are on",
		Args:    words(0, 0, "no arguments"),
		Example: "  sandboxbash policy rules\n  sandboxbash policy rules --contract agent --json",
	}
	addFlags(cmd, policyFlags...)
	cmd.RunE = a.asksPolicy(func(context.Context, *policy.Policy, []string) error { return a.printRules() })
	return cmd
}

// oneScript is the script of a command line that takes no arguments for it.
func (a *app) oneScript(ctx context.Context, args []string) (string, error) {
	script, rest, err := a.script(ctx, args)
	if err == nil && len(rest) > 0 {
		err = misuse("quote the script, so that it is one word", "there is one script, and %d words after it", len(rest))
	}
	return script, err
}

// policyInput is a script as the contract would have it checked: under agent, a
// directory before it is the working directory, and what is run comes after it.
func (a *app) policyInput(script string) policy.Input {
	if a.cfg.Policy.Contract == string(tool.Agent) {
		return withoutCd(script)
	}
	return policy.Input{Script: script}
}

func withoutCd(script string) policy.Input {
	if _, rest, ok := tool.LeadingCd(script); ok {
		return policy.Input{Script: rest, Original: script}
	}
	return policy.Input{Script: script}
}

// policyOptions is what the configuration says, with checks for where it says
// nothing of them.
func policyOptions(c config.Policy, checks []string) policy.Options {
	o := policy.Options{
		Tools: c.Tools, Match: policy.Match(c.Match), Strict: c.Strict,
		Checks: checks, Sets: c.Sets, Mode: policy.Mode(c.Mode),
	}
	if c.Checks != nil {
		o.Checks = c.Checks
	}
	if c.Interceptor {
		o.Rules = interceptorRules(c)
	}
	return o
}

// interceptorRules are those that the interceptor has when it is on.
func interceptorRules(c config.Policy) []policy.Rule {
	if c.Rules == nil {
		return policy.DefaultRules()
	}
	rules := make([]policy.Rule, 0, len(c.Rules))
	for _, r := range c.Rules {
		rules = append(rules, policy.Rule(r))
	}
	return rules
}

// contractOptions are those of the commands here.
func (a *app) contractOptions() policy.Options {
	var checks []string
	if a.cfg.Policy.Contract == string(tool.Modes) {
		checks = policy.CheckNames()
	}
	return policyOptions(a.cfg.Policy, checks)
}

// runPolicy makes the policy of run and session exec, which has no rules that the
// configuration does not have. It is nil if there is nothing that it could refuse.
func (a *app) runPolicy() (*policy.Policy, error) {
	o := policyOptions(a.cfg.Policy, nil)
	if len(o.Rules)+len(o.Checks)+len(o.Sets) == 0 && o.Mode != policy.Guarded {
		return nil, nil //nolint:nilnil // nil is a policy that allows all
	}
	return a.newPolicy(o)
}

// newPolicy compiles a policy and tells what is left out of it.
func (a *app) newPolicy(o policy.Options) (*policy.Policy, error) {
	rules, warnings, err := policy.New(o)
	if err != nil {
		return nil, badPolicy(err)
	}
	for _, w := range warnings {
		a.note(w.Text)
	}
	if text := idle(o); text != "" {
		a.note(text)
	}
	return rules, nil
}

// badPolicy is a rule that cannot be compiled, with policy.strict.
func badPolicy(err error) error {
	return misuse("correct the rule in the configuration file, or turn policy.strict off to leave it out", "%v", err)
}

// idle says that the interceptor is on and has nothing to do.
func idle(o policy.Options) string {
	if len(o.Rules) == 0 || slices.ContainsFunc(o.Rules, func(r policy.Rule) bool { return slices.Contains(o.Tools, r.Tool) }) {
		return ""
	}
	return "the interceptor is on, and none of its rules applies: policy.tools names none of " + strings.Join(toolsOf(o.Rules), ", ")
}

// toolsOf are the tools that rules name, each once.
func toolsOf(rules []policy.Rule) []string {
	var tools []string
	for _, r := range rules {
		if !slices.Contains(tools, r.Tool) {
			tools = append(tools, r.Tool)
		}
	}
	return tools
}

// policyFindings is what doctor says of the configured policy.
func (a *app) policyFindings() []finding {
	const topic = "policy"
	o := policyOptions(a.cfg.Policy, nil)
	_, warnings, err := policy.New(o)
	if err != nil {
		return []finding{fail(topic, err.Error(), "correct it, or turn policy.strict off")}
	}
	var out []finding
	for _, w := range warnings {
		out = append(out, warn(topic, w.Text, "correct its pattern in the configuration file"))
	}
	if text := idle(o); text != "" {
		out = append(out, warn(topic, text, "name the agent's tools"))
	}
	text := fmt.Sprintf("run has %d safety checks, %d further sets and %d rules of the interceptor; what cannot be known is %s",
		len(o.Checks), len(o.Sets), len(o.Rules)-len(warnings), map[policy.Mode]string{policy.Standard: "run", policy.Guarded: "refused"}[o.Mode])
	return append(out, ok(topic, "%s", text))
}
