package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// action is what a command does, with its configuration loaded.
type action func(ctx context.Context, args []string) error

// Does makes an action a command's.
func (a *App) Does(do action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.Load(cmd); err != nil {
			return err
		}
		return do(cmd.Context(), args)
	}
}

// query is a command that asks about sessions: its owner of sessions is made and
// let go of around it.
type query func(ctx context.Context, sessions *sandbox.Engine, args []string) error

// Asks makes a query a command's.
func (a *App) Asks(do query) func(*cobra.Command, []string) error {
	return a.Does(func(ctx context.Context, args []string) error {
		sessions, err := a.Sessions(ctx, nil, nil)
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, sessions, args), sessions.Close(context.WithoutCancel(ctx)))
	})
}

// Open opens a session whose contents will be shown: what is masked in commands'
// output is masked there too.
func (a *App) Open(ctx context.Context, sessions *sandbox.Engine, id string) (*sandbox.Session, error) {
	if err := a.Secrets(); err != nil {
		return nil, err
	}
	return sessions.Open(ctx, id)
}

// Each does the same to several things, and prints what do returns of those it was
// done to, unless --quiet.
func (a *App) Each(ids []string, do func(id string) (done string, err error)) error {
	var errs []error
	for _, id := range ids {
		done, err := do(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !a.Cfg.Quiet {
			fmt.Fprintln(a.Stdout, done)
		}
	}
	return errors.Join(errs...)
}

// CompleteTime bounds what completion asks of the engine.
const CompleteTime = 2 * time.Second

// Completes offers the words that list makes, each with a TAB and a description
// behind it, as far as they go on from the word that is being typed and were not
// given before.
func (a *App) Completes(cmd *cobra.Command, args []string, word string, list func(context.Context, *sandbox.Engine) []string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	ctx, cancel := context.WithTimeout(cmd.Context(), CompleteTime)
	defer cancel()
	if err := a.Load(cmd); err != nil {
		return nil, directive
	}
	sessions, err := a.Sessions(ctx, nil, nil)
	if err != nil {
		return nil, directive
	}
	defer sessions.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it only lets go
	return slices.DeleteFunc(list(ctx, sessions), func(offer string) bool {
		id, _, _ := strings.Cut(offer, "\t")
		return !strings.HasPrefix(id, word) || slices.Contains(args, id)
	}), directive
}

// CompleteSessions offers the ids of the sessions that there are.
func (a *App) CompleteSessions(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return a.Completes(cmd, args, word, func(ctx context.Context, sessions *sandbox.Engine) (ids []string) {
		list, err := sessions.List(ctx)
		if err != nil {
			return nil
		}
		for _, s := range list {
			ids = append(ids, fmt.Sprintf("%s\t%s, %s old, %s", s.ID, s.Status, stdio.Age(s.Created, time.Now()), a.Safe(s.Image)))
		}
		return ids
	})
}

// OneObject has a command that prints one object with --json print one for its
// error too.
func (a *App) OneObject(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if _, said := errors.AsType[exit.StatusError](err); err == nil || said || a.Cfg == nil || !a.Cfg.JSON {
			return err
		}
		return a.PrintError(err)
	}
}

// PrintError prints an error as the one object of a command, and returns what to exit
// with.
func (a *App) PrintError(err error) error {
	v := exit.Judge(err)
	j := struct {
		Error ErrorJSON `json:"error"`
		Notes []string  `json:"notes,omitempty"`
	}{ErrorJSON{Outcome: v.Outcome, Cause: v.Cause, Message: a.Scrub(exit.Words(err)), Hint: a.Scrub(v.Todo)}, a.TakeNotes()}
	if err := stdio.PrintJSON(a.Stdout, j); err != nil {
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
