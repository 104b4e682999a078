//go:build unix

package config

import (
	"io/fs"
	"os"
	"syscall"
)

// ownFile reports whether a file belongs to this process's user.
func ownFile(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
