package runcmd

import (
	"context"
	"fmt"
	"sync"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// maxForwardNotes bounds what is said of forwards after the command's end.
const maxForwardNotes = 16

// forward opens the forwards that were asked for. The function that it returns closes them
// before it releases the session, and says what was not right with them: while the command
// runs, its output has the terminal.
func (a *Runner) forward(ctx context.Context, session *sandbox.Session, release func()) (func(), error) {
	specs := a.cfg.NetworkRules.Forward
	if len(specs) == 0 {
		return release, nil
	}
	var mu sync.Mutex
	var notes []string
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if len(notes) < maxForwardNotes {
			notes = append(notes, text)
		}
	}
	token := func(text string) {
		fmt.Fprintf(a.streams.Stderr, "sandboxbash: %s\n", a.streams.Safe(text)) // now, even with --json: it is of use now
	}
	say := token
	if a.cfg.Quiet {
		say = func(string) {}
	}
	all, err := core.OpenForwards(ctx, session, specs, core.ForwardNotes{Say: say, Token: token, Note: note})
	if err != nil {
		release()
		return nil, err
	}
	return func() {
		for _, f := range all {
			_ = f.Close()
		}
		release()
		for _, text := range notes {
			a.notes.Add(text)
		}
	}, nil
}

// portText says that a server has started in a session that lives on.
func portText(session string, p sandbox.Port) string {
	const most = 60 // bytes of the command line
	command := p.Command
	if len(command) > most {
		command = command[:most] + "…"
	}
	return fmt.Sprintf("a server listens at %s in the session (pid %d: %s); `sandboxbash session forward %s %d` makes it reachable here", p, p.PID, command, session, p.Port)
}
