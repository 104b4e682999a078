package sessioncmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/internal/watch"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Actions are what commands of this package do, for those who watch sessions: diff, stop, allow and apply. They print
// nothing. They may be used concurrently, once the configuration is loaded.
type Actions struct {
	commands *commands
	differ   *differ
	networks *networks
	secrets  *core.Secrets

	mu    sync.Mutex
	owner *sandbox.Engine // guarded by mu; nil until it was needed
}

// NewActions returns Actions, which connect to no engine before they are used. The caller must call Close.
func NewActions(p *core.Parts) *Actions {
	return &Actions{
		commands: &commands{streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, connection: p.Connection},
		differ:   &differ{files: &files{streams: p.Streams, cfg: p.Cfg, notes: p.Notes, secrets: p.Secrets, connection: p.Connection}},
		networks: &networks{streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, connection: p.Connection},
		secrets:  p.Secrets,
	}
}

// Engine returns the owner of sessions, which is made by the first call that succeeds.
func (a *Actions) Engine(ctx context.Context) (*sandbox.Engine, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.owner != nil {
		return a.owner, nil
	}
	if err := a.secrets.Ready(); err != nil {
		return nil, err
	}
	owner, err := a.commands.connection.Sessions(ctx, nil, nil)
	a.owner = owner
	return owner, err
}

// Close lets go of the engine.
func (a *Actions) Close(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.owner == nil {
		return nil
	}
	return a.owner.Close(ctx)
}

// open opens a session for its files, with the directory that was copied.
func (a *Actions) open(ctx context.Context, session, verb string) (s *sandbox.Session, dir string, done func(), err error) {
	owner, err := a.Engine(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	s, end, err := owner.OpenFiles(ctx, session)
	if err != nil {
		return nil, "", nil, err
	}
	done = func() { _ = end(context.WithoutCancel(ctx)) } // a container that reads a kept workspace; reap removes it, too
	if dir, err = copiedFrom(s, "", verb); err != nil {
		done()
		return nil, "", nil, err
	}
	return s, dir, done, nil
}

var errPatchFull = errors.New("the patch is as long as it may be")

// Changes implements watch.Asker.
func (a *Actions) Changes(ctx context.Context, session string) (watch.Changes, error) {
	s, dir, done, err := a.open(ctx, session, "diff SESSION DIR")
	if err != nil {
		return watch.Changes{}, err
	}
	defer done()
	found, err := s.Changes(ctx, ".", dir)
	if err != nil {
		return watch.Changes{}, err
	}
	name := a.differ.streams.Name
	out := watch.Changes{Dir: name(dir), Files: []watch.Change{}, Repository: name(found.Repository.String())}
	for _, c := range found.Files {
		out.Files = append(out.Files, watch.Change{Kind: c.Kind, Path: name(c.Path), Both: c.By == sandbox.ChangedByBoth})
	}
	var patch strings.Builder
	err = found.Patch(ctx, func(f sandbox.FileDiff) error {
		text := a.differ.text(f)
		if patch.Len()+len(text) > watch.MaxPatch {
			return errPatchFull
		}
		patch.WriteString(text)
		return nil
	})
	out.Patch, out.Cut = patch.String(), errors.Is(err, errPatchFull)
	if out.Cut {
		err = nil
	}
	return out, err
}

// Stop stops a session, as `session stop` does.
func (a *Actions) Stop(ctx context.Context, session string) (string, error) {
	owner, err := a.Engine(ctx)
	if err != nil {
		return "", err
	}
	info, err := a.commands.end(ctx, owner, session)
	if err != nil {
		return "", err
	}
	return "stopped " + a.differ.streams.Name(info.Name), nil
}

// Allow adds a rule to a session's network, as `session allow` does.
func (a *Actions) Allow(ctx context.Context, session, rule string) (string, error) {
	if err := checkRules([]string{rule}); err != nil {
		return "", err
	}
	owner, err := a.Engine(ctx)
	if err != nil {
		return "", err
	}
	info, err := a.networks.held(ctx, owner, session)
	if err != nil {
		return "", err
	}
	c, err := a.networks.dial(ctx, info.ID)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // all was said
	var rules serve.NetworkRules
	if err := c.Call(ctx, holder.AskTime, "network/allow", map[string]any{"rules": []string{rule}, "remove": []string{}}, &rules); err != nil {
		return "", err
	}
	return a.differ.streams.Name(info.Name) + " may reach " + a.differ.streams.Name(strings.Join(rules.Allow, ", ")), nil
}

// Apply brings what a session has changed to the directory that was copied, as `session apply` does.
func (a *Actions) Apply(ctx context.Context, session string) (string, error) {
	s, dir, done, err := a.open(ctx, session, "pull SESSION:. DIR")
	if err != nil {
		return "", err
	}
	defer done()
	applied, err := s.Apply(ctx, ".", dir, sandbox.ApplyOptions{})
	if err != nil {
		return "", (&applier{files: a.differ.files}).unrecorded(err, s, dir)
	}
	name := a.differ.streams.Name
	said := fmt.Sprintf("applied %d changes to %s", len(applied.Changes), name(dir))
	if n := len(applied.LeftOut); n > 0 {
		said += fmt.Sprintf("; %d left out", n)
	}
	if n := len(applied.Kept); n > 0 {
		said += fmt.Sprintf("; %d directories still hold files of yours", n)
	}
	if len(applied.Runs) > 0 {
		said += "; programs of this machine may run what these say, look at them first: " + strings.Join(a.differ.streams.Names(applied.Runs), ", ")
	}
	return said, nil
}
