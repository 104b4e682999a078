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
	// started distinguishes it from others that have had its pid. It is the same as long as
	// the process lives, whatever is done to the host's clock.
	started string
}

// self is this process.
var self = sync.OnceValue(func() owner {
	o := owner{host: hostID(), pid: os.Getpid()}
	o.started, _ = startTime(o.pid) // "" if it is not known: see gone
	return o
})

// hostID names this host across reboots; containers share it with their host, so
// it says which process table a pid belongs to only together with the start time.
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

// gone reports whether the process is known to have ended. Nothing is known of another
// host's processes, nor of one whose start time is not known.
func (o owner) gone() bool {
	if o.host != self().host {
		return false
	}
	now, ok := startTime(o.pid)
	return ok && (now == "" || o.started != "" && now != o.started)
}
