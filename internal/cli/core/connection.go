package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Connection is the connection of one call to the engine, made when it is first used, and
// what is done over it.
type Connection struct {
	// Backend returns the engine that holds the sessions, and what makes images available on it.
	// New sets it to the engine that the configuration names. It may be changed before its first use.
	Backend func(context.Context) (engine.Engine, sandbox.Images, error)

	env       *Environment
	streams   *stdio.Streams
	cfg       *Configuration
	notes     *Notes
	secrets   *Secrets
	artifacts *Artifacts
	observers *Observers

	client *docker.Client // nil before Connect
}

// Connect finds the engine, once.
func (c *Connection) Connect(ctx context.Context) (*docker.Client, error) {
	if c.client != nil {
		return c.client, nil
	}
	client, err := docker.Connect(ctx, docker.Options{Address: c.cfg.Engine, Source: "--engine", Getenv: c.env.Getenv, Home: c.env.Home()})
	if err != nil {
		return nil, err
	}
	c.client = client
	if source, address, found := client.Found(); found {
		c.notes.AddDaily(fmt.Sprintf("the engine is %s, at %s: nothing names one, and the default socket is not there; --engine or DOCKER_HOST names another", strings.TrimSuffix(source, "'s"), address))
	}
	return client, nil
}

// Close lets go of the engine.
func (c *Connection) Close() {
	if c.client != nil {
		_ = c.client.Close()
	}
}

// Resolver makes images available on the engine.
func (c *Connection) Resolver(ctx context.Context) (*images.Resolver, error) {
	client, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return images.New(client, images.Options{Cache: c.env.cacheDir(), LoadWith: exit.LoadImages})
}

// configured is Backend for the engine that the configuration names.
func (c *Connection) configured(ctx context.Context) (engine.Engine, sandbox.Images, error) {
	r, err := c.Resolver(ctx)
	if err != nil {
		return nil, nil, err
	}
	return docker.NewEngine(c.client, images.Runner), r, nil
}

// Address returns the address of the engine that holds the sessions.
func (c *Connection) Address(ctx context.Context) (string, error) {
	backend, _, err := c.Backend(ctx)
	if err != nil {
		return "", err
	}
	info, err := backend.Info(ctx)
	return info.Address, err
}

// Prepare puts on the engine of Connect what each session of an architecture needs.
func (c *Connection) Prepare(ctx context.Context, arch string) error {
	return docker.NewEngine(c.client, images.Runner).Prepare(ctx, arch)
}

// Sessions returns the owner of sessions, in which rules decide what may run; nil
// allows all. Its Close is the caller's.
func (c *Connection) Sessions(ctx context.Context, progress func(engine.Progress), rules *policy.Policy) (*sandbox.Engine, error) {
	return c.Owner(ctx, sandbox.Options{Policy: rules, Progress: progress})
}

// Owner returns an owner of sessions with options, to which it adds secrets, observers, the
// store of artifacts, and what the configuration says. Its Close is the caller's.
func (c *Connection) Owner(ctx context.Context, opts sandbox.Options) (*sandbox.Engine, error) {
	backend, images, err := c.Backend(ctx)
	if err != nil {
		return nil, err
	}
	if opts.Artifacts, err = c.artifacts.OutputStore(); err != nil {
		return nil, err
	}
	opts.Secrets, opts.Grace, opts.Keep, opts.Pruned = c.secrets.Known(), c.cfg.Grace, c.notes.KeepLimits(), c.pruned
	opts.Observer, opts.Network = c.observers.Observer(), c.watchNetwork
	if opts.Upstream, err = c.Upstream(); err != nil {
		return nil, err
	}
	e := sandbox.New(backend, images, opts)
	c.observers.watch(e)
	return e, nil
}

// Unobserved returns an owner of sessions on the engine of Connect.
func (c *Connection) Unobserved(r *images.Resolver, opts sandbox.Options) *sandbox.Engine {
	return sandbox.New(docker.NewEngine(c.client, images.Runner), r, opts)
}

// pruned logs what was removed of caches: it can be made again.
func (c *Connection) pruned(names []string) {
	if log := c.observers.Log(); log != nil {
		log.Debug("removed what nothing uses any more", "names", names)
	}
}

// query is a command that asks about sessions: its owner of sessions is made and
// let go of around it.
type query func(ctx context.Context, sessions *sandbox.Engine, args []string) error

// sessionQuery is a query about one session, "" for the default one.
type sessionQuery func(ctx context.Context, sessions *sandbox.Engine, ref string, words []string) error

// AsksOf makes a query about one session a command's: which one, Split says. example is the command
// line for the default session, of a command that takes more words; "" if it takes none.
func (c *Connection) AsksOf(example string, do sessionQuery) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := c.cfg.Load(cmd); err != nil {
			return err
		}
		ref, rest, err := c.cfg.Split(cmd, args)
		if err != nil {
			return err
		}
		if example == "" && ref == "" && !cmd.Flags().Changed("session") && len(rest) > 0 { // nothing else can stand behind --
			ref, rest = rest[0], rest[1:]
			if ref == "" {
				return ErrNoSessionID
			}
		}
		if example == "" && len(rest) > 0 {
			return exit.Misuse(fmt.Sprintf("use it as `%s`; see `%s --help`", cmd.UseLine(), cmd.CommandPath()),
				"%s takes one session, and was given more words: %q", cmd.CommandPath(), rest)
		}
		return c.asking(cmd.Context(), func(ctx context.Context, sessions *sandbox.Engine, rest []string) error {
			err := do(ctx, sessions, ref, rest)
			if example != "" {
				err = Unnamed(err, ref, example)
			}
			return err
		}, rest)
	}
}

// Asks makes a query a command's.
func (c *Connection) Asks(do query) func(*cobra.Command, []string) error {
	return c.cfg.Does(func(ctx context.Context, args []string) error { return c.asking(ctx, do, args) })
}

func (c *Connection) asking(ctx context.Context, do query, args []string) error {
	sessions, err := c.Sessions(ctx, nil, nil)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, sessions, args), sessions.Close(context.WithoutCancel(ctx)))
}

// CompleteTime bounds what completion asks of the engine.
const CompleteTime = 2 * time.Second

// Completes offers the words that list makes, each with a TAB and a description
// behind it, as far as they go on from the word that is being typed and were not
// given before.
func (c *Connection) Completes(cmd *cobra.Command, args []string, word string, list func(context.Context, *sandbox.Engine) []string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	ctx, cancel := context.WithTimeout(cmd.Context(), CompleteTime)
	defer cancel()
	if err := c.cfg.Load(cmd); err != nil {
		return nil, directive
	}
	sessions, err := c.Sessions(ctx, nil, nil)
	if err != nil {
		return nil, directive
	}
	defer sessions.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it only lets go
	return goingOn(list(ctx, sessions), args, word), directive
}

// CompleteSession offers sessions for the first word alone.
func (c *Connection) CompleteSession(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.CompleteSessions(cmd, args, word)
}

// CompleteSessions offers the names of the sessions that there are, and ids where they were begun.
func (c *Connection) CompleteSessions(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return c.Completes(cmd, args, word, func(ctx context.Context, sessions *sandbox.Engine) (ids []string) {
		list, err := sessions.List(ctx)
		if err != nil {
			return nil
		}
		for _, s := range list {
			if slices.Contains(args, s.ID) || slices.Contains(args, sandbox.ShortID(s.ID)) {
				continue // Completes knows the offers, and this one has three
			}
			about := fmt.Sprintf("%s, %s old, %s", s.Status, stdio.Age(s.Created, time.Now()), c.streams.Safe(s.Image))
			ids = append(ids, s.Name+"\t"+about)
			if word != "" {
				ids = append(ids, s.ID+"\t"+s.Name+", "+about, sandbox.ShortID(s.ID)+"\t"+s.Name+", "+about)
			}
		}
		return ids
	})
}
