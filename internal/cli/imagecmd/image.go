// Package imagecmd is the command image: the images of an engine, listed, made available and
// removed.
package imagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

// commands are the image commands.
type commands struct {
	streams    *stdio.Streams
	cfg        *core.Configuration
	notes      *core.Notes
	connection *core.Connection
}

// Command is the command image.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{streams: p.Streams, cfg: p.Cfg, notes: p.Notes, connection: p.Connection}
	c := flags.Family("image", "Manage images on the engine", `  sandboxbash image host
  sandboxbash image pull debian:stable-slim
  sandboxbash image build ./docker my-tools`,
		a.listCommand(), a.hostCommand(), a.pullCommand(), a.loadCommand(), a.buildCommand(), a.removeCommand(), a.pruneCommand())
	c.Long = `An image provides the initial file system of a session, and nothing else: its entry
point, user, environment and labels are ignored.`
	c.GroupID = flags.GroupSetup
	for _, child := range c.Commands() {
		switch child.Name() {
		case "rm":
			child.ValidArgsFunction = a.connection.CompleteImages
		case "ls", "host", "pull":
			child.ValidArgsFunction = cobra.NoFileCompletions
		case "build": // the base image, or a directory
			child.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return []string{"base\tthe image with git, Python, Node and build tools"}, cobra.ShellCompDirectiveDefault
			}
		}
	}
	return c
}

// making is a command that makes an image available.
type making func(ctx context.Context, r *images.Resolver, args []string, progress func(engine.Progress)) (engine.Image, error)

// makes makes it a command's, which prints the image's id.
func (a *commands) makes(cmd *cobra.Command, do making) *cobra.Command {
	flags.Add(cmd, "json", "quiet")
	cmd.RunE = a.cfg.Does(func(ctx context.Context, args []string) error {
		r, err := a.connection.Resolver(ctx)
		if err != nil {
			return err
		}
		p := core.NewProgress(a.cfg, "image "+cmd.Name())
		defer p.Close()
		if cmd.Name() == "build" {
			p.Lines()
		}
		img, err := do(ctx, r, args, p.Show)
		p.Close()
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return stdio.PrintJSON(a.streams.Stdout, newImageJSON(img))
		}
		if text := toolsText(img); text != "" {
			a.notes.Add(text)
		}
		_, err = fmt.Fprintln(a.streams.Stdout, img.ID)
		return err
	})
	return cmd
}

// toolsText says what a snapshot's tools take, and how the snapshot is used; "" without tools.
func toolsText(img engine.Image) string {
	sizes := images.Tools(img)
	names := slices.Sorted(maps.Keys(sizes))
	ref, err := images.HostWithRef(names)
	if err != nil || len(names) == 0 { // it was made by another version, which knew other tools
		return ""
	}
	each := make([]string, 0, len(names))
	for _, name := range names {
		each = append(each, name+" "+units.HumanSize(float64(sizes[name])))
	}
	return fmt.Sprintf("tools: %s; the image has %s in all; use it with --image %s", strings.Join(each, ", "), units.HumanSize(float64(img.Size)), ref)
}

func (a *commands) hostCommand() *cobra.Command {
	cmd := a.makes(&cobra.Command{
		Use: "host [flags]", Short: "Create the image host, a snapshot of this machine's programs",
		Long: `Create the image host: a snapshot of this machine's bash, coreutils and common tools,
with the files they need and none of the machine's configuration. No registry and no
network is needed, and an unchanged snapshot is reused. Prints the image's id.

With --add the snapshot has tools of this machine, too: ` + strings.Join(images.KnownTools(), ", ") + `.
They are taken from the system's packages or from a directory of their own,
never from a home. Such an image is named host+TOOL, and a command that is given
the name makes the image if it is missing.`,
		Example: `  sandboxbash image host
  sandboxbash run --image host 'git --version'
  sandboxbash image host --add go,gcc
  sandboxbash run --image host+gcc+go go version`,
		Args: flags.Args(0, 0, "no arguments"),
	}, func(ctx context.Context, r *images.Resolver, _ []string, progress func(engine.Progress)) (engine.Image, error) {
		return r.HostWith(ctx, toolNames(a.cfg.Build.Add), progress)
	})
	flags.Add(cmd, "host.add")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { // before the engine is looked for
		list, _ := cmd.Flags().Lookup("add").Value.(interface{ GetSlice() []string })
		if _, err := images.HostWithRef(toolNames(list.GetSlice())); err != nil {
			return exit.Misuse("see `sandboxbash image host --help`", "--add: %v", err)
		}
		return nil
	}
	_ = cmd.RegisterFlagCompletionFunc("add", cobra.FixedCompletions(images.KnownTools(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// toolNames are the names of tools in the values of --add, each of which may have several.
func toolNames(values []string) []string {
	return strings.FieldsFunc(strings.Join(values, ","), func(r rune) bool { return r == ',' || r == ' ' })
}

func (a *commands) pullCommand() *cobra.Command {
	return a.makes(&cobra.Command{
		Use: "pull REF", Short: "Pull an image from its registry, unless the engine has it",
		Example: "  sandboxbash image pull debian:stable-slim",
		Args:    flags.Args(1, 1, "an image reference"),
	}, func(ctx context.Context, r *images.Resolver, args []string, progress func(engine.Progress)) (engine.Image, error) {
		return r.Resolve(ctx, args[0], progress)
	})
}

// imageJSON is an image as --json prints it.
type imageJSON struct {
	ID      engine.ImageID `json:"id"`
	Refs    []string       `json:"refs"`
	OS      string         `json:"os"`
	Arch    string         `json:"arch"`
	Size    int64          `json:"size"` // bytes
	Created time.Time      `json:"created"`
	// Tools are those that were added to a snapshot of this machine, and their sizes in bytes.
	Tools map[string]int64 `json:"tools,omitempty"`
}

func newImageJSON(img engine.Image) imageJSON {
	j := imageJSON{ID: img.ID, Refs: img.Refs, OS: img.OS, Arch: img.Arch, Size: img.Size, Created: img.Created, Tools: images.Tools(img)}
	if j.Refs == nil {
		j.Refs = []string{}
	}
	return j
}

func printImages(w io.Writer, list []engine.Image) error {
	out := make([]imageJSON, 0, len(list))
	for _, img := range list {
		out = append(out, newImageJSON(img))
	}
	return stdio.PrintJSON(w, out)
}

func (a *commands) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List the images on the engine",
		Example: "  sandboxbash image ls\n  sandboxbash image ls --json",
		Args:    flags.Args(0, 0, "no arguments"),
	}
	flags.Add(cmd, "json")
	cmd.RunE = a.cfg.Does(func(ctx context.Context, _ []string) error {
		list, err := a.listImages(ctx)
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return printImages(a.streams.Stdout, list)
		}
		return a.streams.Table("REFERENCE\tID\tARCH\tAGE\tSIZE", func(w io.Writer) {
			for _, img := range list {
				refs := img.Refs
				if len(refs) == 0 {
					refs = []string{"-"}
				}
				for _, ref := range refs {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", a.streams.Safe(ref), shortID(img.ID), a.streams.Safe(img.Arch),
						stdio.Age(img.Created, time.Now()), units.HumanSize(float64(img.Size)))
				}
			}
		})
	})
	return cmd
}

// shortID is an image ID as people read and type it.
func shortID(id engine.ImageID) string {
	const digits = 12
	text := strings.TrimPrefix(string(id), "sha256:")
	return text[:min(digits, len(text))]
}

// listImages returns the images on the engine.
func (a *commands) listImages(ctx context.Context) ([]engine.Image, error) {
	r, err := a.connection.Resolver(ctx)
	if err != nil {
		return nil, err
	}
	return r.List(ctx)
}

func (a *commands) loadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "load FILE [REF]", Short: "Load an image from an archive: docker save, OCI or a file system",
		Example: "  sandboxbash image load image.tar\n  sandboxbash image load rootfs.tar.gz my-rootfs:1",
		Args:    flags.Args(1, 2, "a file and optionally a name for the image"),
	}
	flags.Add(cmd, "json", "quiet")
	cmd.RunE = a.cfg.Does(func(ctx context.Context, args []string) error {
		r, err := a.connection.Resolver(ctx)
		if err != nil {
			return err
		}
		p := core.NewProgress(a.cfg, "image load")
		defer p.Close()
		list, err := r.Load(ctx, args[0], flags.Arg(args, 1), p.Show)
		p.Close()
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return printImages(a.streams.Stdout, list)
		}
		for _, img := range list {
			if _, err := fmt.Fprintln(a.streams.Stdout, img.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

func (a *commands) buildCommand() *cobra.Command {
	cmd := a.makes(&cobra.Command{
		Use: "build [flags] DIR|FILE|base [REF]", Short: "Build an image from a Dockerfile or a devcontainer.json",
		Long: `Build an image from a directory with a Dockerfile. The engine builds it, with the
engine's network: the Dockerfile's commands do not run in a session.

The word base stands for the Dockerfile that comes with sandboxbash: git, Python, Node
and build tools, on Debian or, with --base, on another image that has apt-get. For your
own Dockerfile --base sets the argument BASE, where host stands for the snapshot that
image host creates. To build a directory named base, write ./base.

A directory without a Dockerfile may have a devcontainer.json, which FILE names too: its
image or build, features that lie next to it, and its variables make the image. Its
commands (postCreateCommand and such) become the program post-create of the image, for
you to run in a session. Nothing of it runs on this machine. A note lists what has no
effect.`,
		Example: `  sandboxbash image build ./docker my-tools:1
  sandboxbash run --image my-tools:1 'tool --version'
  sandboxbash image build --base ubuntu:24.04 base tools:1
  sandboxbash image build .devcontainer/devcontainer.json web:1`,
		Args: flags.Args(1, 2, "a directory or the word base, and optionally a name for the image"),
	}, func(ctx context.Context, r *images.Resolver, args []string, progress func(engine.Progress)) (engine.Image, error) {
		opts, err := buildOptions(a.cfg.Build, flags.Arg(args, 1))
		if err != nil {
			return engine.Image{}, err
		}
		opts.Note = a.notes.Add
		return r.Build(ctx, args[0], opts, progress)
	})
	flags.Add(cmd, "build.base", "build.args", "build.network")
	return cmd
}

// buildOptions are those of the configuration for an image that is named ref.
func buildOptions(c config.Build, ref string) (images.BuildOptions, error) {
	opts := images.BuildOptions{Ref: ref, Base: c.Base, Args: map[string]string{}}
	if c.Network != "engine" {
		opts.Network = c.Network
	}
	for _, kv := range c.Args {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return opts, exit.Misuse("write it as NAME=VALUE", "%q is not a build argument", kv)
		}
		opts.Args[name] = value
	}
	return opts, nil
}

func (a *commands) removeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm [flags] [REF...]", Short: "Remove images; with --all, all that sandboxbash has made",
		Example: "  sandboxbash image rm my-tools:1\n  sandboxbash image rm --all",
	}
	flags.Add(cmd, "rm.all")
	cmd.RunE = a.cfg.Does(func(ctx context.Context, args []string) error {
		if a.cfg.All == (len(args) > 0) {
			return exit.Misuse("see `sandboxbash image rm --help`", "give image names or --all, not both")
		}
		r, err := a.connection.Resolver(ctx)
		if err != nil {
			return err
		}
		if a.cfg.All {
			return r.RemoveAll(ctx)
		}
		var errs []error
		for _, ref := range args {
			errs = append(errs, r.Remove(ctx, ref))
		}
		return errors.Join(errs...)
	})
	return cmd
}
