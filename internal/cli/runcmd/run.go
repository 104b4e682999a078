// Package runcmd runs one command of the user's, in a session or on this process's own
// terminal, and says how it ended, in words or as JSON.
package runcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/report"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// A Runner runs one command of the user's, and reports its end.
type Runner struct {
	*core.App

	Rules   *policy.Policy  // of what is run; nil allows all
	ran     string          // the script
	reports *report.Reports // nil before the configuration is loaded
	onPTY   *bool           // whether a command that asked for a terminal got one; nil if none did
}

// New returns what runs commands for a program.
func New(a *core.App) *Runner { return &Runner{App: a} }

// Load makes the configuration, from the command's flags as parsed by now.
func (a *Runner) Load(cmd *cobra.Command) error {
	if err := a.App.Load(cmd); err != nil {
		return err
	}
	a.reports = &report.Reports{To: a.Cfg.Report, Getenv: a.Getenv, Out: a.Streams, Note: a.Note, Held: a.limits()}
	return nil
}

// addReport tells of the command in the files that were asked for, once.
func (a *Runner) addReport(res sandbox.Result, err error) {
	if a.reports != nil {
		a.reports.Add(a.ran, res, err)
	}
}

// Command is the command run.
func Command(app *core.App) *cobra.Command {
	a := New(app)
	cmd := &cobra.Command{
		Use:   "run [flags] [--] SCRIPT [ARG...]",
		Short: "Run one script, in a new session or in an existing one",
		Long: `Run one script, in a new session that is removed afterwards or, with --session, in an
existing one.

SCRIPT is one word for the shell; - reads it from standard input, --file from a file.
Further words are its arguments, $1 and so on; it is an error if the script does not use
them. Standard output and standard error are passed on as they arrive: byte by byte into
a pipe or file, made safe on a terminal.`,
		Example: `  sandboxbash run 'echo hi; id'
  sandboxbash run --workspace copy:. --timeout 10m 'make test'
  sandboxbash run 'printf "%s\n" "$@"' one two
  sandboxbash run --json --file build.sh
  tar c . | sandboxbash run --stdin 'tar x && make'
  sandboxbash run --session 0199 'cat result.txt'`,
		GroupID: flags.GroupRun,
	}
	cmd.Flags().SetInterspersed(false)
	flags.Add(cmd, "session.id")
	flags.Add(cmd, flags.Session...)
	flags.Add(cmd, flags.Command...)
	_ = cmd.RegisterFlagCompletionFunc("session", a.CompleteSessions)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.AsJSON(cmd, func() error {
			if err := a.Load(cmd); err != nil {
				return err
			}
			if err := sessionConflict(cmd, a.Cfg.Session.ID); err != nil {
				return err
			}
			return a.RunScript(cmd.Context(), a.Cfg.Session.ID, args)
		})
	}
	return cmd
}

// sessionConflict refuses flags that an existing session cannot follow.
func sessionConflict(cmd *cobra.Command, id string) error {
	if id == "" {
		return nil
	}
	for _, key := range flags.Session {
		if s, _ := config.Lookup(key); cmd.Flags().Changed(s.Flag) {
			return exit.Misuse("leave it out, or start a session of that kind with `sandboxbash session start`",
				"--%s cannot change session %s, which there is already", s.Flag, id)
		}
	}
	return nil
}

// AsJSON prints an error of do as the JSON object that --json promises.
func (a *Runner) AsJSON(cmd *cobra.Command, do func() error) error {
	err := do()
	if err != nil {
		a.addReport(sandbox.Result{}, err)
	}
	asked, _ := cmd.Flags().GetBool("json")
	if a.Cfg != nil {
		asked = a.Cfg.JSON
	}
	if _, said := errors.AsType[exit.StatusError](err); err == nil || said || !asked {
		return err
	}
	return a.Finish(cmd.Context(), sandbox.Result{}, err)
}

// RunScript runs a script in a session, or in one of its own if id is "".
func (a *Runner) RunScript(ctx context.Context, id string, args []string) error {
	if err := a.reports.Check(); err != nil {
		a.reports.Done = true // as far as can be
		return err
	}
	script, rest, err := a.ScriptToRun(ctx, args)
	if err != nil {
		return err
	}
	a.ran = script
	if err := a.Secrets(); err != nil {
		return err
	}
	command := sandbox.Command{
		Script: script, Args: rest, Shell: a.Cfg.Shell, Env: a.CommandEnv(), Dir: a.Cfg.Run.Dir,
		Timeout: a.Cfg.Timeout, Exclusive: a.Cfg.Run.Exclusive, Output: a.OutputOptions(), Job: a.jobOptions(),
	}
	if a.Cfg.Run.Stdin {
		command.Stdin = a.Stdin
	}
	if a.Cfg.Run.Background || command.Job != nil {
		if err := jobConflict(id, command); err != nil {
			return err
		}
		if a.Cfg.PTY.Ask {
			return exit.Misuse("leave out one of them", "a job has no terminal (--pty)")
		}
	}
	if err := a.previewConflict(); err != nil {
		return err
	}
	if err := a.Admit(command); err != nil {
		return err
	}
	session, release, err := a.sessionFor(ctx, id)
	if err != nil {
		return err
	}
	if a.Cfg.PTY.Ask {
		own, ok := a.console()
		if a.onPTY = &ok; ok {
			return a.runOnConsole(ctx, session, release, command, own)
		}
	}
	if a.Cfg.Run.Background {
		defer release()
		return a.startJob(ctx, session, command)
	}
	return a.runIn(ctx, session, release, command)
}

// Admit refuses what must not or cannot run. That needs no session, so it is not
// left to the session's Run.
func (a *Runner) Admit(command sandbox.Command) error {
	if err := command.Check(); err != nil {
		return err
	}
	var err error
	if a.Rules, err = a.RunPolicy(); err != nil {
		return err
	}
	d, err := policy.Admit(a.Rules, policy.Input{Script: command.Script})
	if o := a.Observer(); err != nil && o != nil {
		o.Note(sandbox.Denial(a.Cfg.Session.ID, command, d, a.Known()))
	}
	return err
}

// jobConflict refuses what a job cannot have.
func jobConflict(id string, command sandbox.Command) error {
	switch {
	case id == "":
		return exit.Misuse("start one with `sandboxbash session start`, and name it with --session", "a job needs a session that is there when it has been started")
	case command.Stdin != nil:
		return exit.Misuse("put what it is to read into a file of the session", "a job has no standard input")
	}
	return nil
}

// runIn runs the command, lets go of the session and reports the result.
func (a *Runner) runIn(ctx context.Context, session *sandbox.Session, release func(), command sandbox.Command) error {
	if !a.Cfg.JSON && !a.Cfg.Run.Preview {
		return a.runLive(ctx, session, release, command)
	}
	if a.Cfg.Run.Preview {
		command.Output.Streams = sink.Merged
	}
	res, err := session.Run(ctx, command)
	release()
	if a.Cfg.Run.Preview && err == nil {
		if _, err := fmt.Fprint(a.Stdout, a.preview(command, res)); err != nil {
			return err
		}
	}
	return a.Finish(ctx, res, err)
}

// runLive does that with the output passed on as it comes. The command's timeout is
// not the reader's: who is slow gets everything, behind the command's end.
func (a *Runner) runLive(ctx context.Context, session *sandbox.Session, release func(), command sandbox.Command) error {
	run, end := context.WithCancelCause(ctx)
	defer end(nil)
	broken := func() { end(exit.ErrBrokenPipe) }
	out, errs := a.NewLive(run, a.Stdout, broken), a.NewLive(run, a.Stderr, broken)
	defer out.Close()
	defer errs.Close()
	command.Output.LiveStdout, command.Output.LiveStderr = out, errs
	res, err := session.Run(run, command)
	release()
	lost, writeErr := stdio.FlushAll(ctx, out, errs)
	if errors.Is(context.Cause(run), exit.ErrBrokenPipe) || stdio.IsBrokenPipe(writeErr) {
		return exit.StatusError(exit.BrokenPipe)
	}
	stderr := a.Stderr
	a.Stderr = a.Masked(errs) // what is said of the result goes the same way
	defer func() {
		a.Unmasked()
		_ = a.Stderr.(*stdio.Masked).End()
		_, _ = errs.Flush(ctx)
		a.Stderr = stderr
	}()
	return a.Undelivered(ctx, lost, cmp.Or(res.Output.Stdout.Live, res.Output.Stderr.Live, writeErr), a.Finish(ctx, res, err))
}

// openSlack is how long after a command's timeout its session may still be looked
// for: the call is to end 5 s after it at most.
const openSlack = 4 * time.Second

var errNoEngine = &engine.Error{Op: "open the session", Kind: engine.ErrUnreachable, Err: fmt.Errorf(
	"the engine does not answer before the command's time is over: %w", context.DeadlineExceeded)}

// sessionFor opens the session, or starts one that release stops.
func (a *Runner) sessionFor(ctx context.Context, id string) (*sandbox.Session, func(), error) {
	progress := a.Progress()
	defer progress.Close()
	var spec sandbox.Spec
	if id == "" {
		var err error
		if spec, err = a.Spec(); err != nil {
			return nil, nil, err
		}
		spec.Lease = sandbox.DefaultLease
	}
	opening := ctx
	if id != "" && a.Cfg.Timeout > 0 {
		var cancel context.CancelFunc
		opening, cancel = context.WithTimeoutCause(ctx, a.Cfg.Timeout+openSlack, errNoEngine)
		defer cancel()
	}
	sessions, err := a.Sessions(opening, progress.Show, a.Rules)
	if err != nil {
		return nil, nil, err
	}
	if id != "" {
		s, err := sessions.Open(opening, id)
		return s, func() { _ = sessions.Close(context.WithoutCancel(ctx)) }, err
	}
	collected := a.Collect()
	s, err := sessions.Start(ctx, spec)
	collected()
	if err != nil {
		return nil, nil, err
	}
	a.StartNotes(s)
	return s, func() {
		if err := s.Stop(context.WithoutCancel(ctx)); err != nil {
			a.Note(fmt.Sprintf("the session was not removed, and ends by itself within %v: %v", sandbox.DefaultLease, err))
		}
	}, nil
}

// Finish reports a result or an error, and returns what to exit with.
func (a *Runner) Finish(ctx context.Context, res sandbox.Result, err error) error {
	if err != nil && ctx.Err() != nil && exit.Judge(err).Outcome == exec.NotStarted {
		err = &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseCancelled, Err: context.Cause(ctx)}
	}
	status := exit.OfCommand(res.Status)
	if status == 0 && res.Dropped > 0 {
		status = exit.Engine // a part of the outcome is lost
	}
	if err != nil {
		status = exit.Judge(err).Status
	}
	a.addReport(res, err)
	for _, f := range res.Full {
		a.Note(f.String())
	}
	if a.Cfg == nil || a.Cfg.JSON {
		j := NewResultJSON(res, err)
		if res.Job != nil {
			job := NewJobJSON(a.Streams, res.Job.Info())
			j.Job = &job
		}
		if j.Error != nil {
			j.Error.Message, j.Error.Hint = a.Scrub(j.Error.Message), a.Scrub(j.Error.Hint)
		}
		j.Notes, j.PTY = a.TakeNotes(), a.onPTY
		if err := stdio.PrintJSON(a.Stdout, j); err != nil {
			return err
		}
		return exit.With(status)
	}
	if err != nil {
		return err
	}
	a.say(res)
	return exit.With(status)
}

// limits are what this call holds its command to.
func (a *Runner) limits() exit.Limits {
	return exit.Limits{Timeout: a.Cfg.Timeout, Output: a.Cfg.Output.Limit}
}

// say tells on standard error what the output and the exit status leave open.
func (a *Runner) say(res sandbox.Result) {
	if text := exit.Ending(res, a.limits()); text != "" && !a.Cfg.Quiet {
		fmt.Fprintf(a.Stderr, "sandboxbash: %s\n", text)
	}
	if res.WorkspaceLost {
		a.Note("the workspace was in memory (--disk), and was lost when the session's container was reset: it is empty")
	}
	if res.Room {
		a.Note("what earlier commands had left running was killed, so that this one could start")
	}
	switch art := res.Output.Artifact; {
	case art.Cause == "":
	case art.Stored:
		a.Note(fmt.Sprintf("artifact %s is incomplete: %s", art.ID, art.Cause))
	default:
		a.Note("the full output was not kept: " + art.Cause)
	}
	if res.Dropped > 0 {
		a.Note(fmt.Sprintf("%d bytes of output were not taken in time and are lost", res.Dropped))
	}
}
