package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

func (a *program) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version [flags]", Short: "Print the version of this build", GroupID: flags.GroupSetup,
		Example: "  sandboxbash version\n  sandboxbash version --json",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "json")
	cmd.RunE = a.Cfg.Does(func(context.Context, []string) error {
		v := core.Build(a.Version)
		var err error
		if v.Runners, err = images.RunnerDigests(); err != nil {
			return err
		}
		if a.Cfg.JSON {
			return stdio.PrintJSON(a.Streams.Stdout, v)
		}
		commit := cmp.Or(v.Commit, "unknown")
		if v.Modified {
			commit += " (modified)"
		}
		var b strings.Builder
		fmt.Fprintf(&b, "sandboxbash %s\ncommit    %s\ngo        %s %s\nprotocol  %d\n",
			cmp.Or(v.Version, "(devel)"), commit, v.Go, v.Platform, v.Protocol)
		for _, arch := range slices.Sorted(maps.Keys(v.Runners)) {
			fmt.Fprintf(&b, "runner    linux/%s sha256:%s\n", arch, v.Runners[arch])
		}
		_, err = io.WriteString(a.Streams.Stdout, b.String())
		return err
	})
	return cmd
}
