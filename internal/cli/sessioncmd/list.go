package sessioncmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// lister is the command ls.
type lister struct {
	*commands

	all, ids bool     // flags
	filters  []string // the flag
	format   string   // the flag
}

func (a *commands) listCommand() *cobra.Command {
	l := &lister{commands: a}
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List your sessions",
		Long: `List the sessions that you have started on this machine; with --all, those of everyone on
the engine. A session that has ended and whose workspace is kept is listed as kept.

USED is the last use from this machine, LEFT the time until the session ends if it is not
used, or until a kept workspace is removed; never, if it does not end by itself. --format takes a Go template over the fields
of --json, with json for a value as JSON: {{.name}}, {{json .workspace}}.`,
		Example: `  sandboxbash session ls
  sandboxbash session ls -q --filter status=kept |
    xargs sandboxbash session stop
  sandboxbash session ls --format '{{.name}} {{.image}}'`,
		Args: flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "json")
	cmd.Flags().BoolVarP(&l.all, "all", "a", false, "list also the sessions of other users and machines")
	cmd.Flags().BoolVarP(&l.ids, "ids", "q", false, "print the ids alone")
	cmd.Flags().StringArrayVar(&l.filters, "filter", nil, "list the sessions with this `FIELD=VALUE`: name, id, status, image, profile, directory; may be repeated")
	cmd.Flags().StringVar(&l.format, "format", "", "print each session by this Go `TEMPLATE`")
	cmd.MarkFlagsMutuallyExclusive("json", "ids", "format")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		wants, err := parseFilters(l.filters)
		if err != nil {
			return err
		}
		row, err := parseFormat(l.format)
		if err != nil {
			return err
		}
		return a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
			list, err := sessions.List(ctx)
			if err != nil {
				return err
			}
			list = slices.DeleteFunc(list, func(s sandbox.Info) bool { return !l.all && !s.Mine() || !wants.match(s) })
			return l.print(list, row)
		})(cmd, args)
	}
	return cmd
}

// listedSession is a session as --json prints it.
type listedSession struct {
	sandbox.Info
	Used *time.Time `json:"used,omitempty"` // last, from this machine
}

func (a *commands) listed(s sandbox.Info) listedSession {
	l := listedSession{Info: s}
	if at := a.env.LastUsed(s.ID); !at.IsZero() {
		l.Used = &at
	}
	return l
}

func (l *lister) print(list []sandbox.Info, row *template.Template) error {
	switch {
	case l.ids:
		for _, s := range list {
			if _, err := fmt.Fprintln(l.streams.Stdout, s.ID); err != nil {
				return err
			}
		}
		return nil
	case row != nil:
		return l.printBy(row, list)
	case l.cfg.JSON:
		rows := []listedSession{}
		for _, s := range list {
			rows = append(rows, l.listed(s))
		}
		return stdio.PrintJSON(l.streams.Stdout, rows)
	}
	now := time.Now()
	return l.streams.Table("NAME\tID\tSTATUS\tAGE\tUSED\tLEFT\tWORKSPACE", func(w io.Writer) {
		for _, s := range list {
			used := l.env.LastUsed(s.ID)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.fit(s.Name, nameWidth), sandbox.ShortID(s.ID), s.Status, stdio.Age(s.Created, now),
				usedText(used, now), leftText(s, used, l.env.KeptUntil(s.ID), now), l.fitEnd(core.WorkspaceText(s.Workspace), workspaceWidth))
		}
	})
}

// Widths of columns, so that a row fits 80 characters: the others take 8, 7, 4, 4 and 6, and two
// spaces are between any two.
const (
	nameWidth      = 17
	workspaceWidth = 22
)

// fit shortens a text at its end.
func (l *lister) fit(text string, width int) string {
	if r := []rune(l.streams.Name(text)); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return l.streams.Name(text)
}

// fitEnd shortens a text in front of its end: that of a path tells more.
func (l *lister) fitEnd(text string, width int) string {
	r := []rune(l.streams.Name(text))
	if len(r) <= width {
		return string(r)
	}
	kind, _, _ := strings.Cut(string(r), ":") // volume, copy or bind
	return kind + ":…" + string(r[len(r)-(width-len(kind)-2):])
}

func usedText(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return stdio.Age(at, now)
}

// farAway is longer than anyone keeps a session for a time.
const farAway = sandbox.Forever / 2

// leftText is how long a session lives if it is not used, "never" if it does not end by itself. It is "-"
// if that is not known: something holds it, it is paused, or another machine or process uses it. kept is
// until when this machine has had it kept.
func leftText(s sandbox.Info, used, kept, now time.Time) string {
	until := used.Add(s.Lease)
	switch {
	case s.Kept != nil:
		until = s.Kept.Until
	case s.Lease > farAway || kept.Sub(now) > farAway:
		return "never"
	case s.Status == engine.StatusPaused:
		return "-"
	case kept.After(now) && (used.IsZero() || kept.After(until)):
		until = kept
	case used.IsZero() || !now.Before(until):
		return "-"
	}
	d := until.Sub(now).Round(time.Minute)
	switch {
	case d < time.Minute:
		return stdio.Age(now, until)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return stdio.Age(now, until)
}

func (l *lister) printBy(row *template.Template, list []sandbox.Info) error {
	for _, s := range list {
		text, err := json.Marshal(l.listed(s))
		var fields map[string]any
		if err = errors.Join(err, json.Unmarshal(text, &fields)); err != nil {
			return err
		}
		var b strings.Builder
		if err := row.Execute(&b, fields); err != nil {
			return exit.Misuse("the fields are those of --json", "--format: %v", err)
		}
		if _, err := fmt.Fprintln(l.streams.Stdout, l.streams.Clean(b.String())); err != nil {
			return err
		}
	}
	return nil
}

// parseFormat returns the template of a row, nil for none.
func parseFormat(text string) (*template.Template, error) {
	if text == "" {
		return nil, nil
	}
	t, err := template.New("format").Option("missingkey=error").Funcs(template.FuncMap{
		"json": func(v any) (string, error) {
			b, err := json.Marshal(v)
			return string(b), err
		},
	}).Parse(text)
	if err != nil {
		return nil, exit.Misuse("write a Go template over the fields of --json, as in '{{.name}} {{.id}}'", "--format: %v", err)
	}
	return t, nil
}

// filterFields are what sessions can be filtered by.
var filterFields = map[string]func(sandbox.Info) string{
	"name":      func(s sandbox.Info) string { return s.Name },
	"id":        func(s sandbox.Info) string { return s.ID },
	"status":    func(s sandbox.Info) string { return string(s.Status) },
	"image":     func(s sandbox.Info) string { return s.Image },
	"profile":   func(s sandbox.Info) string { return string(s.Profile) },
	"directory": func(s sandbox.Info) string { return s.Directory },
}

// filters are the values that each field may have.
type filters map[string][]string

// parseFilters reads FIELD=VALUE[,FIELD=VALUE]...
func parseFilters(texts []string) (filters, error) {
	f := filters{}
	for _, text := range texts {
		for one := range strings.SplitSeq(text, ",") {
			field, value, ok := strings.Cut(one, "=")
			if filterFields[field] == nil || !ok || value == "" {
				return nil, exit.Misuse("write it as name=web or status=kept; the fields are directory, id, image, name, profile and status", "--filter: %q is not FIELD=VALUE", one)
			}
			f[field] = append(f[field], value)
		}
	}
	return f, nil
}

// match reports whether a session has one of the values of each field. A part of a name or an id
// is enough.
func (f filters) match(s sandbox.Info) bool {
	for field, values := range f {
		has := filterFields[field](s)
		if !slices.ContainsFunc(values, func(v string) bool {
			return has == v || (field == "name" || field == "id") && strings.Contains(has, v)
		}) {
			return false
		}
	}
	return true
}
