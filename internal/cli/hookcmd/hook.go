// Package hookcmd is the command hook: what clients call before they run a command of an agent's.
package hookcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// hook answers a client.
type hook struct {
	streams    *stdio.Streams
	cfg        *core.Configuration
	connection *core.Connection

	approve bool
	program string
	ready   func() error // finds what has to be masked
}

// Refused is the exit status with which Claude Code does not run the command, and shows standard
// error to the model. With any other status but 0 it runs it.
const Refused = 2

// patience bounds an answer. When the client's own patience is over, it runs the command, so this
// is well below the timeout that `mcp install` writes (30 s) and below the client's default.
const patience = 15 * time.Second

// maxInput bounds what the client may send.
const maxInput = 16 << 20

// Command is the command hook.
func Command(p *core.Parts, more ...*cobra.Command) *cobra.Command {
	c := flags.Family("hook", "Answer a client's hooks, so that its own shell uses a session",
		`  sandboxbash hook claude <call.json
  sandboxbash mcp install claude --hook`,
		append(more, claude(p))...)
	c.GroupID = flags.GroupAgents
	return c
}

// claude is the command hook claude.
func claude(p *core.Parts) *cobra.Command {
	a := &hook{streams: p.Streams, cfg: p.Cfg, connection: p.Connection, ready: p.Secrets.Ready}
	cmd := &cobra.Command{
		Use: "claude [flags]", Short: "Have Claude Code's Bash tool run its commands in a session",
		Long: `Answer Claude Code before it uses a tool (the event PreToolUse). A command of the tools Bash
and Monitor is rewritten so that it runs in a session: in the one that --session names, or
that was started in the client's directory. It is passed on as one quoted word to
"sandboxbash shell". PowerShell is refused, and other tools are left alone.

The user is asked for each command, as the client asks: with --approve nothing is asked.
Whatever goes wrong here is a refusal: no session, no engine, an input that is not
understood, no answer within 15 seconds. The exit status is 2 then, because Claude Code runs
the command after any other failure.

It is a guard rail and not a wall. It decides about tools that Claude Code calls, and not
about what the user types behind !, about other hooks, MCP servers or the status line. A
second hook that rewrites the same command may win. What has to be enforced runs inside:
sandboxbash agent.`,
		Example: `  sandboxbash mcp install claude --hook
  sandboxbash hook claude --session web <call.json
  sandboxbash hook claude --approve <call.json`,
		Args:        flags.Args(0, 0, "no arguments"),
		Annotations: map[string]string{exit.FailWith: fmt.Sprint(Refused)},
	}
	flags.Add(cmd, "session.id")
	cmd.Flags().BoolVar(&a.approve, "approve", false, "let the rewritten command run without asking the user")
	_ = cmd.RegisterFlagCompletionFunc("session", a.connection.CompleteSessions)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.inTime(cmd) }
	return cmd
}

var errSlow = fmt.Errorf("there was no answer within %v", patience)

// inTime answers, or says in time that there is no answer.
func (a *hook) inTime(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), patience, errSlow)
	defer cancel()
	type answer struct {
		text []byte
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- answer{err: fmt.Errorf("sandboxbash failed, which is a mistake in it: %v\n%s", p, debug.Stack())}
			}
		}()
		text, err := a.answer(ctx, cmd)
		done <- answer{text, err}
	}()
	var got answer
	select {
	case got = <-done:
		if got.err != nil && errors.Is(context.Cause(ctx), errSlow) {
			got.err = errSlow
		}
	case <-ctx.Done(): // what does not end in time is left to the end of this process
		got.err = context.Cause(ctx)
	}
	if got.err != nil {
		return refusal{got.err}
	}
	// The client has sent the command, and runs what it gets back: a mask, or a space for a CI runner, would make it another one.
	_, err := stdio.Raw(a.streams.Stdout).Write(got.text)
	return err
}

// refusal is an error that the model reads.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func (r refusal) Error() string {
	return "the command has not run: " + exit.Words(r.error)
}

// Verdict implements what exit.Judge asks for.
func (r refusal) Verdict() exit.Verdict {
	v := exit.Judge(r.error)
	v.Status = Refused
	return v
}

// answer is what is printed for the call on standard input; nothing lets it go on as it is.
func (a *hook) answer(ctx context.Context, cmd *cobra.Command) ([]byte, error) {
	if err := a.cfg.Load(cmd); err != nil {
		return nil, err
	}
	text, err := stdio.ReadAll(ctx, a.streams.Stdin, maxInput+1)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the hook's input: %w", err)
	case len(text) > maxInput:
		return nil, fmt.Errorf("the hook's input has more than %d bytes", maxInput)
	}
	c, err := parse(text)
	switch {
	case err != nil:
		return nil, err
	case !c.runs():
		return nil, nil
	case c.Tool == toolPowerShell:
		return nil, exit.Misuse("use the tool Bash", "PowerShell would run on this machine, and commands run in a session")
	}
	if err := a.ready(); err != nil {
		return nil, err
	}
	if _, err := a.connection.Admit(sandbox.Command{Script: c.command}); err != nil {
		return nil, err
	}
	info, err := a.session(ctx, c.Dir)
	if err != nil {
		return nil, err
	}
	if a.program == "" {
		if a.program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	words := []string{a.program, "shell"}
	for _, name := range []string{"config", "engine"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			value := f.Value.String()
			if name == "config" {
				if value, err = filepath.Abs(value); err != nil {
					return nil, err
				}
			}
			words = append(words, "--"+name, value)
		}
	}
	words = append(words, "--session", info.ID, "-c")
	decision, reason := ask, "runs in the sandboxbash session "+info.Name
	if a.approve {
		decision = allow
	}
	return c.rewritten(words, decision, reason)
}

// session is the one for a call, which has to have the directory that the client is in.
func (a *hook) session(ctx context.Context, dir string) (sandbox.Info, error) {
	if !filepath.IsAbs(dir) {
		return sandbox.Info{}, fmt.Errorf("the hook's input: cwd is not a directory of this machine: %q", dir)
	}
	info, err := a.connection.LookupFrom(ctx, "", dir)
	if err != nil {
		return info, err
	}
	if _, ok := core.Inside(info, dir); !ok && info.Workspace.Dir != "" {
		return info, exit.Misuse("go to a directory below "+info.Workspace.Dir, "session %s does not have the directory %s", info.Name, dir)
	}
	if !info.Lives() {
		return info, exit.Misuse("start one with `sandboxbash session start --workspace copy:.`", "session %s has ended", info.Name)
	}
	return info, nil
}
