package sessioncmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

func (a *files) copyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cp [flags] SRC... DST", Short: "Copy files and directories into a session, or out of one",
		Long: `Copy files and directories into a session, or out of one, with the rules of cp -r. One
side is of a session: SESSION:PATH, or :PATH for the session of this directory. A relative
PATH starts at the workspace. ./a:b is a file of this machine that has a colon in its name.

If DST is a directory or ends in a slash, SRC goes into it under its own name. Otherwise it
gets the name DST, which only a single SRC can. DIR/. stands for what is in DIR. Missing
directories are created. - as SRC is standard input, for a file in the session; - as DST
is standard output, for one file of the session.

Files that look like credentials are left out and listed, unless they are named. --exclude
and the like say what else of a directory is left out; their patterns start at each SRC.

Into a session, files are overwritten. Out of a session nothing is written outside DST, nor
what programs of this machine would run, such as hooks and configuration in .git, nor links
that lead outside. A file here is not overwritten if it was changed since it was copied or, if
SRC is a directory, if it is not known to be a copy: then nothing of that SRC is written.
--force overwrites such files. Nothing is deleted.`,
		Example: "  sandboxbash session cp main.go go.mod :src/\n  sandboxbash session cp --gitignore . web:/workspace/app\n" +
			"  sandboxbash session cp web:dist/. ./public\n  sandboxbash session cp :a.log :b.log logs/\n  git diff | sandboxbash session cp - :change.patch\n  sandboxbash session cp :report.csv - | head",
		Args: flags.Args(2, -1, "what to copy, and where to"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if strings.Contains(word, ":") {
				return a.connection.CompletePath(cmd, args, word)
			}
			return nil, cobra.ShellCompDirectiveDefault // a file of this machine
		},
	}
	flags.Add(cmd, "session.id", "quiet")
	c := &copier{files: a}
	c.excludes.add(cmd)
	cmd.Flags().BoolVarP(&c.force, "force", "f", false, "overwrite files that were changed here since they were copied")
	cmd.Flags().BoolP("recursive", "r", false, "copy directories whole, which is always done")
	cmd.PreRunE = func(_ *cobra.Command, words []string) error { return c.prepare(words) }
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error { return c.run(ctx, sessions) })
	return cmd
}

// copier is the command cp.
type copier struct {
	*files
	excludes

	force bool // the flag

	from []position // what prepare has read
	to   position
}

// position is a word of the command line: a path of a session, or of this machine.
type position struct {
	word   string
	inside bool   // of a session
	ref    string // the session; "" for the default one
	path   string
}

// placeOf reads a word. What has a slash before its first colon is of this machine, and so is a drive of
// Windows.
func placeOf(word string) position {
	ref, path, ok := strings.Cut(word, ":")
	if !ok || strings.ContainsAny(ref, `/`) || strings.HasPrefix(word, ".") || filepath.VolumeName(word) != "" {
		return position{word: word, path: word}
	}
	if path == "" {
		path = "."
	}
	return position{word: word, inside: true, ref: ref, path: path}
}

// placesOf reads the words of a command line, and checks that they fit each other.
func placesOf(words []string) (from []position, to position, err error) {
	const form = "write one side as SESSION:PATH, or :PATH for the session of this directory, as in `sandboxbash session cp file :`"
	for _, word := range words[:len(words)-1] {
		p := placeOf(word)
		if word == "" {
			return nil, to, exit.Misuse("leave it out, or name a file", "a source is empty")
		}
		if from, err = together(from, p); err != nil {
			return nil, to, err
		}
	}
	to = placeOf(words[len(words)-1])
	switch {
	case to.word == "":
		return nil, to, exit.Misuse("name where to; . is this directory", "the destination is empty")
	case !from[0].inside && !to.inside:
		return nil, to, exit.Misuse(form, "neither %q nor %q is in a session", from[0].word, to.word)
	case from[0].inside && to.inside:
		return nil, to, exit.Misuse("within a session use `sandboxbash session exec`; between two, copy to this machine first", "%q and %q are both in a session", from[0].word, to.word)
	}
	for _, p := range append(from, to) {
		if p.word == "-" && len(from) > 1 {
			return nil, to, exit.Misuse("copy it on its own; ./- is a file of that name", "- stands for one file, and there are several")
		}
	}
	return from, to, nil
}

// together adds a source to others, which are in the same place.
func together(from []position, p position) ([]position, error) {
	if len(from) > 0 && (p.inside != from[0].inside || p.ref != from[0].ref) {
		return nil, exit.Misuse("copy from one of them at a time", "%q and %q are not in the same place", from[0].word, p.word)
	}
	return append(from, p), nil
}

// prepare checks the command line, before any engine is asked.
func (c *copier) prepare(words []string) (err error) {
	if c.from, c.to, err = placesOf(words); err != nil {
		return err
	}
	if c.git && c.from[0].inside {
		return exit.Misuse("use --exclude or --exclude-from", "--gitignore is about files of this machine: git here does not know those of a session")
	}
	if !c.to.inside && c.to.word != "-" {
		if err := fits(c.from, c.to.path); err != nil {
			return err
		}
	}
	return c.read()
}

// fits checks that paths of a session can go to one of this machine: several need a directory, and names that
// differ.
func fits(from []position, to string) error {
	into := strings.HasSuffix(to, "/") || strings.HasSuffix(to, string(filepath.Separator))
	if info, err := os.Stat(to); err == nil {
		into = info.IsDir()
	}
	if len(from) > 1 && !into {
		return exit.Misuse("end it in a slash to have it made", "%s is not a directory, and several sources need one", to)
	}
	names := map[string]string{}
	for _, p := range from {
		if sandbox.IsContents(p.path) {
			continue
		}
		name := path.Base(path.Clean(p.path))
		if other, ok := names[name]; ok {
			return exit.Misuse("copy them one after the other", "%s and %s have one name", other, p.word)
		}
		names[name] = p.word
	}
	return nil
}

func (c *copier) run(ctx context.Context, sessions *sandbox.Engine) error {
	from, to := c.from, c.to
	if to.inside {
		return c.into(ctx, sessions, from, to)
	}
	s, done, err := c.open(ctx, sessions, from[0].ref)
	if err != nil {
		return err
	}
	defer done()
	if to.word == "-" {
		return c.print(ctx, s, from[0].path)
	}
	return c.out(ctx, s, from, to.path)
}

// into copies into a session.
func (c *copier) into(ctx context.Context, sessions *sandbox.Engine, from []position, to position) error {
	if from[0].word == "-" {
		return c.stdin(ctx, sessions, to)
	}
	var sources []sandbox.Source
	for _, p := range from {
		skip, err := c.skipOf(ctx, p.path)
		if err != nil {
			return err
		}
		sources = append(sources, sandbox.Source{Path: p.path, Skip: skip})
	}
	s, err := c.connection.Open(ctx, sessions, to.ref)
	if err != nil {
		return err
	}
	wait := c.cfg.Waiting("copying into the session")
	done, err := s.CopyIn(ctx, sources, to.path)
	wait.Done()
	if err != nil {
		return err
	}
	c.notes.Listed("left out, because they look like credentials: ", done.LeftOut)
	c.told(done.Files, done.Bytes, 0)
	return nil
}

// maxInMemory is how much of standard input is kept in memory; more goes to a temporary file, because
// the size must be known before the content is sent.
const maxInMemory = 8 << 20 // bytes

// stdin copies standard input to a file of a session.
func (c *copier) stdin(ctx context.Context, sessions *sandbox.Engine, to position) error {
	if stdio.IsTerminal(c.streams.Stdin) {
		return exit.Misuse("pipe something into it, or redirect it from a file", "standard input is a terminal")
	}
	s, err := c.connection.Open(ctx, sessions, to.ref)
	if err != nil {
		return err
	}
	content, size, end, err := spooled(c.streams.Stdin, maxInMemory)
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	defer end()
	if err := s.WriteFile(ctx, to.path, content, size); err != nil {
		return err
	}
	c.told(1, size, 0)
	return nil
}

// spooled reads a stream to its end, and returns what it held. What is longer than most is put in a temporary
// file, which end removes.
func spooled(in io.Reader, most int64) (content io.Reader, size int64, end func(), err error) {
	var first bytes.Buffer
	size, err = io.CopyN(&first, in, most)
	if errors.Is(err, io.EOF) {
		return &first, size, func() {}, nil
	}
	if err != nil {
		return nil, 0, nil, err
	}
	f, err := os.CreateTemp("", "sandboxbash-cp-") // of mode 0600
	if err != nil {
		return nil, 0, nil, err
	}
	if runtime.GOOS != "windows" { // where an open file cannot be removed
		err = os.Remove(f.Name())
	}
	end = func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // it has gone already, but on Windows
	}
	if err == nil {
		size, err = io.Copy(f, io.MultiReader(&first, in))
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		end()
		return nil, 0, nil, err
	}
	return f, size, end, nil
}

// print prints a file of a session.
func (c *copier) print(ctx context.Context, s *sandbox.Session, file string) error {
	out, flush := c.streams.Stdout, func() error { return nil }
	if stdio.IsTerminal(out) {
		safe := sink.NewSafeText(out, sink.Text{Return: sink.NewlineReturn, Invisible: sink.ShowInvisible}, c.secrets.Known())
		out, flush = safe, safe.Close
	}
	size, err := s.ReadFile(ctx, file, out)
	if err = errors.Join(err, flush()); err == nil && !stdio.IsTerminal(c.streams.Stdout) {
		c.told(1, size, 0)
	}
	return err
}

// out copies out of a session.
func (c *copier) out(ctx context.Context, s *sandbox.Session, from []position, to string) error {
	all, err := c.pullEach(ctx, s, from, to, sandbox.PullOptions{Force: c.force, Into: true, Skip: c.skip()})
	if err == nil || len(from) > 1 && all.Files > 0 {
		c.told(all.Files, all.Bytes, all.Alike)
	}
	return err
}

// pullEach copies paths of a session to this machine, one after the other. With Into that is each under its own
// name, unless it stands for what is in a directory. With an error it returns what was copied before.
func (a *files) pullEach(ctx context.Context, s *sandbox.Session, from []position, to string, o sandbox.PullOptions) (all sandbox.Pulled, err error) {
	named := o.Into
	for _, p := range from {
		o.Into = named && !sandbox.IsContents(p.path)
		wait := a.cfg.Waiting("copying " + p.word + " out of the session")
		done, err := s.Pull(ctx, p.path, to, o)
		wait.Done()
		a.notes.Listed("left out: ", done.LeftOut)
		for _, name := range done.Deleted {
			if o.Into {
				name = path.Join(path.Base(p.path), name)
			}
			all.Deleted = append(all.Deleted, name)
		}
		if err != nil {
			return all, err
		}
		all.Files += done.Files
		all.Bytes += done.Bytes
		all.Alike += done.Alike
	}
	return all, nil
}

// told says on standard error how much was copied.
func (c *copier) told(files int, size int64, alike int) {
	if !c.cfg.Quiet {
		fmt.Fprintln(c.streams.Stderr, copiedText(files, size, alike))
	}
}

// copiedText says in a line how much was copied.
func copiedText(files int, size int64, alike int) string {
	text := fmt.Sprintf("copied %s, %s", countText(files), sizeText(size))
	if alike > 0 {
		text += fmt.Sprintf("; %s unchanged", countText(alike))
	}
	return text
}

// countText is a number of files, with its digits in groups.
func countText(n int) string {
	if n == 1 {
		return "1 file"
	}
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits + " files"
}

func sizeText(bytes int64) string {
	return units.CustomSize("%.4g %s", float64(bytes), 1000, []string{"bytes", "kB", "MB", "GB", "TB"})
}
