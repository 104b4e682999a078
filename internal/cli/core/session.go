package core

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Which session a command is about is decided here, for all commands: the reference that it is
// given, else the setting session.id (--session, SANDBOXBASH_SESSION), else the session of this
// directory, else the only one of this user. See docs/adr/0049.

// usedLast is the reference of the session that was used last from this machine.
const usedLast = "-"

// References is what help says of a session's reference.
const References = `SESSION is a name, an id, a unique part of one, last (the one started last) or - (the
one used last). Without it: --session, SANDBOXBASH_SESSION, the session that was started
in this directory or the nearest one above, or the only one there is.`

// Split returns the session that the words of a command line name, "" for the default one, and the
// other words. The first word is the session, unless it is behind -- or --session is given.
func (c *Configuration) Split(cmd *cobra.Command, args []string) (ref string, rest []string, err error) {
	dash := cmd.ArgsLenAtDash()
	flag := cmd.Flags().Lookup("session")
	switch {
	case flag != nil && flag.Changed && dash > 0:
		return "", nil, exit.Misuse("leave one of them out", "the session is named twice: by --session and by %q before --", args[0])
	case flag != nil && flag.Changed, dash == 0, len(args) == 0:
		return "", args, nil
	case args[0] == "":
		return "", nil, ErrNoSessionID
	}
	return args[0], args[1:], nil
}

// SplitScript is Split for a command whose words for what runs must be behind --.
func (c *Configuration) SplitScript(cmd *cobra.Command, args []string) (ref string, script Words, err error) {
	words, script := args, WordsOf(cmd, nil)
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		words, script.List = args[:dash], args[dash:]
	}
	if len(words) > 1 {
		return "", Words{}, exit.Misuse("put a command after --, as in `"+cmd.CommandPath()+" web -- vi`; `sandboxbash session ls` lists the sessions",
			"%s takes the id of one session, and was given %d arguments", cmd.CommandPath(), len(words))
	}
	if _, _, err := c.Split(cmd, args); err != nil {
		return "", Words{}, err
	}
	if len(words) == 0 {
		return "", script, nil
	}
	if cmd.Flags().Changed("session") {
		return "", Words{}, exit.Misuse("leave one of them out", "the session is named twice: by --session and by %q", words[0])
	}
	return words[0], script, nil
}

// Unnamed adds to the error of an unknown session, which was the first word of a command line, how
// the words are written for the default session. example is such a command line.
func Unnamed(err error, ref, example string) error {
	_, ran := errors.AsType[*exec.Error](err)
	if ref == "" || ran || !errors.Is(err, sandbox.ErrUnknownSession) {
		return err
	}
	return &unnamedError{error: err, todo: exit.Judge(err).Todo + ";\n  for the session of this directory put -- before the words, as in `" + example + "`"}
}

type unnamedError struct {
	error
	todo string
}

func (e *unnamedError) Unwrap() error { return e.error }

// Verdict implements what exit.Judge asks for.
func (e *unnamedError) Verdict() exit.Verdict {
	return exit.Verdict{Status: exit.Usage, Outcome: exec.NotStarted, Cause: string(sandbox.CauseUnknownSession), Todo: e.todo}
}

// Find describes the session of a reference or, if it is "", of the setting, or the default one.
func (c *Connection) Find(ctx context.Context, sessions *sandbox.Engine, ref string) (sandbox.Info, error) {
	info, _, err := c.find(ctx, sessions, ref)
	return info, err
}

// FindToEnd is Find for a command that ends the session: the only session will not do. why says why
// this one was chosen, "" if it was named.
func (c *Connection) FindToEnd(ctx context.Context, sessions *sandbox.Engine, ref string) (info sandbox.Info, why string, err error) {
	info, why, err = c.find(ctx, sessions, ref)
	if err == nil && why == whyOnly {
		err = exit.Misuse("name it, as in `sandboxbash session stop "+info.Name+"`", "no session was started in this directory; the only one, %s, is not ended unless it is named", sandbox.Described([]sandbox.Info{info}))
	}
	return info, why, err
}

// Reasons for a default session.
const (
	whyDirectory = "of this directory"
	whyOnly      = "the only one"
)

func (c *Connection) find(ctx context.Context, sessions *sandbox.Engine, ref string) (info sandbox.Info, why string, err error) {
	if ref = cmp.Or(ref, c.cfg.Session.ID); ref != "" {
		if ref == usedLast {
			info, err = c.usedLast(ctx, sessions)
			return info, "", err
		}
		info, err = sessions.Show(ctx, ref)
		return info, "", err
	}
	all, err := sessions.List(ctx)
	if err != nil {
		return info, "", err
	}
	mine := slices.DeleteFunc(all, func(i sandbox.Info) bool { return !i.Mine() })
	if here := ofDirectory(mine, ThisDirectory()); len(here) > 0 {
		info, err = theOne(here, whyDirectory)
		return info, whyDirectory, err
	}
	info, err = theOne(mine, whyOnly)
	return info, whyOnly, err
}

// ThisDirectory is the directory of this process without symbolic links, "" if there is none any more.
func ThisDirectory() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return resolved(dir)
}

// ofDirectory returns the sessions that were started in a directory or, if there are none, in the
// nearest directory above that has some.
func ofDirectory(list []sandbox.Info, dir string) []sandbox.Info {
	at := map[string][]sandbox.Info{}
	for _, i := range list {
		for _, d := range directories(i) {
			at[d] = append(at[d], i)
		}
	}
	for {
		if found := at[dir]; len(found) > 0 {
			return found
		}
		above := filepath.Dir(dir)
		if above == dir || dir == "" {
			return nil
		}
		dir = above
	}
}

// directories are those that a session belongs to: the one that it was started in, and the one
// that its workspace is a copy of, or is. Sessions of run and of serve, whose ends are those of
// their processes, belong to none.
func directories(i sandbox.Info) []string {
	if i.Directory == "" {
		return nil
	}
	dirs := []string{i.Directory}
	if w := i.Workspace.Dir; w != "" {
		dirs = append(dirs, resolved(w))
	}
	return slices.Compact(dirs)
}

// resolved returns a directory without symbolic links, or as it is if they cannot be followed.
func resolved(dir string) string {
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		return target
	}
	return dir
}

// theOne returns the only session of a list that lives or, if none lives, the only one that has ended.
func theOne(list []sandbox.Info, why string) (sandbox.Info, error) {
	if living := slices.DeleteFunc(slices.Clone(list), func(i sandbox.Info) bool { return !i.Lives() }); len(living) > 0 {
		list = living
	}
	switch {
	case len(list) == 1:
		return list[0], nil
	case len(list) == 0:
		return sandbox.Info{}, exit.Misuse("start one with `sandboxbash session start`, or see those of others with `sandboxbash session ls -a`", "there is no session of yours")
	}
	what := "are yours"
	if why == whyDirectory {
		what = "were started in this directory or above"
	}
	return sandbox.Info{}, exit.Misuse("say which, as in `--session "+list[len(list)-1].Name+"`", "%d sessions %s: %s", len(list), what, sandbox.Described(list))
}

// Open opens the session that Find finds, whose contents will be shown: what is masked in commands'
// output is masked there too.
func (c *Connection) Open(ctx context.Context, sessions *sandbox.Engine, ref string) (*sandbox.Session, error) {
	if err := c.secrets.Ready(); err != nil {
		return nil, err
	}
	id, err := c.reference(ctx, sessions, ref)
	if err != nil {
		return nil, err
	}
	s, err := sessions.Open(ctx, id)
	if err == nil {
		c.env.NoteUse(s.ID())
	}
	return s, err
}

// OpenFiles opens the session that Find finds, or what is kept of it, for its files alone. The caller
// calls done.
func (c *Connection) OpenFiles(ctx context.Context, sessions *sandbox.Engine, ref string) (s *sandbox.Session, done func(context.Context) error, err error) {
	if err := c.secrets.Ready(); err != nil {
		return nil, nil, err
	}
	id, err := c.reference(ctx, sessions, ref)
	if err != nil {
		return nil, nil, err
	}
	s, done, err = sessions.OpenFiles(ctx, id)
	if err == nil {
		c.env.NoteUse(s.ID())
	}
	return s, done, err
}

// reference returns what the engine's owner can open: it saves the question of Find for a session that
// is named.
func (c *Connection) reference(ctx context.Context, sessions *sandbox.Engine, ref string) (string, error) {
	if ref = cmp.Or(ref, c.cfg.Session.ID); ref != "" && ref != usedLast {
		return ref, nil
	}
	info, err := c.Find(ctx, sessions, ref)
	return info.ID, err
}

// usedLast describes the session that was used last from this machine and that is still there.
func (c *Connection) usedLast(ctx context.Context, sessions *sandbox.Engine) (sandbox.Info, error) {
	for _, id := range c.env.usedSessions() {
		info, err := sessions.Show(ctx, id)
		if err == nil || !errors.Is(err, sandbox.ErrUnknownSession) {
			return info, err
		}
	}
	return sandbox.Info{}, exit.Misuse("name one; `sandboxbash session ls` lists them", "none of the sessions that were used from this machine is there any more")
}

// Stored returns the id of the session that a reference names: one of ids, which something that outlives
// sessions has, or one of the engine's. "" is "".
func (c *Connection) Stored(ctx context.Context, ids []string, ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	var found []string
	for _, id := range ids {
		if id == ref {
			return id, nil
		}
		if (strings.Contains(id, ref) || sandbox.MadeUpName(id) == ref) && !slices.Contains(found, id) {
			found = append(found, id)
		}
	}
	switch {
	case len(found) == 1 && ref != usedLast:
		return found[0], nil
	case len(found) > 1 && ref != usedLast:
		return "", exit.Misuse("give more of the id", "%d sessions match %q", len(found), ref)
	}
	info, err := c.Lookup(ctx, ref)
	return info.ID, err
}

// Lookup is Find with an owner of sessions of its own.
func (c *Connection) Lookup(ctx context.Context, ref string) (info sandbox.Info, err error) {
	err = c.asking(ctx, func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
		info, err = c.Find(ctx, sessions, ref)
		return err
	}, nil)
	return info, err
}
