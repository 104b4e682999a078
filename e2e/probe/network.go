//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long one connection, or one child, may take. A connection that
// gets no answer is "timeout": its packet has left.
const patience = 2 * time.Second

// network are the ways out, none of which a session without a network has.
func network() []attempt {
	out := []attempt{
		{"E22", "interfaces", interfaces},
		{"E22", "gateway", func() string { return dialGateway("2375") }},
		{"E22", "gateway-tls", func() string { return dialGateway("2376") }},
	}
	for _, d := range []struct{ name, network, address string }{
		{"metadata", "tcp", "169.254.169.254:80"},
		{"metadata-v6", "tcp", "[fd00:ec2::254]:80"},
		{"desktop-engine", "tcp", "192.168.65.7:2375"},
		{"bridge-engine", "tcp", "172.17.0.1:2375"},
		{"lan", "tcp", "10.0.0.1:80"},
		{"internet", "tcp", "192.0.2.1:443"}, // TEST-NET-1: no machine has it
		{"internet-v6", "tcp", "[2001:db8::1]:443"},
	} {
		out = append(out, attempt{"E22", "connect-" + d.name, func() string { return dial(d.network, d.address) }})
	}
	return append(out,
		attempt{"S11", "udp-dns", func() string { return datagram("192.0.2.1:53") }},
		attempt{"S11", "udp-broadcast", func() string { return datagram("255.255.255.255:9") }},
		attempt{"S11", "udp-multicast-v6", func() string { return datagram("[ff02::1]:9") }},
		attempt{"S11", "resolve", resolve},
		attempt{"S11", "icmp", ping},
		attempt{"S11", "add-route", func() string { return networkRequest(unix.SIOCADDRT) }},
		attempt{"S11", "create-bridge", func() string { return networkRequest(unix.SIOCBRADDBR) }},
		attempt{"S11", "loopback", loopback})
}

// interfaces lists the network interfaces.
func interfaces() string {
	all, err := net.Interfaces()
	if err != nil {
		return outcome(err)
	}
	var found []string
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 { // the kernel makes others, down, in every namespace
			found = append(found, i.Name)
		}
	}
	return list(found)
}

func dial(network, address string) string {
	conn, err := connect(network, address)
	if err != nil {
		return networkOutcome(err)
	}
	_ = conn.Close()
	return allowed
}

func connect(network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience}
	return dialer.DialContext(context.Background(), network, address)
}

func listen(network, address string) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(context.Background(), network, address)
}

// networkOutcome is outcome, with one name for all that took too long.
func networkOutcome(err error) string {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "timeout"
	}
	return outcome(err)
}

// dialGateway connects to the default gateway of /proc/net/route.
func dialGateway(port string) string {
	table, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return outcome(err)
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // Iface Destination Gateway …, in hexadecimal
		if len(f) < 3 || f[1] != "00000000" {
			continue
		}
		var address uint32
		for _, digit := range strings.ToLower(f[2]) {
			address = address<<4 | uint32(strings.IndexRune("0123456789abcdef", digit))
		}
		ip := make(net.IP, net.IPv4len)
		binary.NativeEndian.PutUint32(ip, address)
		return dial("tcp", net.JoinHostPort(ip.String(), port))
	}
	return none
}

// datagram sends one, and does not wait for an answer.
func datagram(address string) string {
	conn, err := connect("udp", address)
	if err != nil {
		return networkOutcome(err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte("probe"))
	return networkOutcome(err)
}

// resolve looks up names that engines and clouds give meaning to.
func resolve() string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, name := range []string{"host.docker.internal", "gateway.docker.internal", "metadata.google.internal"} {
		if addresses, err := net.DefaultResolver.LookupHost(ctx, name); err == nil && len(addresses) > 0 {
			return allowed
		}
	}
	return none
}

// ping sends an ICMP echo by the socket that needs no capability.
func ping() string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return outcome(err)
	}
	defer unix.Close(fd)
	echo := []byte{8, 0, 0, 0, 0, 1, 0, 1} // the kernel fills in the checksum
	return outcome(unix.Sendto(fd, echo, unix.MSG_DONTWAIT, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}}))
}

// networkRequest asks for a change of the network with nothing in it.
func networkRequest(number uintptr) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return outcome(err)
	}
	defer unix.Close(fd)
	return call(unix.SYS_IOCTL, uintptr(fd), number, room(128))()
}

// loopback is what a session must be able to do: talk to itself.
func loopback() string {
	listener, err := listen("tcp", "127.0.0.1:0")
	if err != nil {
		return outcome(err)
	}
	defer func() { _ = listener.Close() }()
	return dial("tcp", listener.Addr().String())
}
