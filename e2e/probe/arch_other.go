//go:build linux && !amd64

package main

import "golang.org/x/sys/unix"

// archCalls are calls that other machines have, and this one does not.
func archCalls() []attempt {
	absent := func() string { return "ENOSYS" }
	return []attempt{{"E17", "iopl", absent}, {"E17", "ioperm", absent}, {"E17", "modify_ldt", absent}}
}

// makeNode is mknod(2), the call of that name where there is one.
func makeNode(path string, mode uint32, device int) error {
	return unix.Mknodat(unix.AT_FDCWD, path, mode, device)
}
