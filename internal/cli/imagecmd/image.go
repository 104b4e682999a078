// Package imagecmd is the command image: the images of an engine, listed, made available and
// removed.
package imagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	connection *core.Connection
}

// Command is the command image.
func Command(p *core.Parts) *cobra.Command {
	a := &commands{streams: p.Streams, cfg: p.Cfg, connection: p.Connection}
	c := flags.Family("image", "Manage images on the engine", `  sandboxbash image host
  sandboxbash image pull debian:stable-slim
  sandboxbash image build ./docker my-tools`,
		a.listCommand(), a.hostCommand(), a.pullCommand(), a.loadCommand(), a.buildCommand(), a.removeCommand())
	c.Long = `An image provides the initial file system of a session, and nothing else: its entry
point, user, environment and labels are ignored.`
	c.GroupID = flags.GroupSetup
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
		p := core.NewProgress(a.streams, a.cfg)
		img, err := do(ctx, r, args, p.Show)
		p.Close()
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return stdio.PrintJSON(a.streams.Stdout, newImageJSON(img))
		}
		_, err = fmt.Fprintln(a.streams.Stdout, img.ID)
		return err
	})
	return cmd
}

func (a *commands) hostCommand() *cobra.Command {
	return a.makes(&cobra.Command{
		Use: "host", Short: "Create the image host, a snapshot of this machine's programs",
		Long: `Create the image host: a snapshot of this machine's bash, coreutils and common tools,
with the files they need and none of the machine's configuration. No registry and no
network is needed, and an unchanged snapshot is reused. Prints the image's id.`,
		Example: "  sandboxbash image host\n  sandboxbash run --image host 'git --version'",
		Args:    flags.Args(0, 0, "no arguments"),
	}, func(ctx context.Context, r *images.Resolver, _ []string, progress func(engine.Progress)) (engine.Image, error) {
		return r.Host(ctx, progress)
	})
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
}

func newImageJSON(img engine.Image) imageJSON {
	j := imageJSON{ID: img.ID, Refs: img.Refs, OS: img.OS, Arch: img.Arch, Size: img.Size, Created: img.Created}
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
		p := core.NewProgress(a.streams, a.cfg)
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
		Use: "build [flags] DIR|base [REF]", Short: "Build an image from a Dockerfile, or the base image",
		Long: `Build an image from a directory with a Dockerfile. The engine builds it, with the
engine's network: the Dockerfile's commands do not run in a session.

The word base stands for the Dockerfile that comes with sandboxbash: git, Python, Node
and build tools, on Debian or, with --base, on another image that has apt-get. For your
own Dockerfile --base sets the argument BASE, where host stands for the snapshot that
image host creates. To build a directory named base, write ./base.`,
		Example: `  sandboxbash image build ./docker my-tools:1
  sandboxbash run --image my-tools:1 'tool --version'
  sandboxbash image build --base ubuntu:24.04 base tools:1`,
		Args: flags.Args(1, 2, "a directory or the word base, and optionally a name for the image"),
	}, func(ctx context.Context, r *images.Resolver, args []string, progress func(engine.Progress)) (engine.Image, error) {
		opts, err := buildOptions(a.cfg.Build, flags.Arg(args, 1))
		if err != nil {
			return engine.Image{}, err
		}
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
