package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/exec/wire"
	"github.com/sandboxbash/sandboxbash/images"
)

// version is set by the linker in releases; otherwise the module's is taken.
var version string

// versionJSON describes this build.
type versionJSON struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from files that are no commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Protocol int    `json:"protocol"` // between host and runner

	Runners map[string]string `json:"runners"` // SHA-256 of those that are embedded, by architecture
}

func build() versionJSON {
	v := versionJSON{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Protocol: wire.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = cmp.Or(v.Version, info.Main.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version [flags]", Short: "Print what this build is", GroupID: groupSetup,
		Example: "  sandboxbash version\n  sandboxbash version --json",
		Args:    words(0, 0, "no arguments"),
	}
	addFlags(cmd, "json")
	cmd.RunE = a.does(func(context.Context, []string) error {
		v := build()
		var err error
		if v.Runners, err = images.RunnerDigests(); err != nil {
			return err
		}
		if a.cfg.JSON {
			return printJSON(a.stdout, v)
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
		_, err = io.WriteString(a.stdout, b.String())
		return err
	})
	return cmd
}
