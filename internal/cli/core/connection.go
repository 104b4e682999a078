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
	client, err := docker.Connect(ctx, docker.Options{Address: c.cfg.Engine, Source: "--engine", Getenv: c.env.Getenv, Home: c.env.home()})
	c.client = client
	return client, err
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
	r, err := c.Resolver(ctx)
	if err != nil {
		return nil, err
	}
	if opts.Artifacts, err = c.artifacts.OutputStore(); err != nil {
		return nil, err
	}
	opts.Secrets, opts.Grace, opts.Keep, opts.Pruned = c.secrets.Known(), c.cfg.Grace, c.notes.KeepLimits(), c.pruned
	opts.Observer = c.observers.Observer()
	e := c.Unobserved(r, opts)
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

// Open opens a session whose contents will be shown: what is masked in commands'
// output is masked there too.
func (c *Connection) Open(ctx context.Context, sessions *sandbox.Engine, id string) (*sandbox.Session, error) {
	if err := c.secrets.Ready(); err != nil {
		return nil, err
	}
	return sessions.Open(ctx, id)
}

// query is a command that asks about sessions: its owner of sessions is made and
// let go of around it.
type query func(ctx context.Context, sessions *sandbox.Engine, args []string) error

// Asks makes a query a command's.
func (c *Connection) Asks(do query) func(*cobra.Command, []string) error {
	return c.cfg.Does(func(ctx context.Context, args []string) error {
		sessions, err := c.Sessions(ctx, nil, nil)
		if err != nil {
			return err
		}
		return errors.Join(do(ctx, sessions, args), sessions.Close(context.WithoutCancel(ctx)))
	})
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
	return slices.DeleteFunc(list(ctx, sessions), func(offer string) bool {
		id, _, _ := strings.Cut(offer, "\t")
		return !strings.HasPrefix(id, word) || slices.Contains(args, id)
	}), directive
}

// CompleteSessions offers the ids of the sessions that there are.
func (c *Connection) CompleteSessions(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return c.Completes(cmd, args, word, func(ctx context.Context, sessions *sandbox.Engine) (ids []string) {
		list, err := sessions.List(ctx)
		if err != nil {
			return nil
		}
		for _, s := range list {
			ids = append(ids, fmt.Sprintf("%s\t%s, %s old, %s", s.ID, s.Status, stdio.Age(s.Created, time.Now()), c.streams.Safe(s.Image)))
		}
		return ids
	})
}
