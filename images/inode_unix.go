//go:build unix

package images

import (
	"io/fs"
	"syscall"
)

// inode identifies hard links. The zero value means that a file has none.
type inode struct{ dev, ino uint64 }

func inodeOf(info fs.FileInfo) inode {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink < 2 {
		return inode{}
	}
	return inode{dev: uint64(st.Dev), ino: st.Ino} //nolint:unconvert // its type differs by system
}
