//go:build !unix

package config

import "io/fs"

// ownFile reports whether a file belongs to this process's user: there its permissions say who may write.
func ownFile(fs.FileInfo) bool { return true }
