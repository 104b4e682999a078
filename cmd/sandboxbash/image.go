package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/images"
)

func (a *app) imageCommand() *cobra.Command {
	c := family("image", "Bring images to the engine", `  sandboxbash image host
  sandboxbash image pull debian:stable-slim
  sandboxbash image build ./docker my-tools`,
		a.imageListCommand(), a.imageHostCommand(), a.imagePullCommand(), a.imageLoadCommand(), a.imageBuildCommand(), a.imageRemoveCommand())
	c.Long = `An image is what a session's file system starts as, and nothing else: its entry point,
user, environment and labels decide nothing.`
	c.GroupID = groupSetup
	return c
}

// making is a command that makes an image available.
type making func(ctx context.Context, r *images.Resolver, args []string, progress func(engine.Progress)) (engine.Image, error)

// makes makes it a command's, which prints the image's id.
func (a *app) makes(cmd *cobra.Command, do making) *cobra.Command {
	addFlags(cmd, "json", "quiet")
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		r, err := a.resolver(ctx)
		if err != nil {
			return err
		}
		p := a.progress()
		img, err := do(ctx, r, args, p.show)
		p.close()
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return printJSON(a.stdout, newImageJSON(img))
		}
		_, err = fmt.Fprintln(a.stdout, img.ID)
		return err
	})
	return cmd
}

func (a *app) imageHostCommand() *cobra.Command {
	return a.makes(&cobra.Command{
		Use: "host", Short: "Make the image host: a snapshot of this machine's own programs",
		Long: `Make the image host: a snapshot of this machine's bash, coreutils and common tools with
what they need, and none of its configuration. It takes neither a registry nor a network,
and is made once for the same programs. Prints the image's id.`,
		Example: "  sandboxbash image host\n  sandboxbash run --image host 'git --version'",
		Args:    words(0, 0, "no arguments"),
	}, func(ctx context.Context, r *images.Resolver, _ []string, progress func(engine.Progress)) (engine.Image, error) {
		return r.Host(ctx, progress)
	})
}

func (a *app) imagePullCommand() *cobra.Command {
	return a.makes(&cobra.Command{
		Use: "pull REF", Short: "Pull an image from its registry, unless it is there",
		Example: "  sandboxbash image pull debian:stable-slim",
		Args:    words(1, 1, "an image reference"),
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
	return printJSON(w, out)
}

func (a *app) imageListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List the images on the engine",
		Example: "  sandboxbash image ls\n  sandboxbash image ls --json",
		Args:    words(0, 0, "no arguments"),
	}
	addFlags(cmd, "json")
	cmd.RunE = a.does(func(ctx context.Context, _ []string) error {
		list, err := a.listImages(ctx)
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return printImages(a.stdout, list)
		}
		return a.table("REFERENCE\tID\tARCH\tAGE\tSIZE", func(w io.Writer) {
			for _, img := range list {
				refs := img.Refs
				if len(refs) == 0 {
					refs = []string{"-"}
				}
				for _, ref := range refs {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", a.safe(ref), shortID(img.ID), a.safe(img.Arch),
						age(img.Created, time.Now()), units.HumanSize(float64(img.Size)))
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
func (a *app) listImages(ctx context.Context) ([]engine.Image, error) {
	r, err := a.resolver(ctx)
	if err != nil {
		return nil, err
	}
	return r.List(ctx)
}

func (a *app) imageLoadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "load FILE [REF]", Short: "Load an image from a file: docker save, OCI, or a root file system as tar",
		Example: "  sandboxbash image load image.tar\n  sandboxbash image load rootfs.tar.gz my-rootfs:1",
		Args:    words(1, 2, "a file, and perhaps a name for the image"),
	}
	addFlags(cmd, "json", "quiet")
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		r, err := a.resolver(ctx)
		if err != nil {
			return err
		}
		p := a.progress()
		list, err := r.Load(ctx, args[0], second(args), p.show)
		p.close()
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return printImages(a.stdout, list)
		}
		for _, img := range list {
			if _, err := fmt.Fprintln(a.stdout, img.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

// second is the word after the first, or "".
func second(args []string) string {
	if len(args) < 2 {
		return ""
	}
	return args[1]
}

func (a *app) imageBuildCommand() *cobra.Command {
	cmd := a.makes(&cobra.Command{
		Use: "build [flags] DIR|base [REF]", Short: "Build an image from a directory with a Dockerfile, or the base image",
		Long: `Build an image from a directory with a Dockerfile, on the engine and with its network:
what the Dockerfile runs is not in a session. The word base is the Dockerfile that comes
with sandboxbash: git, Python, Node and tools to build things, on Debian or, with --base,
on another image that has apt-get. A directory of that name is ./base.`,
		Example: `  sandboxbash image build ./docker my-tools:1
  sandboxbash run --image my-tools:1 'tool --version'
  sandboxbash image build --base ubuntu:24.04 base tools:1`,
		Args: words(1, 2, "a directory or the word base, and perhaps a name for the image"),
	}, func(ctx context.Context, r *images.Resolver, args []string, progress func(engine.Progress)) (engine.Image, error) {
		opts := images.BuildOptions{Ref: second(args), Args: map[string]string{}}
		if network := a.cfg.Build.Network; network != "engine" {
			opts.Network = network
		}
		for _, kv := range a.cfg.Build.Args {
			name, value, ok := strings.Cut(kv, "=")
			if !ok || name == "" {
				return engine.Image{}, misuse("write it as NAME=VALUE", "%q is no argument of a build", kv)
			}
			opts.Args[name] = value
		}
		if a.cfg.Build.Base != "" {
			opts.Args["BASE"] = a.cfg.Build.Base
		}
		return r.Build(ctx, args[0], opts, progress)
	})
	addFlags(cmd, "build.base", "build.args", "build.network")
	return cmd
}

func (a *app) imageRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm [flags] [REF...]", Short: "Remove images, or with --all every image and volume that sandboxbash has made",
		Example: "  sandboxbash image rm my-tools:1\n  sandboxbash image rm --all",
	}
	addFlags(cmd, "rm.all")
	cmd.RunE = a.does(func(ctx context.Context, args []string) error {
		if a.cfg.All == (len(args) > 0) {
			return misuse("name images, or give --all alone", "there is nothing to remove, or too much")
		}
		r, err := a.resolver(ctx)
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
