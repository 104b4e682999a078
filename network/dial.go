package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Resolver resolves names. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer opens TCP connections that a policy allows. Its methods may be called from several
// goroutines.
type Dialer struct {
	// Policy returns the policy of the moment; it is called once for each connection.
	Policy func() *Policy

	// Resolver resolves names, each once for a connection. nil is net.DefaultResolver.
	Resolver Resolver

	// Upstream is the proxy that connections leave through, where it has one for the host. nil:
	// none. See DialContext for what is judged then.
	Upstream *Upstream

	// Timeout bounds the whole of a connection's start, look-up included. 0 means none but
	// the context's.
	Timeout time.Duration
}

// minAttempt is how long an address is tried if there are others and time is short.
const minAttempt = 2 * time.Second

// DialContext connects to a host, a name or an address in any spelling, and a port. It asks
// Policy.Connect, resolves the name once, asks Policy.Address about each address and dials those
// that are allowed, one after the other, until one answers. What is dialled is the address that
// was judged, and is judged again when its socket exists. If the host or all of its addresses are
// denied, the error is a *Denial, and nothing was sent. Other errors are the resolver's or the
// network's.
//
// Through an Upstream the host is asked for by its name, which the proxy resolves: which address it
// connects to is not known here. The name is resolved here too, and if one of its addresses is denied
// so is the host; a name that this machine cannot resolve is left to the proxy.
//
// DialContext does not judge requests: the caller does where Connect asks to intercept.
func (d *Dialer) DialContext(ctx context.Context, host string, port int) (net.Conn, error) {
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	policy := d.Policy()
	now := *policy
	now.Own = sync.OnceValues(policy.own) // 30 us each time, and there are at least two questions
	p := &now
	v := p.Connect(host, port)
	if !v.Allowed {
		return nil, v.Err()
	}
	if up := d.Upstream.For(v.Host, port); up != nil {
		if err := d.judgeThrough(ctx, p, v.Host, port); err != nil {
			return nil, err
		}
		return dialThrough(ctx, up, v.Host, port)
	}
	verdicts, err := Addresses(ctx, p, d.Resolver, v.Host, port)
	if err != nil {
		return nil, err
	}
	var allowed []netip.AddrPort
	for _, one := range verdicts {
		if one.Allowed {
			allowed = append(allowed, netip.AddrPortFrom(one.Addr, uint16(port)))
		}
	}
	if len(allowed) == 0 {
		return nil, verdicts[0].Err()
	}
	var errs []error
	for i, to := range allowed {
		conn, err := dial(ctx, p, v.Host, to, len(allowed)-i)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// UpstreamLookup is how long a name is looked up that a proxy will look up again. Behind a proxy this
// machine's resolver often knows no names of the internet, and some then never answer.
const UpstreamLookup = 2 * time.Second

// judgeThrough returns a *Denial if this machine knows an address of the host that is denied.
func (d *Dialer) judgeThrough(ctx context.Context, p *Policy, host string, port int) error {
	ctx, cancel := context.WithTimeout(ctx, UpstreamLookup)
	defer cancel()
	verdicts, err := Addresses(ctx, p, d.Resolver, host, port)
	if err != nil {
		return nil // the proxy may know the name
	}
	for _, v := range verdicts {
		if !v.Allowed {
			return v.Err()
		}
	}
	return nil
}

// Addresses resolves a host, in the spelling of Canonical, once and judges each of its addresses:
// there is a verdict of Policy.Address for each, one at least, unless there is an error. r may be
// nil, as in a Dialer. Addresses does not ask whether the host may be connected to.
func Addresses(ctx context.Context, p *Policy, r Resolver, host string, port int) ([]Verdict, error) {
	addrs, err := resolve(ctx, r, host)
	if err != nil {
		return nil, err
	}
	verdicts := make([]Verdict, 0, len(addrs))
	for _, addr := range addrs {
		verdicts = append(verdicts, p.Address(host, netip.AddrPortFrom(addr, uint16(port))))
	}
	return verdicts, nil
}

// resolve returns the addresses of a canonical host, one at least.
func resolve(ctx context.Context, r Resolver, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	if r == nil {
		r = net.DefaultResolver
	}
	// The dot keeps the resolver from trying the name below this machine's search domains.
	addrs, err := r.LookupNetIP(ctx, "ip", host+".")
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	}
	return addrs, nil
}

// dial connects to one address of several that are left to try.
func dial(ctx context.Context, p *Policy, host string, to netip.AddrPort, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		share := max(time.Until(deadline)/time.Duration(left), minAttempt)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, share)
		defer cancel()
	}
	dialer := net.Dialer{ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
		now, err := netip.ParseAddrPort(address)
		if err != nil || now != to {
			return fmt.Errorf("dialling %s %s instead of %s", network, address, to)
		}
		return p.Address(host, now).Err()
	}}
	return dialer.DialContext(ctx, "tcp", to.String())
}
