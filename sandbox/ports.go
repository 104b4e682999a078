package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Port is a TCP port at which a process of a session takes connections. Forward makes it
// reachable on this machine.
type Port struct {
	Address string `json:"address"` // in the session, such as 127.0.0.1, 0.0.0.0 or ::
	Port    int    `json:"port"`
	PID     int    `json:"pid"`     // in the container
	Command string `json:"command"` // the start of its command line: hostile text

	age time.Duration // of the process
}

// String says where it listens.
func (p Port) String() string {
	addr, err := netip.ParseAddr(p.Address)
	if err != nil {
		return fmt.Sprintf("%s port %d", p.Address, p.Port)
	}
	return netip.AddrPortFrom(addr, uint16(p.Port)).String()
}

// Ports lists the ports at which processes of commands take connections, ordered by port. A
// runner reads them from the kernel. The ports of runners themselves are left out.
func (s *Session) Ports(ctx context.Context) ([]Port, error) {
	var all []Port
	err := s.withSpare(ctx, func() (err error) {
		all, err = s.listPorts(ctx)
		return err
	})
	return all, err
}

// listPorts is Ports without making room for the question: at the end of a command it would kill what
// the command has left.
func (s *Session) listPorts(ctx context.Context) ([]Port, error) {
	var out bytes.Buffer
	err := s.helperTo(ctx, helperStreams{
		out: &limited{w: &out, left: maxHelperOutput}, timeout: helperTime, passive: true, run: s.pool.Aside,
	}, wire.VerbPorts.Command())
	if err != nil {
		return nil, fmt.Errorf("session %s: ports: %w", s.ID(), err)
	}
	list, err := wire.ParsePorts(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("session %s: ports: %w", s.ID(), err)
	}
	var all []Port
	for _, p := range list {
		all = append(all, Port{
			Address: p.Addr.Addr().String(), Port: int(p.Addr.Port()), PID: p.PID, Command: p.Command, age: p.Age,
		})
	}
	return all, nil
}

// newPorts finds ports that were opened while this process had the session open. It asks
// only once a command has left processes behind or has become a job: other sessions have no
// servers, and their commands pay nothing.
type newPorts struct {
	opened time.Time // when this process has opened the session

	mu     sync.Mutex
	asks   bool            // guarded by mu
	listed map[portOf]bool // guarded by mu; the last answer
}

// portOf is a port and the process that has it.
type portOf struct {
	addr string
	port int
	pid  int
}

// portsTime bounds the question at the end of a command.
const portsTime = time.Second

// startedPorts returns the ports that were not open at the end of the last command. Without an
// answer there are none: the command's result does not depend on it.
func (s *Session) startedPorts(ctx context.Context, st exec.Status) []Port {
	n := &s.ports
	n.mu.Lock()
	n.asks = n.asks || st.Left > 0 || st.Handed != nil
	asks := n.asks
	n.mu.Unlock()
	if !asks || errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), portsTime)
	defer cancel()
	all, err := s.listPorts(ctx)
	if err != nil {
		return nil
	}
	since := time.Since(n.opened)
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.listed
	n.listed = map[portOf]bool{}
	var started []Port
	for _, p := range all {
		key := portOf{p.Address, p.Port, p.PID}
		n.listed[key] = true
		if !before[key] && p.age <= since {
			started = append(started, p)
		}
	}
	return started
}
