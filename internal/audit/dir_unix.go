//go:build unix

package audit

import (
	"fmt"
	"os"
	"syscall"
)

// checkOwner refuses a directory that users other than this one and root can write to,
// because they could replace the log. The error's text continues the directory's name.
func checkOwner(root *os.Root) error {
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if info.Mode()&0o022 != 0 {
		return fmt.Errorf("can be written by others (mode %04o): take that away with `chmod go-w`, or set audit.dir to a directory of your own", info.Mode().Perm())
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("belongs to user %d, who could rewrite the log: set audit.dir to a directory of your own", st.Uid)
	}
	return nil
}

// syncDir syncs the names in a directory to the disk.
func syncDir(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
