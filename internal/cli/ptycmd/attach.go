package ptycmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// SessionAttach is the command session attach.
func SessionAttach(p *core.Parts) *cobra.Command {
	a := newCommands(p)
	cmd := &cobra.Command{
		Use:   "attach [flags] [SESSION] [-- COMMAND [ARG...]]",
		Short: "Open a shell, or run a command, on this terminal in a session",
		Long: `Open an interactive shell, or run a command, on this terminal in a session. All keys
are passed on, Ctrl-C included. Ctrl-P Ctrl-Q, or the keys of --detach-keys, detach: the
shell goes on, and ` + "`sandboxbash pty attach`" + ` comes back to it. So it does when this
terminal is closed. No key ends the command unless --kill-keys names one, and there is no
timeout unless --timeout sets one.

The words after -- mean what they mean to run.

What is typed into the shell is not checked against the policy, and secrets are not
masked on this terminal.`,
		Example: `  sandboxbash session attach
  sandboxbash session attach web
  sandboxbash session attach web -- vi notes.txt`,
		ValidArgsFunction: a.connection.CompleteSession,
	}
	cmd.Flags().SetInterspersed(true)
	flags.Add(cmd, "session.id", "timeout", "grace", "run.cwd", "env.set", "env.unsafe", "shell",
		"pty.detach-keys", "pty.kill-keys", "pty.unattended", "run.command", "quiet")
	cmd.Flags().Lookup("timeout").DefValue = "" // none
	_ = cmd.RegisterFlagCompletionFunc("session", a.connection.CompleteSessions)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.runner.Load(cmd); err != nil {
			return err
		}
		ref, words, err := a.cfg.SplitScript(cmd, args)
		if err != nil {
			return err
		}
		if !holder.Keeps {
			return a.runner.AttachDirectly(cmd.Context(), ref, words, a.cfg.LastingTimeout(cmd))
		}
		return a.attachNew(cmd, ref, words)
	}
	return cmd
}

// attachNew starts a program on a terminal of its own, and attaches to it.
func (a *commands) attachNew(cmd *cobra.Command, ref string, words core.Words) error {
	ctx := cmd.Context()
	console, err := a.runner.Console()
	if err != nil {
		return err
	}
	h := handover{Size: console.Size(), Held: true, Terms: []string{a.env.Getenv("TERM")}}
	if err := a.handOver(cmd, &h, words); err != nil {
		return err
	}
	session, err := a.find(ctx, ref)
	if err != nil {
		return err
	}
	h.Session = session.ID
	if !words.Any() {
		h.Prompt = prompt(session.Name)
	}
	row, started, err := a.launch(ctx, h)
	if err != nil {
		return err
	}
	defer started.Close()
	if err := started.Release(); err != nil {
		return err
	}
	return a.attach(ctx, console, runcmd.Label{Session: session.Name, ID: row.ID})
}

// prompt is the PS1 of a shell in a session: the session's name and the directory, in words that
// all POSIX shells know. A shell whose files set PS1 keeps its own.
func prompt(session string) string { return session + ":${PWD}$ " }

func (a *commands) attachCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "attach [flags] [ID]", Short: "Show a terminal on this one, and type into it",
		Long: `Show a terminal on this one: what it shows now, and then all that its program writes. All
keys are passed on. Ctrl-P Ctrl-Q, or the keys of --detach-keys, detach, and the program
goes on. When it ends, this command exits as it did, and the terminal is removed.

Without an ID, it attaches to the only terminal that there is. One user is attached to a
terminal at a time: the next one takes over.

Secrets are not masked on this terminal.`,
		Example: "  sandboxbash pty attach\n  sandboxbash pty attach pty_1a2b3c4d\n  sandboxbash pty attach --detach-keys ctrl-] pty_1a2b3c4d",
		Args:    flags.Args(0, 1, "the id of a terminal"), ValidArgsFunction: a.completeTerminals,
	}
	flags.Add(cmd, "pty.detach-keys", "pty.kill-keys", "quiet")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.runner.Load(cmd); err != nil {
			return err
		}
		ctx := cmd.Context()
		console, err := a.runner.Console()
		if err != nil {
			return err
		}
		row, err := a.meant(ctx, flags.Arg(args, 0))
		if err != nil {
			return err
		}
		return a.attach(ctx, console, runcmd.Label{Session: a.sessionName(row.Session), ID: row.ID})
	}
	return cmd
}

// sessionName is how a session is called without a question to the engine.
func (a *commands) sessionName(id string) string { return "session " + sandbox.ShortID(id) }

// meant returns the terminal of a prefix or, without one, the only terminal.
func (a *commands) meant(ctx context.Context, prefix string) (row holder.Row, err error) {
	dir, err := holder.Dir(a.env)
	if err != nil {
		return row, err
	}
	rows, err := holder.List(ctx, dir)
	if err != nil {
		return row, err
	}
	if prefix != "" {
		if prefix, err = holder.Find(dir, prefix); err != nil {
			return row, err
		}
		for _, r := range rows {
			if r.ID == prefix {
				return r, nil
			}
		}
		return holder.Row{ID: prefix}, nil // its holder has died: attaching says so
	}
	switch len(rows) {
	case 0:
		return row, exit.Misuse("start a shell on one with `sandboxbash session attach`", "there is no terminal to attach to")
	case 1:
		return rows[0], nil
	}
	var lines []string
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%s  %s", r.ID, a.streams.Name(r.Command)))
	}
	return row, exit.Misuse("name one of them", "there are %d terminals:\n%s", len(rows), strings.Join(lines, "\n"))
}

// attach attaches the user to a terminal. When its program has ended, the terminal is removed.
func (a *commands) attach(ctx context.Context, console *runcmd.Console, at runcmd.Label) error {
	dir, err := holder.Dir(a.env)
	if err != nil {
		return err
	}
	return console.Attach(ctx, at, func(ctx context.Context, size screen.Size, live *stdio.Writer) (runcmd.Attachment, error) {
		far, err := holder.Attach(ctx, dir, at.ID, size, live)
		if err != nil {
			return nil, err
		}
		return &attachment{Attachment: far, dir: dir, id: at.ID}, nil
	})
}

// attachment is one whose end is told in the words of package runcmd.
type attachment struct {
	*holder.Attachment

	dir, id string
}

func (t *attachment) Wait() (runcmd.Parting, error) {
	end, err := t.Attachment.Wait()
	_ = t.Close()
	p := runcmd.Parting{Restore: end.Restore, Notes: end.Notes}
	switch {
	case err != nil:
		return p, err
	case end.Event == serve.AttachDetached:
		p.Left = "detached"
		return p, nil
	case end.Event == serve.AttachReplaced:
		p.Left = "detached, because another user has attached"
		return p, nil
	}
	_, _ = holder.End(context.Background(), t.dir, t.id) // it is not needed any more, and ends by itself
	if end.Error != nil {
		return p, holder.Answered(end.Error)
	}
	st := exec.Status{Reason: exec.Reason(end.Reason), Signal: end.Signal}
	if end.ExitCode != nil {
		st.Code = *end.ExitCode
	}
	p.Result = sandbox.Result{Status: st, Killed: end.Killed, WorkspaceLost: end.WorkspaceLost, Ports: end.Ports}
	return p, nil
}
