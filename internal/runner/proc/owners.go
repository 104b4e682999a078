//go:build linux

package proc

import (
	"bufio"
	"bytes"
	"net/netip"
	"os"
	"strconv"
)

// Pair are the two addresses of a TCP socket.
type Pair struct{ Local, Remote netip.AddrPort }

// Owners finds the processes that have sockets of these addresses open. A socket that is
// closed, or passed on, may have none.
func Owners[T any](pairs map[Pair]T, uid uint32) map[Pair]int {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return nil
	}
	defer f.Close()
	at := map[Pair]uint64{}
	inodes := map[uint64]bool{}
	for lines := bufio.NewScanner(f); len(at) < len(pairs) && lines.Scan(); {
		pair, inode, ok := parseSocket(lines.Bytes())
		if _, wanted := pairs[pair]; ok && wanted {
			at[pair], inodes[inode] = inode, true
		}
	}
	holders := Holders(inodes, uid)
	found := map[Pair]int{}
	for pair, inode := range at {
		if pid := holders[inode]; pid != 0 {
			found[pair] = pid
		}
	}
	return found
}

// parseSocket reads a line of /proc/net/tcp about a socket that a process has open. A session that
// makes many connections leaves thousands of others, which wait for late packets and have the inode 0.
func parseSocket(line []byte) (pair Pair, inode uint64, ok bool) {
	const (
		localField, remoteField, inodeField = 1, 2, 9
	)
	var local, remote []byte
	i := 0
	for field := range bytes.FieldsSeq(line) {
		switch i {
		case localField:
			local = field
		case remoteField:
			remote = field
		case inodeField:
			inode, _ = strconv.ParseUint(string(field), 10, 64)
		}
		if i++; i > inodeField {
			break
		}
	}
	if inode == 0 {
		return Pair{}, 0, false // or the head
	}
	var err1, err2 error
	pair.Local, err1 = parseAddr(string(local))
	pair.Remote, err2 = parseAddr(string(remote))
	return pair, inode, err1 == nil && err2 == nil
}

// maxDepth bounds how many ancestors are looked at.
const maxDepth = 64

// Leader finds the process that a runner has started for the command of a process, and that
// runner. If the process has outlived its command, the leader is by its session ID, and the
// runner 0. uid is that of the session's commands.
func Leader(pid int, uid uint32) (leader, runner int) {
	p, ok := Find(pid)
	leader = p.Session
	for depth := 0; ok && p.Parent > 1 && depth < maxDepth; depth++ {
		if Ours(p.Parent, uid) {
			return p.PID, p.Parent
		}
		p, ok = Find(p.Parent)
	}
	return leader, 0
}
