package network

import (
	"errors"
	"net/netip"
)

// CheckSecret returns an error if a rule does not say which servers a secret may be sent to: a
// preset, every name, a range of addresses, or the port of plain HTTP.
func (r Rule) CheckSecret() error {
	switch {
	case r.preset != nil:
		return errors.New("a preset is for many hosts: name those that the secret is for")
	case r.sub && r.host == "":
		return errors.New("it is every host: name those that the secret is for")
	case r.prefix.IsValid() && !r.prefix.IsSingleIP():
		return errors.New("it is a range of addresses: name the one that the secret is for")
	case r.port == plainPort:
		return errors.New("port 80 is plain HTTP, and a secret is sent over TLS only")
	case r.IsZero():
		return errors.New("it is for nothing")
	}
	return nil
}

// plainPort is where HTTP is without TLS.
const plainPort = 80

// Overlaps reports whether some connection may be one that both rules are for, as allow rules.
func (r Rule) Overlaps(other Rule) bool {
	for _, a := range r.parts() {
		for _, b := range other.parts() {
			if a.sharesHost(b) && a.sharesPort(b) {
				return true
			}
		}
	}
	return false
}

func (r Rule) sharesHost(other Rule) bool {
	switch {
	case r.prefix.IsValid() || other.prefix.IsValid():
		return r.prefix.IsValid() && other.prefix.IsValid() && r.prefix.Overlaps(other.prefix)
	case r.sub && other.sub:
		return r.host == other.host || (Rule{host: r.host, sub: true}).matches(other.host, netip.Addr{}) || other.matches(r.host, netip.Addr{})
	case r.sub:
		return r.matches(other.host, netip.Addr{})
	}
	return other.matches(r.host, netip.Addr{})
}

func (r Rule) sharesPort(other Rule) bool {
	for _, p := range []int{r.port, other.port} {
		ports := []int{p}
		if p == 0 {
			ports = DefaultPorts
		}
		for _, port := range ports {
			if port == anyPort && (r.port == anyPort && other.port == anyPort) || port != anyPort && r.hasPort(port, false) && other.hasPort(port, false) {
				return true
			}
		}
	}
	return false
}
