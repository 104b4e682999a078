package holder

import (
	"context"
	"errors"
	"net"
	osexec "os/exec"
)

// Keeps tells whether a process can be left behind here, to keep one.
const Keeps = false

var errNotHere = errors.New("not on Windows")

func detached(ctx context.Context, path string, args ...string) *osexec.Cmd {
	return osexec.CommandContext(context.WithoutCancel(ctx), path, args...)
}

func OwnOnly(string) error { return errNotHere }

func ownedByUs(string) bool { return false }

func CheckPeer(*net.UnixConn) error { return errNotHere }
