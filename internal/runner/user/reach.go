//go:build linux

package user

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// addReach tries what a session without a network must not reach. Where there is a way to an address,
// nothing is sent to it.
func addReach(report *wire.Posture) {
	v4 := func(port int, a, b, c, d byte) unix.Sockaddr {
		return &unix.SockaddrInet4{Port: port, Addr: [4]byte{a, b, c, d}}
	}
	for _, one := range []struct {
		name   string
		domain int
		to     unix.Sockaddr
	}{
		{"public", unix.AF_INET, v4(443, 1, 1, 1, 1)},
		{"dns", unix.AF_INET, v4(53, 8, 8, 8, 8)},
		{"metadata", unix.AF_INET, v4(80, 169, 254, 169, 254)},
		{"gateway", unix.AF_INET, v4(80, 172, 17, 0, 1)}, // of the engine's bridge, unless its owner has changed it
		{"public6", unix.AF_INET6, &unix.SockaddrInet6{Port: 443, Addr: [16]byte{0x26, 0x06, 0x47, 0, 0x47, 0, 15: 1}}},
	} {
		report.Add(wire.FactReach.Of(one.name), errnoName(way(one.domain, one.to)))
	}
}

// way returns nil if there is a way to an address. To connect a datagram socket sends nothing. Where the
// kernel refuses that, it is asked in the other two ways too.
func way(domain int, to unix.Sockaddr) error {
	for _, kind := range []int{unix.SOCK_DGRAM, unix.SOCK_STREAM} {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		err = unix.Connect(fd, to)
		if err != nil && kind == unix.SOCK_DGRAM {
			if unix.Sendto(fd, []byte{0}, 0, to) == nil {
				err = nil
			}
		}
		_ = unix.Close(fd)
		if err == nil || errors.Is(err, unix.EINPROGRESS) {
			return nil
		}
		if kind == unix.SOCK_STREAM {
			return err
		}
	}
	return nil
}

// errnoName returns the name of the error that refused an attempt.
func errnoName(err error) string {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	if err != nil {
		return "error"
	}
	return wire.TryAllowed
}

// reachTime bounds an attempt.
const reachTime = 8 * time.Second

// Reach connects to targets as a program of the session would, all at once, and reports what happened.
func Reach(w io.Writer, args []string) error {
	var a wire.ReachArgs
	if err := wire.ParseArgs(args, &a); err != nil {
		return err
	}
	results := make([]string, len(a.Targets))
	var all sync.WaitGroup
	for i, target := range a.Targets {
		all.Go(func() { results[i] = reach(target) })
	}
	all.Wait()
	var report wire.Posture
	for i, target := range a.Targets {
		report.Add(wire.FactReach.Of(target), results[i])
	}
	_, err := w.Write(report.Append(nil))
	return err
}

func reach(target string) string {
	at, host, ask := strings.Cut(target, " ")
	dialer := net.Dialer{Timeout: reachTime}
	conn, err := dialer.DialContext(context.Background(), "tcp4", at)
	if err != nil {
		return reachError(err)
	}
	defer conn.Close()
	if !ask {
		return wire.TryAllowed
	}
	_ = conn.SetDeadline(time.Now().Add(reachTime))
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		return reachError(err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 4<<10))
	if len(answer) == 0 && err != nil {
		return reachError(err)
	}
	head, _, _ := bytes.Cut(answer, []byte("\r\n\r\n")) // a page could have the words too
	if bytes.Contains(head, []byte("\r\nX-Sandboxbash-Denied: ")) {
		return wire.ReachDenied
	}
	return wire.TryAllowed
}

func reachError(err error) string {
	if failure, ok := errors.AsType[*net.DNSError](err); ok {
		if failure.IsNotFound {
			return wire.ReachNoName
		}
		return wire.ReachNoDNS
	}
	if failure, ok := errors.AsType[net.Error](err); ok && failure.Timeout() {
		return "ETIMEDOUT"
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	return "error"
}
