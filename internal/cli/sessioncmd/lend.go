package sessioncmd

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/keeper"
)

// newLendCommand is the process that keeps idle runners for later calls.
func newLendCommand(p *core.Parts) *cobra.Command {
	return &cobra.Command{
		Use: "lend ID", Hidden: true, Short: "Keep a session's idle runners for later calls (started by `session exec`)",
		Example: "  sandboxbash session exec web make",
		Args:    flags.Args(1, 1, "the id of a session"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(heldGC)
			debug.FreeOSMemory() // what the start needed
			return keeper.Main(cmd.Context(), p.Streams.Stdin)
		},
	}
}
