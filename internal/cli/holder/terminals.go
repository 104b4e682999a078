package holder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Row is a terminal as --json prints it.
type Row struct {
	ID       string       `json:"id"`
	Session  string       `json:"session"`
	State    string       `json:"state"` // "running", "ended", "lost", or "silent": its holder does not answer
	Reason   exec.Reason  `json:"reason,omitempty"`
	ExitCode *int         `json:"exitCode"` // null unless exited
	Signal   string       `json:"signal,omitempty"`
	Cols     int          `json:"cols"`
	Rows     int          `json:"rows"`
	Started  time.Time    `json:"started,omitzero"`
	Command  string       `json:"command"`
	Error    *serve.Error `json:"error,omitempty"` // of one that is lost

	signal int
}

// Held is a terminal as its holder describes it.
type Held struct {
	Session  string       `json:"session"`
	Command  string       `json:"command"`
	Started  time.Time    `json:"started"`
	Cols     int          `json:"cols"`
	Rows     int          `json:"rows"`
	State    string       `json:"state"`
	Reason   exec.Reason  `json:"reason"`
	ExitCode *int         `json:"exitCode"`
	Signal   int          `json:"signal"`
	Error    *serve.Error `json:"error"`
}

// AsRow is the terminal as a row of the list.
func (t Held) AsRow(id string) Row {
	row := Row{
		ID: id, Session: t.Session, State: t.State, Reason: t.Reason, ExitCode: t.ExitCode, Cols: t.Cols, Rows: t.Rows,
		Started: t.Started, Command: t.Command, Error: t.Error, signal: t.Signal,
	}
	if t.Signal != 0 {
		row.Signal = exit.SignalName(t.Signal)
	}
	return row
}

// Exit is how it has ended, for a table.
func (r Row) Exit() string {
	switch {
	case r.ExitCode != nil:
		return fmt.Sprint(*r.ExitCode)
	case r.Signal != "":
		return r.Signal
	case r.Reason != "":
		return string(r.Reason)
	}
	return "-"
}

// Status is how its command has ended.
func (r Row) Status() exec.Status {
	st := exec.Status{Reason: r.Reason, Signal: r.signal}
	if r.ExitCode != nil {
		st.Code = *r.ExitCode
	}
	return st
}

// List asks all holders. Those that have died are not in it.
func List(ctx context.Context, dir string) ([]Row, error) {
	ids, err := terminalIDs(dir)
	if err != nil {
		return nil, err
	}
	rows := make([]Row, len(ids))
	var asked sync.WaitGroup
	for i, id := range ids {
		asked.Go(func() {
			row, err := describeTerminal(ctx, dir, id)
			e, ok := errors.AsType[*exec.Error](err)
			switch {
			case err == nil:
				rows[i] = row
			case ok && e.Cause == CauseNoAnswer:
				rows[i] = Row{ID: id, State: "silent"}
			}
		})
	}
	asked.Wait()
	rows = slices.DeleteFunc(rows, func(r Row) bool { return r.ID == "" }) // it has ended meanwhile
	slices.SortFunc(rows, func(x, y Row) int { return x.Started.Compare(y.Started) })
	return rows, ctx.Err()
}

func describeTerminal(ctx context.Context, dir, id string) (Row, error) {
	c, err := Dial(ctx, dir, id)
	if err != nil {
		return Row{}, err
	}
	defer c.Close() //nolint:errcheck // all was said
	return c.Describe(ctx)
}

// Describe asks the holder to describe its terminal.
func (c *Client) Describe(ctx context.Context) (Row, error) {
	var list struct {
		Terminals []Held `json:"terminals"`
	}
	if err := c.Call(ctx, lookTime, "pty/list", nil, &list); err != nil {
		return Row{}, err
	}
	if len(list.Terminals) != 1 {
		return Row{}, fmt.Errorf("terminal %s: %w", c.ID, ErrUnknown)
	}
	return list.Terminals[0].AsRow(c.ID), nil
}

// Prune tells of terminals whose holders have died, and forgets them.
func Prune(ctx context.Context, dir string, note func(text string)) error {
	lost, err := Sweep(ctx, dir)
	for _, id := range lost {
		note("terminal " + id + " is lost: the process that kept it has died, and what ran on it was killed with it")
	}
	return err
}

// EndAll ends the terminals of a session that is about to end, so that nothing
// of them is left behind it. What of that fails their holders do soon after.
func EndAll(ctx context.Context, env Environment, sessions *sandbox.Engine, id string) {
	dir, err := Dir(env)
	if err != nil {
		return
	}
	rows, err := List(ctx, dir)
	if err != nil || len(rows) == 0 {
		return
	}
	info, err := sessions.Show(ctx, id)
	if err != nil {
		return
	}
	for _, r := range rows {
		if r.Session == info.ID {
			_, _ = End(ctx, dir, r.ID)
		}
	}
}

// Ended is how a terminal's program has ended.
type Ended struct {
	ID       string      `json:"id"`
	Reason   exec.Reason `json:"reason"`
	ExitCode *int        `json:"exitCode"`
	Signal   int         `json:"signal,omitempty"`
	Text     string      `json:"text"`
	Artifact string      `json:"artifact,omitempty"`
}

// endTime is how long a terminal's end may take: the command's, 5 s behind its
// grace, and what it has written.
const endTime = time.Minute

// End ends what runs on a terminal. Of one whose holder has died the socket
// is removed.
func End(ctx context.Context, dir, id string) (Ended, error) {
	e := Ended{ID: id}
	c, err := Dial(ctx, dir, id)
	if err != nil {
		if lost, ok := errors.AsType[*exec.Error](err); ok && lost.Cause == CauseHolder {
			_, pruneErr := Sweep(ctx, dir)
			err = errors.Join(err, pruneErr)
		}
		return e, err
	}
	defer c.Close() //nolint:errcheck // all was said
	err = c.Call(ctx, endTime, "pty/end", map[string]any{"terminal": id}, &e)
	return e, err
}
