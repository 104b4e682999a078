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

run and session exec apply only the rules of the configuration. The commands here also
apply those of a tool contract, --contract. Nothing is run, and no engine is needed.`

// Command is the command policy.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{streams: p.Streams, cfg: p.Cfg, notes: p.Notes}
	c := flags.Family("policy", "Check which scripts may run, and why not",
		`  sandboxbash policy check 'git add . && git commit -m x'
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

// asks makes an action that asks the configured policy a command's. Notes go
// to standard error, whatever is printed.
func (a *commands) asks(do func(ctx context.Context, rules *policy.Policy, args []string) error) func(*cobra.Command, []string) error {
	return a.cfg.Does(func(ctx context.Context, args []string) error {
		a.notes.Print()
		rules, err := core.NewPolicy(contractOptions(a.cfg.Policy), a.notes.Add)
		if err != nil {
			return err
		}
		return do(ctx, rules, args)
	})
}

func (a *commands) checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [flags] [--] SCRIPT",
		Short: "Say whether a script may run",
		Long: `Say whether a script may run: allow, deny, opaque (not all of its commands can be
known) or too_complex. SCRIPT is one argument; - reads it from standard input, --file
from a file. Exit status 126 if the script is refused, else 0.

With --jsonl each line of standard input is an object. Each is answered in order, as
soon as it arrives, with one on a line of its own:
  {"command", "layer": "interceptor"|"safety", "toolNames": [names],
   "rules": "default"|[{"pattern", "flags", "tool", "message"}],
   "sets": [names]}
  {"verdict", "blocked", "rule", "suggestedTool", "message"}
All but the command may be left out. A line that cannot be checked is answered with an
error, as blocked, and the final exit status is 2; otherwise it is 0.`,
		Example: `  sandboxbash policy check 'rm -rf ~'
  sandboxbash policy check --set git-destructive --json 'git reset --hard'
  sandboxbash policy check --contract agent --file build.sh
  echo '{"command": "cat f", "layer": "interceptor"}' |
    sandboxbash policy check --jsonl`,
	}
	flags.Add(cmd, ruleFlags...)
	flags.Add(cmd, "policy.jsonl", "run.file")
	cmd.RunE = a.asks(func(ctx context.Context, rules *policy.Policy, args []string) error {
		if a.cfg.Policy.JSONL {
			if len(args) > 0 || a.cfg.Run.File != "" {
				return exit.Misuse("write the scripts to standard input, one JSON object a line", "with --jsonl there is no script on the command line")
			}
			p := NewRows(a.cfg.Policy, a.notes.Add)
			return a.streams.AnswerRows(ctx, "scripts", p.row)
		}
		script, err := a.oneScript(ctx, args)
		if err != nil {
			return err
		}
		d := rules.Check(inputOf(a.cfg.Policy, script))
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
		Use:   "explain [flags] [--] SCRIPT",
		Short: "Show the commands that a policy sees in a script",
		Long: `Show the commands that a policy sees in a script, without quotes, escapes and braces,
each below the command that would run it, with the policy's verdict.
SCRIPT is one argument; - reads it from standard input, --file from a file.`,
		Example: `  sandboxbash policy explain 'sudo timeout 5 sh -c "git push -f"'
  sandboxbash policy explain --json --file build.sh`,
	}
	flags.Add(cmd, ruleFlags...)
	flags.Add(cmd, "run.file")
	cmd.RunE = a.asks(func(ctx context.Context, rules *policy.Policy, args []string) error {
		script, err := a.oneScript(ctx, args)
		if err != nil {
			return err
		}
		return a.printExplanation(rules.Explain(inputOf(a.cfg.Policy, script)))
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
	cmd.RunE = a.asks(func(context.Context, *policy.Policy, []string) error { return a.printRules() })
	return cmd
}

// oneScript is the script of a command line that takes no arguments for it.
func (a *commands) oneScript(ctx context.Context, args []string) (string, error) {
	script, rest, err := core.Script(ctx, a.cfg.Run, a.streams.Stdin, args)
	if err == nil && len(rest) > 0 {
		err = exit.Misuse("quote the script, so that it is one argument", "there is one script, and %d arguments after it", len(rest))
	}
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

// contractOptions are those of the commands here.
func contractOptions(c config.Policy) policy.Options {
	var checks []string
	if c.Contract == string(tool.Modes) {
		checks = policy.CheckNames()
	}
	return core.PolicyOptions(c, checks)
}
