package auditcmd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Times of --follow.
const (
	settleTime = 100 * time.Millisecond // without a record before some are printed: a short command is one row
	settleMost = time.Second            // while there are records
	lastTime   = 2 * time.Second        // for the record of a session's end, which is written after it
)

// SessionLogs is the command session logs.
func SessionLogs(p *core.Parts) *cobra.Command {
	a := newCommands(p)
	cmd := &cobra.Command{
		Use: "logs [flags] [SESSION]", SuggestFor: []string{"log", "history"}, Short: "Print what was run in a session",
		Long: `Print what was run in a session, oldest first: its commands, terminals, jobs and copies,
when they began and how they ended. With --follow, keep printing until the session has
ended; what goes on then is printed as running, and again when it has ended.

This is what the audit log has of the session, without secrets: it must be on before,
by audit.enabled: true in the configuration. A session that has ended is named by its id or
a part of it. With --json, print the records as they are, one per line; these include
the connections that ` + "`sandboxbash session network`" + ` shows.`,
		Example:           "  sandboxbash session logs\n  sandboxbash session logs -f web\n  sandboxbash session logs --json web | jq -r .command",
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "job.follow", "json")
	cmd.Flags().Lookup("follow").Usage = "keep printing until the session has ended"
	cmd.RunE = a.connection.AsksOf("", a.sessionLogs)
	return cmd
}

func (a *commands) sessionLogs(ctx context.Context, sessions *sandbox.Engine, ref string, _ []string) error {
	id, lives, err := a.logged(ctx, sessions, ref)
	if err != nil {
		return err
	}
	l := a.list(func(r audit.Record) bool { return r.Session == id })
	l.session = true
	if !a.cfg.Audit.Enabled {
		if err := a.kept(id); err != nil {
			return err
		}
		a.notes.Add("the audit log is off here: what this configuration runs is not printed")
	}
	if !a.cfg.Job.Follow || !lives {
		return printed(l.read())
	}
	during, release := core.Lives(ctx, sessions, id)
	err = l.follow(during)
	release()
	if !errors.Is(err, core.ErrSessionEnded) {
		return err
	}
	last, cancel := context.WithTimeoutCause(ctx, lastTime, core.ErrSessionEnded)
	defer cancel()
	if err = l.follow(last); errors.Is(err, core.ErrSessionEnded) {
		return nil
	}
	return err
}

// logged returns the id of a session of the engine or, if it has none of this name, of one that the log has.
func (a *commands) logged(ctx context.Context, sessions *sandbox.Engine, ref string) (id string, lives bool, err error) {
	info, err := a.connection.Find(ctx, sessions, ref)
	if !errors.Is(err, sandbox.ErrUnknownSession) {
		return info.ID, info.Lives(), err
	}
	known, logErr := a.known()
	if logErr != nil {
		return "", false, err
	}
	if ref == "" {
		ref = a.cfg.Session.ID
	}
	id, err = a.connection.Stored(ctx, known, ref)
	return id, false, err
}

// known are the ids of all sessions in the log.
func (a *commands) known() ([]string, error) {
	known := map[string]bool{}
	err := audit.Each(a.cfg.AuditDir(), func(r audit.Record, _ audit.Problem, _ []byte) error {
		known[r.Session] = true
		return nil
	}, nil)
	delete(known, "")
	return slices.Sorted(maps.Keys(known)), err
}

// kept returns an error if the log has nothing of a session.
func (a *commands) kept(id string) error {
	if known, err := a.known(); err == nil && slices.Contains(known, id) {
		return nil
	}
	return exit.Misuse("keep it from now on with audit.enabled: true in the configuration, or with SANDBOXBASH_AUDIT_ENABLED=true", "the audit log is off, and has no record of session %s", id)
}

// follow prints what there is and what comes, until ctx ends. It returns the cause of that, or nil after the end of
// the session.
func (l *listing) follow(ctx context.Context) error {
	w, err := core.NewWatcher(l.cfg.AuditDir())
	if err != nil {
		return noLog(err)
	}
	defer w.Close()
	if err := w.Cover(); err != nil {
		return err
	}
	for {
		if err := l.read(); err != nil || l.session && l.ended {
			return printed(err)
		}
		if err := w.Wait(ctx, settleTime, settleMost); err != nil {
			return err
		}
	}
}

// printed is an error of output: without a reader the program ends quietly.
func printed(err error) error {
	if stdio.IsBrokenPipe(err) {
		return exit.StatusError(exit.BrokenPipe)
	}
	return err
}
