//go:build linux

package main

import (
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// mounting are the ways to change what is mounted.
func mounting() []attempt {
	cwd := uintptr(unix.AT_FDCWD & (1<<64 - 1))
	return []attempt{
		{"E2", "mount-tmpfs", mount("tmpfs", "tmpfs", 0, "size=4k")},
		{"E2", "mount-proc", mount("proc", "proc", 0, "")},
		{"E2", "mount-sysfs", mount("sysfs", "sysfs", 0, "")},
		{"E2", "mount-cgroup", mount("cgroup2", "cgroup2", 0, "")},
		{"E2", "mount-overlay", mount("overlay", "overlay", 0, "lowerdir=/etc:/usr")},
		{"E2", "mount-bind", mount("/etc", "", unix.MS_BIND, "")},
		{"E2", "remount-root", call(unix.SYS_MOUNT, 0, text("/"), 0, unix.MS_REMOUNT|unix.MS_BIND|rootFlags(), 0)},
		{"E2", "umount-masked", call(unix.SYS_UMOUNT2, text("/proc/kcore"), unix.MNT_DETACH)},
		{"E2", "umount-readonly", call(unix.SYS_UMOUNT2, text("/proc/sys"), unix.MNT_DETACH)},
		{"E2", "fsopen", open(unix.SYS_FSOPEN, text("tmpfs"), 0)},
		{"E2", "fsconfig", call(unix.SYS_FSCONFIG, nowhere, 0, 0, 0, 0)},
		{"E2", "fsmount", open(unix.SYS_FSMOUNT, nowhere, 0, 0)},
		{"E2", "fspick", open(unix.SYS_FSPICK, cwd, text("/"), 0)},
		{"E2", "open_tree", open(unix.SYS_OPEN_TREE, cwd, text("/"), 0)},
		{"E2", "move_mount", call(unix.SYS_MOVE_MOUNT, nowhere, text(""), nowhere, text(""), 0)},
		{"E2", "mount_setattr", call(unix.SYS_MOUNT_SETATTR, nowhere, text(""), 0, room(32), 32)},
		{"E2", "pivot_root", call(unix.SYS_PIVOT_ROOT, text("/nonexistent/probe"), text("/nonexistent/probe"))},
		{"E2", "chroot", call(unix.SYS_CHROOT, text("/"))},
	}
}

// mount mounts on a directory of its own and takes that away again.
func mount(source, kind string, flags uintptr, options string) func() string {
	return func() string {
		dir, err := os.MkdirTemp("/tmp", "probe")
		if err != nil {
			return outcome(err)
		}
		defer os.Remove(dir)
		err = unix.Mount(source, dir, kind, flags, options)
		if err == nil {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
		return outcome(err)
	}
}

// rootFlags are the flags of the root mount, so that a remount changes nothing.
func rootFlags() uintptr {
	var s unix.Statfs_t
	if err := unix.Statfs("/", &s); err != nil {
		return 0
	}
	const same = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC // ST_ has the same values
	return uintptr(s.Flags) & same
}

// spaces are the ways into other namespaces.
func spaces() []attempt {
	out := []attempt{
		{"E3", "clone3", call(unix.SYS_CLONE3, 0, 0)},
		{"E3", "setns-own", func() string {
			return onThread(func() string {
				fd, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					return outcome(err)
				}
				defer unix.Close(fd)
				return outcome(unix.Setns(fd, unix.CLONE_NEWNET))
			})
		}},
	}
	for _, s := range []struct {
		name string
		flag uintptr
	}{
		{"user", unix.CLONE_NEWUSER},
		{"mount", unix.CLONE_NEWNS},
		{"net", unix.CLONE_NEWNET},
		{"pid", unix.CLONE_NEWPID},
		{"ipc", unix.CLONE_NEWIPC},
		{"uts", unix.CLONE_NEWUTS},
		{"cgroup", unix.CLONE_NEWCGROUP},
	} {
		out = append(out,
			attempt{"E3", "clone-" + s.name, starting(&syscall.SysProcAttr{Cloneflags: s.flag})},
			attempt{"E3", "unshare-" + s.name, starting(&syscall.SysProcAttr{Unshareflags: s.flag})})
	}
	// unshare alone has this one: in clone(2) the bit is part of a signal.
	return append(out, attempt{"E3", "unshare-time", func() string {
		return onThread(call(unix.SYS_UNSHARE, unix.CLONE_NEWTIME))
	}})
}

// devices are device nodes: making them, and the ones that are there.
func devices() []attempt {
	node := func(number int, mode uint32, device int) func() string {
		return func() string {
			dir, err := os.MkdirTemp("/tmp", "probe")
			if err != nil {
				return outcome(err)
			}
			defer os.RemoveAll(dir)
			path := filepath.Join(dir, "node")
			if number == unix.SYS_MKNODAT {
				return outcome(unix.Mknodat(unix.AT_FDCWD, path, mode|0o600, device))
			}
			return outcome(makeNode(path, mode|0o600, device))
		}
	}
	disk, memory := int(unix.Mkdev(8, 0)), int(unix.Mkdev(1, 1))
	return []attempt{
		{"E13", "mknod-block", node(0, unix.S_IFBLK, disk)},
		{"E13", "mknod-char", node(0, unix.S_IFCHR, memory)},
		{"E13", "mknod-whiteout", node(0, unix.S_IFCHR, 0)},
		{"E13", "mknodat-block", node(unix.SYS_MKNODAT, unix.S_IFBLK, disk)},
		{"E13", "mknodat-char", node(unix.SYS_MKNODAT, unix.S_IFCHR, memory)},
		{"E13", "mknod-fifo", node(0, unix.S_IFIFO, 0)},
		{"E13", "mknodat-file", node(unix.SYS_MKNODAT, unix.S_IFREG, 0)},
		{"E13", "device-nodes", deviceNodes},
		{"E13", "open-kmsg", opening(unix.O_RDONLY, "/dev/kmsg")},
		{"E8", "open-userfaultfd", opening(unix.O_RDONLY, "/dev/userfaultfd")},
	}
}

// deviceNodes lists the device nodes of the image and of /dev beyond those that
// every container has.
func deviceNodes() string {
	ordinary := map[string]bool{
		"/dev/null": true, "/dev/zero": true, "/dev/full": true, "/dev/random": true,
		"/dev/urandom": true, "/dev/tty": true, "/dev/console": true, "/dev/pts/ptmx": true, "/dev/ptmx": true,
	}
	var found []string
	walk(func(path string, mode os.FileMode) {
		if mode&os.ModeDevice == 0 || ordinary[path] || filepath.Dir(path) == "/dev/pts" {
			return
		}
		found = append(found, path)
	})
	return list(found)
}

// walk visits every file of this mount namespace but those of proc and sysfs.
func walk(visit func(path string, mode os.FileMode)) {
	_ = filepath.WalkDir("/", func(path string, entry os.DirEntry, err error) error {
		switch {
		case path == "/proc" || path == "/sys":
			return filepath.SkipDir
		case err != nil:
			return filepath.SkipDir // a directory that cannot be read: its files cannot be used either
		}
		mode := entry.Type()
		if mode.IsRegular() { // entries have no setuid bit
			if info, err := entry.Info(); err == nil {
				mode = info.Mode()
			}
		}
		visit(path, mode)
		return nil
	})
}
