package sessioncmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// undoer is the commands that make checkpoints and go back to them.
type undoer struct {
	*files

	dryRun, force bool // flags
}

const undoHelp = `Nothing runs in the workspace meanwhile: no command starts, and a job, a terminal or a
program left behind that has files of it open is named, and nothing is done without
--force. Cut off at any point, even by the end of the container, it leaves the workspace
as it was or as it was to be.

--dry-run shows the changed lines as a unified diff, and changes nothing. What checkpoints
leave out stays as it is: ` + "`sandboxbash session checkpoints`" + ` says what that is.

The exit status is 0 if it was done, 1 if files are open or something could not be
brought back (each is named), and 2 if there is nothing to go back to.`

func (a *files) undoCommand() *cobra.Command {
	return a.backCommand(&cobra.Command{
		Use: "undo [flags] [SESSION|--] [N]", Short: "Take back what the last commands have changed in the workspace",
		Long: `Take back what the last commands have changed in the workspace: make it as it was at the
checkpoint before, or N checkpoints before. Changes that have no checkpoint yet get one
first, so that ` + "`sandboxbash session redo`" + ` brings everything back.

` + undoHelp,
		Example: "  sandboxbash session undo --dry-run\n  sandboxbash session undo\n  sandboxbash session undo web 3\n  sandboxbash session undo -- 3",
	}, "sandboxbash session undo -- N", func(ctx context.Context, s *sandbox.Session, words []string, o sandbox.UndoOptions) (sandbox.Undone, error) {
		var err error
		if o.Steps, err = steps(words); err != nil {
			return sandbox.Undone{}, err
		}
		return s.Undo(ctx, o)
	})
}

func (a *files) redoCommand() *cobra.Command {
	return a.backCommand(&cobra.Command{
		Use: "redo [flags] [SESSION|--] [N]", Short: "Take back an undo of the workspace",
		Long: `Take back the last undo, or the last N, as long as nothing else has changed the workspace
since. After that, ` + "`sandboxbash session restore`" + ` still brings any checkpoint back.

` + undoHelp,
		Example: "  sandboxbash session redo\n  sandboxbash session redo -- 2",
	}, "sandboxbash session redo -- N", func(ctx context.Context, s *sandbox.Session, words []string, o sandbox.UndoOptions) (sandbox.Undone, error) {
		var err error
		if o.Steps, err = steps(words); err != nil {
			return sandbox.Undone{}, err
		}
		return s.Redo(ctx, o)
	})
}

func (a *files) restoreCommand() *cobra.Command {
	return a.backCommand(&cobra.Command{
		Use: "restore [flags] SESSION|-- CHECKPOINT [PATH]...", Short: "Make the workspace, or some files of it, as at a checkpoint",
		Long: `Make the workspace as it was at a checkpoint, given by its number or name. With PATHs,
written as from the workspace, only these and what is below them. The state before gets a
checkpoint, and ` + "`sandboxbash session undo`" + ` goes back to it.

` + undoHelp,
		Example: "  sandboxbash session restore -- 3\n  sandboxbash session restore web before-refactoring\n  sandboxbash session restore -- 3 src/main.go docs",
	}, "sandboxbash session restore -- CHECKPOINT", func(ctx context.Context, s *sandbox.Session, words []string, o sandbox.UndoOptions) (sandbox.Undone, error) {
		if len(words) == 0 {
			return sandbox.Undone{}, exit.Misuse("use it as `sandboxbash session restore SESSION CHECKPOINT`; `sandboxbash session checkpoints` lists them", "session restore needs a checkpoint")
		}
		c, err := s.FindCheckpoint(ctx, words[0])
		if err != nil {
			return sandbox.Undone{}, err
		}
		return s.Restore(ctx, c.ID, sandbox.RestoreOptions{Paths: words[1:], DryRun: o.DryRun, Force: o.Force})
	})
}

// steps reads the N of undo and redo.
func steps(words []string) (int, error) {
	if len(words) == 0 {
		return 1, nil
	}
	n, err := strconv.Atoi(words[0])
	if err != nil || n < 1 || len(words) > 1 {
		return 0, exit.Misuse("give it one number, as in `sandboxbash session undo -- 2`", "not a number of checkpoints: %q", strings.Join(words, " "))
	}
	return n, nil
}

type goBack func(ctx context.Context, s *sandbox.Session, words []string, o sandbox.UndoOptions) (sandbox.Undone, error)

// backCommand makes a command one that goes back or forward.
func (a *files) backCommand(cmd *cobra.Command, example string, do goBack) *cobra.Command {
	u := &undoer{files: a}
	cmd.ValidArgsFunction = a.connection.CompleteSession
	flags.Add(cmd, "session.id", "json", "quiet")
	cmd.Flags().BoolVar(&u.dryRun, "dry-run", false, "show the changes as a unified diff, and change nothing")
	cmd.Flags().BoolVar(&u.force, "force", false, "do it although processes have files of the workspace open")
	cmd.RunE = a.connection.AsksOf(example, func(ctx context.Context, sessions *sandbox.Engine, ref string, words []string) error {
		s, err := a.connection.Open(ctx, sessions, ref)
		if err != nil {
			return err
		}
		wait := a.cfg.Waiting("comparing the workspace")
		done, err := do(ctx, s, words, sandbox.UndoOptions{DryRun: u.dryRun, Force: u.force})
		wait.Done()
		if err != nil {
			return u.explain(err)
		}
		return u.show(ctx, done)
	})
	return cmd
}

// explain says what holds files open.
func (u *undoer) explain(err error) error {
	open, ok := errors.AsType[*sandbox.OpenError](err)
	if !ok {
		return err
	}
	for _, p := range open.Processes {
		u.notes.Add(u.streams.Name(openText(p)))
	}
	return err
}

func openText(p sandbox.OpenProcess) string {
	return fmt.Sprintf("process %d (%s) has open: %s", p.PID, p.Command, strings.Join(p.Files, ", "))
}

func (u *undoer) show(ctx context.Context, done sandbox.Undone) error {
	var err error
	switch {
	case u.cfg.JSON:
		err = stdio.PrintJSON(u.streams.Stdout, done)
	case u.dryRun:
		d := &differ{files: u.files}
		paint := u.painter()
		err = done.Patch(ctx, func(f sandbox.FileDiff) error {
			_, err := fmt.Fprint(u.streams.Stdout, paint.lines(d.text(f)))
			return err
		})
	case !u.cfg.Quiet:
		if err = u.showChanges(done.Files, ""); err == nil {
			_, err = fmt.Fprintf(u.streams.Stderr, "the workspace is as at checkpoint %d; redo or restore brings checkpoint %d back\n", done.To, done.From)
		}
	}
	if err != nil {
		return err
	}
	for _, l := range done.Left {
		u.notes.Add(u.streams.Name(l.Path) + ": " + l.Why)
	}
	for _, p := range done.Open {
		u.notes.Add(u.streams.Name(openText(p)))
	}
	if len(done.Left) > 0 {
		return exit.StatusError(exit.Findings)
	}
	return nil
}

func (a *files) checkpointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "checkpoint [flags] [SESSION|--] [NAME]", Short: "Keep the workspace as it is, to come back to it",
		Long: `Keep the workspace as it is, and print the number of the checkpoint. Undo, redo, restore and
diff --checkpoint come back to it. If nothing has changed since the last checkpoint, that one
gets the name.

A session that was started with --checkpoints makes one after each command that has
changed something, while no command waits. A workspace that is a directory of this machine
(bind) has none unless checkpoint.bind is set, and profile dev never has.`,
		Example:           "  sandboxbash session checkpoint\n  sandboxbash session checkpoint web before-refactoring\n  sandboxbash session checkpoint -- before-refactoring",
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "json")
	cmd.RunE = a.connection.AsksOf("sandboxbash session checkpoint -- NAME", func(ctx context.Context, sessions *sandbox.Engine, ref string, words []string) error {
		if len(words) > 1 {
			return exit.Misuse("see `sandboxbash session checkpoint --help`", "session checkpoint takes a session and a name, and was given more words: %q", words)
		}
		s, err := a.connection.Open(ctx, sessions, ref)
		if err != nil {
			return err
		}
		c, err := s.Checkpoint(ctx, flags.Arg(words, 0))
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return stdio.PrintJSON(a.streams.Stdout, c)
		}
		_, err = fmt.Fprintln(a.streams.Stdout, c.ID)
		return err
	})
	return cmd
}

func (a *files) checkpointsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "checkpoints [flags] [SESSION]", Short: "List what undo and restore can come back to",
		Long: `List the checkpoints of a session, what they cover, and what they take. * marks the one
that the workspace is like, or has changed since. The line of a checkpoint says which
files were added (+), modified (~) and deleted (-), and after which commands; their ids,
as in the audit log, are in the JSON.`,
		Example:           "  sandboxbash session checkpoints\n  sandboxbash session checkpoints --json web | jq '.checkpoints[].commands'",
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "json")
	cmd.RunE = a.connection.AsksOf("", func(ctx context.Context, sessions *sandbox.Engine, ref string, _ []string) error {
		s, err := a.connection.Open(ctx, sessions, ref)
		if err != nil {
			return err
		}
		all, err := s.Checkpoints(ctx)
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return stdio.PrintJSON(a.streams.Stdout, all)
		}
		return a.listCheckpoints(all)
	})
	return cmd
}

func (a *files) listCheckpoints(all sandbox.Checkpoints) error {
	for _, c := range all.List {
		mark := " "
		if c.Current {
			mark = "*"
		}
		if _, err := fmt.Fprintf(a.streams.Stdout, "%s %-4d %s  %-12s  %s\n", mark, c.ID, c.Time.Local().Format("15:04:05"), countsText(c), a.streams.Name(originText(c))); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(a.streams.Stdout); err != nil {
		return err
	}
	for _, line := range coverText(all) {
		if _, err := fmt.Fprintln(a.streams.Stdout, a.streams.Name(line)); err != nil {
			return err
		}
	}
	return nil
}

func countsText(c sandbox.Checkpoint) string {
	return fmt.Sprintf("+%d ~%d -%d", c.Added, c.Modified, c.Deleted)
}

// maxOrigin is how much of a command one line shows, in bytes.
const maxOrigin = 40

// originText says where a checkpoint comes from.
func originText(c sandbox.Checkpoint) string {
	var parts []string
	if c.Name != "" {
		parts = append(parts, c.Name)
	}
	if len(c.Commands) == 0 {
		parts = append(parts, map[string]string{
			"start": "(start)", "manual": "(checkpoint)", "undo": "(before an undo)", "restore": "(restored)", "command": "(a command)",
		}[c.Why])
	}
	for i, command := range c.Commands {
		text := strings.Join(strings.Fields(command.Text), " ")
		if text == "" {
			text = command.ID
		}
		if len(text) > maxOrigin {
			text = strings.ToValidUTF8(text[:maxOrigin], "") + "…"
		}
		if i == 1 {
			parts = append(parts, fmt.Sprintf("and %d more", len(c.Commands)-1))
			break
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "  ")
}

// maxUncovered is how many paths a list names.
const maxUncovered = 10

// coverText says what checkpoints cover and take.
func coverText(all sandbox.Checkpoints) []string {
	lines := []string{fmt.Sprintf("%d entries; contents take %s of %s (checkpoint.disk)", all.Entries, units.BytesSize(float64(all.Used)), units.BytesSize(float64(all.Rules.Disk)))}
	if all.Dropped > 0 {
		lines = append(lines, fmt.Sprintf("%d of the oldest checkpoints have made room for others", all.Dropped))
	}
	switch {
	case all.Off != "":
		lines = append(lines, "automatic: off, because "+all.Off)
	case all.Rules.Automatic:
		lines = append(lines, "automatic: after each command that changes something")
	default:
		lines = append(lines, "automatic: off; `session start --checkpoints` has it on")
	}
	rules := fmt.Sprintf("left out: files above %s (checkpoint.max-file)", units.BytesSize(float64(all.Rules.MaxFile)))
	if len(all.Rules.Exclude) > 0 {
		rules += ", " + strings.Join(all.Rules.Exclude, ", ")
	}
	if all.Rules.Gitignore {
		rules += ", what .gitignore says"
	}
	lines = append(lines, fmt.Sprintf("%s: %d paths", rules, all.UncoveredCount))
	for i, u := range all.Uncovered {
		if i == maxUncovered {
			lines = append(lines, "  and more: see --json")
			break
		}
		lines = append(lines, "  "+u.Path+" ("+u.Why+")")
	}
	if n := len(all.Pending); n > 0 {
		lines = append(lines, fmt.Sprintf("%d commands have ended since the last checkpoint", n))
	}
	return lines
}

// checkpoints is diff --checkpoint: two states of the workspace.
func (d *differ) checkpoints(ctx context.Context, sessions *sandbox.Engine, ref string, words []string) error {
	if len(words) > 0 {
		return exit.Misuse("leave it out, or leave out --checkpoint", "with --checkpoint nothing is compared with a directory of this machine: %q", words)
	}
	s, err := d.connection.Open(ctx, sessions, ref)
	if err != nil {
		return err
	}
	first, second, both := strings.Cut(d.between, "..")
	from, err := s.FindCheckpoint(ctx, first)
	if err != nil {
		return err
	}
	to := sandbox.Checkpoint{ID: sandbox.CheckpointNow}
	if both {
		if to, err = s.FindCheckpoint(ctx, second); err != nil {
			return err
		}
	}
	wait := d.cfg.Waiting("comparing the workspace")
	diff, err := s.DiffCheckpoints(ctx, from.ID, to.ID)
	wait.Done()
	if err != nil {
		return err
	}
	if d.patch || d.stat {
		err = d.contents(ctx, diff)
	} else {
		err = d.list(diff.Files)
	}
	if err != nil {
		return err
	}
	return d.status(len(diff.Files) > 0)
}
