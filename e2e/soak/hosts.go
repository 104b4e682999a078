package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// hostWorkers is how many host processes live at a time.
const hostWorkers = 4

// Leases of what the killed hosts leave, and how much longer than these it may take
// until it is gone.
const (
	runLease   = 15 * time.Second // of `run`, as documented
	startIdle  = "5s"
	afterLease = 15 * time.Second
)

// streamed is what the streaming command prints in all.
const streamed = 120000 // lines, from 1 on

// life is what a host process was doing when it was killed.
type life struct {
	name string
	// args are its arguments; before, if not nil, is done first and is not killed.
	args   func(h *mortal) []string
	before func(ctx context.Context, h *mortal) error
}

// mortal is one host process and what it needs.
type mortal struct {
	l      *lab
	mark   string
	shared *session // where commands and jobs run
	own    string   // id of a session of its own
}

// script runs for about half a second, and says so in a file.
func (h *mortal) script(body string) string {
	return fmt.Sprintf("export M=%s; echo $M >>/ws/ran; %s", h.mark, body)
}

// idle is a session of a host's own that nobody misses.
func (h *mortal) idle() []string {
	return []string{"session", "start", "--quiet", "--idle", startIdle, "--workspace", "copy:" + filepath.Join(h.l.dir, "copied")}
}

var lives = []life{
	{name: "starts a session", args: (*mortal).idle},
	{name: "runs a command in a session of its own", args: func(h *mortal) []string {
		return []string{"run", "--quiet", "--workspace", "bind:" + h.shared.dir + ":at=/ws", h.script("setsid sleep 300 & sleep 0.6")}
	}},
	{name: "runs a command", args: func(h *mortal) []string {
		return []string{"session", "exec", h.shared.id, h.script("setsid sleep 300 & sleep 0.6; kill $!")}
	}},
	{name: "streams", args: func(h *mortal) []string {
		return []string{
			"session", "exec", "--artifacts", "always", h.shared.id,
			h.script(fmt.Sprintf("for i in 0 1 2 3; do seq $((i*%d+1)) $((i*%d+%d)); sleep 0.1; done", streamed/4, streamed/4, streamed/4)),
		}
	}},
	{name: "starts a job", args: func(h *mortal) []string {
		return []string{"session", "exec", "--background", h.shared.id, h.script("echo out of $M; sleep 0.5; exit 3")}
	}},
	{name: "stops a session", before: func(ctx context.Context, h *mortal) (err error) {
		h.own, err = h.l.cli(ctx, h.idle()...)
		return err
	}, args: func(h *mortal) []string { return []string{"session", "stop", h.own} }},
}

// hosts kills the processes that run commands, at random points of their lives.
func hosts(ctx context.Context, l *lab) (s section, err error) {
	l = l.at("home-of-hosts", "")
	s = section{title: "Host processes killed", text: "The process of ours that runs a command is killed with SIGKILL at a random point of its life " +
		"(the points are spread over half as much again as this has taken once) and can clear up nothing. Then its commands must end, by the lease at the latest; " +
		"artifacts must be whole or marked; every job must have run once and have its true outcome or never have begun; `session reap` must leave nothing; " +
		"and neighbours must not have noticed."}
	if err := os.Mkdir(filepath.Join(l.dir, "copied"), 0o755); err != nil {
		return s, err
	}
	if err := os.WriteFile(filepath.Join(l.dir, "copied", "file"), []byte("text\n"), 0o644); err != nil {
		return s, err
	}
	var sessions []*session // three that commands run in, and the neighbour
	defer func() { err = errors.Join(err, l.stop(context.WithoutCancel(ctx), sessions...)) }()
	for range 4 {
		one, err := l.startSession(ctx)
		sessions = append(sessions, one)
		if err != nil {
			return s, err
		}
	}
	shared, neighbour := sessions[:3], sessions[3]
	if r, err := l.exec(ctx, neighbour.id, "echo kept >/tmp/kept; (exec -a of-the-neighbour sleep 3000) >/dev/null 2>&1 &"); err != nil || r.Reason != "exited" {
		return s, fmt.Errorf("the neighbour: %v, %w", r, err)
	}
	before, err := l.things(ctx)
	if err != nil {
		return s, err
	}
	spans, err := undisturbed(ctx, l, shared[0])
	if err != nil {
		return s, err
	}
	killed, err := killHosts(ctx, l, shared, spans)
	if err != nil {
		return s, err
	}
	return s, judgeHosts(ctx, l, &s, killed, shared, neighbour, before)
}

// undisturbed measures how long each life takes among as many others as there will be
// when they are killed.
func undisturbed(ctx context.Context, l *lab, shared *session) ([]time.Duration, error) {
	spans := make([]time.Duration, len(lives))
	errs := make([]error, len(lives))
	next := make(chan int)
	var workers sync.WaitGroup
	for range hostWorkers {
		workers.Go(func() {
			for i := range next {
				spans[i], errs[i] = spanOf(ctx, l, shared, i)
			}
		})
	}
	for i := range lives {
		next <- i
	}
	close(next)
	workers.Wait()
	return spans, errors.Join(errs...)
}

// longer is by how much a life may take longer than it has once: points are spread
// over all of it and a little more.
const longer = 1.5

func spanOf(ctx context.Context, l *lab, shared *session, i int) (time.Duration, error) {
	h := &mortal{l: l, shared: shared, mark: fmt.Sprintf("undisturbed-%x-%d", l.seed, i)}
	if before := lives[i].before; before != nil {
		if err := before(ctx, h); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	if _, err := l.cli(ctx, lives[i].args(h)...); err != nil {
		return 0, fmt.Errorf("%s: %w", lives[i].name, err)
	}
	return time.Duration(longer * float64(time.Since(start))), nil
}

// dead is a host process that was killed.
type dead struct {
	life  string
	mark  string
	after bool // it had ended by itself before
}

func killHosts(ctx context.Context, l *lab, shared []*session, spans []time.Duration) ([]dead, error) {
	type order struct {
		n    int
		life int
		at   time.Duration
	}
	orders := make(chan order)
	go func() {
		defer close(orders)
		random := l.random("hosts")
		for n := range l.sizes.hosts {
			i := n % len(lives)
			at := time.Duration(random.Float64() * float64(spans[i]))
			select {
			case orders <- order{n, i, at}:
			case <-ctx.Done():
				return
			}
		}
	}()
	var mu sync.Mutex
	var all []dead
	var errs []error
	var workers sync.WaitGroup
	for range hostWorkers {
		workers.Go(func() {
			for o := range orders {
				h := &mortal{l: l, shared: shared[o.n%len(shared)], mark: fmt.Sprintf("host-%x-%05d", l.seed, o.n)}
				after, err := h.die(ctx, lives[o.life], o.at)
				mu.Lock()
				errs = append(errs, err)
				all = append(all, dead{lives[o.life].name, h.mark, after})
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return all, errors.Join(errs...)
}

// die lives for a while and is killed. It reports whether it had ended before.
func (h *mortal) die(ctx context.Context, life life, at time.Duration) (bool, error) {
	if life.before != nil {
		if err := life.before(ctx, h); err != nil {
			return false, err
		}
	}
	cmd := h.l.command(context.WithoutCancel(ctx), life.args(h)...)
	if err := cmd.Start(); err != nil {
		return false, err
	}
	time.Sleep(at) // the random point is the matter
	_ = cmd.Process.Kill()
	err := cmd.Wait()
	return err == nil, nil
}

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
	t := table{head: []string{"killed while it", "hosts", "of them had ended just before"}}
	for _, life := range lives {
		n, after := 0, 0
		for _, d := range killed {
			if d.life == life.name {
				n++
				if d.after {
					after++
				}
			}
		}
		t.rows = append(t.rows, []string{life.name, fmt.Sprint(n), fmt.Sprint(after)})
	}
	s.tables = append(s.tables, t)
	return s.err()
}

// waitOrphans waits until no command of killed hosts lives, and says how long it
// took and which do.
func waitOrphans(killed []dead) (time.Duration, []process) {
	start := time.Now()
	for {
		var left []process
		for _, p := range processes() {
			ours := bytes.Contains(p.environ, []byte(hostMark+"="))
			if !ours && slices.ContainsFunc(killed, func(d dead) bool { return p.has(d.mark) }) {
				left = append(left, p)
			}
		}
		if len(left) == 0 || time.Since(start) > runLease+afterLease {
			return time.Since(start), left
		}
		time.Sleep(200 * time.Millisecond)
	}
}

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
	var whole strings.Builder
	for i := range streamed {
		fmt.Fprintln(&whole, i+1)
	}
	for _, a := range all {
		got, err := output(l.command(ctx, "artifact", "cat", "--session", a.Session, a.ID))
		isWhole, isBegin := got == strings.TrimSpace(whole.String()), strings.HasPrefix(whole.String(), got)
		switch {
		case err == nil && a.State == "complete" && isWhole:
			c.whole++
		case err == nil && a.State != "complete" && isBegin:
			c.marked++
		default:
			c.wrong++
			s.fail("artifact %s of %s is %s (%s), and has %d bytes that are not all (%t) or the begin (%t) of what was written: %v",
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
			all = append(all, j)
		}
	}
	for _, d := range killed {
		if d.life != "starts a job" {
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
			s.fail("job %s has run %d times, was told of: %t, and there are %+v", d.mark, ran[d.mark], d.after, mine)
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
