//go:build unix

package holder

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"syscall"
)

// Keeps tells whether a process can be left behind here, to keep one.
const Keeps = true

// detached is a command that goes on without this process: in a session of its own
// no terminal's hang-up or key reaches it.
func detached(ctx context.Context, path string, args ...string) *osexec.Cmd {
	keepOwnFiles()
	cmd := osexec.CommandContext(context.WithoutCancel(ctx), path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// OwnOnly refuses a directory that others own, or can reach.
func OwnOnly(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	case !ok || int(owner.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to another user", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others can reach %s (mode %04o)", dir, info.Mode().Perm())
	}
	return nil
}

// ownedByUs tells whether a directory is this user's.
func ownedByUs(dir string) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int(owner.Uid) == os.Getuid()
}
