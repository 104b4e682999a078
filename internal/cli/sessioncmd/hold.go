package sessioncmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/serve"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// holdCommand is the process that carries the connections of a session that outlives the call
// that started it.
type holdCommand struct {
	version    string // of this program
	streams    *stdio.Streams
	env        *core.Environment
	cfg        *core.Configuration
	notes      *core.Notes
	secrets    *core.Secrets
	connection *core.Connection
}

func newHoldCommand(p *core.Parts) *cobra.Command {
	c := &holdCommand{
		version: p.Version, streams: p.Streams, env: p.Env, cfg: p.Cfg, notes: p.Notes, secrets: p.Secrets, connection: p.Connection,
	}
	return &cobra.Command{
		Use: "hold ID", Hidden: true, Short: "Carry a session's connections (started by `session start`)",
		Example: "  sandboxbash session start --allow @pypi",
		Args:    flags.Args(1, 1, "the id of a session"),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0]) },
	}
}

// maxHandover is how long a handover may be: an environment.
const maxHandover = 8 << 20 // bytes

func (c *holdCommand) run(cmd *cobra.Command, id string) error {
	var h holder.NetworkHandover
	if _, err := holder.ReadHandover(c.streams.Stdin, maxHandover, &h, "session start --allow RULE"); err != nil {
		return err
	}
	c.secrets.Use(h.Secrets)
	ctx, end := context.WithCancel(cmd.Context())
	defer end()
	k := &networkKeeper{holdCommand: c, id: id}
	defer k.close()
	err := c.cfg.TakeOver(cmd, h.Handover)
	if err == nil {
		err = k.open(ctx)
	}
	if err := c.notes.Answer(nil, err); err != nil {
		return err // the starter that has gone says nothing of it: the next command starts another
	}
	k.serve(ctx)
	return nil
}

// networkKeeper holds a session's network and its socket.
type networkKeeper struct {
	*holdCommand

	id       string
	engine   string // its address
	sessions *sandbox.Engine
	session  *sandbox.Session
	listener *holder.Listener

	saving sync.Mutex // one change of the rules at a time
}

// open carries the session's connections, and then listens.
func (k *networkKeeper) open(ctx context.Context) error {
	dir, err := holder.NetworkDir(k.env)
	if err != nil {
		return err
	}
	if err := k.secrets.Ready(); err != nil {
		return err
	}
	if k.engine, err = k.connection.Address(ctx); err != nil {
		return err
	}
	if k.sessions, err = k.connection.Sessions(ctx, nil, nil); err != nil {
		return err
	}
	if k.session, err = k.sessions.Open(ctx, k.id); err != nil {
		return err
	}
	allow, deny, err := k.rules()
	if err != nil {
		return err
	}
	spec, err := k.cfg.ServedSpec()
	if err != nil {
		return err
	}
	carried := sandbox.Carried{Allow: allow, Deny: deny, Exclude: spec.Exclude, Limits: spec.NetworkLimits, Secrets: k.secrets.Hosted()}
	if err := k.session.CarryNetwork(ctx, carried); err != nil {
		return err
	}
	for _, text := range k.session.Notes() {
		if !strings.HasPrefix(text, "secret ") {
			k.notes.Add(text)
			continue
		}
		k.notes.Add(text + fmt.Sprintf("; to give it again, end process %d and run the next command where it has its value", os.Getpid()))
	}
	if k.listener, err = holder.Listen(dir, holder.NetworkSocket(k.id)); err != nil {
		return err
	}
	return k.listener.Publish()
}

// rules are those that were changed last, or those that the session was started with.
func (k *networkKeeper) rules() (allow, deny []network.Rule, err error) {
	allow, deny, err = holder.LoadRules(k.env, k.id)
	rules := k.session.Info().Rules
	if !errors.Is(err, fs.ErrNotExist) || rules == nil {
		return allow, deny, err
	}
	if allow, err = parseRules(rules.Allow); err != nil {
		return nil, nil, err
	}
	deny, err = parseRules(rules.Deny)
	return allow, deny, err
}

func parseRules(texts []string) ([]network.Rule, error) {
	var rules []network.Rule
	for _, text := range texts {
		r, err := network.ParseRule(text)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// close lets go of all. It may be called before all is there.
func (k *networkKeeper) close() {
	if k.listener != nil {
		k.listener.Close()
	}
	if k.sessions != nil {
		_ = k.sessions.Close(context.Background()) // it only lets go
	}
}

// heldGC is how much the heap may grow before garbage is collected, in percent: a holder waits
// most of the time, and its memory counts more than its speed.
const heldGC = 25

// serve takes clients until the session is gone, or its network is ended.
func (k *networkKeeper) serve(ctx context.Context) {
	debug.SetGCPercent(heldGC)
	debug.FreeOSMemory() // what the start needed
	ctx, end := context.WithCancel(ctx)
	held := serve.NewNetworkHolder(serve.HeldNetwork{
		Network: k, Watch: k.session.WatchNetwork, Session: k.id, PID: os.Getpid(), Version: core.Build(k.version).Version,
	})
	served := make(chan struct{})
	go func() {
		defer close(served)
		k.listener.Accept(ctx, held.Serve)
	}()
	select {
	case <-ctx.Done():
	case <-held.Ended():
	case <-k.session.NetworkDone():
		holder.ForgetRules(k.env, k.id) // the session is gone
	}
	k.listener.Close()
	end()
	<-served
}

// NetworkRules implements serve.Network.
func (k *networkKeeper) NetworkRules() (allow, deny []network.Rule, err error) {
	return k.session.NetworkRules()
}

// ConnectionsAfter implements serve.Network.
func (k *networkKeeper) ConnectionsAfter(from uint64) ([]sandbox.Connection, uint64, <-chan struct{}) {
	return k.session.ConnectionsAfter(from)
}

// UpdateNetworkRules implements serve.Network. The rules are kept for the time after a restart.
func (k *networkKeeper) UpdateNetworkRules(change func(allow, deny []network.Rule) (newAllow, newDeny []network.Rule, err error)) error {
	k.saving.Lock()
	defer k.saving.Unlock()
	if err := k.session.UpdateNetworkRules(change); err != nil {
		return err
	}
	allow, deny, err := k.session.NetworkRules()
	if err == nil {
		err = holder.SaveRules(k.env, k.engine, k.id, allow, deny)
	}
	if err != nil {
		return errors.Join(errNotSaved, err)
	}
	return nil
}

var errNotSaved = errors.New("the rules hold now, and will not if the process that carries the connections is started again: they cannot be kept")
