package network

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Lengths of names, RFC 1035 section 2.3.4.
const (
	maxName  = 253 // bytes, without the dot at the end
	maxLabel = 63
	maxHost  = 4 * maxName // bytes of a host as it is given: a name in Unicode is longer than in ASCII
)

// lookup maps a name in Unicode to ASCII as browsers do (UTS 46, non-transitional). Which
// characters an ASCII label may have is checked afterwards: underscores are in use, and so are
// hyphens where IDNA has none.
var lookup = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false),
	idna.StrictDomainName(false), idna.CheckHyphens(false), idna.CheckJoiners(true))

// Canonical returns the one spelling of a host that rules are matched with, and that is
// dialled: a name in lower case and in ASCII (IDNA), without a dot at its end; an address
// without brackets, as netip.Addr prints it, an IPv4 address inside IPv6 (::ffff:0:0/96) as
// IPv4. Whatever C libraries read as an IPv4 address is one: 0x7f.1, 2130706433 and
// 017700000001 are 127.0.0.1. An IPv6 zone is refused. Canonical(c) is c for each c that it
// returns.
func Canonical(host string) (string, error) {
	name, addr, err := canonical(host)
	if addr.IsValid() {
		return addr.String(), nil
	}
	return name, err
}

// canonical is Canonical with the address, if the host is one; the name is then "".
func canonical(host string) (string, netip.Addr, error) {
	none := netip.Addr{}
	switch {
	case host == "":
		return "", none, errors.New("it is empty")
	case len(host) > maxHost:
		return "", none, errors.New("it is too long")
	case strings.ContainsRune(host, '['), strings.ContainsRune(host, ']'):
		inside, opened := strings.CutPrefix(host, "[")
		inside, closed := strings.CutSuffix(inside, "]")
		addr, err := address(inside)
		if !opened || !closed || err != nil || !strings.Contains(inside, ":") {
			return "", none, errors.New("brackets hold an IPv6 address and nothing else")
		}
		return "", addr, nil
	case strings.ContainsRune(host, ':'):
		addr, err := address(host)
		return "", addr, err
	}
	name := host
	if !mapsToItself(host) {
		mapped, err := lookup.ToASCII(host)
		if err != nil {
			return "", none, errors.New("it is not a name (IDNA)")
		}
		name = mapped
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if err := checkName(name); err != nil {
		return "", none, err
	}
	// What maps to a name that is not mapped to itself has several spellings, of which others
	// would read this one differently.
	if !mapsToItself(name) {
		if again, err := lookup.ToASCII(name); err != nil || again != name {
			return "", none, errors.New("it is not a name (IDNA)")
		}
	}
	if !endsInNumber(name) {
		return name, none, nil
	}
	addr, ok := legacyIPv4(name)
	if !ok {
		return "", none, errors.New("it ends in a number, and is not an IPv4 address")
	}
	return "", addr, nil
}

// address parses an IPv6 address, or an IPv4 address in the usual form.
func address(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return netip.Addr{}, errors.New("it is not an IPv6 address")
	case addr.Zone() != "":
		return netip.Addr{}, errors.New("an IPv6 zone is not allowed")
	}
	return addr.Unmap(), nil
}

func checkName(name string) error {
	if len(name) > maxName {
		return errors.New("a name has at most 253 bytes")
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return errors.New("a label is empty: two dots, or a dot at the start")
		case len(label) > maxLabel:
			return errors.New("a label has at most 63 bytes")
		case label[0] == '-' || label[len(label)-1] == '-':
			return errors.New("a label starts or ends with a hyphen")
		}
		for i := range len(label) {
			if !nameByte(label[i]) {
				return errors.New("a name has letters, digits, hyphens and dots")
			}
		}
	}
	return nil
}

// mapsToItself reports whether a host is one that IDNA certainly leaves as it is: it has the bytes of
// canonical names alone, and no label in IDNA's own form. A host is asked about several times for each
// connection, and this is a small part of what IDNA's tables cost.
func mapsToItself(host string) bool {
	for i := range len(host) {
		if c := host[i]; !nameByte(c) && c != '.' {
			return false
		}
	}
	return !strings.Contains(host, "xn--")
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// endsInNumber says whether the last label of a name is a number, so that programs read the
// whole as an IPv4 address (WHATWG URL, "ends in a number").
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if digits, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// legacyIPv4 parses what inet_aton(3) does: one to four numbers, decimal, octal or
// hexadecimal, of which the last fills the remaining bytes.
func legacyIPv4(text string) (netip.Addr, bool) {
	parts := strings.Split(text, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	for i, part := range parts {
		base := 10
		if digits, ok := strings.CutPrefix(part, "0x"); ok {
			part, base = digits, 16
			if part == "" {
				part = "0" // "0x" is zero to some parsers
			}
		} else if len(part) > 1 && part[0] == '0' {
			base = 8
		}
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i)
		}
		n, err := strconv.ParseUint(part, base, bits)
		if err != nil || strings.ContainsAny(part, "+-_") {
			return netip.Addr{}, false
		}
		value = value<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

// localName says whether a canonical name is one that means something on this machine or its
// link alone. Such names are never resolved.
func localName(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return last == name || last == "localhost" || last == "local"
}

// hostPort joins a canonical host and a port.
func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
