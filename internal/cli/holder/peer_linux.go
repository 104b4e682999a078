package holder

import (
	"fmt"
	"math"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// CheckPeer refuses who is on the other side of a socket unless it is this user.
// The modes of the socket and of its directory say the same.
func CheckPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) {
		peer, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if asked != nil {
		return asked
	}
	if int(peer.Uid) != os.Getuid() {
		return fmt.Errorf("user %d is on the other side", peer.Uid)
	}
	return nil
}

// keepOwnFiles keeps the files that this process was started with from those that
// it starts: a caller may wait for the end of one. A kernel before 5.11 does not
// know how to, and passes them on.
func keepOwnFiles() { _ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) }
