package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// aboutTerminal makes a question to the holder of a terminal a command's: its first word is
// the terminal.
func (a *app) aboutTerminal(do func(ctx context.Context, c *terminalClient, args []string) error) func(*cobra.Command, []string) error {
	return a.does(func(ctx context.Context, args []string) error {
		dir, err := a.terminalDir()
		if err != nil {
			return err
		}
		id, err := findTerminal(dir, args[0])
		if err != nil {
			return err
		}
		c, err := dialTerminal(ctx, dir, id)
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, c, args[1:]), c.close())
	})
}

// completeTerminals offers the ids of the terminals that there are.
func (a *app) completeTerminals(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	dir, err := a.terminalDir()
	if err != nil {
		return nil, directive
	}
	rows, err := terminalRows(ctx, dir)
	if err != nil {
		return nil, directive
	}
	var ids []string
	for _, r := range rows {
		if strings.HasPrefix(r.ID, word) && !slices.Contains(args, r.ID) {
			ids = append(ids, fmt.Sprintf("%s\t%s: %s", r.ID, r.State, a.safe(r.Command)))
		}
	}
	return ids, directive
}

func (a *app) ptyWriteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "write [flags] ID [TEXT]", Short: "Type a text, or press keys",
		Long: `Type a text: an argument, or else what standard input holds. A line feed in it is the
enter key, and none is added. --keys presses keys by their names, behind the text if there
is one: enter, esc, tab, up, home, f1, shift-tab, ctrl-c, alt-x, and so on.`,
		Example: `  sandboxbash pty write --keys enter pty_1a2b3c4d 'make test'
  sandboxbash pty write --keys 'ctrl-c' pty_1a2b3c4d
  printf ':wq\n' | sandboxbash pty write pty_1a2b3c4d
  sandboxbash pty write --paste pty_1a2b3c4d <snippet.py`,
		Args: words(1, 2, "the id of a terminal and a text"), ValidArgsFunction: a.completeTerminals,
	}
	addFlags(cmd, "pty.keys", "pty.paste", "quiet")
	cmd.RunE = a.aboutTerminal(func(ctx context.Context, c *terminalClient, args []string) error {
		keys := strings.Fields(a.cfg.PTY.Keys)
		text, err := a.typed(ctx, args, len(keys) > 0)
		if err != nil {
			return err
		}
		if text != "" {
			how := map[bool]string{false: "text", true: "paste"}[a.cfg.PTY.Paste]
			if err := c.call(ctx, askTime, "pty/write", map[string]any{"terminal": c.id, how: text}, nil); err != nil {
				return err
			}
		}
		if len(keys) == 0 {
			return nil
		}
		return c.call(ctx, askTime, "pty/write", map[string]any{"terminal": c.id, "keys": keys}, nil)
	})
	return cmd
}

// maxTyped is how much can be typed at once: a program that reads takes that much in
// seconds.
const maxTyped = 1 << 20 // bytes

// typed is the text of a command line, or of standard input unless there are keys.
func (a *app) typed(ctx context.Context, args []string, keys bool) (string, error) {
	if len(args) == 0 && keys {
		return "", nil
	}
	text := first(args)
	if len(args) == 0 {
		if isTerminal(a.stdin) {
			return "", misuse("give a text behind the id, or keys with --keys; else it is read from a pipe or file", "there is nothing to type")
		}
		b, err := readAll(ctx, a.stdin, maxTyped+1)
		if err != nil {
			return "", fmt.Errorf("read the text from standard input: %w", err)
		}
		text = string(b)
	}
	switch {
	case text == "":
		return "", misuse("give a text behind the id or on standard input, or keys with --keys", "there is nothing to type")
	case len(text) > maxTyped:
		return "", misuse("copy it into the session with `sandboxbash session push`", "the text is longer than %d bytes", maxTyped)
	}
	return text, nil
}

func (a *app) ptyResizeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "resize ID COLSxROWS", Short: "Change the size of a terminal",
		Example: "  sandboxbash pty resize pty_1a2b3c4d 132x43",
		Args:    words(2, 2, "the id of a terminal and a size"), ValidArgsFunction: a.completeTerminals,
	}
	cmd.RunE = a.aboutTerminal(func(ctx context.Context, c *terminalClient, args []string) error {
		size, err := parseSize(args[0])
		if err != nil {
			return err
		}
		return c.call(ctx, askTime, "pty/resize", map[string]any{"terminal": c.id, "cols": size.Cols, "rows": size.Rows}, nil)
	})
	return cmd
}

func (a *app) ptyReadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "read [flags] ID", Short: "Print what a program has written, as text",
		Long: `Print what a program has written, as text: lines end with a line feed, sequences are
removed, secrets masked. The end of it is kept, as much as output.window says; the whole
is an artifact. With --json the result has next, which --from of the next call takes to go on
there, and lost, how many bytes between are not kept any more.`,
		Example: "  sandboxbash pty read pty_1a2b3c4d\n  sandboxbash pty read --json --from 1200 pty_1a2b3c4d | jq -r .text",
		Args:    words(1, 1, "the id of a terminal"), ValidArgsFunction: a.completeTerminals,
	}
	addFlags(cmd, "pty.from", "json", "quiet")
	cmd.RunE = a.aboutTerminal(func(ctx context.Context, c *terminalClient, _ []string) error {
		var read struct {
			Text string `json:"text"`
			Next int64  `json:"next"`
			Lost int64  `json:"lost,omitempty"`
		}
		if err := c.call(ctx, askTime, "pty/read", map[string]any{"terminal": c.id, "from": a.cfg.PTY.From}, &read); err != nil {
			return err
		}
		if a.cfg.JSON {
			read.Text = a.clean(read.Text)
			return printJSON(a.stdout, read)
		}
		if read.Lost > 0 {
			a.note(fmt.Sprintf("%d bytes before this are not kept any more", read.Lost))
		}
		_, err := io.WriteString(a.stdout, a.clean(read.Text))
		return err
	})
	return cmd
}

// shownScreen is what a person would see.
type shownScreen struct {
	Cols   int      `json:"cols"`
	Rows   int      `json:"rows"`
	Lines  []string `json:"lines"`
	Cursor struct {
		Col     int  `json:"col"` // from 0 on
		Row     int  `json:"row"` // from 0 on
		Visible bool `json:"visible"`
	} `json:"cursor"`
	Alternate bool   `json:"alternate"`
	Title     string `json:"title"`
}

func (a *app) cleanScreen(s *shownScreen) {
	for i, l := range s.Lines {
		s.Lines[i] = a.safe(l)
	}
	s.Title = a.safe(s.Title)
}

func (a *app) ptyScreenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "screen [flags] ID", Short: "Print what a person would see on a terminal",
		Long: `Print what a person would see on a terminal now, without colours and without the empty
lines at its end; on standard error where the cursor is. --json has it all.`,
		Example: "  sandboxbash pty screen pty_1a2b3c4d\n  sandboxbash pty screen --json pty_1a2b3c4d | jq .cursor",
		Args:    words(1, 1, "the id of a terminal"), ValidArgsFunction: a.completeTerminals,
	}
	addFlags(cmd, "json", "quiet")
	cmd.RunE = a.aboutTerminal(func(ctx context.Context, c *terminalClient, _ []string) error {
		var s shownScreen
		if err := c.call(ctx, askTime, "pty/screen", map[string]any{"terminal": c.id}, &s); err != nil {
			return err
		}
		a.cleanScreen(&s)
		if a.cfg.JSON {
			return printJSON(a.stdout, s)
		}
		if _, err := fmt.Fprintln(a.stdout, trimmedScreen(s.Lines)); err != nil {
			return err
		}
		hidden := map[bool]string{false: ", hidden"}[s.Cursor.Visible]
		a.note(fmt.Sprintf("%dx%d, cursor at column %d of row %d%s", s.Cols, s.Rows, s.Cursor.Col+1, s.Cursor.Row+1, hidden))
		return nil
	})
	return cmd
}

// waitedJSON is what a wait has ended with.
type waitedJSON struct {
	Event    string        `json:"event"`
	Screen   shownScreen   `json:"screen"`
	Held     *heldTerminal `json:"terminal,omitempty"`
	Terminal *terminalRow  `json:"-"`
}

// Times of waiting, as of JSON-RPC.
const (
	defaultPTYWait = 30 * time.Second
	maxPTYWait     = time.Hour
)

func (a *app) ptyWaitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait [flags] ID", Short: "Wait for a text, silence, a prompt or the end, and say which",
		Long: `Wait for the first of what the flags name, or for any output if they name nothing, and
print what it was: output, quiet, needs_input or ended.

Exit status: 0 if it came; 124 if it did not within --timeout; 1 if the program has ended
before. With --end that of the program, as run has it.`,
		Example: `  sandboxbash pty wait --text 'login:' pty_1a2b3c4d
  sandboxbash pty wait --input --timeout 5m pty_1a2b3c4d
  sandboxbash pty wait --quiet-for 2s pty_1a2b3c4d
  sandboxbash pty wait --end pty_1a2b3c4d`,
		Args: words(1, 1, "the id of a terminal"), ValidArgsFunction: a.completeTerminals,
	}
	addFlags(cmd, "pty.text", "pty.pattern", "pty.quiet-for", "pty.input", "pty.end", "timeout", "json", "quiet")
	f := cmd.Flags().Lookup("timeout")
	f.Usage, f.DefValue = "how long to wait, at most 1h", defaultPTYWait.String()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.aboutTerminal(func(ctx context.Context, c *terminalClient, _ []string) error {
			patience := defaultPTYWait
			if cmd.Flags().Changed("timeout") {
				patience = a.cfg.Timeout
			}
			if patience > maxPTYWait {
				return misuse("wait again", "timeout %v: it must be at most %v", patience, maxPTYWait)
			}
			return a.waitPTY(ctx, c, patience)
		})(cmd, args)
	}
	return cmd
}

func (a *app) waitPTY(ctx context.Context, c *terminalClient, patience time.Duration) error {
	p := a.cfg.PTY
	params := map[string]any{
		"terminal": c.id, "text": p.Text, "pattern": p.Pattern, "quietMs": p.Quiet.Milliseconds(), "input": p.Input, "end": p.End,
		"timeoutMs": max(patience.Milliseconds(), 1),
	}
	var w waitedJSON
	if err := c.call(ctx, patience+askTime, "pty/wait", params, &w); err != nil {
		return err
	}
	a.cleanScreen(&w.Screen)
	if w.Held != nil {
		row := w.Held.row(c.id)
		w.Terminal = &row
	}
	if a.cfg.JSON {
		if err := printJSON(a.stdout, struct {
			waitedJSON
			Terminal *terminalRow `json:"terminal,omitempty"`
		}{w, w.Terminal}); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintln(a.stdout, w.Event); err != nil {
		return err
	}
	return a.sayWaited(c.id, w, patience)
}

// sayWaited tells what the event leaves open, and returns what to exit with.
func (a *app) sayWaited(id string, w waitedJSON, patience time.Duration) error {
	quiet := a.cfg.Quiet || a.cfg.JSON
	tell := func(format string, args ...any) {
		if !quiet {
			fmt.Fprintf(a.stderr, "sandboxbash: %s\n", fmt.Sprintf(format, args...))
		}
	}
	switch {
	case w.Event == "timeout":
		tell("terminal %s: it has not come within %v; `sandboxbash pty screen %s` shows what has", id, patience, id)
		return statusError(statusTimeout)
	case w.Event != string(sandbox.Ended) || w.Terminal == nil:
		return nil
	case w.Terminal.Error != nil:
		return answered(w.Terminal.Error)
	case !a.cfg.PTY.End:
		tell("terminal %s: the program has ended before (%s)", id, w.Terminal.exit())
		return statusError(statusFindings)
	}
	st := w.Terminal.status()
	if st.Reason == exec.TimedOut {
		tell("terminal %s timed out", id)
	} else if text := ending(sandbox.Result{Status: st}, a.cfg); text != "" {
		tell("terminal %s %s", id, text)
	}
	return statusOf(commandStatus(st))
}

// endedTerminal is how a terminal's program has ended.
type endedTerminal struct {
	ID       string      `json:"id"`
	Reason   exec.Reason `json:"reason"`
	ExitCode *int        `json:"exitCode"`
	Signal   int         `json:"signal,omitempty"`
	Text     string      `json:"text"`
	Artifact string      `json:"artifact,omitempty"`
}

func (a *app) ptyEndCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "end [flags] ID...", Aliases: []string{"rm"}, Short: "End programs on terminals, and forget the terminals",
		Long: `End the programs of terminals with all that they have started, unless they have ended, and
forget the terminals. Prints their ids, or with --json an object for each: how it has ended, and
the end of its output.`,
		Example: "  sandboxbash pty end pty_1a2b3c4d\n  sandboxbash pty ls --json | jq -r '.[].id' | xargs sandboxbash pty end",
		Args:    words(1, -1, "ids of terminals"), ValidArgsFunction: a.completeTerminals,
	}
	addFlags(cmd, "json", "quiet")
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		dir, err := a.terminalDir()
		if err != nil {
			return err
		}
		var errs []error
		for _, prefix := range args {
			id, err := findTerminal(dir, prefix)
			var e endedTerminal
			if err == nil {
				e, err = endTerminal(ctx, dir, id)
			}
			switch {
			case err != nil:
				errs = append(errs, err)
			case a.cfg.JSON:
				e.Text = a.clean(e.Text)
				errs = append(errs, printJSON(a.stdout, e))
			case !a.cfg.Quiet:
				fmt.Fprintln(a.stdout, id)
			}
		}
		return errors.Join(errs...)
	})
	return cmd
}

// endTime is how long a terminal's end may take: the command's, 5 s behind its
// grace, and what it has written.
const endTime = time.Minute

// endTerminal ends what runs on a terminal. Of one whose holder has died the socket
// is removed.
func endTerminal(ctx context.Context, dir, id string) (endedTerminal, error) {
	e := endedTerminal{ID: id}
	c, err := dialTerminal(ctx, dir, id)
	if err != nil {
		if lost, ok := errors.AsType[*exec.Error](err); ok && lost.Cause == causeHolder {
			_, pruneErr := pruneTerminals(ctx, dir)
			err = errors.Join(err, pruneErr)
		}
		return e, err
	}
	defer c.close() //nolint:errcheck // all was said
	err = c.call(ctx, endTime, "pty/end", map[string]any{"terminal": id}, &e)
	return e, err
}
