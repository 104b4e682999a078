package core

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

// TakeOver has this process, a holder, go on as the one that started it: with its variables and
// its flags, in a directory that stays. The starter has loaded the same configuration and shows
// what was noted about it, so only the notes from now on are gathered, for Answer.
func (c *Configuration) TakeOver(cmd *cobra.Command, h holder.Handover) error {
	c.env.Use(h.Environ)
	err := cmd.ParseFlags(h.Flags)
	if err == nil {
		err = c.Load(cmd)
	}
	if err == nil {
		err = os.Chdir("/") // what it was started in may go
	}
	c.notes.Restart()
	return err
}

// Answer tells the starter of this process, a holder, that what it holds has started, or why it
// has not. The starter alone shows the notes and err; Answer returns err as a status, or the error
// of the write. The terminal is nil for holders of other things.
func (n *Notes) Answer(terminal *holder.Row, err error) error {
	answer := holder.Answer{Terminal: terminal, Notes: n.Gathered()}
	if err == nil {
		return stdio.PrintJSON(n.streams.Stdout, answer)
	}
	answer.Error = holder.NewFailure(err, n.streams.Scrub)
	return errors.Join(stdio.PrintJSON(n.streams.Stdout, answer), exit.StatusError(answer.Error.Status))
}
