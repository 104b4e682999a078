// Package policycmd is the command policy: what a policy says of scripts. The servers answer
// policy/check with its Rows.
package policycmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/tool"
)

// commands are the commands that ask a policy.
type commands struct {
	streams *stdio.Streams
	cfg     *core.Configuration
	notes   *core.Notes
}

const long = `A policy steers an agent before anything runs. It is a guard rail, not a security
boundary: the container is. It has three layers: the interceptor, whose regular
expressions name a better tool; safety rules for the commands that a script is seen to
run; and what to do with commands that cannot be known before the script runs.

run and session exec apply the rules of the configuration, and check, explain and rules
decide as they would. With --contract they also apply the rules of that tool contract, as a
server does. Nothing is run, and no engine is needed.`

// Command is the command policy.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{streams: p.Streams, cfg: p.Cfg, notes: p.Notes}
	c := flags.Family("policy", "Check which scripts may run, and why not",
		`  sandboxbash policy check --contract agent 'git add . && git commit -m x'
  sandboxbash policy explain 'sudo sh -c "rm -rf /"'
  sandboxbash policy rules
  sandboxbash policy test cases.yaml`,
		a.checkCommand(), a.explainCommand(), a.rulesCommand(), a.testCommand())
	c.Long = long
	c.GroupID = flags.GroupSetup
	return c
}

// ruleFlags are the flags of all commands that ask a policy.
var ruleFlags = []string{"policy.contract", "policy.checks", "policy.sets", "policy.mode", "json"}

// question is what a command asks of a policy.
type question struct {
	config config.Policy // Contract is "" where the policy is that of run
	rules  *policy.Policy
	words  core.Words
}

// asks adapts a question to cobra's RunE. Notes go to standard error, whatever is printed.
func (a *commands) asks(do func(ctx context.Context, q question) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.cfg.Load(cmd); err != nil {
			return err
		}
		a.notes.Print()
		q := question{config: a.cfg.Policy, words: core.WordsOf(cmd, args)}
		if !cmd.Flags().Changed("contract") && !q.config.JSONL {
			q.config.Contract = ""
		}
		var err error
		if q.rules, err = core.NewPolicy(contractOptions(q.config), a.notes.Add); err != nil {
			return err
		}
		return do(cmd.Context(), q)
	}
}

func (a *commands) checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [flags] [--] COMMAND [ARG...]",
		Short: "Say whether a command may run",
		Long: `Say whether a command may run: allow, deny, opaque (not all of its commands can be
known) or too_complex. The words mean what they mean to run. Exit status 126 if the command
is refused, else 0.

With --jsonl each line of standard input is an object, checked with the rules of the contract
modes unless --contract names another. Each is answered in order, as
soon as it arrives, with one on a line of its own:
  {"command", "layer": "interceptor"|"safety", "toolNames": [names],
   "rules": "default"|[{"pattern", "flags", "tool", "message"}],
   "sets": [names]}
  {"verdict", "blocked", "rule", "suggestedTool", "message"}
All but the command may be left out. A line that cannot be checked is answered with an
error, as blocked, and the final exit status is 2; otherwise it is 0.`,
		Example: `  sandboxbash policy check --contract agent rm -rf '~'
  sandboxbash policy check --set git-destructive --json git reset --hard
  sandboxbash policy check --contract agent --file build.sh
  echo '{"command": "cat f", "layer": "interceptor"}' |
    sandboxbash policy check --jsonl`,
	}
	cmd.Flags().SetInterspersed(false)
	flags.Add(cmd, ruleFlags...)
	flags.Add(cmd, "policy.jsonl", "run.command", "run.file")
	cmd.RunE = a.asks(func(ctx context.Context, q question) error {
		if a.cfg.Policy.JSONL {
			if q.words.Any() || a.cfg.Run.File != "" {
				return exit.Misuse("write the scripts to standard input, one JSON object a line", "with --jsonl there is no script on the command line")
			}
			p := NewRows(a.cfg.Policy, a.notes.Add)
			return a.streams.AnswerRows(ctx, "scripts", p.row)
		}
		script, err := a.script(ctx, q.words)
		if err != nil {
			return err
		}
		a.noteRules(q.config)
		d := q.rules.Check(inputOf(q.config, script))
		if err := a.printDecision(d); err != nil {
			return err
		}
		if d.Blocked {
			return exit.StatusError(exit.Denied)
		}
		return nil
	})
	return cmd
}

func (a *commands) explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [flags] [--] COMMAND [ARG...]",
		Short: "Show the commands that a policy sees in a script",
		Long: `Show the commands that a policy sees in a script, without quotes, escapes and braces,
each below the command that would run it, with the policy's verdict. The words mean what
they mean to run.`,
		Example: `  sandboxbash policy explain 'sudo timeout 5 sh -c "git push -f"'
  sandboxbash policy explain --json --file build.sh`,
	}
	cmd.Flags().SetInterspersed(false)
	flags.Add(cmd, ruleFlags...)
	flags.Add(cmd, "run.command", "run.file")
	cmd.RunE = a.asks(func(ctx context.Context, q question) error {
		script, err := a.script(ctx, q.words)
		if err != nil {
			return err
		}
		a.noteRules(q.config)
		return a.printExplanation(q.rules.Explain(inputOf(q.config, script)))
	})
	return cmd
}

func (a *commands) rulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rules [flags]",
		Short:   "List all rules, and which of them are on",
		Args:    flags.Args(0, 0, "no arguments"),
		Example: "  sandboxbash policy rules\n  sandboxbash policy rules --contract agent --json",
	}
	flags.Add(cmd, ruleFlags...)
	cmd.RunE = a.asks(func(_ context.Context, q question) error { return a.printRules(q.config) })
	return cmd
}

// noteRules says where the answer is that of run, which may have no rules.
func (a *commands) noteRules(c config.Policy) {
	o := contractOptions(c)
	if c.Contract == "" && len(o.Rules)+len(o.Checks)+len(o.Sets) == 0 && o.Mode != policy.Guarded {
		a.notes.Add("the configuration has no rules, so run allows every command; --contract modes applies the rules of that contract")
	}
}

// script is the script that run would make of words. A policy does not look at its arguments.
func (a *commands) script(ctx context.Context, words core.Words) (string, error) {
	script, _, err := core.Script(ctx, a.cfg.Run, a.streams.Stdin, words)
	return script, err
}

// inputOf is a script as the contract would have it checked: under agent, a
// directory before it is the working directory, and what is run comes after it.
func inputOf(c config.Policy, script string) policy.Input {
	if c.Contract == string(tool.Agent) {
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

// contractOptions are those of a contract; "" has those of run.
func contractOptions(c config.Policy) policy.Options {
	var checks []string
	if c.Contract == string(tool.Modes) {
		checks = policy.CheckNames()
	}
	return core.PolicyOptions(c, checks)
}
