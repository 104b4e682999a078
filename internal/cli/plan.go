package cli

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/tool"
)

func (a *policyCommands) planCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan [flags] [--] ARGUMENTS",
		Short: "Show what a tool call would run, without running it",
		Long: `Show what a call of the bash tool would run under a tool contract, or why it would
not: the command after rewriting, its directory, environment and timeout, what the
agent would be told in addition to the output, and whether the policy refuses it.
Nothing is run, and no engine is needed: what only a session can know is left out.

ARGUMENTS is the call's arguments as JSON. The answer is one JSON object:
  {"command", "cwd", "head", "tail", "env", "timeoutSeconds", "notices", "denial",
   "error", "expansions"?}

With --jsonl each line of standard input is a request. Each is answered in order, as
soon as it arrives, with one such object on a line of its own:
  {"contract", "arguments", "settings"?, "toolNames"?, "context"?, "id"?}
settings has the dotted names that the contract's documents use, as in
"async.enabled"; context says what internal URLs stand for; without it they are left
as they are. A line that is not such a request is answered with an error, and the final
exit status is 2; otherwise it is 0, even if the contract or the policy refuses calls.`,
		Example: `  sandboxbash plan --contract agent '{"command": "cd src && make", "timeout": 7200}'
  sandboxbash plan --contract modes '{"command": "git add -A"}'
  echo '{"contract": "plain", "arguments": {"command": "ls"}}' | sandboxbash plan --jsonl`,
		GroupID: flags.GroupSetup,
	}
	flags.Add(cmd, "policy.contract", "policy.jsonl")
	cmd.RunE = a.Does(func(ctx context.Context, args []string) error {
		a.PrintNotes()
		if a.Cfg.Policy.JSONL {
			if len(args) > 0 {
				return exit.Misuse("write the requests to standard input, one JSON object a line", "with --jsonl there are no arguments on the command line")
			}
			return a.AnswerRows(ctx, "requests", a.planRow)
		}
		if len(args) != 1 {
			return exit.Misuse(`quote them, as in '{"command": "ls"}'`, "plan takes the arguments of one call as one word, and was given %d words", len(args))
		}
		p, err := a.plan(tool.NewRequest(json.RawMessage(args[0])))
		if err != nil {
			return err
		}
		return stdio.PrintJSON(a.Stdout, p.Row())
	})
	return cmd
}

// plan makes the plan of a request, and tells of rules that are left out.
func (a *policyCommands) plan(r tool.Request) (tool.Plan, error) {
	p, err := r.Plan(a.Cfg.Policy.Contract)
	for _, w := range p.Warnings {
		a.Note(w)
	}
	return p, err
}

// planAnswer is an answer; the request's id is repeated.
type planAnswer struct {
	tool.PlanRow
	ID json.RawMessage `json:"id,omitempty"`
}

// planRow answers a line.
func (a *policyCommands) planRow(line stdio.InputLine) (answer any, ok bool) {
	row, err := a.planLine(line)
	if err != nil {
		row.PlanRow = tool.ErrorRow(line.Fault(err))
	}
	return row, err == nil
}

// planLine plans the request on a line.
func (a *policyCommands) planLine(line stdio.InputLine) (planAnswer, error) {
	if line.Err != nil {
		return planAnswer{}, line.Err
	}
	r, err := tool.ParseRequest(bytes.TrimSpace(line.Text))
	answer := planAnswer{ID: r.ID}
	if err != nil {
		return answer, err
	}
	p, err := a.plan(r)
	answer.PlanRow = p.Row()
	answer.Expansions = nil // a row has nine keys
	return answer, err
}
