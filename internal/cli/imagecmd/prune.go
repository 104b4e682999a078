package imagecmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

func (a *commands) pruneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "prune [flags]", Short: "Remove snapshots and copies that nothing needs any more",
		Long: `Remove what sandboxbash has made for itself and nothing needs any more, and print it:
snapshots of this machine that are not the newest, what was made of images that are gone,
and runners of other versions that are older than a week. What a session uses stays, and
so do images that were pulled, loaded or built. Every start of a session does the same.`,
		Example: "  sandboxbash image prune",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "quiet")
	cmd.RunE = a.connection.Asks(func(ctx context.Context, sessions *sandbox.Engine, _ []string) error {
		gone, err := sessions.Prune(ctx)
		if out := a.streams.Listing(a.cfg.Quiet); out != nil {
			for _, name := range gone {
				if _, printErr := fmt.Fprintln(out, a.streams.Name(name)); printErr != nil {
					return errors.Join(err, printErr)
				}
			}
		}
		return err
	})
	return cmd
}
