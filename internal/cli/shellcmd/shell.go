// Package shellcmd is the command shell: a shell for programs that know nothing but a shell, whose
// commands run in a session.
package shellcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/runcmd"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// LinkFlag is the first word of a command line of a process that was started by the name of a
// link: all other words are those of a shell. Its value is that name.
const LinkFlag = "--started-as"

// posixShell is the name of a link whose commands sh runs.
const posixShell = "sh"

// shell runs what a shell would run.
type shell struct {
	streams    *stdio.Streams
	cfg        *core.Configuration
	notes      *core.Notes
	connection *core.Connection
	ending     *core.Ending
	runner     *runcmd.Runner
}

// Command is the command shell.
func Command(p *core.Parts) *cobra.Command {
	a := &shell{streams: p.Streams, cfg: p.Cfg, notes: p.Notes, connection: p.Connection, ending: p.Ending, runner: runcmd.New(p)}
	cmd := &cobra.Command{
		Use:   "shell [flags] [--] [-c SCRIPT [NAME ARG...] | FILE [ARG...]]",
		Short: "Be the shell of a program that knows nothing but a shell",
		Long: `Run what bash would run with the same words, in a session. The program that calls this
one sees a shell: its standard streams, its exit status, and the signal that ended it.
` + core.References + `

For a program that takes one path as its shell, make a link whose name is sandboxbash-shell,
bash or sh. All words are the shell's then, and settings come from variables and the
configuration file; for flags, write a script that ends with: exec sandboxbash shell FLAGS "$@"

It starts in the directory that this one is in the session, which a copy or a bind of it
has; in any other directory it refuses to run, unless --cwd is given. A FILE that the
session does not have is read here. The session's own variables count: of this environment
only those of --env and env.pass are passed. -l and -i read no files of this machine. With
a terminal, the command gets one. There is no timeout unless --timeout sets one.

What this program reads of standard input ahead of the command is gone for the next one;
--no-stdin reads nothing.`,
		Example: `  sandboxbash shell -c 'make test'
  sandboxbash shell --session web build.sh --fast
  ln -s "$(command -v sandboxbash)" ~/.local/bin/sandboxbash-shell
  make SHELL=$HOME/.local/bin/sandboxbash-shell
  SHELL=$HOME/.local/bin/sandboxbash-shell some-agent`,
		GroupID:            flags.GroupAgents,
		DisableFlagParsing: true,
	}
	cmd.Flags().SetInterspersed(false)
	flags.Add(cmd, "session.id", "timeout", "grace", "run.cwd", "env.set", "env.unsafe", "run.no-stdin", "output.limit", "shell", "artifacts.mode", "quiet")
	cmd.Flags().Lookup("timeout").DefValue = ""                    // none
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Shorthand = "" }) // a letter is the shell's
	_ = cmd.RegisterFlagCompletionFunc("session", a.connection.CompleteSessions)
	cmd.ValidArgsFunction = completeFlag
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		started, args := startedAs(args)
		var own []string
		if started == "" {
			if own, args = ownFlags(cmd, args); slices.Contains(own, "--help") || slices.Contains(own, "-h") {
				return cmd.Help()
			}
		}
		cmd.DisableFlagParsing = false
		if err := cmd.ParseFlags(own); err != nil {
			return cmd.FlagErrorFunc()(cmd, err)
		}
		l, err := parse(args)
		if err != nil {
			return exit.Misuse("see `sandboxbash shell --help`", "%v", err)
		}
		l.login = l.login || strings.HasPrefix(started, "-")
		if err := a.runner.Load(cmd); err != nil {
			return err
		}
		name := a.cfg.Shell
		if strings.TrimPrefix(filepath.Base(started), "-") == posixShell {
			name = posixShell
		}
		return a.run(cmd, name, l)
	}
	return cmd
}

// completeFlag completes the value of a flag of this program, which cobra does not do for a command
// that reads its own words, and else names of files.
func completeFlag(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		if name, ok := strings.CutPrefix(args[len(args)-1], "--"); ok {
			if complete, ok := cmd.GetFlagCompletionFunc(name); ok {
				return complete(cmd, nil, word)
			}
		}
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// startedAs takes LinkFlag.
func startedAs(args []string) (name string, rest []string) {
	if len(args) > 0 {
		if name, ok := strings.CutPrefix(args[0], LinkFlag+"="); ok {
			return name, args[1:]
		}
	}
	return "", args
}

// ownFlags splits the words in front of a shell's: flags of this program, by their long names, and --.
// A short one is the shell's.
func ownFlags(cmd *cobra.Command, args []string) (own, rest []string) {
	for len(args) > 0 {
		word := args[0]
		name, _, valued := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		switch {
		case word == "--":
			return own, args[1:]
		case word == "--help" || word == "-h" && len(own) == 0:
			return append(own, word), args[1:]
		case !strings.HasPrefix(word, "--"):
			return own, args
		}
		flag := cmd.Flags().Lookup(name)
		if flag == nil {
			flag = cmd.InheritedFlags().Lookup(name)
		}
		if flag == nil {
			return own, args
		}
		own, args = append(own, word), args[1:]
		if !valued && flag.NoOptDefVal == "" && len(args) > 0 {
			own, args = append(own, args[0]), args[1:]
		}
	}
	return own, nil
}

// fileError is a script file that a shell cannot read. Its status is a shell's.
type fileError struct {
	error
	status int
}

func (e *fileError) Unwrap() error { return e.error }

// Verdict implements what exit.Judge asks for.
func (e *fileError) Verdict() exit.Verdict {
	return exit.Verdict{Status: e.status, Outcome: exec.NotStarted, Cause: "usage"}
}

// Exit statuses of a shell that cannot run a file.
const (
	notReadable = 126
	notFound    = 127
)

// readScript reads a script of this machine.
func readScript(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		status := notReadable
		if errors.Is(err, os.ErrNotExist) {
			status = notFound
		}
		return "", &fileError{err, status}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, wire.MaxScript+1))
	if err != nil {
		return "", &fileError{err, notReadable}
	}
	return string(text), nil
}

// run runs a line with a shell of the session.
func (a *shell) run(cmd *cobra.Command, name string, l line) error {
	ctx := cmd.Context()
	ref := ""
	inside := func(string) (string, bool) { return "", false }
	if l.from == fromFile {
		info, err := a.connection.Lookup(ctx, "")
		if err != nil {
			return err
		}
		ref = info.ID
		inside = func(path string) (string, bool) {
			path, err := filepath.Abs(path)
			if err != nil {
				return "", false
			}
			return core.Inside(info, path)
		}
	}
	text, err := l.script(name, inside, readScript)
	if err != nil {
		if _, ok := errors.AsType[*fileError](err); !ok {
			err = exit.Misuse("see `sandboxbash shell --help`", "%v", err)
		}
		return err
	}
	for _, option := range l.left {
		a.notes.Add(option + ": it is a file of this machine, and the session's shell does not read it")
	}
	terminal := a.runner.OnTerminal()
	in := runcmd.Invocation{
		Script: text.text, Shell: name, Args: text.args, Ref: ref, Terminal: terminal, Timeout: a.cfg.LastingTimeout(cmd), Place: a.place(text, terminal),
	}
	if !a.cfg.Run.NoStdin && !terminal {
		in.Stdin = a.streams.Stdin
	}
	res, err := a.runner.Invoke(ctx, in)
	a.ending.Signal = runcmd.DiedOf(ctx, res)
	return err
}

// place says where a script runs: in what this directory is in the session.
func (a *shell) place(text script, terminal bool) func(sandbox.Info, *sandbox.Command) error {
	return func(info sandbox.Info, command *sandbox.Command) error {
		if text.input && terminal {
			command.Script = "PS1=" + quote(info.Name+":${PWD}$ ") + " " + command.Script
		}
		var err error
		command.Dir, err = a.directory(info, text.input && terminal)
		return err
	}
}

// directory is what this directory is in a session, "" for the workspace. A person's shell starts in
// the workspace if the session does not have this directory.
func (a *shell) directory(info sandbox.Info, person bool) (string, error) {
	if a.cfg.Run.Dir != "" {
		return a.cfg.Run.Dir, nil
	}
	here := core.ThisDirectory()
	if inside, ok := core.Inside(info, here); ok {
		return inside, nil
	}
	switch {
	case info.Workspace.Dir == "": // nothing here is in the session, so nothing can be taken for it
		return "", nil
	case person:
		a.notes.Add(fmt.Sprintf("session %s does not have %s: the shell starts in its workspace", info.Name, here))
		return "", nil
	}
	return "", exit.Misuse("go to a directory below "+info.Workspace.Dir+", or say with --cwd where to run it",
		"session %s does not have the directory %s, so it is not known where to run this", info.Name, here)
}
