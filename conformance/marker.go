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

// marker is a number of seconds for sleep: a little more than ten minutes, and like no other. A process
// carries it if one of its arguments is exactly that, so that neither a tool whose arguments hold a
// whole script nor the shell that runs one counts.
type marker string

func newMarker() marker { return marker(fmt.Sprintf("601.%09d", rand.IntN(1e9))) }

// processes are those of this host that carry it, those in containers too: pid and argv.
func (m marker) processes() map[int]string {
	found := make(map[int]string)
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good; none on systems without /proc
	for _, dir := range dirs {
		argv, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue // it has gone
		}
		if args := bytes.Split(argv, []byte{0}); slices.ContainsFunc(args, func(a []byte) bool { return string(a) == string(m) }) {
			pid, _ := strconv.Atoi(filepath.Base(dir)) // the pattern has digits only
			found[pid] = strings.TrimSpace(string(bytes.ReplaceAll(argv, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// watch looks for such processes until it is stopped, and tells whether there ever was one: a tool that says
// that they are gone must have been able to see them.
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

// gone waits until there is none, and returns those that are left.
func (m marker) gone(within time.Duration) map[int]string {
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		left := m.processes()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// end kills those that are left.
func (m marker) end() {
	for pid := range m.processes() {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}
