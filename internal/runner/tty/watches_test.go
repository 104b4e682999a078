//go:build linux

package tty

import (
	"encoding/binary"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// master opens a terminal's other end, a character device that stands for a terminal here.
func master(t *testing.T) (fd int, device uint64) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no pseudo-terminals on this machine: " + err.Error())
	}
	t.Cleanup(func() { unix.Close(fd) })
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return fd, st.Rdev
}

// callNumber is a system call of a kind: their numbers are the architecture's.
func callNumber(t *testing.T, kind callKind) uint64 {
	t.Helper()
	for n, k := range inputCalls {
		if k == kind {
			return uint64(n)
		}
	}
	t.Fatalf("no call of kind %d", kind)
	return 0
}

// A thread waits for the terminal if the call that it is blocked in ends with input
// there. What it has in memory and in descriptors is its own choice.
func TestWatches(t *testing.T) {
	t.Parallel()
	fd, device := master(t)
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 100) // in a set's second word
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(high)
	epoll := func(watched int, events uint32) uint64 {
		e, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(e) })
		if err := unix.EpollCtl(e, unix.EPOLL_CTL_ADD, watched, &unix.EpollEvent{Events: events, Fd: int32(watched)}); err != nil {
			t.Fatal(err)
		}
		return uint64(e)
	}
	var kept [][]byte
	at := func(b []byte) uint64 {
		kept = append(kept, b) // Go moves nothing that is on the heap
		return uint64(uintptr(unsafe.Pointer(&b[0])))
	}
	polled := func(fds ...[2]int) []byte {
		var b []byte
		for _, f := range fds {
			b = binary.NativeEndian.AppendUint32(b, uint32(f[0]))
			b = binary.NativeEndian.AppendUint16(b, uint16(f[1]))
			b = binary.NativeEndian.AppendUint16(b, 0)
		}
		return b
	}
	set := func(fds ...int) []byte {
		b := make([]byte, maxSelect/8)
		for _, f := range fds {
			word := binary.NativeEndian.Uint64(b[f/64*8:])
			binary.NativeEndian.PutUint64(b[f/64*8:], word|1<<(f%64))
		}
		return b
	}
	n := uint64(fd + 1)
	for _, row := range []struct {
		name string
		kind callKind
		args [2]uint64
		want bool
	}{
		{"read", callRead, [2]uint64{uint64(fd)}, true},
		{"read of another file", callRead, [2]uint64{uint64(null)}, false},
		{"read of nothing", callRead, [2]uint64{1 << 19}, false},
		{"read of a number beyond all descriptors", callRead, [2]uint64{^uint64(0)}, false},
		{"poll", callPoll, [2]uint64{at(polled([2]int{null, unix.POLLIN}, [2]int{fd, unix.POLLIN})), 2}, true},
		{"poll for normal data", callPoll, [2]uint64{at(polled([2]int{fd, pollReadNormal})), 1}, true},
		{"poll for output", callPoll, [2]uint64{at(polled([2]int{fd, unix.POLLOUT})), 1}, false},
		{"poll of another file", callPoll, [2]uint64{at(polled([2]int{null, unix.POLLIN})), 1}, false},
		{"poll of a negative descriptor", callPoll, [2]uint64{at(polled([2]int{-1, unix.POLLIN})), 1}, false},
		{"poll of none", callPoll, [2]uint64{at(polled([2]int{fd, unix.POLLIN})), 0}, false},
		{"poll of too many", callPoll, [2]uint64{at(polled([2]int{fd, unix.POLLIN})), maxPolled + 1}, false},
		{"poll of a bad address", callPoll, [2]uint64{8, 1}, false},
		{"poll of an address beyond all", callPoll, [2]uint64{^uint64(0) - 8, 1}, false},
		{"select", callSelect, [2]uint64{n, at(set(fd))}, true},
		{"select beyond a word", callSelect, [2]uint64{uint64(high + 1), at(set(high))}, true},
		{"select of another file", callSelect, [2]uint64{n, at(set(null))}, false},
		{"select below it", callSelect, [2]uint64{uint64(fd), at(set(fd))}, false},
		{"select for output alone", callSelect, [2]uint64{n, 0}, false},
		{"select of too many", callSelect, [2]uint64{maxSelect + 1, at(set(fd))}, false},
		{"select of a bad address", callSelect, [2]uint64{n, 8}, false},
		{"epoll", callEpoll, [2]uint64{epoll(fd, unix.EPOLLIN)}, true},
		{"epoll for output", callEpoll, [2]uint64{epoll(fd, unix.EPOLLOUT)}, false},
		{"epoll of what is none", callEpoll, [2]uint64{uint64(null)}, false},
		{"epoll of nothing", callEpoll, [2]uint64{1 << 19}, false},
	} {
		p := probe{tty: device}
		p.blocked[0] = callNumber(t, row.kind)
		p.blocked[1], p.blocked[2] = row.args[0], row.args[1]
		if got := p.watches("/proc/self"); got != row.want {
			t.Errorf("%s: watches() = %t; want %t", row.name, got, row.want)
		}
	}
	other := probe{tty: device + 1}
	other.blocked[0], other.blocked[1] = callNumber(t, callRead), uint64(fd)
	if other.watches("/proc/self") {
		t.Error("a read of another terminal counts as one of this")
	}
	unknown := probe{tty: device}
	unknown.blocked[0], unknown.blocked[1] = 1<<20, uint64(fd)
	if unknown.watches("/proc/self") {
		t.Error("a call that does not exist counts as one that waits for input")
	}
	runtime.KeepAlive(kept)
}

// One thread that runs is enough for busy; one that cannot be seen makes a no uncertain.
func TestAnswer(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		p    probe
		want wire.TerminalState
	}{
		{probe{}, wire.TerminalUnknown},
		{probe{looked: true}, wire.TerminalBusy},
		{probe{looked: true, waits: true}, wire.TerminalWaits},
		{probe{looked: true, waits: true, runs: true}, wire.TerminalBusy},
		{probe{looked: true, hidden: true}, wire.TerminalUnknown},
		{probe{hidden: true, waits: true}, wire.TerminalWaits},
		{probe{hidden: true, runs: true}, wire.TerminalBusy},
	} {
		if got := row.p.answer(); got != row.want {
			t.Errorf("answer() of %+v = %c; want %c", row.p, got, row.want)
		}
	}
}
