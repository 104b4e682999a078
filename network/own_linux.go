//go:build linux

package network

import (
	"errors"
	"net/netip"
	"sync"
	"syscall"
)

// ownAddresses keeps this machine's addresses as long as the kernel says that none has changed. To list
// them costs more than all else that is asked before a connection is dialled.
type ownAddresses struct {
	list func() ([]netip.Addr, error)

	mu     sync.Mutex
	opened bool
	fd     int          // guarded by mu; a socket that gets a message for each change; -1: there is none
	kept   []netip.Addr // guarded by mu; nil: not known. What was returned is not changed any more.
}

var own = ownAddresses{list: listAddresses}

func hostAddresses() ([]netip.Addr, error) { return own.get() }

// get returns the addresses as they are now: the kernel queues the message of a change before the call
// that makes it returns. Nothing waits for the messages meanwhile.
func (o *ownAddresses) get() ([]netip.Addr, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.opened {
		o.opened, o.fd = true, watchAddresses()
	}
	if o.changed() {
		o.kept = nil
	}
	if o.kept != nil {
		return o.kept, nil
	}
	list, err := o.list()
	if err == nil && o.fd >= 0 {
		o.kept = list
	}
	return list, err
}

// changed reports whether the addresses may have changed since the last call. It needs mu.
func (o *ownAddresses) changed() (changed bool) {
	var message [64]byte // its rest is dropped
	for o.fd >= 0 {
		n, err := syscall.Read(o.fd, message[:])
		switch {
		case n > 0 || errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.ENOBUFS): // there were too many to keep
			changed = true
		case errors.Is(err, syscall.EAGAIN):
			return changed
		default:
			_ = syscall.Close(o.fd)
			o.fd = -1
		}
	}
	return true
}

// watchAddresses returns a socket for the kernel's messages, or -1.
func watchAddresses() int {
	const (
		ipv4 = 1 << (syscall.RTNLGRP_IPV4_IFADDR - 1)
		ipv6 = 1 << (syscall.RTNLGRP_IPV6_IFADDR - 1)
	)
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, syscall.NETLINK_ROUTE)
	if err != nil {
		return -1
	}
	if err := syscall.Bind(fd, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: ipv4 | ipv6}); err != nil {
		_ = syscall.Close(fd)
		return -1
	}
	return fd
}
