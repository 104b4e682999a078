package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/audit"
	"github.com/sandboxbash/sandboxbash/exec"
)

func (a *app) auditCommand() *cobra.Command {
	c := family("audit", "Look at the audit log, and check it",
		`  sandboxbash audit show --since 24h
  sandboxbash audit verify
  sandboxbash audit verify --head 5e8848…`,
		a.auditShowCommand(), a.auditVerifyCommand())
	c.Long = `Look at the audit log, and check it. It is kept where audit.enabled or audit.required
says so: a record of each command and session, without secrets, each with the hash of
the record before it. See docs/audit.md.`
	c.GroupID = groupOutput
	return c
}

func (a *app) auditVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify [flags]", Short: "Check that no record was changed, removed, moved or put in",
		Long: `Check that no record was changed, removed, moved or put in. Exits with 1 if one was,
and says which. A last line that was cut off while it was written is told, and is no
problem: it fits what was to come. The head that it prints is the hash of the last record: note it
elsewhere. That the end of the log was cut off, or that all of it was written anew,
shows only with --head and one that was noted before.`,
		Example: "  sandboxbash audit verify\n  sandboxbash audit verify --json | jq -r .head",
		Args:    words(0, 0, "no arguments"),
	}
	addFlags(cmd, "audit.head", "json")
	cmd.RunE = a.does(func(context.Context, []string) error { return a.auditVerify() })
	return cmd
}

func (a *app) auditVerify() error {
	r, err := audit.Verify(a.auditDir(), a.cfg.Audit.Head)
	if err != nil {
		return noAuditLog(err)
	}
	status := 0
	if len(r.Problems) > 0 {
		status = statusFindings
	}
	if a.cfg.JSON {
		if r.Problems == nil {
			r.Problems = []audit.Problem{}
		}
		if r.Unclosed == nil {
			r.Unclosed = []audit.Record{}
		}
		return errors.Join(printJSON(a.stdout, r), statusOf(status))
	}
	for _, p := range r.Problems {
		fmt.Fprintf(a.stdout, "%s\n", a.safe(p.String()))
	}
	if r.Torn != nil {
		fmt.Fprintf(a.stdout, "%s: whoever wrote it was killed, or the machine failed; it counts as never written\n", a.safe(r.Torn.String()))
	}
	for _, u := range r.Unclosed {
		fmt.Fprintf(a.stdout, "no outcome of command %s in session %s, begun %s: %s\n", a.safe(u.ID), a.safe(u.Session), u.Time.Format(time.RFC3339), writerOf(u))
	}
	if r.Missed > 0 {
		fmt.Fprintf(a.stdout, "%d records could not be written\n", r.Missed)
	}
	verdict := "good"
	if status != 0 {
		verdict = fmt.Sprintf("%d problems", len(r.Problems))
	}
	fmt.Fprintf(a.stdout, "%s: %d records in %d files\nhead %s\n", verdict, r.Records, r.Files, r.Head)
	return statusOf(status)
}

// noAuditLog says what to do where there is no log.
func noAuditLog(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return misuse("it is kept from the first command on, with audit.enabled: true in the configuration", "there is no audit log: %v", err)
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

func (a *app) auditShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [flags]", Short: "Show what is recorded, oldest first",
		Long: `Show what is recorded, oldest first: each command with what became of it, and what
was done with sessions. With --json the records as they are, one a line.`,
		Example: "  sandboxbash audit show --since 24h\n  sandboxbash audit show --session 0199 --json | jq -r .command",
		Args:    words(0, 0, "no arguments"),
	}
	addFlags(cmd, "session.id", "audit.since", "json")
	cmd.RunE = a.does(func(context.Context, []string) error { return a.auditShow() })
	return cmd
}

func (a *app) auditShow() error {
	since, err := sinceWhen(a.cfg.Audit.Since, time.Now())
	if err != nil {
		return err
	}
	id := a.cfg.Session.ID
	wanted := func(r audit.Record) bool {
		return !r.Time.Before(since) && strings.HasPrefix(r.Session, id) && (id == "" || r.Session != "")
	}
	if a.cfg.JSON {
		err := audit.Each(a.auditDir(), func(r audit.Record, _ audit.Problem, line []byte) error {
			if !wanted(r) {
				return nil
			}
			_, err := a.stdout.Write(append(line, '\n'))
			return err
		}, nil)
		return noAuditLog(err)
	}
	var rows []audit.Record
	at := map[string]int{} // of intents, in rows
	err = audit.Each(a.auditDir(), func(r audit.Record, _ audit.Problem, _ []byte) error {
		i, begun := at[r.ID]
		switch {
		case r.Kind == audit.Outcome && begun:
			r.Command, r.Policy, r.Time = rows[i].Command, rows[i].Policy, rows[i].Time
			rows[i] = r
		case wanted(r):
			if r.Kind == audit.Intent {
				at[r.ID] = len(rows)
			}
			rows = append(rows, r)
		}
		return nil
	}, nil)
	if err != nil {
		return noAuditLog(err)
	}
	return a.auditTable(rows)
}

// auditTable prints records for a reader.
func (a *app) auditTable(rows []audit.Record) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tSESSION\tWHAT\tEND\tWHERE\tCOMMAND")
	for _, r := range rows {
		what := string(r.Kind)
		if r.Kind == audit.Intent || r.Kind == audit.Outcome {
			what = r.Mode
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Time.Local().Format(time.DateTime), a.safe(r.Session), a.safe(what), a.safe(auditEnd(r)), a.safe(r.Where), a.auditCommandText(r))
	}
	return w.Flush()
}

// shownCommand is how much of a command a row shows, in characters.
const shownCommand = 80

// auditCommandText is a command on one line.
func (a *app) auditCommandText(r audit.Record) string {
	text := []rune(strings.Join(strings.Fields(a.safe(r.Command)), " "))
	if len(text) > shownCommand {
		return string(text[:shownCommand]) + "…"
	}
	return string(text)
}

// auditEnd is what became of what a record is of.
func auditEnd(r audit.Record) string {
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
		return signalName(r.Signal)
	case r.Reason != "":
		return r.Reason
	}
	return "-"
}

// sinceWhen reads a time, or how long ago it was; "" is the begin of all.
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
		return time.Time{}, misuse("give a time as in 2026-01-31T15:04:05Z or 2026-01-31, or how long ago, as in 90m or 7d", "--since: %q is no time", text)
	}
	return now.Add(-d), nil
}
