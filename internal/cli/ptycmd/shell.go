package ptycmd

import (
	"context"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
	"github.com/sandboxbash/sandboxbash/internal/screen"
)

// StartShell starts a shell on a new terminal of a session, as `pty start` does, and returns the terminal's id. The
// configuration is loaded.
func StartShell(ctx context.Context, p *core.Parts, session string) (string, error) {
	a := newCommands(p)
	info, err := a.find(ctx, session)
	if err != nil {
		return "", err
	}
	row, started, err := a.launch(ctx, handover{
		Handover: holder.Handover{Environ: a.env.All()}, Session: info.ID, Script: runcmd.ShellScripts[a.cfg.Shell],
		Size: screen.DefaultSize, Prompt: prompt(info.Name),
	})
	if err != nil {
		return "", err
	}
	defer started.Close()
	return row.ID, started.Release()
}
