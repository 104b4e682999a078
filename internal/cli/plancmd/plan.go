// Package plancmd is the command plan: what a tool call would run.
package plancmd

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/tool"
)

// command is the command plan.
type command struct {
	streams *stdio.Streams
	cfg     *core.Configuration
	notes   *core.Notes
}

// Command is the command plan.
func Command(p *core.Parts) *cobra.Command {
	c := &command{streams: p.Streams, cfg: p.Cfg, notes: p.Notes}
	cmd := &cobra.Command{
		Use:   "plan [flags] [--] ARGUMENTS",
		Short: "Show what a tool call would run, without running it",
		Long: `Show what a call of the bash tool would run under a tool contract, or why it would
not: the command after rewriting, its directory, environment and timeout, the notices
that the agent would get in addition to the output, and whether the policy refuses it.
Nothing is run, and no engine is needed: what only a session can know is left out.

ARGUMENTS is the call's arguments as JSON. The answer is one JSON object:
  {"command", "cwd", "head", "tail", "env", "timeoutSeconds", "notices",
   "denial", "error", "expansions"?}

With --jsonl each line of standard input is a request. Each is answered in order, as
soon as it arrives, with one such object on a line of its own:
  {"contract", "arguments", "settings"?, "toolNames"?, "context"?, "id"?}
settings has the dotted names that the contract's documents use, as in
"async.enabled"; context says what internal URLs stand for; without it they are left
as they are. A line that is not such a request is answered with an error, and the final
exit status is 2; otherwise it is 0, even if the contract or the policy refuses calls.`,
		Example: `  sandboxbash plan --contract agent '{"command": "cd a && make", "timeout": 90}'
  sandboxbash plan --contract modes '{"command": "git add -A"}'
  echo '{"contract": "plain", "arguments": {"command": "ls"}}' |
    sandboxbash plan --jsonl`,
		GroupID: flags.GroupSetup,
	}
	flags.Add(cmd, "policy.contract", "policy.jsonl")
	cmd.Flags().Lookup("contract").Usage = "tool contract of the call"
	cmd.RunE = c.cfg.Does(c.run)
	return cmd
}

func (c *command) run(ctx context.Context, args []string) error {
	c.notes.Print()
	p := planner{c.cfg.Policy.Contract, c.notes.Add}
	if c.cfg.Policy.JSONL {
		if len(args) > 0 {
			return exit.Misuse("write the requests to standard input, one JSON object a line", "with --jsonl there are no arguments on the command line")
		}
		return c.streams.AnswerRows(ctx, "requests", p.row)
	}
	if len(args) != 1 {
		return exit.Misuse(`quote them, as in '{"command": "ls"}'`, "plan takes the arguments of one call as one word, and was given %d words", len(args))
	}
	made, err := p.plan(tool.NewRequest(json.RawMessage(args[0])))
	if err != nil {
		return err
	}
	return stdio.PrintJSON(c.streams.Stdout, made.Row())
}

// planner plans requests.
type planner struct {
	contract string // of requests that name none
	note     func(text string)
}

// plan makes the plan of a request, and tells of rules that are left out.
func (p planner) plan(r tool.Request) (tool.Plan, error) {
	made, err := r.Plan(p.contract)
	for _, w := range made.Warnings {
		p.note(w)
	}
	return made, err
}

// answerJSON is the answer to a request; the request's id is repeated.
type answerJSON struct {
	tool.PlanRow
	ID json.RawMessage `json:"id,omitempty"`
}

// row answers a line.
func (p planner) row(line stdio.InputLine) (answer any, ok bool) {
	row, err := p.line(line)
	if err != nil {
		row.PlanRow = tool.ErrorRow(line.Fault(err))
	}
	return row, err == nil
}

// line plans the request on a line.
func (p planner) line(line stdio.InputLine) (answerJSON, error) {
	if line.Err != nil {
		return answerJSON{}, line.Err
	}
	r, err := tool.ParseRequest(bytes.TrimSpace(line.Text))
	answer := answerJSON{ID: r.ID}
	if err != nil {
		return answer, err
	}
	made, err := p.plan(r)
	answer.PlanRow = made.Row()
	answer.Expansions = nil // a row has nine keys
	return answer, err
}
