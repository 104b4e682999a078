//go:build linux

package main

import (
	"os"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// eventCounter reads one number of a file of cgroup events. The zero value reads 0.
type eventCounter struct {
	f   *os.File
	key string // with the space behind it
}

// openRefusals opens the counter of processes that were refused at the pids limit, of cgroup v2, else of v1.
// Without one, no command is said to have met that limit.
func openRefusals() eventCounter {
	for _, path := range []string{"/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"} {
		if f, err := os.Open(path); err == nil {
			return eventCounter{f: f, key: "max "}
		}
	}
	return eventCounter{}
}

func (e eventCounter) read() int64 {
	if e.f == nil {
		return 0
	}
	var b [256]byte
	n, _ := e.f.ReadAt(b[:], 0)
	return parseEvent(b[:n], e.key)
}

// metLimits returns the limits of the session that were met while a command ran that failed: by the command, or by
// what else ran there. An end by the memory limit itself is in exit already.
func (c *command) metLimits(exit wire.Exit) []wire.NoRoom {
	if len(c.req.Watch) == 0 || exit.Code == 0 && exit.Signal == 0 {
		return nil
	}
	var met []wire.NoRoom
	if c.server.refusals.read() > c.refusals {
		met = append(met, wire.NoRoom{Path: wire.RoomPids})
	}
	if !exit.OOM && c.ooms.killed() {
		met = append(met, wire.NoRoom{Path: wire.RoomMemory})
	}
	return met
}
