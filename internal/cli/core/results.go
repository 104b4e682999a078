package core

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

// Each does the same to several things, and writes to w what do returns of those it was
// done to; a nil w is for --quiet.
func Each(w io.Writer, ids []string, do func(id string) (done string, err error)) error {
	var errs []error
	for _, id := range ids {
		done, err := do(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if w != nil {
			fmt.Fprintln(w, done)
		}
	}
	return errors.Join(errs...)
}

// OneObject has a command that prints one object with --json print one for its
// error too.
func (n *Notes) OneObject(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if _, said := errors.AsType[exit.StatusError](err); err == nil || said || !n.cfg.WantsJSON() {
			return err
		}
		return n.PrintError(err)
	}
}

// PrintError prints an error and the notes as the one object of a command, and returns what
// to exit with.
func (n *Notes) PrintError(err error) error {
	v := exit.Judge(err)
	j := struct {
		Error ErrorJSON `json:"error"`
		Notes []string  `json:"notes,omitempty"`
	}{ErrorJSON{Outcome: v.Outcome, Cause: v.Cause, Message: n.streams.Scrub(exit.Words(err)), Hint: n.streams.Scrub(v.Todo)}, n.Gathered()}
	if err := stdio.PrintJSON(n.streams.Stdout, j); err != nil {
		return err
	}
	return exit.With(v.Status)
}

// ErrorJSON is an error in a JSON document.
type ErrorJSON struct {
	Outcome exec.Outcome `json:"outcome"`
	Cause   string       `json:"cause"`
	Message string       `json:"message"`
	Hint    string       `json:"hint,omitempty"` // what to do
}

// List prints the result of a command that lists things: as JSON, in which an empty list is [], or
// as a table with a head, whose columns are separated by tabs in head and in what row returns.
func List[T any](cfg *Configuration, list []T, head string, row func(T) string) error {
	if cfg.JSON {
		if list == nil {
			list = []T{}
		}
		return stdio.PrintJSON(cfg.streams.Stdout, list)
	}
	return cfg.streams.Table(head, func(w io.Writer) {
		for _, one := range list {
			fmt.Fprintln(w, row(one))
		}
	})
}
