package sessioncmd

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

func (a *commands) forwardCommand() *cobra.Command {
	var tokens bool
	cmd := &cobra.Command{
		Use: "forward [flags] [SESSION|--] [HOST:]PORT:PORT[/http]...", Short: "Reach servers of a session from this machine, until Ctrl-C",
		Long: `Listen on this machine, and forward connections to ports of a session: the first PORT
is that of this machine, where 0 stands for a free one, the second that of the session.
PORT alone stands for both. The addresses are printed on standard error.

It needs no network in the session and no rule. The server may listen at 127.0.0.1 or at
all addresses of the session. HOST is 127.0.0.1 unless it is given; any other lets other
machines connect too. Programs and users of this machine can connect in any case, unless
/http is behind a PORT, or --http given for all: then it forwards HTTP requests, also WebSockets, of
clients that have opened the address that is printed. It holds a token, which becomes
a cookie.`,
		Example: `  sandboxbash session forward -- 8080:80
  sandboxbash session forward web 0:3000 5432
  sandboxbash session forward --http web 0:3000
  sandboxbash session forward web 192.168.1.7:8080:80`,
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "quiet")
	cmd.Flags().BoolVar(&tokens, "http", false, "forward HTTP requests of clients that have opened the address that is printed, with its token")
	cmd.RunE = a.connection.AsksOf("sandboxbash session forward -- 8080:80", func(ctx context.Context, sessions *sandbox.Engine, ref string, words []string) error {
		if len(words) == 0 {
			return exit.Misuse("give ports after the session, as in `sandboxbash session forward web 8080:80`, or after --, as in `sandboxbash session forward -- 8080:80`", "there is nothing to forward")
		}
		specs, err := core.ParseForwards(words)
		if err != nil {
			return err
		}
		if tokens {
			specs = specs.WithTokens()
		}
		return a.forward(ctx, sessions, ref, specs)
	})
	return cmd
}

func (a *commands) forward(ctx context.Context, sessions *sandbox.Engine, id string, specs core.Forwards) error {
	s, err := a.connection.Open(ctx, sessions, id)
	if err != nil {
		return err
	}
	token := func(text string) { fmt.Fprintf(a.streams.Stderr, "sandboxbash: %s\n", a.streams.Safe(text)) }
	say := token
	if a.cfg.Quiet {
		say = func(string) {}
	}
	all, err := core.OpenForwards(ctx, s, specs, core.ForwardNotes{Say: say, Token: token, Note: a.notes.Add})
	if err != nil {
		return err
	}
	ended := make(chan error, len(all))
	for _, f := range all {
		go func() {
			<-f.Done()
			ended <- f.Err()
		}()
	}
	select {
	case err = <-ended: // with the session
	case <-ctx.Done():
		err = net.ErrClosed
	}
	for _, f := range all {
		_ = f.Close()
	}
	if err == net.ErrClosed { //nolint:errorlint // exactly this one: it was asked to end
		return nil
	}
	return err
}
