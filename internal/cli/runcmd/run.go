// Package runcmd runs one command of the user's, in a session or on this process's own
// terminal, and says how it ended, in words or as JSON.
package runcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	streams    *stdio.Streams
	env        *core.Environment
	cfg        *core.Configuration
	notes      *core.Notes
	secrets    *core.Secrets
	artifacts  *core.Artifacts
	connection *core.Connection
	asker      *core.Asker // nil: nothing is asked

	ran     string          // the script
	lasting time.Duration   // the timeout of a job; 0: none
	reports *report.Reports // nil before the configuration is loaded
	own     bool            // in a session of its own
	onPTY   *bool           // whether a command that asked for a terminal got one; nil if none did
	fed     *given          // the command's standard input; nil unless it got one without --stdin
}

// New returns what runs commands for a program.
func New(p *core.Parts) *Runner {
	return &Runner{
		streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, secrets: p.Secrets, artifacts: p.Artifacts,
		connection: p.Connection,
	}
}

// Load makes the configuration, from the command's flags as parsed by now.
func (a *Runner) Load(cmd *cobra.Command) error {
	if err := a.cfg.Load(cmd); err != nil {
		return err
	}
	a.lasting = a.cfg.LastingTimeout(cmd)
	a.reports = &report.Reports{To: a.cfg.Report, Getenv: a.env.Getenv, Out: a.streams, Note: a.notes.Add, Held: a.limits()}
	return nil
}

// addReport tells of the command in the files that were asked for, once.
func (a *Runner) addReport(res sandbox.Result, err error) {
	if a.reports != nil {
		a.reports.Add(a.ran, res, err)
	}
}

// Command is the command run.
func Command(p *core.Parts) *cobra.Command {
	a := New(p)
	cmd := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG...]",
		Short: "Run one command, in a new session or in an existing one",
		Long: `Run one command, in a new session that is removed afterwards or, with --session, in an
existing one.

` + core.WordsHelp + `

` + core.StdinHelp + `

Standard output and standard error are passed on as they arrive: byte by byte into a pipe or
file, made safe on a terminal.`,
		Example: `  sandboxbash run make test
  sandboxbash run 'echo hi; id'
  sandboxbash run --workspace copy:. --timeout 10m make test
  sandboxbash run -c 'printf "%s\n" "$@"' one two
  sandboxbash run --json --file build.sh
  tar c . | sandboxbash run 'tar x && make'
  sandboxbash run --session web cat result.txt
  sandboxbash run -p 8000:8000 --timeout 1h python3 -m http.server`,
		GroupID: flags.GroupRun,
	}
	cmd.Flags().SetInterspersed(false)
	flags.Add(cmd, "session.id")
	flags.Add(cmd, flags.Session...)
	flags.Add(cmd, flags.Network...)
	flags.Add(cmd, flags.Asking...)
	flags.Add(cmd, "network.forward")
	flags.Add(cmd, flags.Command...)
	_ = cmd.RegisterFlagCompletionFunc("session", a.connection.CompleteSessions)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.AsJSON(cmd, func() error {
			if err := a.Load(cmd); err != nil {
				return err
			}
			if err := sessionConflict(cmd, a.cfg.Session.ID); err != nil {
				return err
			}
			if a.cfg.Session.ID != "" {
				return a.RunIn(cmd.Context(), a.cfg.Session.ID, core.WordsOf(cmd, args))
			}
			return a.runScript(cmd.Context(), target{own: true}, core.WordsOf(cmd, args))
		})
	}
	return cmd
}

// sessionConflict refuses flags that an existing session cannot follow.
func sessionConflict(cmd *cobra.Command, id string) error {
	if id == "" {
		return nil
	}
	for _, key := range slices.Concat(flags.Session, flags.Network, flags.Asking) {
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
	if a.cfg.Loaded() {
		asked = a.cfg.JSON
	}
	if _, said := errors.AsType[exit.StatusError](err); err == nil || said || !asked {
		return err
	}
	return a.Finish(cmd.Context(), sandbox.Result{}, err)
}

// target is the session that a script runs in.
type target struct {
	own bool   // one that is started for it
	ref string // else a reference, "" for the default session
}

// RunIn runs a script in the session of a reference, or in the default one if it is "".
func (a *Runner) RunIn(ctx context.Context, ref string, words core.Words) error {
	return a.runScript(ctx, target{ref: ref}, words)
}

func (a *Runner) runScript(ctx context.Context, in target, words core.Words) error {
	if err := a.reports.Check(); err != nil {
		a.reports.Done = true // as far as can be
		return err
	}
	script, rest, err := core.Script(ctx, a.cfg.Run, a.streams.Stdin, words)
	if err != nil {
		return err
	}
	a.ran, a.own = script, in.own
	if err := a.secrets.Ready(); err != nil {
		return err
	}
	command := sandbox.Command{
		Script: script, Args: rest, Shell: a.cfg.Shell, Env: a.secrets.CommandEnv(), Dir: a.cfg.Run.Dir,
		Timeout: a.cfg.Timeout, Exclusive: a.cfg.Run.Exclusive, Output: a.cfg.OutputOptions(), Job: a.jobOptions(),
	}
	if command.Stdin, err = a.stdinFor(words, a.cfg.Run.Background || command.Job != nil); err != nil {
		return err
	}
	if a.cfg.Run.Merge {
		command.Output.Streams = sink.Merged
	}
	if a.cfg.Run.Background || command.Job != nil {
		command.Timeout = a.lasting
		if err := jobConflict(in, command); err != nil {
			return err
		}
		if a.cfg.PTY.Ask {
			return exit.Misuse("leave out one of them", "a job has no terminal (--pty)")
		}
	}
	if err := a.previewConflict(); err != nil {
		return err
	}
	rules, err := a.connection.Admit(command)
	if err != nil {
		return err
	}
	if a.cfg.NetworkRules.Ask {
		if a.asker, err = core.NewAsker(ctx, a.cfg, a.streams); err != nil {
			return err
		}
		defer a.asker.Close()
	}
	session, release, err := a.sessionFor(ctx, in, rules)
	if err != nil {
		return err
	}
	if a.cfg.PTY.Ask {
		own, ok := a.console()
		if a.onPTY = &ok; ok {
			return a.runOnConsole(ctx, session, release, command, own)
		}
	}
	if a.cfg.Run.Background {
		defer release()
		return a.startJob(ctx, session, command)
	}
	if release, err = a.forward(ctx, session, release); err != nil {
		return err
	}
	return a.runIn(ctx, session, release, command)
}

// jobConflict refuses what a job cannot have.
func jobConflict(in target, command sandbox.Command) error {
	switch {
	case in.own:
		return exit.Misuse("start one with `sandboxbash session start`, and name it with --session", "a job needs a session that is there when it has been started")
	case command.Stdin != nil:
		return exit.Misuse("put what it is to read into a file of the session", "a job has no standard input")
	}
	return nil
}

// runIn runs the command, lets go of the session and reports the result.
func (a *Runner) runIn(ctx context.Context, session *sandbox.Session, release func(), command sandbox.Command) error {
	if !a.cfg.JSON && !a.cfg.Run.Preview {
		return a.runLive(ctx, session, release, command)
	}
	if a.cfg.Run.Preview {
		command.Output.Streams = sink.Merged
	}
	res, err := session.Run(ctx, command)
	release()
	if a.cfg.Run.Preview && err == nil {
		if _, err := fmt.Fprint(a.streams.Stdout, a.preview(command, res)); err != nil {
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
	out, errs := a.streams.NewLive(run, a.streams.Stdout, broken), a.streams.NewLive(run, a.streams.Stderr, broken)
	defer out.Close()
	defer errs.Close()
	command.Output.LiveStdout = out
	if command.Output.Streams == sink.Split {
		command.Output.LiveStderr = errs
	}
	res, err := session.Run(run, command)
	release()
	lost, writeErr := stdio.FlushAll(ctx, out, errs)
	if errors.Is(context.Cause(run), exit.ErrBrokenPipe) || stdio.IsBrokenPipe(writeErr) {
		return exit.StatusError(exit.BrokenPipe)
	}
	stderr := a.streams.Stderr
	a.streams.Stderr = a.streams.Masked(errs) // what is said of the result goes the same way
	defer func() {
		a.secrets.TellUnmasked()
		_ = a.streams.Stderr.(*stdio.Masked).End()
		_, _ = errs.Flush(ctx)
		a.streams.Stderr = stderr
	}()
	return a.streams.Undelivered(ctx, lost, cmp.Or(res.Output.Stdout.Live, res.Output.Stderr.Live, writeErr), a.Finish(ctx, res, err))
}

// openSlack is how long after a command's timeout its session may still be looked
// for: the call is to end 5 s after it at most.
const openSlack = 4 * time.Second

var errNoEngine = &engine.Error{Op: "open the session", Kind: engine.ErrUnreachable, Err: fmt.Errorf(
	"the engine did not answer within the command's timeout: %w", context.DeadlineExceeded)}

// sessionFor opens the session, or starts one that release stops.
func (a *Runner) sessionFor(ctx context.Context, in target, rules *policy.Policy) (*sandbox.Session, func(), error) {
	what := "opening the session"
	if in.own {
		what = "starting a session"
	}
	progress := core.NewProgress(a.cfg, what)
	defer progress.Close()
	var spec sandbox.Spec
	if in.own {
		var err error
		if spec, err = a.cfg.ServedSpec(); err != nil {
			return nil, nil, err
		}
		spec.Lease, spec.Secrets = sandbox.DefaultLease, a.secrets.Hosted()
		if spec, err = a.asker.Asking(spec); err != nil {
			return nil, nil, err
		}
	}
	opening := ctx
	if !in.own && a.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		opening, cancel = context.WithTimeoutCause(ctx, a.cfg.Timeout+openSlack, errNoEngine)
		defer cancel()
	}
	sessions, err := a.connection.Sessions(opening, progress.Show, rules)
	if err != nil {
		return nil, nil, err
	}
	if !in.own {
		s, err := a.connection.Open(opening, sessions, in.ref)
		return s, func() { _ = sessions.Close(context.WithoutCancel(ctx)) }, err
	}
	collected := a.artifacts.Collect()
	s, err := sessions.Start(ctx, spec)
	collected()
	if err != nil {
		return nil, nil, err
	}
	a.notes.OfSession(s)
	return s, func() {
		if err := s.Stop(context.WithoutCancel(ctx)); err != nil {
			a.notes.Add(fmt.Sprintf("the session was not removed, and ends by itself within %v: %v", sandbox.DefaultLease, err))
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
	for _, line := range res.Network.Text() {
		a.notes.Add(line)
	}
	if res.Offline {
		a.notes.Add(a.offlineText(res.Session))
	}
	for i, p := range res.Ports {
		res.Ports[i].Command = a.streams.Scrub(p.Command)
		a.notes.Add(portText(res.Session, res.Ports[i]))
	}
	for _, f := range res.Full {
		a.notes.Add(f.String())
	}
	if a.fed.silent(res) {
		a.notes.Add("standard input is an open pipe, and nothing came: if the command waited for it, use --no-stdin (-n)")
	}
	if !a.cfg.Loaded() || a.cfg.JSON {
		j := NewResultJSON(res, err)
		if res.Job != nil {
			job := NewJobJSON(a.streams, res.Job.Info())
			j.Job = &job
		}
		if j.Error != nil {
			j.Error.Message, j.Error.Hint = a.streams.Scrub(j.Error.Message), a.streams.Scrub(j.Error.Hint)
		}
		j.Notes, j.PTY = a.notes.Gathered(), a.onPTY
		if err := stdio.PrintJSON(a.streams.Stdout, j); err != nil {
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

// offlineText says what a command may lack that failed in a session without a network. It names no
// host of the output, because the command chooses what that says.
func (a *Runner) offlineText(session string) string {
	how := "`sandboxbash session allow " + session + " HOST`"
	if a.own {
		how = "`--allow HOST` or a preset, as `--allow @pypi`,"
	}
	return "the session has no network, which may be why the command failed: " + how + " lets it reach a host (docs/dependencies.md)"
}

// limits are what this call holds its command to.
func (a *Runner) limits() exit.Limits {
	return exit.Limits{Timeout: a.cfg.Timeout, Output: a.cfg.Output.Limit}
}

// say tells on standard error what the output and the exit status leave open.
func (a *Runner) say(res sandbox.Result) {
	if text := exit.Ending(res, a.limits()); text != "" && !a.cfg.Quiet {
		fmt.Fprintf(a.streams.Stderr, "sandboxbash: %s\n", text)
	}
	if res.WorkspaceLost {
		a.notes.Add("the workspace was in memory (--disk), and was lost when the session's container was reset: it is empty")
	}
	if res.Room {
		a.notes.Add("what earlier commands had left running was killed, so that this one could start")
	}
	switch art := res.Output.Artifact; {
	case art.Cause == "":
	case art.Stored:
		a.notes.Add(fmt.Sprintf("artifact %s is incomplete: %s", art.ID, art.Cause))
	default:
		a.notes.Add("the full output was not kept: " + art.Cause)
	}
	if res.Dropped > 0 {
		a.notes.Add(fmt.Sprintf("%d bytes of output were not taken in time and are lost", res.Dropped))
	}
}
