package ptycmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// aboutTerminal makes a question to the holder of a terminal a command's: its first word is
// the terminal.
func (a *commands) aboutTerminal(do func(ctx context.Context, c *holder.Client, args []string) error) func(*cobra.Command, []string) error {
	return a.cfg.Does(func(ctx context.Context, args []string) error {
		dir, err := holder.Dir(a.env)
		if err != nil {
			return err
		}
		id, err := holder.Find(dir, args[0])
		if err != nil {
			return err
		}
		c, err := holder.Dial(ctx, dir, id)
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, c, args[1:]), c.Close())
	})
}

// completeTerminals offers the ids of the terminals that there are.
func (a *commands) completeTerminals(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	ctx, cancel := context.WithTimeout(cmd.Context(), core.CompleteTime)
	defer cancel()
	dir, err := holder.Dir(a.env)
	if err != nil {
		return nil, directive
	}
	rows, err := holder.List(ctx, dir)
	if err != nil {
		return nil, directive
	}
	var ids []string
	for _, r := range rows {
		if strings.HasPrefix(r.ID, word) && !slices.Contains(args, r.ID) {
			ids = append(ids, fmt.Sprintf("%s\t%s: %s", r.ID, r.State, a.streams.Safe(r.Command)))
		}
	}
	return ids, directive
}

func (a *commands) writeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "write [flags] ID [TEXT]", Short: "Type a text, or press keys",
		Long: `Type a text: the argument, or else standard input. A line feed in the text presses enter;
none is added at its end. --keys presses keys by name, after the text if there is one: enter, esc,
tab, up, home, f1, shift-tab, ctrl-c, alt-x, and so on.`,
		Example: `  sandboxbash pty write --keys enter pty_1a2b3c4d 'make test'
  sandboxbash pty write --keys 'ctrl-c' pty_1a2b3c4d
  printf ':wq\n' | sandboxbash pty write pty_1a2b3c4d
  sandboxbash pty write --paste pty_1a2b3c4d <snippet.py`,
		Args: flags.Args(1, 2, "the id of a terminal and a text"), ValidArgsFunction: a.completeTerminals,
	}
	flags.Add(cmd, "pty.keys", "pty.paste", "quiet")
	cmd.RunE = a.aboutTerminal(func(ctx context.Context, c *holder.Client, args []string) error {
		keys := strings.Fields(a.cfg.PTY.Keys)
		text, err := a.typed(ctx, args, len(keys) > 0)
		if err != nil {
			return err
		}
		if text != "" {
			how := map[bool]string{false: "text", true: "paste"}[a.cfg.PTY.Paste]
			if err := c.Call(ctx, holder.AskTime, "pty/write", map[string]any{"terminal": c.ID, how: text}, nil); err != nil {
				return err
			}
		}
		if len(keys) == 0 {
			return nil
		}
		return c.Call(ctx, holder.AskTime, "pty/write", map[string]any{"terminal": c.ID, "keys": keys}, nil)
	})
	return cmd
}

// maxTyped is how much can be typed at once: a program that reads takes that much in
// seconds.
const maxTyped = 1 << 20 // bytes

// typed is the text of a command line, or of standard input unless there are keys.
func (a *commands) typed(ctx context.Context, args []string, keys bool) (string, error) {
	if len(args) == 0 && keys {
		return "", nil
	}
	text := flags.Arg(args, 0)
	if len(args) == 0 {
		if stdio.IsTerminal(a.streams.Stdin) {
			return "", exit.Misuse("give a text after the id, or keys with --keys; else it is read from a pipe or file", "there is nothing to type")
		}
		b, err := stdio.ReadAll(ctx, a.streams.Stdin, maxTyped+1)
		if err != nil {
			return "", fmt.Errorf("read the text from standard input: %w", err)
		}
		text = string(b)
	}
	switch {
	case text == "":
		return "", exit.Misuse("give a text after the id or on standard input, or keys with --keys", "there is nothing to type")
	case len(text) > maxTyped:
		return "", exit.Misuse("copy it into the session with `sandboxbash session push`", "the text is longer than %d bytes", maxTyped)
	}
	return text, nil
}

func (a *commands) resizeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "resize ID COLSxROWS", Short: "Change the size of a terminal",
		Example: "  sandboxbash pty resize pty_1a2b3c4d 132x43",
		Args:    flags.Args(2, 2, "the id of a terminal and a size"), ValidArgsFunction: a.completeTerminals,
	}
	cmd.RunE = a.aboutTerminal(func(ctx context.Context, c *holder.Client, args []string) error {
		size, err := parseSize(args[0])
		if err != nil {
			return err
		}
		return c.Call(ctx, holder.AskTime, "pty/resize", map[string]any{"terminal": c.ID, "cols": size.Cols, "rows": size.Rows}, nil)
	})
	return cmd
}

func (a *commands) logsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "logs [flags] ID", SuggestFor: []string{"read", "output"}, Short: "Print what a program has written, as text",
		Long: `Print what a program has written, as text: lines end with a line feed, escape sequences
are removed, secrets are masked. The last output.window bytes are kept; the full output
is an artifact. With --follow, keep printing until the program has ended.

With --json the result has next, the value of --from for the next call, and lost, the
number of bytes before this part that are no longer kept.`,
		Example: `  sandboxbash pty logs pty_1a2b3c4d
  sandboxbash pty logs -f pty_1a2b3c4d
  sandboxbash pty logs --json --from 1200 pty_1a2b3c4d | jq -r .text`,
		Args: flags.Args(1, 1, "the id of a terminal"), ValidArgsFunction: a.completeTerminals,
	}
	flags.Add(cmd, "pty.from", "job.follow", "json", "quiet")
	cmd.Flags().Lookup("follow").Usage = "keep printing until the program has ended"
	flags.OneOf(cmd, "follow", "json")
	cmd.RunE = a.aboutTerminal(func(ctx context.Context, c *holder.Client, _ []string) error {
		if a.cfg.Job.Follow {
			return a.follow(ctx, c, a.cfg.PTY.From)
		}
		written, err := readTerminal(ctx, c, a.cfg.PTY.From)
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			written.Text = a.streams.Clean(written.Text)
			return stdio.PrintJSON(a.streams.Stdout, written)
		}
		return a.print(written)
	})
	return cmd
}

// written is a part of what a terminal's program has written.
type written struct {
	Text string `json:"text"`
	Next int64  `json:"next"`
	Lost int64  `json:"lost,omitempty"`
}

// readTerminal returns what a terminal's program has written, from a byte on.
func readTerminal(ctx context.Context, c *holder.Client, from int64) (w written, err error) {
	err = c.Call(ctx, holder.AskTime, "pty/read", map[string]any{"terminal": c.ID, "from": from}, &w)
	return w, err
}

func (a *commands) print(w written) error {
	if w.Lost > 0 {
		a.notes.Add(fmt.Sprintf("%d bytes before this are not kept any more", w.Lost))
	}
	_, err := io.WriteString(a.streams.Stdout, a.streams.Clean(w.Text))
	if stdio.IsBrokenPipe(err) {
		return exit.StatusError(exit.BrokenPipe)
	}
	return err
}

// follow prints what a terminal's program writes until it has ended.
func (a *commands) follow(ctx context.Context, c *holder.Client, from int64) error {
	for ended := false; ; {
		w, err := readTerminal(ctx, c, from)
		if err != nil {
			return err
		}
		if err := a.print(w); err != nil || ended {
			return err
		}
		from = w.Next
		var waited struct {
			Event string `json:"event"`
		}
		params := map[string]any{"terminal": c.ID, "from": from, "timeoutMs": maxWait.Milliseconds()}
		if err := c.Call(ctx, maxWait+holder.AskTime, "pty/wait", params, &waited); err != nil {
			return err
		}
		ended = waited.Event == string(sandbox.Ended)
	}
}

func (a *commands) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [flags] ID", Short: "Describe a terminal and how its program has ended",
		Example: "  sandboxbash pty show pty_1a2b3c4d\n  sandboxbash pty show --json pty_1a2b3c4d | jq .exitCode",
		Args:    flags.Args(1, 1, "the id of a terminal"), ValidArgsFunction: a.completeTerminals,
	}
	flags.Add(cmd, "json")
	cmd.RunE = a.notes.OneObject(a.aboutTerminal(func(ctx context.Context, c *holder.Client, _ []string) error {
		row, err := c.Describe(ctx)
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return stdio.PrintJSON(a.streams.Stdout, row)
		}
		why := ""
		if row.Error != nil {
			why = row.Error.Message
		}
		return a.streams.Fields([][2]string{
			{"id", row.ID},
			{"session", row.Session},
			{"state", row.State},
			{"reason", string(row.Reason)},
			{"exit", row.Exit()},
			{"error", why},
			{"size", fmt.Sprintf("%dx%d", row.Cols, row.Rows)},
			{"started", row.Started.Local().Format(time.RFC3339)},
			{"command", row.Command},
		})
	}))
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

func (a *commands) cleanScreen(s *shownScreen) {
	for i, l := range s.Lines {
		s.Lines[i] = a.streams.Safe(l)
	}
	s.Title = a.streams.Safe(s.Title)
}

func (a *commands) screenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "screen [flags] ID", Short: "Print the screen of a terminal",
		Long: `Print what a terminal shows now, without colours and without empty lines at the end. The
position of the cursor is printed on standard error. With --json, print all of it as an
object.`,
		Example: "  sandboxbash pty screen pty_1a2b3c4d\n  sandboxbash pty screen --json pty_1a2b3c4d | jq .cursor",
		Args:    flags.Args(1, 1, "the id of a terminal"), ValidArgsFunction: a.completeTerminals,
	}
	flags.Add(cmd, "json", "quiet")
	cmd.RunE = a.aboutTerminal(func(ctx context.Context, c *holder.Client, _ []string) error {
		var s shownScreen
		if err := c.Call(ctx, holder.AskTime, "pty/screen", map[string]any{"terminal": c.ID}, &s); err != nil {
			return err
		}
		a.cleanScreen(&s)
		if a.cfg.JSON {
			return stdio.PrintJSON(a.streams.Stdout, s)
		}
		if _, err := fmt.Fprintln(a.streams.Stdout, trimmedScreen(s.Lines)); err != nil {
			return err
		}
		hidden := map[bool]string{false: ", hidden"}[s.Cursor.Visible]
		a.notes.Add(fmt.Sprintf("%dx%d, cursor at column %d of row %d%s", s.Cols, s.Rows, s.Cursor.Col+1, s.Cursor.Row+1, hidden))
		return nil
	})
	return cmd
}

// waitedJSON is what a wait has ended with.
type waitedJSON struct {
	Event    string       `json:"event"`
	Screen   shownScreen  `json:"screen"`
	Held     *holder.Held `json:"terminal,omitempty"`
	Terminal *holder.Row  `json:"-"`
}

// Times of waiting, as of JSON-RPC.
const (
	defaultWait = 30 * time.Second
	maxWait     = time.Hour
)

func (a *commands) waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "wait [flags] ID", Short: "Wait for a text, silence, a prompt or the end of the program",
		Long: `Wait for the first event that a flag names, or for any output if no flag names one, and
print the event: output, quiet, needs_input or ended.

Exit status: 0 if the event came; 124 if it did not come within --timeout; 1 if the
program ended first. With --end, the program's own status, as with run.`,
		Example: `  sandboxbash pty wait --text 'login:' pty_1a2b3c4d
  sandboxbash pty wait --input --timeout 5m pty_1a2b3c4d
  sandboxbash pty wait --quiet-for 2s pty_1a2b3c4d
  sandboxbash pty wait --end pty_1a2b3c4d`,
		Args: flags.Args(1, 1, "the id of a terminal"), ValidArgsFunction: a.completeTerminals,
	}
	flags.Add(cmd, "pty.text", "pty.pattern", "pty.quiet-for", "pty.input", "pty.end", "timeout", "json", "quiet")
	f := cmd.Flags().Lookup("timeout")
	f.Usage, f.DefValue = "how long to wait, at most 1h", defaultWait.String()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.aboutTerminal(func(ctx context.Context, c *holder.Client, _ []string) error {
			patience := defaultWait
			if cmd.Flags().Changed("timeout") {
				patience = a.cfg.Timeout
			}
			if patience > maxWait {
				return exit.Misuse("wait again", "timeout %v: it must be at most %v", patience, maxWait)
			}
			return a.wait(ctx, c, patience)
		})(cmd, args)
	}
	return cmd
}

func (a *commands) wait(ctx context.Context, c *holder.Client, patience time.Duration) error {
	p := a.cfg.PTY
	params := map[string]any{
		"terminal": c.ID, "text": p.Text, "pattern": p.Pattern, "quietMs": p.Quiet.Milliseconds(), "input": p.Input, "end": p.End,
		"timeoutMs": max(patience.Milliseconds(), 1),
	}
	var w waitedJSON
	if err := c.Call(ctx, patience+holder.AskTime, "pty/wait", params, &w); err != nil {
		return err
	}
	a.cleanScreen(&w.Screen)
	if w.Held != nil {
		row := w.Held.AsRow(c.ID)
		w.Terminal = &row
	}
	if a.cfg.JSON {
		if err := stdio.PrintJSON(a.streams.Stdout, struct {
			waitedJSON
			Terminal *holder.Row `json:"terminal,omitempty"`
		}{w, w.Terminal}); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintln(a.streams.Stdout, w.Event); err != nil {
		return err
	}
	return a.sayWaited(c.ID, w, patience)
}

// sayWaited tells what the event leaves open, and returns what to exit with.
func (a *commands) sayWaited(id string, w waitedJSON, patience time.Duration) error {
	quiet := a.cfg.Quiet || a.cfg.JSON
	tell := func(format string, args ...any) {
		if !quiet {
			fmt.Fprintf(a.streams.Stderr, "sandboxbash: %s\n", fmt.Sprintf(format, args...))
		}
	}
	switch {
	case w.Event == "timeout":
		tell("terminal %s: it has not come within %v; `sandboxbash pty screen %s` shows what has", id, patience, id)
		return exit.StatusError(exit.Timeout)
	case w.Event != string(sandbox.Ended) || w.Terminal == nil:
		return nil
	case w.Terminal.Error != nil:
		return holder.Answered(w.Terminal.Error)
	case !a.cfg.PTY.End:
		tell("terminal %s: the program has ended before (%s)", id, w.Terminal.Exit())
		return exit.StatusError(exit.Findings)
	}
	st := w.Terminal.Status()
	if text := exit.Ending(sandbox.Result{Status: st}, exit.Limits{Output: a.cfg.Output.Limit}); text != "" {
		tell("terminal %s %s", id, text)
	}
	return exit.With(exit.OfCommand(st))
}

func (a *commands) stopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop [flags] ID...", Aliases: []string{"rm"}, SuggestFor: []string{"end", "kill"}, Short: "End programs on terminals, and remove the terminals",
		Long: `End the programs on terminals, with everything they have started, and remove the
terminals. Prints their ids or, with --json, an object for each: how the program ended,
and the end of its output.`,
		Example: "  sandboxbash pty stop pty_1a2b3c4d\n  sandboxbash pty ls --json | jq -r '.[].id' | xargs sandboxbash pty stop",
		Args:    flags.Args(1, -1, "ids of terminals"), ValidArgsFunction: a.completeTerminals,
	}
	flags.Add(cmd, "json", "quiet")
	cmd.RunE = a.cfg.Does(func(ctx context.Context, args []string) error {
		dir, err := holder.Dir(a.env)
		if err != nil {
			return err
		}
		var errs []error
		for _, prefix := range args {
			id, err := holder.Find(dir, prefix)
			var e holder.Ended
			if err == nil {
				e, err = holder.End(ctx, dir, id)
			}
			switch {
			case err != nil:
				errs = append(errs, err)
			case a.cfg.JSON:
				e.Text = a.streams.Clean(e.Text)
				errs = append(errs, stdio.PrintJSON(a.streams.Stdout, e))
			case !a.cfg.Quiet:
				fmt.Fprintln(a.streams.Stdout, id)
			}
		}
		return errors.Join(errs...)
	})
	return cmd
}
