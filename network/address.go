package network

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// refused are the ranges that no name may lead to, each with its kind. Sources: the IANA
// registries of special-purpose addresses for IPv4 and IPv6. IPv6 outside 2000::/3 is refused
// as a whole, see kindOf.
var refused = []struct {
	prefix netip.Prefix
	kind   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by carriers and overlay networks"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "for protocols"},
	{netip.MustParsePrefix("192.88.99.0/24"), "for 6to4 relays"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("100::/64"), "for discarding"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a local translation to IPv4"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "site-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// metadata are the addresses at which clouds give a machine its credentials. Many lie in
// ranges that people have good reasons to allow, or are public: each must be named exactly.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.254/32"), // most clouds
	netip.MustParsePrefix("169.254.170.2/32"),   // AWS, tasks
	netip.MustParsePrefix("169.254.170.23/32"),  // AWS, pods
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure, a public address
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google
	netip.MustParsePrefix("fd00:42::42/128"),    // Scaleway
}

const metadataKind = "a cloud's metadata service"

// globalUnicast is all of IPv6 that is assigned for use on the internet.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// Forms of IPv6 addresses that hold an IPv4 address, which is what the packets reach.
var (
	nat64        = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052
	sixToFour    = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo       = netip.MustParsePrefix("2001::/32")       // RFC 4380
	compatible   = netip.MustParsePrefix("::/96")           // RFC 4291, 2.5.5.1
	translated   = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765
	isatapMarker = [...]uint32{0x00005efe, 0x02005efe}      // RFC 5214: the third quarter of the address
)

// inside returns the IPv4 addresses that an IPv6 address holds; most hold none.
func inside(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case addr == netip.IPv6Unspecified(), addr == netip.IPv6Loopback():
		return nil
	case nat64.Contains(addr), compatible.Contains(addr), translated.Contains(addr):
		return []netip.Addr{at(12)}
	case sixToFour.Contains(addr):
		return []netip.Addr{at(2)}
	case teredo.Contains(addr):
		client := binary.BigEndian.Uint32(b[12:]) ^ 0xffffffff
		return []netip.Addr{at(4), netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, client)))}
	case slices.Contains(isatapMarker[:], binary.BigEndian.Uint32(b[8:])):
		return []netip.Addr{at(12)}
	}
	return nil
}

// kind is why an address is refused.
type kind struct {
	text   string       // "" if the address is not refused
	within netip.Prefix // a rule that allows the address lies in it
}

// kindOf says why an address, without any IPv4 address inside it, is refused.
func kindOf(addr netip.Addr, own []netip.Addr) kind {
	exactly := netip.PrefixFrom(addr, addr.BitLen())
	for _, p := range metadata {
		if p.Contains(addr) {
			return kind{metadataKind, exactly}
		}
	}
	// The loopback addresses are this machine's too, and have a range that can be allowed.
	if !addr.IsLoopback() && slices.Contains(own, addr) {
		return kind{"an address of this machine", exactly}
	}
	for _, r := range refused {
		if r.prefix.Contains(addr) {
			return kind{r.kind, r.prefix}
		}
	}
	if addr.Is6() && !globalUnicast.Contains(addr) && len(inside(addr)) == 0 {
		return kind{"not assigned for use on the internet", exactly}
	}
	return kind{}
}

// HostAddresses returns the addresses of this machine's interfaces, as they are now.
func HostAddresses() ([]netip.Addr, error) {
	list, err := hostAddresses()
	return slices.Clone(list), err
}

// listAddresses asks the system for the addresses of this machine's interfaces.
func listAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	own := []netip.Addr{}
	for _, one := range list {
		if p, err := netip.ParsePrefix(one.String()); err == nil {
			own = append(own, p.Addr().Unmap().WithZone(""))
		}
	}
	return own, nil
}

// Address says whether the address that a host resolved to, or that is the host itself, may
// be dialled on its port. Whatever its name, an address that is private, loopback, link-local,
// multicast, reserved, a metadata service's or this machine's own is refused, unless an
// address rule for the port names it: the rule's range must lie within the range that is
// refused, so that 0.0.0.0/0 allows no private address. A metadata service and this machine's
// own addresses must be named exactly. An address that holds an IPv4 address (mapped, NAT64,
// 6to4, Teredo, compatible, ISATAP) is judged by that too.
//
// Address does not ask whether the name may be connected to: Connect does.
func (p *Policy) Address(host string, to netip.AddrPort) Verdict {
	addr := to.Addr().Unmap()
	v := Verdict{Host: host, Port: int(to.Port()), Addr: addr}
	if addr.Zone() != "" || !addr.IsValid() {
		v.Reason, v.Detail = BadHost, "it is an IPv6 address with a zone, or none"
		return v
	}
	judged := append([]netip.Addr{addr}, inside(addr)...)
	for _, a := range judged {
		if rule, ok := find(p.Deny, func(r Rule) bool { return r.holds(a) && r.hasPort(v.Port, true) }); ok {
			v.Reason, v.Rule = RuleDenies, rule
			return v
		}
	}
	own, err := p.own()
	if err != nil {
		v.Reason, v.Detail = OwnUnknown, err.Error()
		return v
	}
	for _, a := range judged {
		k := kindOf(a, own)
		if k.text == "" {
			continue
		}
		rule, ok := find(p.Allow, func(r Rule) bool {
			return r.hasPort(v.Port, false) && r.within(a, k)
		})
		if !ok {
			v.Reason, v.Detail = LocalAddress, describe(addr, a, k)
			return v
		}
		v.Rule = rule
	}
	v.Allowed, v.Reason = true, RuleAllows
	return v
}

// describe says what kind of address one is, or that it holds one of that kind.
func describe(addr, judged netip.Addr, k kind) string {
	if addr == judged {
		return fmt.Sprintf("%s is %s", addr, k.text)
	}
	return fmt.Sprintf("%s holds %s, which is %s", addr, judged, k.text)
}

func (p *Policy) own() ([]netip.Addr, error) {
	if p.Own == nil {
		return hostAddresses()
	}
	return p.Own()
}

// within says whether the rule allows an address that is refused as a kind.
func (r Rule) within(addr netip.Addr, k kind) bool {
	return r.holds(addr) && k.within.Contains(r.prefix.Addr()) && r.prefix.Bits() >= k.within.Bits()
}
