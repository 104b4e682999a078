//go:build unix

package sandbox

import (
	"fmt"
	"os"
	"syscall"
)

// directoryOwner returns who owns a directory of this host.
func directoryOwner(dir string) (*User, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, nil
	}
	return &User{UID: st.Uid, GID: st.Gid}, nil
}
