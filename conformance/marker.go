package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// marker is a unique number of seconds for sleep, a little more than ten minutes. A process carries the
// marker if one of its arguments is equal to it. So neither a tool whose arguments hold a whole script nor
// the shell that runs it counts.
type marker string

func newMarker() marker { return marker(fmt.Sprintf("601.%09d", rand.IntN(1e9))) }

// processes returns the processes of this host that carry the marker, including those in containers, as
// pid and argv.
func (m marker) processes() map[int]string {
	found := make(map[int]string)
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good; none on systems without /proc
	for _, dir := range dirs {
		argv, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue // it has ended
		}
		if args := bytes.Split(argv, []byte{0}); slices.ContainsFunc(args, func(a []byte) bool { return string(a) == string(m) }) {
			pid, _ := strconv.Atoi(filepath.Base(dir)) // the pattern has digits only
			found[pid] = strings.TrimSpace(string(bytes.ReplaceAll(argv, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// watch looks for such processes until it is stopped, and reports whether it ever found one. That they are
// gone proves something only if they could be seen before.
func (m marker) watch() (stop func() (seen bool)) {
	var wait sync.WaitGroup
	end := make(chan struct{})
	seen := false
	wait.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for !seen {
			select {
			case <-end:
				return
			case <-tick.C:
				seen = len(m.processes()) > 0
			}
		}
	})
	return sync.OnceValue(func() bool {
		close(end)
		wait.Wait()
		return seen
	})
}

// gone waits until no such process is left. It returns those that are left when the time is over.
func (m marker) gone(within time.Duration) map[int]string {
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		left := m.processes()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// end kills the processes that are left.
func (m marker) end() {
	for pid := range m.processes() {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}
