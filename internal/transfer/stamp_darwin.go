package transfer

import (
	"io/fs"
	"syscall"
)

// stampOf returns the stamp of a file, if this system has one that can be relied on.
func stampOf(info fs.FileInfo) (Stamp, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Stamp{}, false
	}
	return Stamp{Size: st.Size, Modified: st.Mtimespec.Nano(), Changed: st.Ctimespec.Nano(), Inode: st.Ino}, true
}
