package images

import (
	"archive/tar"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	slashpath "path"
	"path/filepath"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/sandboxbash/sandboxbash/engine"
)

const dockerfile = "Dockerfile"

// BaseDir is the argument of Build that means the base image, whose directory is
// embedded. A directory of that name is given as ./base.
const BaseDir = "base"

//go:embed base
var embeddedBase embed.FS

// BuildOptions say how to build an image. The zero value is useful.
type BuildOptions struct {
	Ref     string            // what to name it; "" gives it no name
	Args    map[string]string // values of the Dockerfile's ARG
	Base    string            // value of its ARG BASE, a reference; "host" is the snapshot that Host makes
	Note    func(text string) // is called with what a devcontainer.json asks for and does not get; may be nil
	Network string            // of the build's commands: "host", "none", or "" for the engine's choice
}

// Build builds the directory's Dockerfile on the engine. What .dockerignore
// excludes is not sent. A directory without a Dockerfile may have a devcontainer.json, which dir may also
// name itself: its image or Dockerfile, local features and variables make the image, and its commands
// become the program PostCreate in it.
func (r *Resolver) Build(ctx context.Context, dir string, opts BuildOptions, progress func(engine.Progress)) (engine.Image, error) {
	name, err := optionalRef(opts.Ref)
	if err != nil {
		return engine.Image{}, err
	}
	if opts.Base != "" {
		base, err := r.base(ctx, opts.Base, progress)
		if err != nil {
			return engine.Image{}, err
		}
		args := map[string]string{"BASE": base}
		maps.Copy(args, opts.Args)
		opts.Args = args
	}
	want := engine.Build{Ref: name, Labels: imageLabels(), Args: opts.Args, Network: opts.Network}
	if dir == BaseDir {
		want.Dockerfile = BaseDir + "/" + dockerfile
		return r.build(ctx, "the base image", want, progress, func(w io.Writer) error {
			tw := tar.NewWriter(w)
			return errors.Join(tw.AddFS(embeddedBase), tw.Close())
		})
	}
	if file := devcontainerOf(dir); file != "" {
		return r.buildDevcontainer(ctx, file, opts, name, progress)
	}
	if _, err := os.Stat(filepath.Join(dir, dockerfile)); err != nil {
		return engine.Image{}, &SourceError{fmt.Errorf("build: %s has no %s and no devcontainer.json: %w", dir, dockerfile, err)}
	}
	ignored, err := readIgnored(dir, dockerfile)
	if err != nil {
		return engine.Image{}, &SourceError{err}
	}
	return r.build(ctx, dir, want, progress, func(w io.Writer) error { return writeContext(w, dir, ignored) })
}

// base returns a reference in a form that a Dockerfile understands.
func (r *Resolver) base(ctx context.Context, ref string, progress func(engine.Progress)) (string, error) {
	t, err := parseRef(ref)
	if err != nil || !isHost(t.name) {
		return ref, err
	}
	img, err := r.hostNamed(ctx, t.name, progress)
	if err != nil {
		return "", err
	}
	if len(img.Refs) > 0 {
		return img.Refs[0], nil
	}
	return string(img.ID), nil
}

// build streams a context to the engine.
func (r *Resolver) build(ctx context.Context, what string, want engine.Build, progress func(engine.Progress), write func(io.Writer) error) (engine.Image, error) {
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pw.CloseWithError(write(pw))
	}()
	id, err := r.engine.BuildImage(ctx, pr, want, orQuiet(progress))
	pr.CloseWithError(errors.New("the engine stopped reading"))
	<-done
	if errors.Is(err, engine.ErrInvalid) { // the Dockerfile
		err = &SourceError{err}
	}
	if err != nil {
		return engine.Image{}, fmt.Errorf("build %s: %w", what, err)
	}
	return r.engine.Image(ctx, string(id))
}

func orQuiet(progress func(engine.Progress)) func(engine.Progress) {
	if progress == nil {
		return quiet
	}
	return progress
}

// optionalRef is makeRef, except that an empty reference is allowed and gives no name.
func optionalRef(ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	return makeRef(ref)
}

// readIgnored reads .dockerignore. The Dockerfile of that name is always sent.
func readIgnored(dir, name string) (*patternmatcher.PatternMatcher, error) {
	path := filepath.Join(dir, ".dockerignore")
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return patternmatcher.New(nil)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	patterns, err := ignorefile.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m, err := patternmatcher.New(append(patterns, "!"+name, "!.dockerignore"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// writeContext writes dir as a tar: files, directories and links, owned by root.
func writeContext(w io.Writer, dir string, ignored *patternmatcher.PatternMatcher) error {
	c := contextWriter{tw: tar.NewWriter(w), dir: dir, ignored: ignored}
	err := filepath.WalkDir(dir, c.visit)
	return errors.Join(err, c.tw.Close())
}

type contextWriter struct {
	tw      *tar.Writer
	dir     string
	below   string // in the context; "" is its root
	ignored *patternmatcher.PatternMatcher
}

// visit is an fs.WalkDirFunc. An ignored directory need not be readable.
func (c contextWriter) visit(path string, d fs.DirEntry, err error) error {
	rel, relErr := filepath.Rel(c.dir, path)
	if relErr != nil || rel == "." {
		return errors.Join(err, relErr)
	}
	rel = filepath.ToSlash(rel)
	skip, matchErr := c.ignored.MatchesOrParentMatches(rel)
	switch {
	case matchErr != nil:
		return fmt.Errorf(".dockerignore: %w", matchErr)
	case skip && d != nil && d.IsDir() && (err != nil || !c.ignored.Exclusions()):
		return fs.SkipDir
	case skip:
		return nil
	case err != nil:
		return err
	}
	return writeContextEntry(c.tw, path, slashpath.Join(c.below, rel), d)
}

func writeContextEntry(tw *tar.Writer, path, rel string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	var link string
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	case !mode.IsRegular() && !mode.IsDir():
		return nil // the engine takes no sockets, pipes and devices
	}
	hdr, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	hdr.Name, hdr.Uid, hdr.Gid, hdr.Uname, hdr.Gname = strings.TrimSuffix(rel, "/"), 0, 0, "", ""
	if d.IsDir() {
		hdr.Name += "/"
	}
	if err := tw.WriteHeader(hdr); err != nil || hdr.Typeflag != tar.TypeReg {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := copyWhole(tw, f, info.Size(), info.ModTime(), nil); err != nil {
		return fmt.Errorf("%s: %w", rel, err)
	}
	return nil
}
