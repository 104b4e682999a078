package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

func (a *app) jobCommand() *cobra.Command {
	c := family("job", "Look at commands that run in the background, wait for them and end them",
		`  sandboxbash run --session 0199 --background 'make test'
  sandboxbash job ls
  sandboxbash job output -f bg_1
  sandboxbash job wait bg_1
  sandboxbash job kill bg_1`,
		a.jobListCommand(), a.jobShowCommand(), a.jobOutputCommand(), a.jobWaitCommand(), a.jobKillCommand(), a.jobRemoveCommand())
	c.Long = `A job is a command that goes on without the process that has started it: run and
session exec start one with --background. Its session keeps it, with its output and its
end, and ends it when it is stopped. Jobs that have ended are kept for a day, or five
minutes longer than somebody has waited for them.

--session may be left out where there is one session only, and ID where the job is
meant that was started last.`
	c.GroupID = groupRun
	for _, child := range c.Commands() {
		_ = child.RegisterFlagCompletionFunc("session", a.completeSessions)
		child.ValidArgsFunction = a.completeJobs
	}
	return c
}

// aboutJobs makes a question about the jobs of a session a command's.
func (a *app) aboutJobs(do func(ctx context.Context, s *sandbox.Session, args []string) error) func(*cobra.Command, []string) error {
	return a.asks(func(ctx context.Context, sessions *sandbox.Engine, args []string) error {
		id, err := a.jobSession(ctx, sessions)
		if err != nil {
			return err
		}
		// A job's label is a script, and its output is a command's.
		s, err := a.open(ctx, sessions, id)
		if err != nil {
			return err
		}
		return do(ctx, s, args)
	})
}

// jobSession is --session, or the only session that there is.
func (a *app) jobSession(ctx context.Context, sessions *sandbox.Engine) (string, error) {
	if a.cfg.Session.ID != "" {
		return a.cfg.Session.ID, nil
	}
	list, err := sessions.List(ctx)
	if err != nil {
		return "", err
	}
	if len(list) != 1 {
		return "", misuse("say which with --session; `sandboxbash session ls` lists them", "there are %d sessions", len(list))
	}
	return list[0].ID, nil
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

func (a *app) jobListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List the jobs of a session",
		Example: "  sandboxbash job ls\n  sandboxbash job ls --session 0199 --json | jq -r '.[].id'",
		Args:    words(0, 0, "no arguments"),
	}
	addFlags(cmd, "session.id", "json")
	cmd.RunE = a.aboutJobs(func(ctx context.Context, s *sandbox.Session, _ []string) error {
		all, err := s.Jobs(ctx, "")
		if err != nil {
			return err
		}
		list := []jobJSON{}
		for _, info := range all {
			list = append(list, a.newJobJSON(info))
		}
		if a.cfg.JSON {
			return printJSON(a.stdout, list)
		}
		return a.table("ID\tSTATE\tEXIT\tPID\tAGE\tOUTPUT\tSCRIPT", func(w io.Writer) {
			for _, j := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", j.ID, j.State, j.exit(), j.PID,
					age(j.Started, time.Now()), units.BytesSize(float64(j.Bytes)), oneLine(a.safe(j.Label)))
			}
		})
	})
	return cmd
}

// oneLine makes a script fit a table.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func (a *app) jobShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [flags] [ID]", Short: "Describe a job",
		Example: "  sandboxbash job show bg_1\n  sandboxbash job show --json bg_1",
		Args:    words(0, 1, "the id of a job"),
	}
	addFlags(cmd, "session.id", "json")
	cmd.RunE = a.oneObject(a.aboutJobs(func(ctx context.Context, s *sandbox.Session, args []string) error {
		j, err := jobOf(ctx, s, first(args))
		if err != nil {
			return err
		}
		return a.showJob(j.Info())
	}))
	return cmd
}

func (a *app) showJob(info sandbox.JobInfo) error {
	j := a.newJobJSON(info)
	if a.cfg.JSON {
		return printJSON(a.stdout, j)
	}
	return a.fields([][2]string{
		{"id", j.ID},
		{"state", string(j.State)},
		{"reason", string(j.Reason)},
		{"exit", j.exit()},
		{"pid", fmt.Sprint(j.PID)},
		{"started", info.Started.Local().Format(time.RFC3339)},
		{"elapsed", info.Elapsed.Round(time.Millisecond).String()},
		{"timeout", info.Timeout.String()},
		{"bytes", fmt.Sprint(j.Bytes)},
		{"output", j.OutputFile},
		{"artifact", j.Artifact},
		{"owner", j.Owner},
		{"session", j.Session},
		{"script", oneLine(j.Label)},
	})
}

func (a *app) jobOutputCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "output [flags] [ID]", Short: "Print what a job has written, with its secrets masked",
		Long: `Print what a job has written so far, standard output and standard error as they came,
with secrets masked. With --follow go on until the job has ended.`,
		Example: "  sandboxbash job output bg_1\n  sandboxbash job output -f bg_1\n  sandboxbash job output --session 0199 bg_2 >test.log",
		Args:    words(0, 1, "the id of a job"),
	}
	addFlags(cmd, "session.id", "job.follow", "artifacts.mode", "quiet")
	cmd.RunE = a.aboutJobs(func(ctx context.Context, s *sandbox.Session, args []string) error {
		j, err := jobOf(ctx, s, first(args))
		if err != nil {
			return err
		}
		run, end := context.WithCancelCause(ctx)
		defer end(nil)
		out := a.newLive(run, a.stdout, func() { end(errBrokenPipe) })
		opts := a.outputOptions()
		opts.LiveStdout, opts.Release = out, run.Done()
		_, err = j.Output(run, sandbox.JobOutput{Follow: a.cfg.Job.Follow}, opts)
		out.close()
		if errors.Is(context.Cause(run), errBrokenPipe) {
			return statusError(statusBrokenPipe)
		}
		return err
	})
	return cmd
}

func (a *app) jobWaitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait [flags] [ID]", Short: "Wait for a job's end, and exit as its command did",
		Long: `Wait for a job's end, and exit as its command did: with the exit status that run would
have had. The job's output is kept as run keeps it.`,
		Example: "  sandboxbash job wait bg_1\n  sandboxbash job wait --json bg_1 | jq .exitCode",
		Args:    words(0, 1, "the id of a job"),
	}
	addFlags(cmd, "session.id", "artifacts.mode", "json", "quiet")
	cmd.RunE = a.oneObject(a.aboutJobs(func(ctx context.Context, s *sandbox.Session, args []string) error {
		j, err := jobOf(ctx, s, first(args))
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
			a.note("nobody will know that this job was waited for: " + err.Error())
		}
		return a.sayJob(info, out)
	}))
	return cmd
}

// waitFor waits for the end of a job, and keeps its output as run would.
func (a *app) waitFor(ctx context.Context, j *sandbox.Job) (sink.Output, error) {
	if a.cfg.Artifacts.Mode == "never" && !a.cfg.JSON {
		_, err := j.Wait(ctx)
		return sink.Output{}, err
	}
	out, err := j.Output(ctx, sandbox.JobOutput{Follow: true}, a.outputOptions())
	if err == nil {
		_, err = j.Wait(ctx)
	}
	return out, err
}

// sayJob reports how a job has ended, and returns what to exit with.
func (a *app) sayJob(info sandbox.JobInfo, out sink.Output) error {
	status := statusEngine
	if info.Status != nil {
		status = commandStatus(*info.Status)
	}
	if a.cfg.JSON {
		j := a.newJobJSON(info)
		text := out.Stdout.Text()
		j.Output, j.Truncation = &text, out.Stdout.Truncation
		if err := printJSON(a.stdout, j); err != nil {
			return err
		}
		return statusOf(status)
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
	case exec.TimedOut:
		text = fmt.Sprintf("timed out after %v", info.Timeout)
	default:
		text = ending(sandbox.Result{Status: *info.Status}, a.cfg)
	}
	if text != "" && !a.cfg.Quiet {
		fmt.Fprintf(a.stderr, "sandboxbash: job %s %s\n", info.ID, text)
	}
	return statusOf(status)
}

func (a *app) jobKillCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "kill [flags] ID...", Short: "End jobs, and everything that they have started",
		Example: "  sandboxbash job kill bg_1\n  sandboxbash job kill --session 0199 bg_1 bg_2",
		Args:    words(1, -1, "ids of jobs"),
	}
	addFlags(cmd, "session.id", "quiet")
	cmd.RunE = a.eachJob(func(ctx context.Context, j *sandbox.Job) error {
		_, err := j.Kill(ctx)
		return err
	})
	return cmd
}

func (a *app) jobRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm [flags] ID...", Short: "Forget jobs that have ended, with their output",
		Example: "  sandboxbash job rm bg_1\n  sandboxbash job rm --session 0199 bg_1 bg_2",
		Args:    words(1, -1, "ids of jobs"),
	}
	addFlags(cmd, "session.id", "quiet")
	cmd.RunE = a.eachJob(func(ctx context.Context, j *sandbox.Job) error { return j.Remove(ctx) })
	return cmd
}

// eachJob does the same to several jobs, and prints the ids of those it was done
// to.
func (a *app) eachJob(do func(context.Context, *sandbox.Job) error) func(*cobra.Command, []string) error {
	return a.aboutJobs(func(ctx context.Context, s *sandbox.Session, args []string) error {
		return a.each(args, func(id string) (string, error) {
			j, err := s.Job(ctx, "", id)
			if err == nil {
				err = do(ctx, j)
			}
			return id, err
		})
	})
}

// completeJobs offers the ids of a session's jobs.
func (a *app) completeJobs(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return a.completes(cmd, args, word, func(ctx context.Context, sessions *sandbox.Engine) (ids []string) {
		id, err := a.jobSession(ctx, sessions)
		if err != nil {
			return nil
		}
		s, err := a.open(ctx, sessions, id)
		if err != nil {
			return nil
		}
		all, err := s.Jobs(ctx, "")
		if err != nil {
			return nil
		}
		for _, info := range all {
			ids = append(ids, fmt.Sprintf("%s\t%s: %s", info.ID, info.State, oneLine(a.safe(info.Label))))
		}
		return ids
	})
}
