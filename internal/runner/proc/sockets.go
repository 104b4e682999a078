//go:build linux

package proc

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Listener is a TCP socket that takes connections.
type Listener struct {
	Addr  netip.AddrPort
	Inode uint64
}

// Listeners lists the TCP sockets of this network namespace that take connections, at most
// wire.MaxPorts of each family.
func Listeners() ([]Listener, error) {
	var all []Listener
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		list, err := parseListeners(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, list...)
	}
	return all, nil
}

// parseListeners reads /proc/net/tcp or tcp6, see proc_net(5).
func parseListeners(r io.Reader) ([]Listener, error) {
	const (
		localField, stateField, inodeField = 1, 3, 9

		listening = "0A" // TCP_LISTEN
	)
	var all []Listener
	lines := bufio.NewScanner(r)
	for lines.Scan() && len(all) < wire.MaxPorts {
		f := strings.Fields(lines.Text())
		if len(f) <= inodeField || f[stateField] != listening {
			continue
		}
		addr, err := parseAddr(f[localField])
		if err != nil {
			return nil, err
		}
		inode, err := strconv.ParseUint(f[inodeField], 10, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, Listener{addr, inode})
	}
	return all, lines.Err()
}

// parseAddr reads an address as /proc/net/tcp has it: words of four bytes in the order of a
// little-endian machine, as all machines are that we run on, and the port.
func parseAddr(text string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", text)
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}

// Holders finds the processes that have sockets open, by the sockets' inodes. Of several it
// is the one with the lowest pid. Runners and PID 1 are left out. uid is that of the session's
// commands.
//
// Without CAP_SYS_PTRACE, the descriptors of a process are seen only by a thread with its ids
// (see ptrace(2), PTRACE_MODE_READ_FSCREDS), so this thread takes the ids of one process
// after the other. In profile dev the ids are those of the runner, which has all capabilities
// that commands have.
func Holders(inodes map[uint64]bool, uid uint32) map[uint64]int {
	found := map[uint64]int{}
	if len(inodes) == 0 {
		return found
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ids := user{}
	for _, pid := range pids() {
		if len(found) == len(inodes) {
			break
		}
		dir := "/proc/" + strconv.Itoa(pid)
		info, err := os.Stat(dir)
		if err != nil || pid == 1 || pid == os.Getpid() {
			continue
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || stat.Uid == 0 && uid != 0 {
			continue // a runner, or a process that nothing here may look at
		}
		ids.become(stat.Uid, stat.Gid)
		for inode := range socketsOf(dir + "/fd") {
			if _, known := found[inode]; !known && inodes[inode] {
				found[inode] = pid
			}
		}
	}
	ids.become(0, 0)
	// A change of the uid gives a process the machine's default of being dumpable.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	return found
}

// user is whose files a thread may access.
type user struct{ uid, gid uint32 }

// become never fails for a thread with CAP_SETUID and CAP_SETGID. If it does, nothing is
// seen, and nothing more can be done.
func (u *user) become(uid, gid uint32) {
	if u.gid != gid {
		_ = unix.Setfsgid(int(gid))
	}
	if u.uid != uid {
		_ = unix.Setfsuid(int(uid))
	}
	*u = user{uid, gid}
}

// pids lists the processes, lowest first.
func pids() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	slices.Sort(all)
	return all
}

// socketsOf returns the inodes of the sockets in a directory of descriptors.
func socketsOf(path string) map[uint64]bool {
	dir, err := os.Open(path)
	if err != nil {
		return nil // it has ended, or is not for us to see
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	all := map[uint64]bool{}
	for _, name := range names {
		link, err := os.Readlink(path + "/" + name)
		if err != nil {
			continue
		}
		text, ok := strings.CutPrefix(link, "socket:[")
		if !ok {
			continue
		}
		if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); err == nil {
			all[inode] = true
		}
	}
	return all
}

// WritePorts writes the answer of wire.VerbPorts: the ports at which processes of the session
// take connections, those of runners left out. uid is that of the session's commands.
func WritePorts(out io.Writer, uid uint32) error {
	all, err := Listeners()
	if err != nil {
		return err
	}
	inodes := map[uint64]bool{}
	for _, l := range all {
		inodes[l.Inode] = true
	}
	holders := Holders(inodes, uid)
	uptime := sinceBoot()
	var list []wire.Port
	for _, l := range all {
		p, ok := Find(holders[l.Inode])
		if !ok || Ours(p.PID, uid) {
			continue
		}
		list = append(list, wire.Port{Addr: l.Addr, PID: p.PID, Age: max(0, uptime-time.Duration(p.StartTicks)*tick), Command: commandLine(p)})
	}
	slices.SortFunc(list, func(a, b wire.Port) int {
		return 2*(int(a.Addr.Port())-int(b.Addr.Port())) + a.Addr.Addr().Compare(b.Addr.Addr())
	})
	_, err = out.Write(wire.AppendPorts(nil, list))
	return err
}

// tick is the unit of times in proc_pid_stat(5) on every architecture that we run on.
const tick = 10 * time.Millisecond

// sinceBoot is the time on which StartTicks counts.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
