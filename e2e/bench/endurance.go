package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// memory reads a field of proc_pid_status(5) that is in kB. It returns bytes.
func memory(pid int, field string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := statusNumber(text, field)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n << 10, nil
}

func statusNumber(text []byte, field string) (int64, error) {
	for line := range bytes.Lines(text) {
		if name, value, ok := strings.Cut(string(line), ":"); ok && name == field {
			return strconv.ParseInt(strings.Fields(value)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("no field %s", field)
}

// footprint is what a session uses at one moment.
type footprint struct {
	execs  int   // that the engine remembers of the container
	shim   int64 // bytes; the engine's process that holds the container
	ours   int64 // bytes; this process, after a collection
	init   int64 // bytes; PID 1
	runner int64 // bytes; the largest of the runners
}

// footprint reads the processes from outside, so the engine must run on this machine.
func (l *lab) footprint(ctx context.Context, s *sandbox.Session) (f footprint, err error) {
	state, err := l.api.ContainerInspect(ctx, s.Info().Container)
	if err != nil {
		return f, err
	}
	f.execs = len(state.ExecIDs)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", state.State.Pid))
	if err != nil {
		return f, fmt.Errorf("PID 1 of the session, as seen from here (does the engine run on this machine?): %w", err)
	}
	shim, err := statusNumber(text, "PPid")
	if err != nil {
		return f, err
	}
	if f.shim, err = memory(int(shim), "VmRSS"); err != nil {
		return f, err
	}
	if f.init, err = memory(state.State.Pid, "VmRSS"); err != nil {
		return f, err
	}
	debug.FreeOSMemory()
	if f.ours, err = memory(os.Getpid(), "VmRSS"); err != nil {
		return f, err
	}
	f.runner, err = l.runnerMemory(ctx, s)
	return f, err
}

// runnerMemory returns the resident memory of the largest runner.
func (l *lab) runnerMemory(ctx context.Context, s *sandbox.Session) (int64, error) {
	top, err := l.api.ContainerTop(ctx, s.Info().Container, []string{"-eo", "pid,args"})
	if err != nil {
		return 0, err
	}
	var largest int64
	for _, process := range top.Processes {
		if !strings.HasSuffix(process[1], "/runner serve") {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(process[0]))
		if err != nil {
			return 0, err
		}
		n, err := memory(pid, "VmRSS")
		if err != nil {
			return 0, err
		}
		largest = max(largest, n)
	}
	if largest == 0 {
		return 0, fmt.Errorf("no runner among %d processes of the session", len(top.Processes))
	}
	return largest, nil
}

// endurance runs many commands in one session, and a local bash next to every tenth of them,
// which shows whether the session or the machine became slower.
func endurance(ctx context.Context, l *lab) (rows []row, err error) {
	err = l.with(ctx, sandbox.Options{}, func(s *sandbox.Session) error {
		if _, err := interleave(ctx, l.sizes.edge, contender{name: "ours", take: timed(greeting(s))}); err != nil {
			return err
		}
		before, err := l.footprint(ctx, s)
		if err != nil {
			return err
		}
		got, err := interleave(ctx, l.sizes.endurance,
			contender{name: "ours", take: timed(greeting(s))},
			contender{name: "local", take: timed(local), every: 10},
		)
		if err != nil {
			return err
		}
		after, err := l.footprint(ctx, s)
		rows = l.enduranceRows(got, before, after)
		return err
	})
	return rows, err
}

func (l *lab) enduranceRows(got map[string]samples, before, after footprint) []row {
	n := l.sizes.edge
	ends := func(s samples, n int) (first, last time.Duration) {
		return s[:n].median(), s[len(s)-n:].median()
	}
	first, last := ends(got["ours"], n)
	localFirst, localLast := ends(got["local"], n/10)
	drift := slower(fmt.Sprintf("last %d of %d commands, p50", n, l.sizes.endurance), last, first,
		fmt.Sprintf("first %d", n), goal{sense: atMost, limit: 1.5})
	return []row{
		drift,
		slower("the same of local bash meanwhile", localLast, localFirst, "first", goal{}),
		{
			"exec ids that the engine remembers", strconv.Itoa(after.execs), fmt.Sprintf("before %d", before.execs),
			float64(after.execs - before.execs),
			goal{atMost, 0, "no growth"},
			"",
		},
		grown("memory of the container's shim", before.shim, after.shim),
		grown("our memory", before.ours, after.ours),
		grown("memory of PID 1", before.init, after.init),
		grown("memory of the runner", before.runner, after.runner),
		bounded("idle runner", mebibytes(slices.Max([]int64{before.runner, after.runner})),
			float64(max(before.runner, after.runner)), 6<<20, "< 6 MiB"),
	}
}

// slack is the ratio by which a process's resident memory may differ between two readings
// without counting as growth. Garbage collectors and page caches cause such differences.
const slack = 1.25

func grown(figure string, before, after int64) row {
	return row{
		figure, mebibytes(after), "before " + mebibytes(before), float64(after) / float64(before),
		goal{atMost, slack, fmt.Sprintf("no growth (≤ %g)", slack)},
		"",
	}
}
