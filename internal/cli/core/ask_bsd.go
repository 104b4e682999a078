//go:build unix && !linux

package core

import "golang.org/x/sys/unix"

// singleKeys has a terminal give each key at once, without showing it, and drops what was typed before.
func singleKeys(fd int) error { return setKeys(fd, unix.TIOCGETA, unix.TIOCSETAF) }
