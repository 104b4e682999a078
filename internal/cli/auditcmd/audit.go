// Package auditcmd is the command audit: the audit log, shown and verified.
package auditcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

// commands are the audit commands.
type commands struct {
	streams    *stdio.Streams
	cfg        *core.Configuration
	secrets    *core.Secrets
	notes      *core.Notes
	connection *core.Connection // for references of sessions
}

func newCommands(p *core.Parts) *commands {
	return &commands{streams: p.Streams, cfg: p.Cfg, secrets: p.Secrets, notes: p.Notes, connection: p.Connection}
}

// Command is the command audit.
func Command(p *core.Parts) *cobra.Command {
	a := newCommands(p)
	c := flags.Family("audit", "Show and verify the audit log",
		`  sandboxbash audit show --since 24h
  sandboxbash audit verify
  sandboxbash audit verify --head 5e8848…`,
		a.showCommand(), a.verifyCommand())
	c.Long = `Show and verify the audit log. It is kept if audit.enabled or audit.required is set: a
record of each command and session, without secrets, each with the hash of the record
before it. See docs/audit.md.`
	c.GroupID = flags.GroupOutput
	return c
}

func (a *commands) verifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify [flags]", Short: "Check that no record was changed, removed, moved or inserted",
		Long: `Check that no record was changed, removed, moved or inserted. Exit status 1 if one was;
the output says which. A last line that was cut off while it was being written is
reported, and does not count as a problem. The head that is printed is the hash of the
last record: keep it elsewhere. Only --head with an earlier head reveals that the end of
the log was cut off, or that the whole log was rewritten.`,
		Example: "  sandboxbash audit verify\n  sandboxbash audit verify --json | jq -r .head",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "audit.head", "json")
	cmd.RunE = a.cfg.Does(func(context.Context, []string) error { return a.verify() })
	return cmd
}

func (a *commands) verify() error {
	r, err := audit.Verify(a.cfg.AuditDir(), a.cfg.Audit.Head)
	if err != nil {
		return noLog(err)
	}
	status := 0
	if len(r.Problems) > 0 {
		status = exit.Findings
	}
	if a.cfg.JSON {
		if r.Problems == nil {
			r.Problems = []audit.Problem{}
		}
		if r.Unclosed == nil {
			r.Unclosed = []audit.Record{}
		}
		return errors.Join(stdio.PrintJSON(a.streams.Stdout, r), exit.With(status))
	}
	for _, p := range r.Problems {
		fmt.Fprintf(a.streams.Stdout, "%s\n", a.streams.Safe(p.String()))
	}
	if r.Torn != nil {
		fmt.Fprintf(a.streams.Stdout, "%s: its writer was killed or the machine failed; it counts as never written\n", a.streams.Safe(r.Torn.String()))
	}
	for _, u := range r.Unclosed {
		fmt.Fprintf(a.streams.Stdout, "no outcome of command %s in session %s, begun %s: %s\n", a.streams.Safe(u.ID), a.streams.Safe(u.Session), u.Time.Format(time.RFC3339), writerOf(u))
	}
	if r.Missed > 0 {
		fmt.Fprintf(a.streams.Stdout, "%d records could not be written\n", r.Missed)
	}
	verdict := "good"
	if status != 0 {
		verdict = fmt.Sprintf("%d problems", len(r.Problems))
	}
	fmt.Fprintf(a.streams.Stdout, "%s: %d records in %d files\nhead %s\n", verdict, r.Records, r.Files, r.Head)
	return exit.With(status)
}

// noLog says what to do where there is no log.
func noLog(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return exit.Misuse("it is kept from the first command on, with audit.enabled: true in the configuration", "there is no audit log: %v", err)
	}
	return err
}

// writerOf says whether the process is there that would record a command's end.
func writerOf(r audit.Record) string {
	if alive(r.PID) {
		return fmt.Sprintf("process %d runs it, or has its number by now", r.PID)
	}
	return fmt.Sprintf("process %d has gone without recording it", r.PID)
}

func (a *commands) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [flags]", Short: "Show the records, oldest first",
		Long: `Show the records, oldest first: each command with its outcome, and the starts and stops
of sessions. With --follow, go on with new ones until Ctrl-C; what has not ended then is
printed again when it has. With --json, print the records as they are, one per line.`,
		Example: "  sandboxbash audit show --since 24h\n  sandboxbash audit show --follow\n  sandboxbash audit show -s web --json | jq -r .command",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "session.id", "audit.since", "job.follow", "json")
	cmd.Flags().Lookup("follow").Usage = "go on with new records until Ctrl-C"
	cmd.RunE = a.cfg.Does(func(ctx context.Context, _ []string) error { return a.show(ctx) })
	return cmd
}

func (a *commands) show(ctx context.Context) error {
	since, err := sinceWhen(a.cfg.Audit.Since, time.Now())
	if err != nil {
		return err
	}
	id, err := a.session(ctx)
	if err != nil {
		return err
	}
	l := a.list(func(r audit.Record) bool { return !r.Time.Before(since) && (id == "" || r.Session == id) })
	if a.cfg.Job.Follow {
		return l.follow(ctx)
	}
	return l.read()
}

// session returns the id of --session, "" for all.
func (a *commands) session(ctx context.Context) (string, error) {
	if a.cfg.Session.ID == "" {
		return "", nil
	}
	known, err := a.known()
	if err != nil {
		return "", noLog(err)
	}
	id, err := a.connection.Stored(ctx, known, a.cfg.Session.ID)
	if _, wrong := errors.AsType[*exit.UsageError](err); err != nil && !wrong {
		return a.cfg.Session.ID, nil // neither the log nor the engine knows it
	}
	return id, err
}

// end is what became of what a record is of.
func end(r audit.Record) string {
	switch {
	case r.Kind == audit.Intent:
		return "unknown: " + writerOf(r)
	case r.Kind == audit.Denied && r.Policy != nil:
		return "denied by " + r.Policy.Rule
	case r.Error != nil:
		return r.Error.Outcome + ": " + r.Error.Cause
	case r.Code != nil:
		return fmt.Sprintf("exit %d", *r.Code)
	case r.Reason == string(exec.HandedOver):
		return "job " + r.Job
	case r.Signal != 0 && r.Reason == string(exec.Signalled):
		return exit.SignalName(r.Signal)
	case r.Reason != "":
		return r.Reason
	}
	return "-"
}

// sinceWhen reads a time, or how long ago it was; "" is the start of the log.
func sinceWhen(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if d, err = time.ParseDuration(days + "h"); err == nil {
			d *= 24
		}
	}
	if err != nil || d < 0 {
		return time.Time{}, exit.Misuse("give a time as in 2026-01-31T15:04:05Z or 2026-01-31, or how long ago, as in 90m or 7d", "--since: %q is not a time", text)
	}
	return now.Add(-d), nil
}
