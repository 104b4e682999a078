// Package activity counts what processes do while nothing is asked of them: how
// often they wake, how much processor time they use, and how many processes and
// threads begin in a container. It reads /proc of the machine that they run on, as
// root.
package activity

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Used is what processes have done in some time.
type Used struct {
	Time time.Duration // that it was
	// Wakes is how often a process was found to have run, of all looks at all
	// processes. A look comes every tenth of a second: what a process does within
	// one is one awakening, of however many threads.
	Wakes int64
	// Switches is how often their threads went to sleep by themselves. The Go
	// runtime's own thread does so up to fifty times when it is woken once.
	Switches int64
	CPU      time.Duration
	Made     int64 // processes and threads that began in the container
}

// lookEvery is between two looks.
const lookEvery = 100 * time.Millisecond

// Watch counts for so long what processes of this machine and all those of a
// container do, of which init is the first: its id on this machine.
func Watch(ctx context.Context, d time.Duration, init int, pids ...int) (Used, error) {
	var u Used
	last, err := lastID(ctx, init)
	if err != nil {
		return u, err
	}
	first, err := look(init, pids)
	if err != nil {
		return u, err
	}
	began, before := time.Now(), first
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for u.Time < d {
		select {
		case <-ctx.Done():
			return u, context.Cause(ctx)
		case <-ticker.C:
		}
		now, err := look(init, pids)
		if err != nil {
			return u, err
		}
		for pid, c := range now {
			if c.switches != before[pid].switches {
				u.Wakes++
			}
			u.Switches += max(0, c.switches-before[pid].switches)
			u.CPU += max(0, c.cpu-before[pid].cpu)
		}
		before, u.Time = now, time.Since(began)
	}
	id, err := lastID(ctx, init)
	u.Made = id - last - 1 // the look itself
	return u, err
}

// count is what a process has done so far.
type count struct {
	switches int64
	cpu      time.Duration
}

// look counts each of the processes that are meant.
func look(init int, pids []int) (map[int]count, error) {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", init))
	if err != nil {
		return nil, err
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		return nil, err
	}
	for _, link := range all {
		if of, err := os.Readlink(link); err != nil || of != space {
			continue // it may have ended
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil {
			return nil, err
		}
		pids = append(slices.Clip(pids), pid)
	}
	counts := map[int]count{}
	for _, pid := range pids {
		counts[pid] = process(pid)
	}
	return counts, nil
}

// process counts what one process has done, nothing if it has ended.
func process(pid int) (c count) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		if text, err := os.ReadFile(task + "/status"); err == nil {
			c.switches += field(string(text), "voluntary_ctxt_switches:")
		}
		text, err := os.ReadFile(task + "/schedstat") // nanoseconds on a processor come first
		if f := strings.Fields(string(text)); err == nil && len(f) > 0 {
			ns, _ := strconv.ParseInt(f[0], 10, 64)
			c.cpu += time.Duration(ns)
		}
	}
	return c
}

func field(text, name string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}

// lastID is the last process id that a container's kernel has given out: that of a
// process that this call makes there.
func lastID(ctx context.Context, init int) (int64, error) {
	// Only the namespace of processes is entered: the shell is this machine's.
	cmd := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(init), "--pid", "sh", "-c", "echo $$")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("nsenter: %w: %s", err, stderr.String())
	}
	return strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
}
