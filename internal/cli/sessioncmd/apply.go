package sessioncmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

func (a *files) applyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "apply [flags] [SESSION|--] [PATH...]", Short: "Bring what a session has changed to the directory that was copied",
		Long: `Bring what a session has changed in its copy of a directory to the directory itself:
changed, new and deleted files, links and permissions. Your own changes since the copy
stay: a text file that both sides have changed is merged, if git here has the former content
or it is small: then it was kept. If one file cannot be merged, nothing is written and the
files are named.

Either everything is written or nothing, even on a full disk or when this process is
killed: the next apply then undoes what was done. Repositories (.git), files that look
like credentials and links that lead outside are left out and listed. After an apply,
diff and the next apply start from there.

PATH is a file or directory, relative to the workspace; without one, everything.

-p shows each changed file and asks whether it is applied; the answer s asks about each of
its hunks. What you leave stays in the session: diff and the next apply show it again.
--stat counts the lines that change here; with --check it writes nothing.

--branch NAME brings commits instead: those of the branch that is checked out in the
session come to the branch NAME of the repository here, which is new or is moved
forward; SESSION-BRANCH:NAME names the session's branch, too. Git here checks each object,
and your files stay as they are: merge the branch when you have looked at it.`,
		Example: "  sandboxbash session apply --check\n  sandboxbash session apply -- src docs/guide.md\n  sandboxbash session apply -p web\n  sandboxbash session apply --branch agent/fix web\n  git log -p ..agent/fix",

		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "json", "quiet")
	c := &applier{files: a}
	cmd.Flags().BoolVar(&c.check, "check", false, "show what would be done, and write nothing")
	cmd.Flags().StringVar(&c.branch, "branch", "", "bring the session's commits to the branch `NAME` here, or those of one branch with SESSION-BRANCH:NAME")
	cmd.Flags().BoolVar(&c.stat, "stat", false, "show how many lines change")
	cmd.Flags().BoolVarP(&c.patch, "patch", "p", false, "show each changed file, and ask whether it is applied, or which of its hunks")
	cmd.RunE = a.connection.AsksOf("sandboxbash session apply -- PATH", c.run)
	return cmd
}

// applier is the command apply.
type applier struct {
	*files

	check, stat, patch bool // flags
	branch             string
}

func (c *applier) run(ctx context.Context, sessions *sandbox.Engine, ref string, words []string) error {
	switch {
	case c.branch != "" && (c.stat || c.patch):
		return exit.Misuse("leave out one of them", "--branch brings whole commits: --stat and --patch are about files")
	case c.cfg.JSON && (c.stat || c.patch):
		return exit.Misuse("leave out one of them", "--json lists the changes, without the lines of --stat and the questions of --patch")
	}
	if c.patch && !(stdio.IsTerminal(c.streams.Stdin) && stdio.IsTerminal(c.streams.RawStderr)) {
		return exit.Misuse("leave it out, and name the PATHs to apply", "--patch asks on a terminal, and standard input or standard error is none")
	}
	s, done, err := c.open(ctx, sessions, ref)
	if err != nil {
		return err
	}
	defer done()
	dir, err := copiedFrom(s, "", "pull SESSION:. DIR")
	if err != nil {
		return err
	}
	if c.branch != "" {
		return c.commits(ctx, s, dir, words)
	}
	o := sandbox.ApplyOptions{Paths: slices.Clone(words), Check: c.check, Count: c.stat}
	if c.patch {
		if o.Shown, err = c.choose(ctx, s, dir, o.Paths); err != nil || len(o.Shown) == 0 {
			return c.unrecorded(err, s, dir)
		}
	}
	wait := c.cfg.Waiting("applying the changes")
	applied, err := s.Apply(ctx, ".", dir, o)
	wait.Done()
	c.notes.Listed("left out: ", applied.LeftOut)
	c.notes.Listed("deleted in the session, still here with files of yours: ", applied.Kept)
	if err != nil {
		return c.unrecorded(err, s, dir)
	}
	c.notes.Listed("programs of this machine may run what these say; look at them first: ", applied.Runs)
	if c.cfg.Quiet && !c.cfg.JSON {
		return nil
	}
	if c.stat {
		return c.showCounts(applied.Counts)
	}
	return c.showChanges(applied.Changes, " (merged)")
}

// unrecorded is an error of an apply in the user's words.
func (c *applier) unrecorded(err error, s *sandbox.Session, dir string) error {
	if errors.Is(err, sandbox.ErrNotRecorded) {
		return exit.Misuse("get files with `sandboxbash session pull "+s.Info().Name+":. DIR`", "what session %s has changed in %s is not known: it was not copied from there", s.ID(), dir)
	}
	return err
}

// showCounts prints how many lines of each file change, and of all.
func (a *files) showCounts(counts []sandbox.LineCount) error {
	added, removed := 0, 0
	for _, f := range counts {
		added, removed = added+f.Added, removed+f.Removed
		if err := a.counted(f.Path, f.Added, f.Removed, f.Note); err != nil {
			return err
		}
	}
	if len(counts) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(a.streams.Stdout, "%d files, +%d -%d\n", len(counts), added, removed)
	return err
}

// choose shows the changed files at the paths, and returns those that are to be applied.
func (c *applier) choose(ctx context.Context, s *sandbox.Session, dir string, paths []string) ([]sandbox.FileDiff, error) {
	changes, err := s.Changes(ctx, ".", dir)
	if err != nil {
		return nil, err
	}
	show := &differ{files: c.files}
	paint := show.painter()
	ask := &chooser{
		show: func(f sandbox.FileDiff) { fmt.Fprint(c.streams.Stderr, paint.lines(show.text(f))) },
		hunk: func(text string) {
			fmt.Fprint(c.streams.Stderr, paint.lines(c.streams.Clean(visible([]byte(text)))))
		},
		say: func(text string) { fmt.Fprint(c.streams.Stderr, text) },
		in:  bufio.NewReader(c.streams.Stdin),
	}
	err = changes.Patch(ctx, func(f sandbox.FileDiff) error {
		if !atOrBelow(f.Path, paths) {
			return nil
		}
		return ask.file(ctx, f)
	})
	if err == nil && len(ask.taken) == 0 && !c.cfg.Quiet {
		c.notes.Add("nothing was chosen, and nothing was written")
	}
	return ask.taken, err
}

// atOrBelow reports whether a name is one of the paths, or below one.
func atOrBelow(name string, paths []string) bool {
	return len(paths) == 0 || slices.ContainsFunc(paths, func(p string) bool {
		p = path.Clean(filepath.ToSlash(p))
		return p == "." || name == p || strings.HasPrefix(name, p+"/")
	})
}

const (
	fileHelp = `y - apply this file
n - leave it as it is here
a - apply this file and all that follow
q - leave this file and all that follow as they are here
`
	splitHelp = "s - choose among its hunks\n"
	hunkHelp  = `y - apply this hunk
n - leave it
a - apply this hunk and the rest of the file
d - leave this hunk and the rest of the file
q - leave this hunk and all that follows, in other files, too
`
	thisHelp = "? - this text\n"
)

// chooser asks about one file after the other.
type chooser struct {
	show func(sandbox.FileDiff)
	hunk func(text string) // shows it
	say  func(text string)
	in   *bufio.Reader

	taken []sandbox.FileDiff
	rest  byte // 'a' or 'q': the answer for all that follow
}

// file asks about one file.
func (c *chooser) file(ctx context.Context, f sandbox.FileDiff) error {
	answer, hunks := c.rest, []string(nil)
	if answer == 0 {
		c.show(f)
		letters, help := "y,n,a,q", fileHelp
		if hunks = hunksOf(f); len(hunks) > 1 {
			letters, help = "y,n,s,a,q", fileHelp+splitHelp
		}
		var err error
		if answer, err = c.choice(ctx, "apply this file?", letters, help); err != nil {
			return err
		}
	}
	switch answer {
	case 'y':
		c.take(f)
	case 'a':
		c.rest = answer
		c.take(f)
	case 'q':
		c.rest = answer
	case 's':
		return c.split(ctx, f, hunks)
	}
	return nil
}

// split asks about the hunks of a file.
func (c *chooser) split(ctx context.Context, f sandbox.FileDiff, hunks []string) error {
	taken, rest := make([]bool, len(hunks)), byte(0)
	for i, text := range hunks {
		answer := rest
		if rest == 0 {
			c.hunk(text)
			var err error
			if answer, err = c.choice(ctx, fmt.Sprintf("apply this hunk (%d/%d)?", i+1, len(hunks)), "y,n,a,d,q", hunkHelp); err != nil {
				return err
			}
		}
		if answer == 'a' || answer == 'd' || answer == 'q' {
			rest = answer
		}
		taken[i] = answer == 'y' || answer == 'a'
	}
	if rest == 'q' {
		c.rest = rest
	}
	switch {
	case !slices.Contains(taken, true):
		return nil
	case !slices.Contains(taken, false):
		c.take(f)
		return nil
	}
	mode := false
	if otherMode(f) {
		mode, taken = taken[0], taken[1:]
	}
	part, err := f.Part(mode, taken)
	c.taken = append(c.taken, part)
	return err
}

// hunksOf returns what can be chosen of a file that was modified: other permissions, then its hunks.
func hunksOf(f sandbox.FileDiff) (out []string) {
	if f.Kind != "modified" || len(f.Hunks) == 0 {
		return nil
	}
	if otherMode(f) {
		out = append(out, modeLines(f))
	}
	return append(out, f.EachHunk()...)
}

// choice asks until the answer is one of the letters. The end of the input is a q.
func (c *chooser) choice(ctx context.Context, question, letters, help string) (byte, error) {
	for {
		c.say(question + " [" + letters + ",?] ")
		answer, err := c.answer(ctx)
		if err != nil || answer != ',' && strings.IndexByte(letters, answer) >= 0 {
			return answer, err
		}
		c.say(help + thisHelp)
	}
}

func (c *chooser) take(f sandbox.FileDiff) {
	f.Hunks = nil
	c.taken = append(c.taken, f)
}

// answer reads a line, and returns its letter.
func (c *chooser) answer(ctx context.Context) (byte, error) {
	type line struct {
		text string
		err  error
	}
	read := make(chan line, 1)
	go func() { // a terminal's read does not end with ctx; the process does
		text, err := c.in.ReadString('\n')
		read <- line{text, err}
	}()
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case l := <-read:
		text := strings.ToLower(strings.TrimSpace(l.text))
		switch {
		case text == "" && errors.Is(l.err, io.EOF):
			return 'q', nil
		case l.err != nil && !errors.Is(l.err, io.EOF):
			return 0, l.err
		case len(text) == 1:
			return text[0], nil
		}
		return '?', nil
	}
}

// commits brings the commits of a session to a branch.
func (c *applier) commits(ctx context.Context, s *sandbox.Session, dir string, paths []string) error {
	if len(paths) > 0 {
		return exit.Misuse("leave out the paths, or --branch", "--branch brings whole commits, not single paths")
	}
	o := sandbox.CommitOptions{Branch: c.branch, Check: c.check}
	if from, to, ok := strings.Cut(c.branch, ":"); ok {
		o.From, o.Branch = from, to
	}
	done, err := s.ApplyCommits(ctx, ".", dir, o)
	if err != nil {
		return err
	}
	c.notes.Listed("programs of this machine may run what these say once they are checked out; look at them first: ", done.Runs)
	switch {
	case c.cfg.JSON:
		return stdio.PrintJSON(c.streams.Stdout, done)
	case c.cfg.Quiet:
		return nil
	}
	_, err = fmt.Fprintln(c.streams.Stdout, c.streams.Name(commitsText(done)))
	return err
}

// commitsText says in a line what has become of commits.
func commitsText(done sandbox.AppliedCommits) string {
	from := done.From
	if from == "" {
		from = "HEAD"
	}
	short := done.Tip[:min(len(done.Tip), 12)]
	switch {
	case done.Commits == 0 && done.Was == "":
		return fmt.Sprintf("nothing new: all commits of %s (%s) are here, and no branch was made", from, short)
	case done.Was == done.Tip:
		return fmt.Sprintf("nothing new: %s is at %s already", done.Branch, short)
	case done.Commits == 1:
		return fmt.Sprintf("%s: 1 commit of %s (%s)", done.Branch, from, short)
	}
	return fmt.Sprintf("%s: %d commits of %s (%s)", done.Branch, done.Commits, from, short)
}
