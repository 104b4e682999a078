//go:build linux

package main

import (
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
		mounts, _ := proc.Mounts() // without them, those that the host has named are watched
		s.inMemory = writableTmpfs(mounts)
	})
	all := slices.Concat(paths, s.inMemory)
	all = slices.DeleteFunc(all, func(p string) bool { return len(p) > maxWatched })
	slices.Sort(all)
	return slices.Compact(all)
}

// writableTmpfs lists the mounts that are in memory and writable. Those of the kernel's own
// directories hide files and hold none.
func writableTmpfs(mounts []proc.Mount) []string {
	var out []string
	for _, m := range mounts {
		kernels := strings.HasPrefix(m.Target, "/proc/") || strings.HasPrefix(m.Target, "/sys/")
		if m.Type == "tmpfs" && !kernels && slices.Contains(m.Options, "rw") && slices.Contains(m.Super, "rw") {
			out = append(out, m.Target)
		}
	}
	return out
}
