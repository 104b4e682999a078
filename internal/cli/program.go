package cli

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// program is one call of the whole program.
type program struct{ *core.Parts }

// execute runs a command line and returns the exit status.
func (a *program) execute(ctx context.Context, args []string) int {
	a.Secrets.Begin(ctx, args)
	root := a.root()
	a.helpAsIs(root)
	root.SetArgs(args)
	root.SetIn(a.Streams.Stdin)
	root.SetOut(a.Streams.Stdout)
	root.SetErr(a.Streams.Stderr)
	a.fitBuiltins(root)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		flags.AllowRepeats(root)
		a.Connection.CompleteFlags(root)
	}
	cmd, err := root.ExecuteContextC(ctx)
	err = a.misuseJSON(cmd, args, err)
	defer func() { a.Streams.Unguard(a.Cfg.Silent()) }()
	a.Close()
	a.Secrets.TellUnmasked()
	if unsaid := a.Streams.EndMasked(); err == nil {
		err = unsaid
	}
	if err == nil {
		return 0
	}
	if status, ok := errors.AsType[exit.StatusError](err); ok {
		return int(status)
	}
	// An engine's connection can break too: only files are streams of ours.
	if _, file := errors.AsType[*fs.PathError](err); file && stdio.IsBrokenPipe(err) {
		return exit.BrokenPipe
	}
	v := exit.Judge(err)
	if ctx.Err() != nil && v.Outcome == exec.NotStarted {
		err = context.Cause(ctx)
		v = exit.Judge(err)
	}
	exit.Report(a.Streams.Stderr, a.Streams.Paint(a.Streams.Stderr, stdio.Red, "sandboxbash:"), a.Streams.Clean(exit.Words(err)), a.Streams.Clean(v.Todo))
	_ = a.Streams.EndMasked()
	return v.Status
}

// objectCommands print one object with --json. The value is whether it is a result.
var objectCommands = map[string]bool{
	"run": true, "session exec": true, "pty start": true,
	"session start": false, "session show": false, "session wait": false, "session allow": false, "session deny": false, "job show": false, "job wait": false, "pty show": false, "artifact show": false, "version": false,
	"image host": false, "image pull": false, "image build": false,
}

// misuseJSON prints an error of a command's words, which was found before the command
// was called, as the object that --json promises.
func (a *program) misuseJSON(cmd *cobra.Command, args []string, err error) error {
	if _, said := errors.AsType[exit.StatusError](err); err == nil || said || cmd == nil {
		return err
	}
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	result, object := objectCommands[path]
	asked := a.Cfg.WantsJSON()
	if words := slices.Index(args, "--"); !a.Cfg.Loaded() {
		if words < 0 {
			words = len(args)
		}
		asked = slices.Contains(args[:words], "--json") || slices.Contains(args[:words], "--json=true") || a.Env.Getenv(config.EnvPrefix+"JSON") == "true"
	}
	switch {
	case !object || !asked:
		return err
	case result:
		return runcmd.New(a.Parts).Finish(cmd.Context(), sandbox.Result{}, err)
	}
	return a.Notes.PrintError(err)
}
