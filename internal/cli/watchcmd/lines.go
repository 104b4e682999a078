package watchcmd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/watch"
)

// lines prints what happens from now on, in one session or in all.
func (c *command) lines(ctx context.Context, source *Source, session string) error {
	err := source.Run(ctx, func(ctx context.Context) error {
		sub := source.Hub.Subscribe()
		defer sub.Close()
		p := &printer{command: c, begun: time.Now(), names: map[string]string{}, open: map[string]string{}}
		var focus []string
		if session != "" {
			focus = []string{session}
			sub.Focus(focus...)
		}
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-sub.Changed():
			}
			u := sub.Next()
			for _, s := range u.Sessions {
				if _, known := p.names[s.ID]; !known && session == "" {
					focus = append(focus, s.ID)
				}
				p.names[s.ID] = s.Name
			}
			if session == "" {
				sub.Focus(focus...)
			}
			if u.ProblemNew && u.Problem != "" {
				c.notes.Add("the engine does not say which sessions there are: " + u.Problem)
			}
			for _, d := range u.Details {
				if err := p.detail(d); err != nil {
					return err
				}
			}
		}
	})
	if ctx.Err() != nil && err == nil {
		return exit.StatusError(exit.Cancelled)
	}
	return err
}

// printer prints items.
type printer struct {
	*command

	begun time.Time         // what was before is not printed
	names map[string]string // of sessions, by id
	open  map[string]string // by stream of a command: the line that has not ended
}

// event is an item as --json prints it.
type event struct {
	Session string `json:"session"`
	Name    string `json:"name"`
	watch.Item
}

func (p *printer) detail(d watch.Detail) error {
	if d.Gap && !d.Reset {
		p.notes.Add("the reader of this output was too slow: a part of what " + p.names[d.Session] + " did is not here")
	}
	for _, list := range [][]watch.Item{d.Items, d.Network} {
		for _, i := range list {
			if i.Time.Before(p.begun) {
				continue
			}
			if err := p.item(d.Session, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *printer) item(session string, i watch.Item) error {
	if p.cfg.JSON {
		return stdio.PrintJSON(p.streams.Stdout, event{session, p.names[session], i})
	}
	head := i.Time.Local().Format(time.TimeOnly) + " " + p.names[session] + " "
	var b strings.Builder
	say := func(mark, text string) {
		for line := range strings.Lines(text) {
			fmt.Fprintf(&b, "%s%s %s\n", head, mark, strings.TrimSuffix(line, "\n"))
		}
	}
	switch i.Kind {
	case watch.ItemOutput:
		key := session + i.ID + fmt.Sprint(i.Stderr)
		if i.Rewind {
			p.open[key] = ""
		}
		text := p.open[key] + i.Text
		at := strings.LastIndexByte(text, '\n') + 1
		say(map[bool]string{false: "|", true: "!"}[i.Stderr], text[:at])
		p.open[key] = text[at:]
		if text[at:] == "" {
			delete(p.open, key)
		}
	case watch.ItemCommand, watch.ItemDenied:
		say("$", i.Text)
	case watch.ItemEnd:
		for _, stderr := range []bool{false, true} {
			key := session + i.ID + fmt.Sprint(stderr)
			say(map[bool]string{false: "|", true: "!"}[stderr], p.open[key])
			delete(p.open, key)
		}
		if i.Ms > 0 {
			i.Text += " after " + (time.Duration(i.Ms) * time.Millisecond).String()
		}
		say("=", i.Text)
	case watch.ItemNetwork:
		say("@", network(i))
	case watch.ItemJob, watch.ItemNote:
		say("*", i.Text)
	}
	_, err := io.WriteString(p.streams.Stdout, b.String())
	return err
}

// network says in a line what became of a connection.
func network(i watch.Item) string {
	c := i.Connection
	words := []string{"refused"}
	if c.Allowed {
		words[0] = "allowed"
	}
	to := c.Host
	if c.Port > 0 {
		to = fmt.Sprintf("%s:%d", c.Host, c.Port)
	}
	words = append(words, to)
	for _, text := range []string{strings.TrimSpace(c.Method + " " + c.Path), i.Text, c.Why, c.Err} {
		if text != "" {
			words = append(words, text)
		}
	}
	return strings.Join(words, " ")
}
