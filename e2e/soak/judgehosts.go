package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/processes"
)

// judgeHosts looks at what the killed have left.
func judgeHosts(ctx context.Context, l *lab, s *section, killed []dead, shared []*session, neighbour *session, before []string) error {
	late, orphans := waitOrphans(killed)
	for _, p := range orphans {
		s.fail("lives on after the lease: %s", p)
	}
	ran := map[string]int{}
	for _, one := range shared {
		text, _ := os.ReadFile(filepath.Join(one.dir, "ran"))
		for line := range strings.FieldsSeq(string(text)) {
			ran[line]++
		}
	}
	twice := 0
	for mark, n := range ran {
		if n > 1 {
			twice++
			s.fail("%s has run %d times", mark, n)
		}
	}
	arts, err := judgeArtifacts(ctx, l, s)
	if err != nil {
		return err
	}
	jobs, err := judgeJobs(ctx, l, s, killed, shared, ran)
	if err != nil {
		return err
	}
	reaped, left, err := reap(ctx, l, before)
	if err != nil {
		return err
	}
	for _, t := range left {
		s.fail("reap leaves: %s", t)
	}
	r, err := l.exec(ctx, neighbour.id, "cat /tmp/kept")
	if len(marked("of-the-neighbour")) != 1 || r.Stdout != "kept\n" {
		s.fail("the neighbour has suffered: %q, %v, %v", r.Stdout, marked("of-the-neighbour"), err)
	}
	for _, one := range shared {
		if r, err := l.exec(ctx, one.id, "echo works"); err != nil || r.Stdout != "works\n" {
			s.fail("session %s after all that: %q, %v", one.id, r.Stdout, err)
		}
	}
	s.count("host processes killed", len(killed), l.sizes.hosts)
	s.count("commands that live on after the lease", len(orphans), 0)
	s.tell("until the last command was gone, after the last kill", "%.1f s (the lease: %s)", late.Seconds(), runLease)
	s.count("commands that ran twice", twice, 0)
	s.tell("artifacts: whole, and marked as incomplete", "%d, %d", arts.whole, arts.marked)
	s.count("artifacts with anything else", arts.wrong, 0)
	s.tell("jobs: finished, and never begun", "%d, %d", jobs.finished, jobs.never)
	s.count("jobs with another outcome than the true one", jobs.wrong, 0)
	s.tell("sessions that had to be reaped", "%d", reaped)
	s.count("things left after a reap", len(left), 0)
	t := table{head: []string{"killed while it", "hosts", "their command had begun", "they had ended just before"}}
	for _, life := range lives {
		n, begun, after := 0, 0, 0
		for _, d := range killed {
			if d.life != life.name {
				continue
			}
			n++
			begun += ran[d.mark]
			if d.after {
				after++
			}
		}
		t.rows = append(t.rows, []string{life.name, fmt.Sprint(n), fmt.Sprint(begun), fmt.Sprint(after)})
	}
	s.tables = append(s.tables, t)
	return s.err()
}

// waitOrphans waits until no command of killed hosts lives, and says how long it
// took and which do.
func waitOrphans(killed []dead) (time.Duration, []processes.Process) {
	start := time.Now()
	for {
		var left []processes.Process
		for _, p := range processes.All() {
			ours := bytes.Contains(p.Environ, []byte(hostMark+"="))
			if !ours && slices.ContainsFunc(killed, func(d dead) bool { return p.Has(d.mark) }) {
				left = append(left, p)
			}
		}
		if len(left) == 0 || time.Since(start) > runLease+afterLease {
			return time.Since(start), left
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// everything is all that a streaming host's command prints.
var everything = sync.OnceValue(func() string {
	var whole strings.Builder
	for i := range streamed {
		fmt.Fprintln(&whole, i+1)
	}
	return whole.String()
})

type artifactCounts struct{ whole, marked, wrong int }

// judgeArtifacts reads all that the streaming hosts have left.
func judgeArtifacts(ctx context.Context, l *lab, s *section) (c artifactCounts, err error) {
	text, err := l.cli(ctx, "artifact", "ls", "--json")
	if err != nil {
		return c, err
	}
	var all []struct{ Session, ID, State, Cause string }
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return c, err
	}
	whole := everything()
	for _, a := range all {
		got, err := output(l.command(ctx, "artifact", "cat", "--session", a.Session, a.ID))
		isWhole, isBegin := got == strings.TrimSpace(whole), strings.HasPrefix(whole, got)
		switch {
		case err == nil && a.State == "complete" && isWhole:
			c.whole++
		case err == nil && a.State != "complete" && isBegin:
			c.marked++
		default:
			c.wrong++
			s.fail("artifact %s of %s is %s (%s), and has %d bytes that are not all (%t) or the start (%t) of what was written: %v",
				a.ID, a.Session, a.State, a.Cause, len(got), isWhole, isBegin, err)
		}
	}
	return c, nil
}

type jobCounts struct{ finished, never, wrong int }

// job is one as `job ls --json` shows it.
type job struct {
	ID, State, Reason, Label, Output string
	ExitCode                         *int
	Error                            struct{ Outcome, Cause string } // in place of the rest
}

func listJobs(ctx context.Context, l *lab, session string) ([]job, error) {
	text, err := l.cli(ctx, "job", "ls", "--session", session, "--json")
	if err != nil {
		return nil, err
	}
	var all []job
	return all, json.Unmarshal([]byte(text), &all)
}

// judgeJobs holds each job's outcome against what it has done.
func judgeJobs(ctx context.Context, l *lab, s *section, killed []dead, shared []*session, ran map[string]int) (c jobCounts, err error) {
	var all []job
	for _, one := range shared {
		list, err := listJobs(ctx, l, one.id)
		if err != nil {
			return c, err
		}
		for _, j := range list {
			text, err := l.cli(ctx, "job", "wait", "--session", one.id, "--json", j.ID)
			if text == "" {
				return c, err
			}
			if err := json.Unmarshal([]byte(text), &j); err != nil {
				return c, err
			}
			if j.Error.Outcome != "" {
				return c, fmt.Errorf("job wait: %s", text)
			}
			all = append(all, j)
		}
	}
	for _, d := range killed {
		if d.life != "starts a job" && d.life != "has a job started" {
			continue
		}
		var mine []job
		for _, j := range all {
			if strings.Contains(j.Output, "out of "+d.mark+"\n") || strings.Contains(j.Label, d.mark) {
				mine = append(mine, j)
			}
		}
		switch {
		case len(mine) == 0 && ran[d.mark] == 0 && !d.after:
			c.never++
		case len(mine) == 1 && ran[d.mark] == 1 && mine[0].Reason == "exited" && mine[0].ExitCode != nil && *mine[0].ExitCode == 3 &&
			mine[0].Output == "out of "+d.mark+"\n":
			c.finished++
		default:
			c.wrong++
			s.fail("job %s has run %d times, was reported: %t, and there are %+v", d.mark, ran[d.mark], d.after, mine)
		}
	}
	return c, nil
}

// reap reaps until nothing is left that was not there before, or it has been too
// long. It returns how many sessions that took, and what is left.
func reap(ctx context.Context, l *lab, before []string) (reaped int, left []string, err error) {
	for until := time.Now().Add(runLease + afterLease); ; time.Sleep(time.Second) {
		ids, err := l.cli(ctx, "session", "reap")
		if err != nil {
			return reaped, nil, err
		}
		reaped += len(strings.Fields(ids))
		now, err := l.things(ctx)
		if err != nil {
			return reaped, nil, err
		}
		left = slices.DeleteFunc(now, func(t string) bool { return slices.Contains(before, t) })
		if len(left) == 0 || time.Now().After(until) {
			return reaped, left, nil
		}
	}
}
