package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Forward is an address of this machine, and the port of a session that connections to it lead
// to.
type Forward struct {
	Host  string // "" is this machine's loopback interface
	Local int    // port on this machine; 0: a free one
	Port  int    // in the session
	HTTP  bool   // requests of clients that know a token, and no other connections
}

// forwardHint says how a Forward is written.
const forwardHint = "write it as [HOST:]PORT:PORT, as in 8080:80: the port on this machine (0 for a free one), and the port in the session; /http behind it asks for a token"

// ForwardHint returns a hint on the forms that ParseForward accepts.
func ForwardHint() string { return forwardHint }

// ParseForward reads [HOST:]PORT:PORT[/http], or PORT for the same port on both sides. A HOST that is
// an IPv6 address stands in brackets.
func ParseForward(text string) (Forward, error) {
	f := Forward{}
	ports, isHTTP := strings.CutSuffix(text, "/http")
	f.HTTP = isHTTP
	rest, inside := ports, ports
	if i := strings.LastIndexByte(ports, ':'); i >= 0 {
		rest, inside = ports[:i], ports[i+1:]
	}
	var err error
	if f.Port, err = port(inside, 1); err != nil {
		return Forward{}, fmt.Errorf("%q: the port in the session: %w", text, err)
	}
	here := rest
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		if f.Host, here, err = net.SplitHostPort(rest); err == nil && f.Host == "" {
			err = errors.New("HOST is empty: leave the colon out, or write 0.0.0.0 for all interfaces")
		}
		if err != nil {
			return Forward{}, fmt.Errorf("%q: %w", text, err)
		}
	}
	if f.Local, err = port(here, 0); err != nil {
		return Forward{}, fmt.Errorf("%q: the port on this machine: %w", text, err)
	}
	return f, nil
}

// port reads a port that is least at least.
func port(text string, least int) (int, error) {
	const most = 65535
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || int(n) < least || n > most {
		return 0, fmt.Errorf("%q is not a port: ports are %d to %d", text, least, most)
	}
	return int(n), nil
}

// Listen is the address on this machine, as net.Listen takes it.
func (f Forward) Listen() string { return net.JoinHostPort(f.Host, strconv.Itoa(f.Local)) }

// Open reports whether machines other than this one may be able to connect.
func (f Forward) Open() bool {
	if f.Host == "" || f.Host == "localhost" {
		return false
	}
	addr, err := netip.ParseAddr(f.Host)
	return err != nil || !addr.IsLoopback()
}
