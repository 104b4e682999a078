//go:build linux

package main

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// maxWatched is the longest path that is watched. It is bounded because the record of a job
// may hold several.
const maxWatched = 256 // bytes

// noRoom returns the file systems that were full when a failed command ended. It checks
// those that the host has named and those in memory. The command may have failed for
// another reason.
func (c *command) noRoom(exit wire.Exit) []wire.NoRoom {
	if len(c.req.Watch) == 0 || exit.Code == 0 && exit.Signal == 0 {
		return nil
	}
	var full []wire.NoRoom
	_ = as(c.req.UID, c.req.GID, func() error {
		for _, path := range c.server.watched(c.req.Watch) {
			if n, ok := statRoom(path); ok {
				full = append(full, n)
			}
		}
		return nil
	})
	return full
}

// statRoom reports whether a file system has no room for its users. One that
// counts no blocks, or no files, has no limit for them.
func statRoom(path string) (wire.NoRoom, bool) {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return wire.NoRoom{}, false
	}
	switch {
	case st.Blocks > 0 && st.Bavail == 0:
		return wire.NoRoom{Path: path, Size: st.Blocks * uint64(max(0, st.Bsize))}, true
	case st.Files > 0 && st.Ffree == 0:
		return wire.NoRoom{Path: path, Files: true, Size: st.Files}, true
	}
	return wire.NoRoom{}, false
}

// watched returns the host's paths and all writable file systems in memory. Mounts do not
// change while a container runs.
func (s *server) watched(paths []string) []string {
	s.tmpfs.Do(func() {
		if info, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
			s.inMemory = writableTmpfs(info)
		}
	})
	all := slices.Concat(paths, s.inMemory)
	all = slices.DeleteFunc(all, func(p string) bool { return len(p) > maxWatched })
	slices.Sort(all)
	return slices.Compact(all)
}

// writableTmpfs lists the mounts of proc_pid_mountinfo(5) that are in memory and
// writable. Those of the kernel's own directories hide files and hold none.
func writableTmpfs(info []byte) []string {
	var out []string
	for line := range proc.Lines(info) {
		before, after, _ := strings.Cut(string(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 6 || len(g) < 3 || g[0] != "tmpfs" || strings.HasPrefix(f[4], "/proc/") || strings.HasPrefix(f[4], "/sys/") {
			continue
		}
		if slices.Contains(strings.Split(f[5], ","), "rw") && slices.Contains(strings.Split(g[2], ","), "rw") {
			out = append(out, wire.UnescapeMount(f[4]))
		}
	}
	return out
}
