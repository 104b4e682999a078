package main

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/tool"
)

func (a *app) planCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan [flags] [--] ARGUMENTS",
		Short: "Show what a tool call would run, without running it",
		Long: `Show what a call of the bash tool would run under a tool contract, or why it would
not: the command after rewriting, its directory, environment and timeout, what the
agent would be told beside the output, and whether the policy refuses it. Nothing
is run, and no engine is needed: what only a session can know is left out.

ARGUMENTS is the call's arguments as JSON. The answer is one JSON object:
  {"command", "cwd", "head", "tail", "env", "timeoutSeconds", "notices", "denial",
   "error", "expansions"?}

With --jsonl each line of standard input is a request, answered by one such object
on a line of its own, in order, as soon as it is there:
  {"contract", "arguments", "settings"?, "toolNames"?, "context"?, "id"?}
settings has the dotted names that the contract's documents use, as in
"async.enabled"; context says what internal URLs stand for, which without it are
left as they are. A line that is no such request is answered with an error, and the
exit status is 2 at the end; else it is 0, also for calls that the contract or the
policy refuses.`,
		Example: `  sandboxbash plan --contract agent '{"command": "cd src && make", "timeout": 7200}'
  sandboxbash plan --contract modes '{"command": "git add -A"}'
  echo '{"contract": "plain", "arguments": {"command": "ls"}}' | sandboxbash plan --jsonl`,
		GroupID: groupSetup,
	}
	addFlags(cmd, "policy.contract", "policy.jsonl")
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		a.mu.Lock()
		a.gather = false // notes go to standard error, whatever is printed
		a.mu.Unlock()
		if a.cfg.Policy.JSONL {
			if len(args) > 0 {
				return misuse("write the requests to standard input, one JSON object a line", "with --jsonl there are no arguments on the command line")
			}
			return a.answerRows(ctx, "requests", a.planRow)
		}
		if len(args) != 1 {
			return misuse(`quote them, as in '{"command": "ls"}'`, "plan takes the arguments of one call as one word, and was given %d words", len(args))
		}
		p, err := a.plan(tool.NewRequest(json.RawMessage(args[0])))
		if err != nil {
			return err
		}
		return printJSON(a.stdout, p.Row())
	})
	return cmd
}

// plan makes the plan of a request, and tells of rules that are left out.
func (a *app) plan(r tool.Request) (tool.Plan, error) {
	p, err := r.Plan(a.cfg.Policy.Contract)
	for _, w := range p.Warnings {
		a.note(w)
	}
	return p, err
}

// planAnswer is an answer; the request's id is repeated.
type planAnswer struct {
	tool.PlanRow
	ID json.RawMessage `json:"id,omitempty"`
}

// planRow answers a line.
func (a *app) planRow(line inputLine) (answer any, ok bool) {
	row, err := a.planLine(line)
	if err != nil {
		row.PlanRow = tool.ErrorRow(line.fault(err))
	}
	return row, err == nil
}

// planLine plans the request on a line.
func (a *app) planLine(line inputLine) (planAnswer, error) {
	if line.err != nil {
		return planAnswer{}, line.err
	}
	r, err := tool.ParseRequest(bytes.TrimSpace(line.text))
	answer := planAnswer{ID: r.ID}
	if err != nil {
		return answer, err
	}
	p, err := a.plan(r)
	answer.PlanRow = p.Row()
	answer.Expansions = nil // a row has nine keys
	return answer, err
}
