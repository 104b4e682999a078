//go:build linux

package main

import "golang.org/x/sys/unix"

// archCalls are calls that other machines do not have.
func archCalls() []attempt {
	return []attempt{
		{"E17", "iopl", call(unix.SYS_IOPL, 4)}, // there are four levels, 0 to 3
		{"E17", "ioperm", call(unix.SYS_IOPERM, 1<<20, 1, 0)},
		{"E17", "modify_ldt", call(unix.SYS_MODIFY_LDT, 99, 0, 0)},
	}
}

// makeNode is mknod(2), the call of that name where there is one.
func makeNode(path string, mode uint32, device int) error { return unix.Mknod(path, mode, device) }
