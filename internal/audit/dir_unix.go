//go:build unix

package audit

import (
	"fmt"
	"os"
	"syscall"
)

// CheckOwner refuses a directory that users other than this one and root can write to,
// because they could replace what is kept in it. setting is the key of the configuration that names another
// directory. The error's text continues the directory's name.
func CheckOwner(root *os.Root, setting string) error {
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if info.Mode()&0o022 != 0 {
		return fmt.Errorf("can be written by others (mode %04o): take that away with `chmod go-w`, or set %s to a directory of your own", info.Mode().Perm(), setting)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("belongs to user %d, who could rewrite what is in it: set %s to a directory of your own", st.Uid, setting)
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
