package core

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// ErrNoSessionID is an id that was to come from somewhere: `session exec "$id"`.
var ErrNoSessionID = exit.Misuse("list the sessions with `sandboxbash session ls`, or start one with `sandboxbash session start`", "the session's id is empty")

// Configuration is what one call is configured with, once Load has made it.
type Configuration struct {
	*config.Config // nil before Load; it does not change afterwards

	file    flags.TextValue // --config
	env     *Environment
	streams *stdio.Streams
	notes   *Notes
}

// Loaded reports whether Load has made the configuration.
func (c *Configuration) Loaded() bool { return c.Config != nil }

// Silent reports whether notes, warnings and progress are not wanted. It may be called before Load.
func (c *Configuration) Silent() bool { return c.Loaded() && c.Quiet }

// WantsJSON reports whether the result is to be JSON. It may be called before Load.
func (c *Configuration) WantsJSON() bool { return c.Loaded() && c.JSON }

// FileFlag is the value of --config.
func (c *Configuration) FileFlag() pflag.Value { return &c.file }

// Source is what the configuration of a command is made from, with its flags as parsed by now.
func (c *Configuration) Source(cmd *cobra.Command) config.Source {
	src := c.source()
	src.Flags = cmd.Flags()
	return src
}

// source is what the configuration is made from, but for the flags.
func (c *Configuration) source() config.Source {
	return config.Source{
		Dir: c.env.userDir("XDG_CONFIG_HOME", ".config"), File: c.file.Text, Home: c.env.Home(), Environ: c.env.All(), SecretName: sink.SecretName,
		LoadsCode: policy.LoadsCode,
	}
}

// Load makes the configuration, from the command's flags as parsed by now. From then on the
// streams are guarded, and notes are printed or gathered, as it says.
func (c *Configuration) Load(cmd *cobra.Command) error {
	cfg, err := config.Load(c.Source(cmd))
	if err != nil {
		exit.WordConfig(err)
		if !exit.IsConfig(err) {
			err = exit.Misuse("", "%v", err)
		}
		return err
	}
	if f := cmd.Flags().Lookup("session"); f != nil && f.Changed && cfg.Session.ID == "" {
		return ErrNoSessionID
	}
	c.Config = cfg
	c.streams.Guard(runnersOf(cfg.CI, c.env.Getenv))
	c.streams.SetColours(stdio.Colouring(cfg.Color), c.env.Getenv)
	c.notes.gatherIf(cfg.JSON)
	unknown := config.UnknownVariables(c.env.All())
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		text := "environment variable " + name + " is not a setting of sandboxbash"
		switch like := unknown[name]; {
		case strings.HasPrefix(like, "--"):
			text += " (" + like + " applies to a single call, and is a flag only)"
		case like != "":
			text += " (did you mean " + like + "?)"
		}
		c.notes.Add(text)
	}
	return nil
}

// action is what a command does, with its configuration loaded.
type action func(ctx context.Context, args []string) error

// Does makes an action a command's.
func (c *Configuration) Does(do action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := c.Load(cmd); err != nil {
			return err
		}
		return do(cmd.Context(), args)
	}
}

// OutputOptions says what is kept of a command's output.
func (c *Configuration) OutputOptions() sink.Options {
	return sink.Options{
		Window: sink.Tail(int(c.Output.Window)), Limit: c.Output.Limit, Artifact: c.ArtifactMode(),
		Text: sink.Text{Return: sink.RewindReturn, Invisible: sink.ShowInvisible},
	}
}

// Idle is how long what a user has started lives while it is idle: for ever, if the setting is 0.
func (c *Configuration) Idle() time.Duration {
	if c.Session.Idle == 0 {
		return sandbox.Forever
	}
	return c.Session.Idle
}

// LastingTimeout is the timeout of what lasts until its work is done, a job or a program on a terminal:
// none unless the flag sets one.
func (c *Configuration) LastingTimeout(cmd *cobra.Command) time.Duration {
	if !cmd.Flags().Changed("timeout") {
		return 0
	}
	return c.Timeout
}

// keepsNothing is the choice of artifacts.mode with which no output is kept.
const keepsNothing = "never"

// ArtifactMode says when a command's output is kept.
func (c *Configuration) ArtifactMode() sink.ArtifactMode {
	modes := map[string]sink.ArtifactMode{"overflow": sink.OnOverflow, "always": sink.Always, keepsNothing: sink.Never}
	return modes[c.Artifacts.Mode]
}

// KeepFor is how long the workspaces of sessions that outlive this process are kept; 0:
// not at all.
func (c *Configuration) KeepFor() time.Duration {
	if k := c.Keep; k.Count > 0 && k.Disk > 0 {
		return k.For
	}
	return 0
}

// AuditDir is where the audit log is kept, "" if there is no place for it.
func (c *Configuration) AuditDir() string {
	if c.Audit.Dir != "" || c.env.StateDir() == "" {
		return c.Audit.Dir
	}
	return audit.DefaultDir(c.env.StateDir())
}

// Spec is the session that the configuration describes.
func (c *Configuration) Spec() (sandbox.Spec, error) { return c.spec(nil, nil) }

// ServedSpec is Spec for a session that this process holds as long as it lives, with the network
// rules: their connections leave through the process.
func (c *Configuration) ServedSpec() (sandbox.Spec, error) {
	return c.spec(c.NetworkRules.Allow, c.NetworkRules.Deny)
}

func (c *Configuration) spec(allow, deny []network.Rule) (sandbox.Spec, error) {
	s := sandbox.Spec{
		Name: c.Session.Name, Image: c.Image, Profile: sandbox.Profile(c.Profile), Network: sandbox.Network(c.Network), Runtime: c.Runtime,
		ImageEnv: c.Session.ImageEnv, HomeInside: c.Session.HomeInside, UserName: c.UserName,
		Allow: allow, Deny: deny, Exclude: c.NetworkRules.Exclude, NetworkLimits: networkLimits(c.NetworkRules.Limits),
		Limits: sandbox.Limits{
			Memory: c.Limits.Memory, CPUs: c.Limits.CPUs, Pids: c.Limits.Pids,
			Disk: c.Limits.Disk, Home: c.Limits.Home, Tmp: c.Limits.Tmp,
		},
	}
	var err error
	if s.Workspace, err = sandbox.ParseWorkspace(cmp.Or(c.Workspace, string(sandbox.WorkspaceVolume))); err == nil && c.User != "" {
		s.User, err = sandbox.ParseUser(c.User)
	}
	for _, text := range c.Mounts {
		if err == nil {
			var m sandbox.Mount
			m, err = sandbox.ParseMount(text)
			s.Mounts = append(s.Mounts, m)
		}
	}
	for _, text := range c.Caches {
		if err == nil {
			var m sandbox.Mount
			m, err = sandbox.ParseCache(text)
			s.Mounts = append(s.Mounts, m)
		}
	}
	if err == nil {
		s, err = s.Normalize()
	}
	if err != nil {
		return s, exit.Misuse(exit.Hint(err), "%v", err)
	}
	if err := c.CheckWorkspace(s.Workspace); err != nil {
		return s, err
	}
	return s, c.checkMounts(s.Mounts)
}

// checkMounts refuses mounts that would show a session the user's whole home, what this program keeps, or what
// belongs to a runner of CI.
func (c *Configuration) checkMounts(mounts []sandbox.Mount) error {
	private := []struct {
		dir, what string
		own       bool // a directory in it is this program's
	}{
		{c.env.Home(), "your home directory, with keys and passwords of all kinds", false},
		{c.env.StateDir(), "what programs keep for you: outputs, logs and sockets of this one among it", true},
		{c.env.userDir("XDG_CONFIG_HOME", ".config"), "configurations of all kinds, that of this program among them", true},
	}
	for _, m := range mounts {
		if m.Dir == "" {
			continue
		}
		for _, p := range private {
			if p.dir != "" && within(m.Dir, p.dir) {
				return exit.Misuse("name the directory in it that is needed", "mount %s: %s holds %s", m, m.Dir, p.what)
			}
			if p.own && p.dir != "" && within(filepath.Join(p.dir, "sandboxbash"), m.Dir) {
				return exit.Misuse("name another directory", "mount %s: %s is a part of what this program keeps", m, m.Dir)
			}
		}
		if err := c.CheckWorkspace(sandbox.Workspace{Kind: sandbox.WorkspaceBind, Dir: m.Dir}); err != nil {
			return err
		}
	}
	return nil
}
