package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// HoldNetwork starts the process that carries the connections of a session, unless there is one.
func (c *Connection) HoldNetwork(ctx context.Context, session string) error {
	h := holder.NetworkHandover{Handover: holder.Handover{Environ: c.env.All()}, Secrets: c.secrets.values()}
	if c.cfg.Engine != "" {
		h.Flags = append(h.Flags, "--engine="+c.cfg.Engine)
	}
	if file := c.cfg.file.Text; file != "" {
		abs, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		h.Flags = append(h.Flags, "--config="+abs)
	}
	notes, err := holder.StartNetwork(ctx, c.env, session, h)
	for _, n := range notes {
		c.notes.Add(n)
	}
	return err
}

// watchNetwork is sandbox.Options.Network: it asks the process that carries the session's
// connections, and starts it again if it has died. If the network cannot be started, a note says
// so, and the command runs without it.
func (c *Connection) watchNetwork(ctx context.Context, s sandbox.Info) func() *sandbox.NetworkUse {
	dir, err := holder.NetworkDir(c.env)
	if err != nil {
		if len(s.Rules.Allow) > 0 {
			c.noNetwork(s, err)
		}
		return nil
	}
	used, err := holder.WatchNetwork(ctx, dir, s.ID)
	killed := errors.Is(err, holder.ErrKilled)
	switch {
	case err == nil:
		return used
	case !killed && !errors.Is(err, holder.ErrNotHeld):
		c.noNetwork(s, err)
		return nil
	case !killed && !c.HasRules(s):
		return nil // it never had a network
	}
	if err := c.HoldNetwork(ctx, s.ID); err != nil {
		c.noNetwork(s, err)
		return nil
	}
	what := "was not running"
	if killed {
		what = "had been killed"
	}
	c.notes.Add(fmt.Sprintf("the process that carries the connections of session %s %s, and was started again: until now they were refused", s.ID, what))
	if used, err = holder.WatchNetwork(ctx, dir, s.ID); err != nil {
		c.noNetwork(s, err)
		return nil
	}
	return used
}

// FollowTime is how long a client may wait for a connection that ends.
const FollowTime = math.MaxInt32 * time.Second

// AskNetwork has the process that carries a session's connections do a method network/*, and starts it if it has
// died. The error is a sandbox.ErrNoNetwork if the session has no rules and is given none.
func (c *Connection) AskNetwork(ctx context.Context, s sandbox.Info, method string, params json.RawMessage) (json.RawMessage, error) {
	dir, err := holder.NetworkDir(c.env)
	if err != nil {
		return nil, err
	}
	client, err := holder.DialNetwork(ctx, dir, s.ID)
	if errors.Is(err, holder.ErrKilled) || errors.Is(err, holder.ErrNotHeld) {
		if method != "network/allow" && method != "network/deny" && !c.HasRules(s) {
			return nil, fmt.Errorf("session %s: %w", s.ID, sandbox.ErrNoNetwork)
		}
		if err := c.HoldNetwork(ctx, s.ID); err != nil {
			return nil, err
		}
		client, err = holder.DialNetwork(ctx, dir, s.ID)
	}
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // all was said
	patience := holder.AskTime
	if method == "network/log" {
		patience = FollowTime // it may wait for a connection, until ctx ends
	}
	return client.Pass(ctx, patience, method, params)
}

// HasRules reports whether a session was started with rules that allow something, or was given
// rules later.
func (c *Connection) HasRules(s sandbox.Info) bool {
	if s.Rules == nil {
		return false
	}
	_, _, err := holder.LoadRules(c.env, s.ID)
	return len(s.Rules.Allow) > 0 || !errors.Is(err, fs.ErrNotExist)
}

func (c *Connection) noNetwork(s sandbox.Info, err error) {
	text := fmt.Sprintf("session %s has no network: %s", s.ID, exit.Words(err))
	if todo := exit.Judge(err).Todo; todo != "" {
		text += "; " + todo
	}
	c.notes.Add(text)
}
