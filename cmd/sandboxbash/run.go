package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] [--] SCRIPT [ARG...]",
		Short: "Run one script, in a session of its own or in one there is",
		Long: `Run one script, in a session of its own that is gone afterwards, or with --session
in one there is.

SCRIPT is one word for the shell; - reads it from standard input, --file from a
file. Further words are $1 and so on. Standard output and standard error are passed
on as they come: byte by byte into a pipe or file, made safe on a terminal.`,
		Example: `  sandboxbash run 'echo hi; id'
  sandboxbash run --workspace copy:. --timeout 10m 'make test'
  sandboxbash run 'printf "%s\n" "$@"' one two
  sandboxbash run --json --file build.sh
  tar c . | sandboxbash run --stdin 'tar x && make'
  sandboxbash run --session 0199 'cat result.txt'`,
		GroupID: groupRun,
	}
	cmd.Flags().SetInterspersed(false)
	addFlags(cmd, "session.id")
	addFlags(cmd, sessionFlags...)
	addFlags(cmd, commandFlags...)
	_ = cmd.RegisterFlagCompletionFunc("session", a.completeSessions)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.asJSON(cmd, func() error {
			if err := a.load(cmd); err != nil {
				return err
			}
			if err := sessionConflict(cmd, a.cfg.Session.ID); err != nil {
				return err
			}
			return a.runScript(cmd.Context(), a.cfg.Session.ID, args)
		})
	}
	return cmd
}

// sessionConflict refuses flags that an existing session cannot follow.
func sessionConflict(cmd *cobra.Command, id string) error {
	if id == "" {
		return nil
	}
	for _, key := range sessionFlags {
		if s, _ := config.Lookup(key); cmd.Flags().Changed(s.Flag) {
			return misuse("leave it out, or start a session of that kind with `sandboxbash session start`",
				"--%s cannot change session %s, which there is already", s.Flag, id)
		}
	}
	return nil
}

// asJSON prints an error of do as the JSON object that --json promises.
func (a *app) asJSON(cmd *cobra.Command, do func() error) error {
	err := do()
	if err != nil {
		a.addReport(sandbox.Result{}, err)
	}
	asked, _ := cmd.Flags().GetBool("json")
	if a.cfg != nil {
		asked = a.cfg.JSON
	}
	if _, said := errors.AsType[statusError](err); err == nil || said || !asked {
		return err
	}
	return a.finish(cmd.Context(), sandbox.Result{}, err)
}

// oneObject has a command that prints one object with --json print one for its
// error too.
func (a *app) oneObject(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if _, said := errors.AsType[statusError](err); err == nil || said || a.cfg == nil || !a.cfg.JSON {
			return err
		}
		v := judge(err)
		j := struct {
			Error errorJSON `json:"error"`
			Notes []string  `json:"notes,omitempty"`
		}{errorJSON{Outcome: v.outcome, Cause: v.cause, Message: a.scrub(wordsOf(err))}, a.takeNotes()}
		if err := printJSON(a.stdout, j); err != nil {
			return err
		}
		return statusOf(v.status)
	}
}

// runScript runs a script in a session, or in one of its own if id is "".
func (a *app) runScript(ctx context.Context, id string, args []string) error {
	if err := a.checkReports(); err != nil {
		a.reported = true // as far as can be
		return err
	}
	script, rest, err := a.script(ctx, args)
	if err != nil {
		return err
	}
	a.ran = script
	if err := a.secrets(ctx); err != nil {
		return err
	}
	command := sandbox.Command{
		Script: script, Args: rest, Shell: a.cfg.Shell, Env: a.commandEnv(), Dir: a.cfg.Run.Dir,
		Timeout: a.cfg.Timeout, Exclusive: a.cfg.Run.Exclusive, Output: a.outputOptions(), Job: a.jobOptions(),
	}
	if a.cfg.Run.Stdin {
		command.Stdin = a.stdin
	}
	if a.cfg.Run.Background || command.Job != nil {
		if err := jobConflict(id, command); err != nil {
			return err
		}
		if a.cfg.PTY.Ask {
			return misuse("leave out one of them", "a job has no terminal (--pty)")
		}
	}
	if err := a.previewConflict(); err != nil {
		return err
	}
	if err := a.admit(command); err != nil {
		return err
	}
	session, release, err := a.sessionFor(ctx, id)
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
	return a.runIn(ctx, session, release, command)
}

// admit refuses what must not or cannot run. That needs no session, so it is not
// left to the session's Run.
func (a *app) admit(command sandbox.Command) error {
	if err := command.Check(); err != nil {
		return err
	}
	var err error
	if a.rules, err = a.runPolicy(); err != nil {
		return err
	}
	if d := a.rules.Check(policy.Input{Script: command.Script}); d.Blocked {
		if o := a.observer(); o != nil {
			o.Note(sandbox.Denial(a.cfg.Session.ID, command, d, a.masks))
		}
		return &policy.Denial{Decision: d}
	}
	return nil
}

// jobConflict refuses what a job cannot have.
func jobConflict(id string, command sandbox.Command) error {
	switch {
	case id == "":
		return misuse("start one with `sandboxbash session start`, and name it with --session", "a job needs a session that is there when it has been started")
	case command.Stdin != nil:
		return misuse("put what it is to read into a file of the session", "a job has no standard input")
	}
	return nil
}

// runIn runs the command, lets go of the session and reports the result.
func (a *app) runIn(ctx context.Context, session *sandbox.Session, release func(), command sandbox.Command) error {
	run, end := context.WithCancelCause(ctx)
	defer end(nil)
	stderr := a.stderr
	if a.cfg.Run.Preview {
		command.Output.Streams = sink.Merged
	} else if !a.cfg.JSON {
		broken := func() { end(errBrokenPipe) }
		out, errs := a.newLive(run, a.stdout, broken), a.newLive(run, a.stderr, broken)
		defer errs.close()
		command.Output.LiveStdout, command.Output.LiveStderr = out, errs
		res, err := session.Run(run, command)
		out.close()
		release()
		if errors.Is(context.Cause(run), errBrokenPipe) {
			return statusError(statusBrokenPipe)
		}
		a.stderr = errs // what is said of the result must not wait for ever either
		defer func() { a.stderr = stderr }()
		return a.finish(ctx, res, err)
	}
	res, err := session.Run(run, command)
	release()
	if a.cfg.Run.Preview && err == nil {
		fmt.Fprint(a.stdout, a.preview(command, res))
	}
	return a.finish(ctx, res, err)
}

// openSlack is how long after a command's timeout its session may still be looked
// for: the call is to end 5 s after it at most.
const openSlack = 4 * time.Second

var errNoEngine = &engine.Error{Op: "open the session", Kind: engine.ErrUnreachable, Err: fmt.Errorf(
	"the engine does not answer before the command's time is over: %w", context.DeadlineExceeded)}

// sessionFor opens the session, or starts one that release stops.
func (a *app) sessionFor(ctx context.Context, id string) (*sandbox.Session, func(), error) {
	progress := a.progress()
	defer progress.close()
	var spec sandbox.Spec
	if id == "" {
		var err error
		if spec, err = a.spec(); err != nil {
			return nil, nil, err
		}
		spec.Lease = sandbox.DefaultLease
	}
	opening := ctx
	if id != "" && a.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		opening, cancel = context.WithTimeoutCause(ctx, a.cfg.Timeout+openSlack, errNoEngine)
		defer cancel()
	}
	sessions, err := a.sessions(opening, progress.show)
	if err != nil {
		return nil, nil, err
	}
	if id != "" {
		s, err := sessions.Open(opening, id)
		return s, func() { _ = sessions.Close(context.WithoutCancel(ctx)) }, err
	}
	collected := a.collect()
	s, err := sessions.Start(ctx, spec)
	collected()
	if err != nil {
		return nil, nil, err
	}
	a.startNotes(s)
	return s, func() {
		if err := s.Stop(context.WithoutCancel(ctx)); err != nil {
			a.note(fmt.Sprintf("the session was not removed, and ends by itself within %v: %v", sandbox.DefaultLease, err))
		}
	}, nil
}

// startNotes tells what the owner of a fresh session should know.
func (a *app) startNotes(s *sandbox.Session) {
	for _, n := range s.Notes() {
		a.note(n)
	}
	if left := s.LeftOut(); len(left) > 0 {
		a.note("left out of the workspace, because they look like credentials: " + someOf(left))
	}
}

// maxNamed is how many names a note lists.
const maxNamed = 10

func someOf(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// outputOptions says what is kept of a command's output.
func (a *app) outputOptions() sink.Options {
	return sink.Options{
		Window: sink.Tail(int(a.cfg.Output.Window)), Limit: a.cfg.Output.Limit, Artifact: a.artifactMode(),
		Text: sink.Text{Return: sink.RewindReturn, Invisible: sink.ShowInvisible},
	}
}

// artifactMode says when a command's output is kept.
func (a *app) artifactMode() sink.ArtifactMode {
	modes := map[string]sink.ArtifactMode{"overflow": sink.OnOverflow, "always": sink.Always, "never": sink.Never}
	return modes[a.cfg.Artifacts.Mode]
}

// finish reports a result or an error, and returns what to exit with.
func (a *app) finish(ctx context.Context, res sandbox.Result, err error) error {
	if err != nil && ctx.Err() != nil && judge(err).outcome == exec.NotStarted {
		err = &exec.Error{Outcome: exec.NotStarted, Cause: exec.CauseCancelled, Err: context.Cause(ctx)}
	}
	status := commandStatus(res.Status)
	if err != nil {
		status = judge(err).status
	}
	a.addReport(res, err)
	if a.cfg == nil || a.cfg.JSON {
		j := newResultJSON(res, err)
		if res.Job != nil {
			job := a.newJobJSON(res.Job.Info())
			j.Job = &job
		}
		if j.Error != nil {
			j.Error.Message = a.scrub(j.Error.Message)
		}
		j.Notes, j.PTY = a.takeNotes(), a.onPTY
		if err := printJSON(a.stdout, j); err != nil {
			return err
		}
		return statusOf(status)
	}
	if err != nil {
		return err
	}
	a.say(res)
	return statusOf(status)
}

func statusOf(status int) error {
	if status == 0 {
		return nil
	}
	return statusError(status)
}

// say tells on standard error what the output and the exit status leave open.
func (a *app) say(res sandbox.Result) {
	if text := ending(res, a.cfg); text != "" && !a.cfg.Quiet {
		fmt.Fprintf(a.stderr, "sandboxbash: %s\n", text)
	}
	if res.Room {
		a.note("what earlier commands had left running was killed, so that this one could start")
	}
	switch art := res.Output.Artifact; {
	case art.Cause == "":
	case art.Stored:
		a.note(fmt.Sprintf("artifact %s is incomplete: %s", art.ID, art.Cause))
	default:
		a.note("the full output was not kept: " + art.Cause)
	}
	if res.Dropped > 0 {
		a.note(fmt.Sprintf("%d bytes of output were not taken in time and are lost", res.Dropped))
	}
}

// ending says how a command ended that did not end by itself.
func ending(res sandbox.Result, cfg *config.Config) string {
	var text string
	switch res.Reason {
	case exec.TimedOut:
		text = fmt.Sprintf("timed out after %v", cfg.Timeout)
	case exec.Cancelled:
		text = "cancelled"
	case exec.OutputLimit:
		text = fmt.Sprintf("ended at the output limit of %d bytes", cfg.Output.Limit)
	case exec.OOMKilled:
		return "ended by the kernel at the memory limit; give the session more with --memory"
	case exec.Signalled:
		return "ended by " + signalName(res.Signal)
	case exec.HandedOver:
		return fmt.Sprintf("it goes on as job %s, process group %d, with its output in %s", res.Job.ID(), res.Job.Info().PID, res.Job.Info().OutputFile)
	case exec.Exited:
		return ""
	}
	if res.Killed != "" {
		text += fmt.Sprintf(" (killed: %s)", res.Killed)
	}
	return text
}
