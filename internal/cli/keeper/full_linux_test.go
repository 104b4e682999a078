package keeper

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// mountTiny mounts a file system at dir that has no room for a file.
func mountTiny(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a full file system")
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "nr_inodes=2,mode=700"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}
