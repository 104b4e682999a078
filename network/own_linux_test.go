//go:build linux

package network

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"
)

// TestOwnAddresses: the list is asked for again once the kernel has sent a message, and each time if it
// sends none any more.
func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	now, asked := netip.MustParseAddr("192.0.2.1"), 0
	o := ownAddresses{opened: true, fd: pair[0], list: func() ([]netip.Addr, error) {
		asked++
		return []netip.Addr{now}, nil
	}}
	get := func(want netip.Addr, times int) {
		t.Helper()
		got, err := o.get()
		if !slices.Equal(got, []netip.Addr{want}) || err != nil || asked != times {
			t.Errorf("%v, %v after %d questions; want %v after %d", got, err, asked, want, times)
		}
	}
	first := now
	get(first, 1)
	get(first, 1)
	now = netip.MustParseAddr("192.0.2.2")
	get(first, 1) // no message so far
	for range 3 {
		if _, err := syscall.Write(pair[1], make([]byte, 500)); err != nil {
			t.Fatal(err)
		}
	}
	get(now, 2)
	get(now, 2)
	if err := syscall.Close(pair[1]); err != nil {
		t.Fatal(err)
	}
	get(now, 3)
	get(now, 4)
	if o.fd != -1 {
		t.Errorf("the socket is %d; want it closed", o.fd)
	}
}

// TestWatchAddresses: the kernel's socket says that nothing has changed while nothing does.
func TestWatchAddresses(t *testing.T) {
	t.Parallel()
	asked := 0
	o := ownAddresses{list: func() ([]netip.Addr, error) {
		asked++
		return listAddresses()
	}}
	want, err := listAddresses()
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if got, err := o.get(); !slices.Equal(got, want) || err != nil {
			t.Fatalf("%v, %v; want %v", got, err, want)
		}
	}
	if o.fd < 0 || asked > 50 { // containers come and go on this machine
		t.Errorf("the socket is %d, and %d of 100 calls asked for the list; want few", o.fd, asked)
	}
}
