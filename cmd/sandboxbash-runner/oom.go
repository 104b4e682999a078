//go:build linux

package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
)

// oomClaims is a file that counts the kernel's OOM kills in this container that were claimed
// for a command, and those before them.
var oomClaims = filepath.Join(stateDir, "oom")

// oomLag is the longest time between an OOM kill and the end of the command that it has
// ended. The kernel may take that long to free the memory.
const oomLag = 2 * time.Second

// oomCounter reads how often the kernel has killed in this container's memory
// cgroup.
type oomCounter struct {
	f       *os.File
	claimed *os.File // the file oomClaims; shared by all runners, locked for a claim
}

// openOOMCounter opens the counter of cgroup v2, else of v1. Without a counter no end is
// reported as an OOM kill.
func openOOMCounter() (*oomCounter, error) {
	claimed, err := os.OpenFile(oomClaims, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	for _, path := range []string{
		"/sys/fs/cgroup/memory.events",
		"/sys/fs/cgroup/memory/memory.oom_control",
	} {
		if f, err := os.Open(path); err == nil {
			return &oomCounter{f: f, claimed: claimed}, nil
		}
	}
	return &oomCounter{claimed: claimed}, nil
}

func (o *oomCounter) read() int64 {
	if o.f == nil {
		return 0
	}
	var b [256]byte
	n, _ := o.f.ReadAt(b[:], 0)
	return parseOOMKills(b[:n])
}

// parseOOMKills reads the number after "oom_kill " at the start of a line.
func parseOOMKills(b []byte) int64 { return parseEvent(b, "oom_kill ") }

// parseEvent reads the number after key at the start of a line, and returns 0 if there is none.
func parseEvent(b []byte, key string) int64 {
	for line := range proc.Lines(b) {
		if len(line) > len(key) && string(line[:len(key)]) == key {
			n, _ := strconv.ParseInt(string(line[len(key):]), 10, 64)
			return n
		}
	}
	return 0
}

// oomWatch determines whether a command that was ended by SIGKILL was killed by the kernel
// at the memory limit. It was if there was an OOM kill shortly before the end which no other
// command has claimed.
type oomWatch struct {
	counter *oomCounter
	first   int64 // the count at the start

	mu     sync.Mutex
	before int64     // guarded by mu; the count oomLag ago, or at the start
	latest int64     // guarded by mu; the count at the last sample
	looked time.Time // guarded by mu
}

// watch begins to watch, just before a command's start.
func (o *oomCounter) watch() *oomWatch {
	n := o.read()
	return &oomWatch{counter: o, first: n, before: n, latest: n, looked: time.Now()}
}

// killed reports whether the kernel has killed at the memory limit since the start, whatever process of the
// session.
func (w *oomWatch) killed() bool { return w.counter.read() > w.first }

// sample is called now and then.
func (w *oomWatch) sample() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.looked) >= oomLag {
		w.before, w.latest, w.looked = w.latest, w.counter.read(), time.Now()
	}
}

// claim claims an OOM kill for this command, and reports whether there was one.
func (w *oomWatch) claim() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.counter.claimed
	if unix.Flock(int(f.Fd()), unix.LOCK_EX) == nil {
		defer func() { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }()
	}
	var b [8]byte
	_, _ = f.ReadAt(b[:], 0) // an empty file is 0
	taken := max(w.before, int64(binary.LittleEndian.Uint64(b[:])))
	if w.counter.read() <= taken {
		return false
	}
	binary.LittleEndian.PutUint64(b[:], uint64(taken+1))
	_, _ = f.WriteAt(b[:], 0)
	return true
}
