package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// owner is a process of some host.
type owner struct {
	host string
	pid  int
	// started distinguishes the process from others with the same pid, before or after it.
	// It does not change while the process lives, even if the host's clock is set.
	started string
}

// self is this process.
var self = sync.OnceValue(func() owner {
	o := owner{host: hostID(), pid: os.Getpid()}
	o.started, _ = startTime(o.pid) // "" if it is not known; see gone
	return o
})

// hostID identifies this host across reboots. Containers have the id of their host but their
// own pids, so a process is identified only together with its start time.
func hostID() string {
	name, _ := os.Hostname()
	id := machineID()
	if id == "" {
		return name
	}
	sum := sha256.Sum256([]byte(runtime.GOOS + id + name))
	return hex.EncodeToString(sum[:8])
}

func (o owner) String() string {
	return o.host + "/" + strconv.Itoa(o.pid) + "/" + o.started
}

func parseOwner(text string) (owner, bool) {
	f := strings.Split(text, "/")
	if len(f) != 3 || strings.Trim(f[2], "0123456789abcdef.") != "" {
		return owner{}, false
	}
	pid, err := strconv.Atoi(f[1])
	return owner{host: f[0], pid: pid, started: f[2]}, err == nil
}

// gone reports whether the process is known to have ended. It returns false for a process
// of another host, and if the start time is not known.
func (o owner) gone() bool {
	if o.host != self().host {
		return false
	}
	now, ok := startTime(o.pid)
	return ok && (now == "" || o.started != "" && now != o.started)
}
