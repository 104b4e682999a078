package sessioncmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

func (a *files) syncCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sync [flags] [SESSION]", Short: "Bring your changes of the copied directory into a session",
		Long: `Bring what was changed in the directory that was copied since then to the session's copy:
changed, new and deleted files, links and permissions. What the session has changed, too, is
never replaced: it stays as it is on both sides and is listed as a conflict (C), and the
exit status is 1. To choose a side, copy the file:
` + "`session cp FILE :FILE`, or `session cp -f :FILE FILE`" + `.

Repositories (.git) are brought whole or, if the session has used them, too, not at all.
Files that look like credentials stay here, and so does what --exclude, --exclude-from and
--gitignore say: name the same each time. Afterwards diff and apply are still about what
the session has changed, and nothing else.

--watch goes on until Ctrl-C or the session's end, and brings each change as you save it.
The other way is ` + "`session apply`" + `, or --back, which does it afterwards, with the rules of apply.`,
		Example:           "  sandboxbash session sync --check\n  sandboxbash session sync web\n  sandboxbash session sync --watch",
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "json", "quiet")
	c := &syncer{files: a}
	cmd.Flags().BoolVar(&c.check, "check", false, "show what would be done, and write nothing")
	cmd.Flags().BoolVar(&c.watch, "watch", false, "go on until Ctrl-C, and bring each change")
	cmd.Flags().BoolVar(&c.back, "back", false, "then bring the session's changes here, as apply does")
	c.excludes.add(cmd)
	flags.OneOf(cmd, "watch", "check", "json")
	alone := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, words []string) error {
		if c.watch && c.back {
			return exit.Misuse("leave out one of them; `sandboxbash session apply` brings changes here whenever you say so", "--watch only brings changes into the session")
		}
		return alone(cmd, words)
	}
	cmd.RunE = a.connection.AsksOf("", c.run)
	return cmd
}

// syncer is the command sync.
type syncer struct {
	*files

	excludes
	check, watch, back bool // flags
}

// syncedJSON is the JSON document of sync.
type syncedJSON struct {
	sandbox.Synced

	Back []sandbox.Change `json:"back,omitempty"`
}

func (c *syncer) run(ctx context.Context, sessions *sandbox.Engine, ref string, _ []string) error {
	s, err := c.connection.Open(ctx, sessions, ref)
	if err != nil {
		return err
	}
	dir, err := copiedFrom(s, "", "cp DIR/. SESSION:")
	if err != nil {
		return err
	}
	if err := c.read(); err != nil {
		return err
	}
	if c.watch {
		return c.follow(ctx, sessions, s, dir)
	}
	skip, err := c.skipOf(ctx, dir)
	if err != nil {
		return err
	}
	wait := c.cfg.Waiting("bringing changes in")
	done, err := s.Sync(ctx, sandbox.SyncOptions{Check: c.check, Skip: skip})
	wait.Done()
	if err != nil {
		return c.unrecorded(c.showSome(done, err), s, dir)
	}
	if c.cfg.JSON {
		out := syncedJSON{Synced: done}
		out.Changes, out.Conflicts = orEmpty(out.Changes), orEmpty(out.Conflicts)
		if c.back {
			applied, err := s.Apply(ctx, ".", dir, sandbox.ApplyOptions{Check: c.check})
			if err != nil {
				return err
			}
			out.Back = orEmpty(applied.Changes)
		}
		err = stdio.PrintJSON(c.streams.Stdout, out)
	} else {
		err = c.show(done)
	}
	if err == nil && c.back && !c.cfg.JSON {
		err = c.bringBack(ctx, s, dir)
	}
	if err == nil && len(done.Conflicts) > 0 {
		err = exit.StatusError(exit.Findings)
	}
	return err
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// unrecorded is an error of a sync in the user's words.
func (c *syncer) unrecorded(err error, s *sandbox.Session, dir string) error {
	if errors.Is(err, sandbox.ErrNotRecorded) {
		return exit.Misuse("copy files with `sandboxbash session cp SRC "+s.Info().Name+":`", "what session %s had of %s is not known: it was not copied from there", s.ID(), dir)
	}
	return err
}

// show prints what a sync did.
func (c *syncer) show(done sandbox.Synced) error {
	if !c.cfg.Quiet {
		if err := c.showChanges(done.Changes, ""); err != nil {
			return err
		}
	}
	for _, conflict := range done.Conflicts {
		if _, err := fmt.Fprintf(c.streams.Stdout, "C %s (%s)\n", c.streams.Name(conflict.Path), conflict.Why); err != nil {
			return err
		}
	}
	if done.Files > 0 && !c.cfg.Quiet {
		_, err := fmt.Fprintln(c.streams.Stderr, copiedText(done.Files, done.Bytes, 0))
		return err
	}
	return nil
}

// showSome prints what a sync did until it failed. A document of --json is whole or not there.
func (c *syncer) showSome(done sandbox.Synced, err error) error {
	if c.cfg.JSON || len(done.Changes) == 0 {
		return err
	}
	return errors.Join(c.show(done), err)
}

// bringBack applies what the session has changed.
func (c *syncer) bringBack(ctx context.Context, s *sandbox.Session, dir string) error {
	applied, err := s.Apply(ctx, ".", dir, sandbox.ApplyOptions{Check: c.check})
	c.notes.Listed("left out: ", applied.LeftOut)
	c.notes.Listed("deleted in the session, still here with files of yours: ", applied.Kept)
	if err != nil {
		return err
	}
	c.notes.Listed("programs of this machine may run what these say; look at them first: ", applied.Runs)
	if c.cfg.Quiet || len(applied.Changes) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(c.streams.Stdout, "back:"); err != nil {
		return err
	}
	return c.showChanges(applied.Changes, " (merged)")
}

// Times of --watch.
const (
	settleTime = 100 * time.Millisecond // without a change before a sync: editors and git write several files
	settleMost = time.Second            // while there are changes
	finishTime = 5 * time.Second        // for a sync that Ctrl-C meets: what it brings is told
)

// follow syncs, and does so again after each change, until it is interrupted or the session has ended.
func (c *syncer) follow(ctx context.Context, sessions *sandbox.Engine, s *sandbox.Session, dir string) error {
	w, err := core.NewWatcher(dir)
	if err != nil {
		return err
	}
	defer w.Close()
	lives, release := core.Lives(ctx, sessions, s.ID())
	defer release()
	var told []sandbox.SyncConflict
	for {
		if err := w.Cover(); err != nil { // before the sync: what changes during it is noticed
			return err
		}
		done, err := c.syncWhole(ctx, s, dir)
		if err != nil {
			err = c.showSome(done, err)
			if errors.Is(context.Cause(ctx), exit.ErrInterrupted) {
				return nil
			}
			return c.unrecorded(err, s, dir)
		}
		all := done.Conflicts
		done.Conflicts = slices.DeleteFunc(slices.Clone(all), func(x sandbox.SyncConflict) bool { return slices.Contains(told, x) })
		told = all
		if err := c.show(done); err != nil {
			return err
		}
		err = w.Wait(lives, settleTime, settleMost)
		if errors.Is(err, core.ErrSessionEnded) {
			_, err = c.syncWhole(ctx, s, dir) // it says what became of the session
			return cmp.Or(err, core.ErrSessionEnded)
		}
		if err != nil {
			if errors.Is(context.Cause(ctx), exit.ErrInterrupted) {
				return nil // that is how it ends
			}
			return err
		}
	}
}

// syncWhole is Sync, which has finishTime left when ctx ends, so that a change that came into the session
// is listed before the program ends.
func (c *syncer) syncWhole(ctx context.Context, s *sandbox.Session, dir string) (sandbox.Synced, error) {
	skip, err := c.skipOf(ctx, dir)
	if err != nil {
		return sandbox.Synced{}, err
	}
	whole, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(finishTime):
			cancel(context.Cause(ctx))
		case <-whole.Done():
		}
	})
	defer stop()
	return s.Sync(whole, sandbox.SyncOptions{Skip: skip})
}
