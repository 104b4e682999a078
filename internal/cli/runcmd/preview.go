package runcmd

import (
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// previewConflict refuses what --preview cannot show.
func (a *Runner) previewConflict() error {
	if !a.cfg.Run.Preview {
		return nil
	}
	for _, other := range []struct {
		on   bool
		flag string
	}{
		{a.cfg.JSON, "--json"},
		{a.cfg.PTY.Ask, "--pty"},
		{a.cfg.Run.Background, "--background"},
		{a.cfg.Run.BackgroundAfter > 0, "--background-after"},
	} {
		if other.on {
			return exit.Misuse("leave out one of them", "--preview shows a command that has ended to a person, and %s asks for something else", other.flag)
		}
	}
	return nil
}

// preview is a command that has ended as a harness shows it to a person.
func (a *Runner) preview(command sandbox.Command, res sandbox.Result) string {
	out := res.Output.Stdout // merged
	return tool.Render(tool.Shown{
		Command: a.streams.Clean(command.Script), Output: out.Text(), Truncation: tool.Truncation(out, res.Output.Artifact),
		Cancelled: res.Reason == exec.Cancelled, TimedOut: res.Reason == exec.TimedOut, Code: exit.OfCommand(res.Status),
		TimeoutSeconds: command.Timeout.Seconds(),
	}, tool.View{Surface: tool.UserCommand})
}
