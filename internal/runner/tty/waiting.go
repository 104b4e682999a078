//go:build linux

package tty

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// WaitsForInput reports whether the command on this process's terminal, which is its
// standard input, waits for input. It does if all typed input has been read, no thread of
// the foreground process group runs, and one of these threads is blocked in a system call
// that ends when the terminal has input. docs/adr/0013 has the reasons.
//
// The kernel shows the system call of a thread only to a process that may trace it. That
// takes the ids of the session and, under Yama's restricted mode, an ancestor. This process
// is an ancestor of everything that the command has started. as calls a function on a thread
// with those ids.
func WaitsForInput(as func(func() error) error) wire.TerminalState {
	var tty unix.Stat_t
	if unix.Fstat(0, &tty) != nil {
		return wire.TerminalUnknown
	}
	if n, err := unix.IoctlGetInt(0, unix.TIOCINQ); err == nil && n > 0 {
		return wire.TerminalBusy
	}
	answer := wire.TerminalUnknown
	err := as(func() error {
		p := probe{tty: tty.Rdev}
		for _, pid := range foreground(tty.Rdev) {
			p.process(pid)
		}
		answer = p.answer()
		return nil
	})
	if err != nil {
		return wire.TerminalUnknown
	}
	return answer
}

// foreground lists the living processes of a terminal's foreground group.
func foreground(tty uint64) []int {
	var group []int
	for _, pid := range proc.Descendants(os.Getpid()) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue
		}
		if on, leads, ok := terminalOf(stat); ok && on == tty && leads {
			group = append(group, pid)
		}
	}
	return group
}

// terminalOf reads the device of a process's terminal, and whether its process
// group is in the foreground there, from proc_pid_stat(5).
func terminalOf(stat []byte) (tty uint64, leads, ok bool) {
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 6 {
		return 0, false, false
	}
	device, err := strconv.ParseInt(string(f[4]), 10, 32)
	if err != nil {
		return 0, false, false
	}
	n := uint32(device) // as the kernel's new_encode_dev packs it
	major, minor := n>>8&0xfff, n&0xff|n>>12&0xfff00
	return unix.Mkdev(major, minor), bytes.Equal(f[2], f[5]), true
}

// probe gathers what is seen of the processes of a foreground group.
type probe struct {
	tty     uint64
	waits   bool // a thread waits for the terminal
	runs    bool // a thread does not sleep
	hidden  bool // the state of a thread cannot be read
	looked  bool
	blocked [8]uint64 // scratch: a system call's number and arguments
}

func (p *probe) answer() wire.TerminalState {
	switch {
	case p.runs:
		return wire.TerminalBusy
	case p.waits:
		return wire.TerminalWaits
	case p.hidden || !p.looked:
		return wire.TerminalUnknown
	default:
		return wire.TerminalBusy
	}
}

// process looks at every thread of a process.
func (p *probe) process(pid int) {
	dir := "/proc/" + strconv.Itoa(pid)
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return // it has ended
	}
	for _, t := range threads {
		p.thread(dir, dir+"/task/"+t.Name())
	}
}

func (p *probe) thread(dir, task string) {
	text, err := os.ReadFile(task + "/syscall")
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		p.hide(task)
		return
	}
	p.looked = true
	if !p.parse(string(text)) {
		p.runs = true // "running", or blocked outside of any call
		return
	}
	if p.watches(dir) {
		p.waits = true
	}
}

// hide handles a thread whose system call cannot be read. The place in the kernel where it
// sleeps at least shows a plain read.
func (p *probe) hide(task string) {
	p.hidden = true
	if where, err := os.ReadFile(task + "/wchan"); err == nil && strings.HasPrefix(string(where), "n_tty_read") {
		p.waits = true
	}
}

// parse reads proc_pid_syscall(5): a number, six arguments, the stack pointer and
// the program counter.
func (p *probe) parse(text string) bool {
	f := strings.Fields(text)
	if len(f) < 7 {
		return false
	}
	for i, word := range f[:7] {
		n, err := strconv.ParseUint(strings.TrimPrefix(word, "0x"), base(i), 64)
		if err != nil {
			return false
		}
		p.blocked[i] = n
	}
	return true
}

func base(i int) int {
	if i == 0 {
		return 10
	}
	return 16
}

// Kinds of system calls that wait for input.
type callKind int

const (
	callRead   callKind = iota + 1 // read(2) and its like: a descriptor
	callPoll                       // poll(2): a list of descriptors and its length
	callSelect                     // select(2): a number, and sets of descriptors
	callEpoll                      // epoll_wait(2): a descriptor that stands for a list
)

// Bounds on what is read of a process's memory.
const (
	maxPolled = 256  // descriptors of a poll; a program with a terminal has a few
	maxSelect = 1024 // FD_SETSIZE
)

// watches reports whether the call that p.blocked holds ends with input on the
// terminal.
func (p *probe) watches(dir string) bool {
	args := p.blocked[1:]
	switch inputCalls[int(p.blocked[0])] {
	case callRead:
		return p.isTerminal(dir, args[0])
	case callPoll:
		return p.polled(dir, args[0], args[1])
	case callSelect:
		return p.selected(dir, args[0], args[1])
	case callEpoll:
		return p.epolled(dir, args[0])
	}
	return false
}

// devTTY is /dev/tty: the controlling terminal of the process that opens it.
var devTTY = unix.Mkdev(5, 0)

func (p *probe) isTerminal(dir string, fd uint64) bool {
	if fd > 1<<20 {
		return false
	}
	var st unix.Stat_t
	err := unix.Stat(dir+"/fd/"+strconv.FormatUint(fd, 10), &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && (st.Rdev == p.tty || st.Rdev == devTTY)
}

// pollReadNormal is POLLRDNORM of asm-generic/poll.h.
const pollReadNormal = 0x40

func (p *probe) polled(dir string, list, n uint64) bool {
	if n == 0 || n > maxPolled {
		return false
	}
	const size = 8 // bytes of struct pollfd: an int and two shorts
	fds := readMemory(dir, list, int(n)*size)
	for ; len(fds) >= size; fds = fds[size:] {
		fd, events := binary.NativeEndian.Uint32(fds), binary.NativeEndian.Uint16(fds[4:])
		if events&(unix.POLLIN|pollReadNormal) != 0 && p.isTerminal(dir, uint64(fd)) {
			return true
		}
	}
	return false
}

func (p *probe) selected(dir string, n, set uint64) bool {
	if n == 0 || n > maxSelect || set == 0 {
		return false
	}
	const word = 64 // bits of a long on the architectures that we run on
	words := readMemory(dir, set, (int(n)+word-1)/word*8)
	for fd := range n {
		at := int(fd) / word * 8
		if at+8 <= len(words) && binary.NativeEndian.Uint64(words[at:])>>(fd%word)&1 != 0 && p.isTerminal(dir, fd) {
			return true
		}
	}
	return false
}

// epolled reads proc_pid_fdinfo(5) of an epoll descriptor: lines of
// "tfd: N events: HEX data: HEX …".
func (p *probe) epolled(dir string, epoll uint64) bool {
	info, err := os.ReadFile(dir + "/fdinfo/" + strconv.FormatUint(epoll, 10))
	if err != nil {
		return false
	}
	for line := range proc.Lines(info) {
		f := strings.Fields(string(line))
		if len(f) < 4 || f[0] != "tfd:" || f[2] != "events:" {
			continue
		}
		fd, err := strconv.ParseUint(f[1], 10, 32)
		events, err2 := strconv.ParseUint(f[3], 16, 64)
		if err == nil && err2 == nil && events&unix.EPOLLIN != 0 && p.isTerminal(dir, fd) {
			return true
		}
	}
	return false
}

// readMemory returns what can be read of a process's memory at that address.
func readMemory(dir string, at uint64, n int) []byte {
	f, err := os.Open(dir + "/mem")
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, n)
	got, _ := f.ReadAt(b, int64(at))
	return b[:got]
}
