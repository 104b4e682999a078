package serve

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// NetworkHolder serves the network of one session to the command line's calls: they change its
// rules, read its record, and watch it while their commands run. Clients speak JSON-RPC with the
// methods network/* of docs/rpc.md, and four more that are between the two of them. A
// NetworkHolder is safe for concurrent use.
type NetworkHolder struct {
	held    HeldNetwork
	methods map[string]method
	ended   chan struct{} // closed by network/end
	once    sync.Once     // closes it
}

// HeldNetwork is the network of a NetworkHolder, with its description for clients.
type HeldNetwork struct {
	Network Network
	// Watch is the session's WatchNetwork.
	Watch   func() (used func() *sandbox.NetworkUse)
	Session string
	PID     int // of this process
	Version string
}

// heldNetworkMethods are the methods of the network of one session.
var heldNetworkMethods = []string{"initialize", "network/rules", "network/allow", "network/deny", "network/log"}

// NewNetworkHolder returns a NetworkHolder.
func NewNetworkHolder(n HeldNetwork) *NetworkHolder {
	h := &NetworkHolder{held: n, methods: map[string]method{}, ended: make(chan struct{})}
	for _, name := range heldNetworkMethods {
		h.methods[name] = methods[name]
	}
	started := time.Now().UTC()
	h.methods["network/status"] = method{do: with(func(_ context.Context, _ *peer, _ struct{}) (any, error) {
		return NetworkStatus{Session: n.Session, PID: n.PID, Started: started}, nil
	})}
	h.methods["network/watch"] = method{do: with(doNetworkWatch)}
	h.methods["network/use"] = method{do: with(doNetworkUse)}
	h.methods["network/end"] = method{do: with(func(context.Context, *peer, struct{}) (any, error) {
		h.once.Do(func() { close(h.ended) })
		return nil, nil
	})}
	return h
}

// NetworkStatus describes a NetworkHolder.
type NetworkStatus struct {
	Session string    `json:"session"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// Ended returns a channel that is closed when a client says that the session ends.
func (h *NetworkHolder) Ended() <-chan struct{} { return h.ended }

// Serve serves one client until the input or ctx ends. The error is that of the streams,
// which the caller closes afterwards.
func (h *NetworkHolder) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	watched := &watchedNetwork{network: h.held.Network, watch: h.held.Watch}
	defer func() { _ = watched.end() }() // of a client that has gone
	p := &peer{o: Options{Version: h.held.Version, Contract: tool.Agent}, methods: h.methods, terminals: rpcTerminals(), watched: watched}
	return speak(ctx, p, in, out)
}

// watchedNetwork is the network of a NetworkHolder as one client sees it.
type watchedNetwork struct {
	network Network
	watch   func() func() *sandbox.NetworkUse

	mu   sync.Mutex
	used func() *sandbox.NetworkUse // guarded by mu; ends the watch; nil: there is none
}

func (w *watchedNetwork) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.used != nil {
		return false
	}
	w.used = w.watch()
	return true
}

// end ends the watch, if there is one.
func (w *watchedNetwork) end() *sandbox.NetworkUse {
	w.mu.Lock()
	used := w.used
	w.used = nil
	w.mu.Unlock()
	if used == nil {
		return nil
	}
	return used()
}

// doNetworkWatch watches the connections from now on.
func doNetworkWatch(_ context.Context, p *peer, _ struct{}) (any, error) {
	if !p.watched.begin() {
		return nil, badParams("this connection watches already")
	}
	return nil, nil
}

// NetworkUsed is what connections did while they were watched.
type NetworkUsed struct {
	Use *sandbox.NetworkUse `json:"use"` // null: there were none
}

// doNetworkUse ends the watch, and answers with what it has seen.
func doNetworkUse(_ context.Context, p *peer, _ struct{}) (any, error) {
	return NetworkUsed{p.watched.end()}, nil
}
