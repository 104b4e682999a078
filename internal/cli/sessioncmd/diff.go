package sessioncmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

func (a *files) diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff [flags] [SESSION|--] [DIR]", Short: "Show what a session has changed in its copy of a directory",
		Long: `Show what a session has changed since its workspace was copied, pulled or applied: A
added, M modified, D deleted, T changed type. (both) marks files that were changed here,
too. What was changed only here is not shown. Commits in .git are summed up.

DIR is the directory to compare with, by default the one that was copied. If it never had
anything in common with the session, all differences are shown.`,
		Example:           "  sandboxbash session diff -u\n  sandboxbash session diff web\n  sandboxbash session diff --exit-code web ./expected",
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "json", "diff.exit-code")
	d := &differ{files: a}
	cmd.Flags().BoolVarP(&d.patch, "patch", "u", false, "show the changed lines, as a unified diff")
	cmd.Flags().BoolVar(&d.stat, "stat", false, "show how many lines were changed")
	cmd.Flags().BoolVar(&d.names, "name-only", false, "show the names alone")
	flags.OneOf(cmd, "patch", "stat", "name-only", "json")
	cmd.RunE = a.connection.AsksOf("sandboxbash session diff -- DIR", d.run)
	return cmd
}

// differ is the command diff.
type differ struct {
	*files

	patch, stat, names bool // flags
}

// copiedFrom returns the directory that a command is about, of this machine.
func copiedFrom(s *sandbox.Session, dir, verb string) (string, error) {
	todo := "name the directory: `sandboxbash session " + verb + "`"
	if dir == "" {
		if dir = s.Info().Workspace.Dir; dir == "" {
			return "", exit.Misuse(todo, "the workspace of session %s is not a copy of a directory", s.ID())
		}
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", exit.Misuse(todo, "%s is not a directory of this machine", dir)
	}
	return dir, nil
}

func (d *differ) run(ctx context.Context, sessions *sandbox.Engine, ref string, words []string) error {
	if len(words) > 1 {
		return exit.Misuse("see `sandboxbash session diff --help`", "session diff takes a session and a directory, and was given more words: %q", words)
	}
	s, done, err := d.open(ctx, sessions, ref)
	if err != nil {
		return err
	}
	defer done()
	dir, err := copiedFrom(s, flags.Arg(words, 0), "diff SESSION DIR")
	if err != nil {
		return err
	}
	wait := d.cfg.Waiting("comparing the workspace")
	changes, err := s.Changes(ctx, ".", dir)
	wait.Done()
	if errors.Is(err, sandbox.ErrNotRecorded) || errors.Is(err, sandbox.ErrRecordAltered) {
		return d.all(ctx, s, dir, err)
	}
	if err != nil {
		return err
	}
	switch {
	case d.patch || d.stat:
		err = d.contents(ctx, changes)
	default:
		err = d.list(changes.Files)
	}
	if err == nil && !d.cfg.JSON && !d.names {
		err = d.summary(changes.Repository)
	}
	if err != nil {
		return err
	}
	return d.status(len(changes.Files) > 0)
}

// all shows all differences to a directory of which nothing is known.
func (d *differ) all(ctx context.Context, s *sandbox.Session, dir string, why error) error {
	if d.patch || d.stat {
		return exit.Misuse("leave out the flag, or name the directory that was copied", "what the session has changed is not known: %v", why)
	}
	if errors.Is(why, sandbox.ErrRecordAltered) {
		d.notes.Add("all differences are shown: " + why.Error())
	}
	wait := d.cfg.Waiting("comparing the workspace")
	changes, err := s.Diff(ctx, ".", dir)
	wait.Done()
	if err != nil {
		return err
	}
	if err := d.list(changes); err != nil {
		return err
	}
	return d.status(len(changes) > 0)
}

func (d *differ) status(differs bool) error {
	if d.cfg.ExitCode && differs {
		return exit.StatusError(exit.Findings)
	}
	return nil
}

func (d *differ) list(changes []sandbox.Change) error {
	if d.names {
		for _, c := range changes {
			if _, err := fmt.Fprintln(d.streams.Stdout, d.streams.Name(c.Path)); err != nil {
				return err
			}
		}
		return nil
	}
	return d.showChanges(changes, " (both)")
}

// showChanges prints changes, one a line. both marks those that were made here, too.
func (a *files) showChanges(changes []sandbox.Change, both string) error {
	if a.cfg.JSON {
		if changes == nil {
			changes = []sandbox.Change{}
		}
		return stdio.PrintJSON(a.streams.Stdout, changes)
	}
	letters := map[string]string{"added": "A", "modified": "M", "deleted": "D", "type": "T"}
	for _, c := range changes {
		by := ""
		if c.By == sandbox.ChangedByBoth {
			by = both
		}
		if _, err := fmt.Fprintf(a.streams.Stdout, "%s %s%s\n", letters[c.Kind], a.streams.Name(c.Path), by); err != nil {
			return err
		}
	}
	return nil
}

// summary says what the session has done in the repository.
func (d *differ) summary(r sandbox.Repository) error {
	text := r.String()
	if text == "" {
		return nil
	}
	_, err := fmt.Fprintf(d.streams.Stdout, ".git: %s\n", d.streams.Name(text))
	return err
}

// contents shows the changed lines, or counts them.
func (d *differ) contents(ctx context.Context, changes *sandbox.Changes) error {
	paint := d.painter()
	total := [3]int{}
	err := changes.Patch(ctx, func(f sandbox.FileDiff) error {
		total[0]++
		total[1] += f.Added
		total[2] += f.Removed
		if d.stat {
			return d.counted(f.Path, f.Added, f.Removed, f.Note)
		}
		_, err := fmt.Fprint(d.streams.Stdout, paint.lines(d.text(f)))
		return err
	})
	if err == nil && d.stat && total[0] > 0 {
		_, err = fmt.Fprintf(d.streams.Stdout, "%d files, +%d -%d\n", total[0], total[1], total[2])
	}
	return err
}

// painter colours on a terminal, unless the user does without.
func (a *files) painter() painter {
	return painter{on: a.streams.Colours(a.streams.Stdout)}
}

// counted prints how many lines of a file are changed.
func (a *files) counted(name string, added, removed int, note string) error {
	counts := fmt.Sprintf("+%d -%d", added, removed)
	if note != "" {
		counts = note
	}
	_, err := fmt.Fprintf(a.streams.Stdout, "%s | %s\n", a.streams.Name(name), counts)
	return err
}

// text is one file as a unified diff has it, safe for a terminal.
func (d *differ) text(f sandbox.FileDiff) string {
	var b strings.Builder
	name := d.streams.Name(f.Path)
	fmt.Fprintf(&b, "diff a/%s b/%s\n", name, name)
	switch {
	case f.Was == nil:
		fmt.Fprintf(&b, "new file mode %s\n", modeText(f.Now))
	case f.Now == nil:
		fmt.Fprintf(&b, "deleted file mode %s\n", modeText(f.Was))
	case otherMode(f):
		b.WriteString(modeLines(f))
	}
	was, now := linkText(f.Was), linkText(f.Now)
	if was != "" || now != "" {
		fmt.Fprintf(&b, "link from %s to %s\n", d.streams.Name(was), d.streams.Name(now))
	}
	switch {
	case f.Note != "":
		fmt.Fprintf(&b, "(%s)\n", f.Note)
	case len(f.Hunks) > 0:
		from, to := "a/"+name, "b/"+name
		if f.Was == nil {
			from = "/dev/null"
		}
		if f.Now == nil {
			to = "/dev/null"
		}
		fmt.Fprintf(&b, "--- %s\n+++ %s\n%s", from, to, d.streams.Clean(visible(f.Hunks)))
	}
	return b.String()
}

// visible shows the control characters of a text, but for tabs and the ends of lines: what a
// terminal would do instead of showing them must not be hidden in a change.
func visible(text []byte) string {
	var b strings.Builder
	for _, r := range string(text) {
		if r < ' ' && r != '\t' && r != '\n' || r >= 0x7f && r < 0xa0 {
			fmt.Fprintf(&b, "\\x%02x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// modeText is a mode as git writes it.
func modeText(f *sandbox.FileState) string {
	if f.Mode&fs.ModeSymlink != 0 {
		return "120000"
	}
	return fmt.Sprintf("100%03o", f.Mode.Perm())
}

// otherMode reports whether the permissions of a file that was modified differ.
func otherMode(f sandbox.FileDiff) bool { return modeText(f.Was) != modeText(f.Now) }

func modeLines(f sandbox.FileDiff) string {
	return fmt.Sprintf("old mode %s\nnew mode %s\n", modeText(f.Was), modeText(f.Now))
}

// linkText is the target of a link, "" for anything else.
func linkText(f *sandbox.FileState) string {
	if f == nil {
		return ""
	}
	return f.Target
}

// painter colours the lines of a diff, on a terminal.
type painter struct{ on bool }

func (p painter) lines(text string) string {
	if !p.on {
		return text
	}
	var b strings.Builder
	header := true
	for line := range strings.Lines(text) {
		color := ""
		switch {
		case strings.HasPrefix(line, "@@"):
			header, color = false, "36"
		case header:
			color = "1"
		case line[0] == '+':
			color = "32"
		case line[0] == '-':
			color = "31"
		}
		if color == "" {
			b.WriteString(line)
			continue
		}
		fmt.Fprintf(&b, "\x1b[%sm%s\x1b[m\n", color, strings.TrimSuffix(line, "\n"))
	}
	return b.String()
}
