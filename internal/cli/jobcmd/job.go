// Package jobcmd is the command job: the commands that run on in a session without the process
// that started them.
package jobcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// commands are the job commands.
type commands struct {
	streams    *stdio.Streams
	cfg        *core.Configuration
	notes      *core.Notes
	connection *core.Connection
}

// Command is the command job.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{streams: p.Streams, cfg: p.Cfg, notes: p.Notes, connection: p.Connection}
	c := flags.Family("job", "List, read, wait for and stop background commands",
		`  sandboxbash session exec --background -- 'make test'
  sandboxbash job ls
  sandboxbash job logs -f bg_1
  sandboxbash job wait bg_1
  sandboxbash job stop bg_1`,
		a.listCommand(), a.showCommand(), a.logsCommand(), a.waitCommand(), a.stopCommand(), a.removeCommand())
	c.Long = `A job is a command that outlives the process that started it: run and session exec
start one with --background. The session keeps the job's output and outcome, and kills
the job when the session is stopped. A job that has ended is kept for a day, or for five
minutes after a wait for it has returned.

ID defaults to the job that was started last.
` + core.References
	c.GroupID = flags.GroupRun
	for _, child := range c.Commands() {
		_ = child.RegisterFlagCompletionFunc("session", a.connection.CompleteSessions)
		child.ValidArgsFunction = a.completeJobs
	}
	return c
}

// aboutJobs makes a question about the jobs of a session a command's.
func (a *commands) aboutJobs(do func(ctx context.Context, s *sandbox.Session, args []string) error) func(*cobra.Command, []string) error {
	return a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		// A job's label is a script, and its output is a command's.
		s, err := a.connection.Open(ctx, sessions, "")
		if err != nil {
			return err
		}
		return do(ctx, s, args)
	})
}

// jobOf finds the job of an id; "" is the one that was started last.
func jobOf(ctx context.Context, s *sandbox.Session, id string) (*sandbox.Job, error) {
	if id != "" {
		return s.Job(ctx, "", id)
	}
	all, err := s.Jobs(ctx, "")
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("session %s has none: %w", s.ID(), sandbox.ErrUnknownJob)
	}
	last := slices.MaxFunc(all, func(x, y sandbox.JobInfo) int { return x.Started.Compare(y.Started) })
	return s.Job(ctx, "", last.ID)
}

func (a *commands) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List the jobs of a session",
		Example: "  sandboxbash job ls\n  sandboxbash job ls -s web --json | jq -r '.[].id'",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "session.id", "json")
	cmd.RunE = a.aboutJobs(func(ctx context.Context, s *sandbox.Session, _ []string) error {
		all, err := s.Jobs(ctx, "")
		if err != nil {
			return err
		}
		var list []runcmd.JobJSON
		for _, info := range all {
			list = append(list, runcmd.NewJobJSON(a.streams, info))
		}
		return core.List(a.cfg, list, "ID\tSTATE\tEXIT\tPID\tAGE\tTIMEOUT\tOUTPUT\tSCRIPT", func(j runcmd.JobJSON) string {
			return fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s", j.ID, j.State, j.Exit(), j.PID,
				stdio.Age(j.Started, time.Now()), j.TimeoutText(), units.BytesSize(float64(j.Bytes)), stdio.OneLine(a.streams.Name(stdio.OneLine(j.Label))))
		})
	})
	return cmd
}

func (a *commands) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [flags] [ID]", Short: "Describe a job",
		Example: "  sandboxbash job show bg_1\n  sandboxbash job show --json bg_1",
		Args:    flags.Args(0, 1, "the id of a job"),
	}
	flags.Add(cmd, "session.id", "json")
	cmd.RunE = a.notes.OneObject(a.aboutJobs(func(ctx context.Context, s *sandbox.Session, args []string) error {
		j, err := jobOf(ctx, s, flags.Arg(args, 0))
		if err != nil {
			return err
		}
		return a.show(j.Info())
	}))
	return cmd
}

func (a *commands) show(info sandbox.JobInfo) error {
	j := runcmd.NewJobJSON(a.streams, info)
	if a.cfg.JSON {
		return stdio.PrintJSON(a.streams.Stdout, j)
	}
	var full []string
	for _, f := range info.Full {
		full = append(full, f.String())
	}
	return a.streams.Fields([][2]string{
		{"id", j.ID},
		{"state", string(j.State)},
		{"reason", string(j.Reason)},
		{"exit", j.Exit()},
		{"pid", fmt.Sprint(j.PID)},
		{"started", info.Started.Local().Format(time.RFC3339)},
		{"elapsed", info.Elapsed.Round(time.Millisecond).String()},
		{"timeout", j.TimeoutText()},
		{"bytes", fmt.Sprint(j.Bytes)},
		{"output", j.OutputFile},
		{"full", strings.Join(full, "; ")},
		{"artifact", j.Artifact},
		{"owner", j.Owner},
		{"session", j.Session},
		{"script", stdio.OneLine(j.Label)},
	})
}

func (a *commands) logsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "logs [flags] [ID]", SuggestFor: []string{"output"}, Short: "Print what a job has written, with its secrets masked",
		Long: `Print what a job has written so far, standard output and standard error interleaved,
with secrets masked. With --follow, keep printing until the job has ended.`,
		Example: "  sandboxbash job logs bg_1\n  sandboxbash job logs -f bg_1\n  sandboxbash job logs -s web bg_2 >test.log",
		Args:    flags.Args(0, 1, "the id of a job"),
	}
	flags.Add(cmd, "session.id", "job.follow", "artifacts.mode", "quiet")
	cmd.RunE = a.aboutJobs(func(ctx context.Context, s *sandbox.Session, args []string) error {
		j, err := jobOf(ctx, s, flags.Arg(args, 0))
		if err != nil {
			return err
		}
		run, end := context.WithCancelCause(ctx)
		defer end(nil)
		out := a.streams.NewLive(run, a.streams.Stdout, func() { end(exit.ErrBrokenPipe) })
		defer out.Close()
		opts := a.cfg.OutputOptions()
		opts.LiveStdout, opts.Release = out, run.Done()
		kept, err := j.Output(run, sandbox.JobOutput{Follow: a.cfg.Job.Follow}, opts)
		lost, writeErr := out.Flush(ctx)
		if errors.Is(context.Cause(run), exit.ErrBrokenPipe) || stdio.IsBrokenPipe(writeErr) {
			return exit.StatusError(exit.BrokenPipe)
		}
		if err != nil {
			return err
		}
		return a.streams.Undelivered(ctx, lost, cmp.Or(kept.Stdout.Live, writeErr), nil)
	})
	return cmd
}

func (a *commands) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait [flags] [ID]", Short: "Wait for a job to end, and exit as its command did",
		Long: `Wait for a job to end, and exit with the status that run would have had. The job's
output is kept as run keeps it.`,
		Example: "  sandboxbash job wait bg_1\n  sandboxbash job wait --json bg_1 | jq .exitCode",
		Args:    flags.Args(0, 1, "the id of a job"),
	}
	flags.Add(cmd, "session.id", "artifacts.mode", "json", "quiet")
	cmd.RunE = a.notes.OneObject(a.aboutJobs(func(ctx context.Context, s *sandbox.Session, args []string) error {
		j, err := jobOf(ctx, s, flags.Arg(args, 0))
		if err != nil {
			return err
		}
		out, err := a.waitFor(ctx, j)
		if err != nil {
			return err
		}
		info, err := j.Now(ctx)
		if err != nil {
			return err
		}
		if err := j.Acknowledge(ctx); err != nil {
			a.notes.Add("it is not recorded that this job was waited for: " + err.Error())
		}
		return a.say(info, out)
	}))
	return cmd
}

// waitFor waits for the end of a job, and keeps its output as run would.
func (a *commands) waitFor(ctx context.Context, j *sandbox.Job) (sink.Output, error) {
	if a.cfg.Artifacts.Mode == "never" && !a.cfg.JSON {
		_, err := j.Wait(ctx)
		return sink.Output{}, err
	}
	out, err := j.Output(ctx, sandbox.JobOutput{Follow: true}, a.cfg.OutputOptions())
	if err == nil {
		_, err = j.Wait(ctx)
	}
	return out, err
}

// say reports how a job has ended, and returns what to exit with.
func (a *commands) say(info sandbox.JobInfo, out sink.Output) error {
	status := exit.Engine
	if info.Status != nil {
		status = exit.OfCommand(*info.Status)
	}
	if a.cfg.JSON {
		j := runcmd.NewJobJSON(a.streams, info)
		text := out.Stdout.Text()
		j.Output, j.Truncation = &text, out.Stdout.Truncation
		if err := stdio.PrintJSON(a.streams.Stdout, j); err != nil {
			return err
		}
		return exit.With(status)
	}
	var text string
	switch info.Reason {
	case sandbox.JobLost:
		return fmt.Errorf("session %s: job %s: %w", info.Session, info.ID, &exec.Error{
			Outcome: exec.Unknown, Cause: exec.CauseRunnerLost, Err: errors.New("its container was reset, or its runner was killed"),
		})
	case sandbox.JobMissing:
		return fmt.Errorf("session %s: job %s: %w", info.Session, info.ID, &exec.Error{
			Outcome: exec.Unknown, Cause: exec.CauseProtocol, Err: errors.New("its record is not from this session's runners: a command has tampered with it"),
		})
	default:
		text = exit.Ending(sandbox.Result{Status: *info.Status}, exit.Limits{Timeout: info.Timeout, Output: a.cfg.Output.Limit})
	}
	if text != "" && !a.cfg.Quiet {
		fmt.Fprintf(a.streams.Stderr, "sandboxbash: job %s %s\n", info.ID, text)
	}
	return exit.With(status)
}

func (a *commands) stopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop [flags] ID...", Aliases: []string{"kill"}, Short: "End jobs and everything they have started",
		Long: `End jobs and everything they have started: with SIGTERM, and then with SIGKILL. Their
output and outcome are kept; ` + "`sandboxbash job rm`" + ` removes them.`,
		Example: "  sandboxbash job stop bg_1\n  sandboxbash job stop -s web bg_1 bg_2",
		Args:    flags.Args(1, -1, "ids of jobs"),
	}
	flags.Add(cmd, "session.id", "quiet")
	cmd.RunE = a.eachJob(func(ctx context.Context, s *sandbox.Session, id string) error {
		_, err := s.KillJob(ctx, "", id)
		return err
	})
	return cmd
}

func (a *commands) removeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm [flags] ID...", Short: "Remove jobs that have ended, with their output",
		Example: "  sandboxbash job rm bg_1\n  sandboxbash job rm -s web bg_1 bg_2",
		Args:    flags.Args(1, -1, "ids of jobs"),
	}
	flags.Add(cmd, "session.id", "quiet")
	cmd.RunE = a.eachJob(func(ctx context.Context, s *sandbox.Session, id string) error {
		j, err := s.Job(ctx, "", id)
		if err == nil {
			err = j.Remove(ctx)
		}
		return err
	})
	return cmd
}

// eachJob does the same to several jobs, and prints the ids of those it was done
// to.
func (a *commands) eachJob(do func(ctx context.Context, s *sandbox.Session, id string) error) func(*cobra.Command, []string) error {
	return a.aboutJobs(func(ctx context.Context, s *sandbox.Session, args []string) error {
		return core.Each(a.streams.Listing(a.cfg.Quiet), args, func(id string) (string, error) { return id, do(ctx, s, id) })
	})
}

// completeJobs offers the ids of a session's jobs.
func (a *commands) completeJobs(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return a.connection.Completes(cmd, args, word, func(ctx context.Context, sessions *sandbox.Engine) (ids []string) {
		s, err := a.connection.Open(ctx, sessions, "")
		if err != nil {
			return nil
		}
		all, err := s.Jobs(ctx, "")
		if err != nil {
			return nil
		}
		for _, info := range all {
			ids = append(ids, fmt.Sprintf("%s\t%s: %s", info.ID, info.State, stdio.OneLine(a.streams.Name(stdio.OneLine(info.Label)))))
		}
		return ids
	})
}
