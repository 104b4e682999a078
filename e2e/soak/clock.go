package main

import (
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

// moves are by how much the machine's clock is set. In the end it is right again.
var moves = []time.Duration{
	time.Hour, -time.Hour, -time.Hour, time.Hour, 25 * time.Hour, -25 * time.Hour,
	10 * time.Second, -20 * time.Second, 10 * time.Second,
}

// Commands of the clock's take longer than all of them need to begin.
const (
	clockLife  = 6 * time.Second  // of commands that end by themselves, and timeouts
	clockEarly = time.Second / 2  // by so much it may seem shorter
	clockLate  = 10 * time.Second // and longer: the engine's part of it
	clockBegin = 20 * time.Second // until all have begun
)

// clock sets the machine's clock while commands run. It is every program's clock, so
// that the part runs only where it is named.
func clock(ctx context.Context, l *lab) (section, error) {
	c := &clockRun{l: l, set: setClock, moves: moves}
	return c.run(ctx)
}

type clockRun struct {
	l      *lab
	set    func(by time.Duration) error
	moves  []time.Duration
	off    time.Duration // by how much the clock is wrong now
	server *server
	kept   *session // the server's own

	mu     sync.Mutex
	wrong  int // guarded by mu
	asked  int // guarded by mu
	killed []dead
	s      section // guarded by mu while commands run
}

func (c *clockRun) run(ctx context.Context) (s section, err error) {
	c.s = section{title: "A clock that is set", text: "The machine's clock is set forward and back while all of these are under way: a command that ends by itself and one that its timeout " +
		"ends, in a session and as jobs; a command in a session of its own; one that a server runs; one whose client has just been killed. Each must have its true outcome, " +
		"after its true time; killed commands must be gone by the end of their lease; and a reap right after the jump must remove nothing whose owner lives."}
	in, err := c.l.startSession(ctx)
	defer func() { err = errors.Join(err, c.l.stop(context.WithoutCancel(ctx), in)) }()
	if err != nil {
		return c.s, err
	}
	if c.server, err = c.l.serve(ctx); err != nil {
		return c.s, err
	}
	defer func() { err = errors.Join(err, c.server.close()) }()
	if c.kept, err = c.server.startSession(ctx); err != nil {
		return c.s, err
	}
	defer func() { // before the others: they end sessions by the right time
		if c.off != 0 {
			err = errors.Join(err, c.move(-c.off))
		}
	}()
	reaped := 0
	for i, by := range c.moves {
		n, err := c.jump(ctx, in, i, by)
		reaped += n
		if err != nil {
			return c.s, err
		}
		c.l.say("clock: set by %s", by)
	}
	_, orphans := waitOrphans(c.killed)
	for _, p := range orphans {
		c.s.fail("lives on after the lease: %s", p)
	}
	c.s.tell("times that the clock was set, and how", "%d: %s", len(c.moves), strings.Trim(fmt.Sprint(c.moves), "[]"))
	c.s.tell("commands and jobs under way then", "%d", c.asked)
	c.s.count("without an outcome, with another than the true one, or after another time", c.wrong, 0)
	c.s.count("whose client was killed, and that live on after the lease", len(orphans), 0)
	c.s.count("sessions reaped whose owner lives", reaped, 0)
	return c.s, c.s.err()
}

func (c *clockRun) move(by time.Duration) error {
	err := c.set(by)
	if err == nil {
		c.off += by
	}
	return err
}

// jump sets the clock once, with commands under way. It returns how many sessions a
// reap has taken right after it.
func (c *clockRun) jump(ctx context.Context, in *session, i int, by time.Duration) (reaped int, err error) {
	mark := func(what string) string { return fmt.Sprintf("clock-%x-%d-%s", c.l.seed, i, what) }
	begin := func(what, body string) string {
		return fmt.Sprintf("export M=%s; echo $M >>/ws/ran; %s", mark(what), body)
	}
	life, forever := clockLife.String(), "setsid sleep 300 & sleep 300"
	ends := fmt.Sprintf("sleep %d; echo out; exit 3", clockLife/time.Second)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()

	var under sync.WaitGroup
	var names []string
	start := func(what string, do func() (reason string, code *int, err error), reason string, code int) {
		names = append(names, mark(what))
		under.Go(func() { c.judge(mark(what), do, reason, code) })
	}
	cli := func(args ...string) func() (string, *int, error) {
		return func() (string, *int, error) {
			r, err := c.l.exec(ctx, in.id, args...)
			return r.outcome(), r.ExitCode, err
		}
	}
	job := func(args ...string) func() (string, *int, error) {
		return func() (string, *int, error) { return c.job(ctx, in, args...) }
	}
	start("ends", cli(begin("ends", ends)), "exited", 3)
	start("timeout", cli("--timeout", life, begin("timeout", forever)), "timed-out", 0)
	start("job-ends", job(begin("job-ends", ends)), "exited", 3)
	start("job-timeout", job("--timeout", life, begin("job-timeout", forever)), "timed-out", 0)
	start("own", func() (string, *int, error) { return c.own(ctx, in, begin("own", ends)) }, "exited", 3)
	under.Go(func() {
		c.judge(mark("served"), func() (string, *int, error) { return c.served(ctx, ends) }, "exited", 3)
	})

	client := c.l.command(context.WithoutCancel(ctx), "session", "exec", in.id, begin("orphan", forever))
	if err := client.Start(); err != nil {
		return 0, err
	}
	err = c.untilBegun(in, append(names, mark("orphan")))
	_ = client.Process.Kill()
	_ = client.Wait() // it was killed
	c.killed = append(c.killed, dead{mark: mark("orphan")})
	if err == nil {
		err = c.move(by)
	}
	if err == nil {
		var ids string
		ids, err = c.l.cli(ctx, "session", "reap")
		reaped = len(strings.Fields(ids))
	}
	under.Wait()
	return reaped, err
}

// untilBegun waits until all commands have said that they run.
func (c *clockRun) untilBegun(in *session, marks []string) error {
	for until := time.Now().Add(clockBegin); ; time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(in.dir, "ran"))
		ran := strings.Fields(string(text))
		missing := slices.DeleteFunc(slices.Clone(marks), func(m string) bool { return slices.Contains(ran, m) })
		if len(missing) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("not begun within %s: %s", clockBegin, strings.Join(missing, ", "))
		}
	}
}

// judge compares the reported end of a command with what the command does. It measures
// time by a clock that is never set.
func (c *clockRun) judge(name string, do func() (string, *int, error), reason string, code int) {
	began := time.Now()
	got, exit, err := do()
	took := time.Since(began)
	right := err == nil && got == reason && (reason != "exited" || exit != nil && *exit == code) &&
		took > clockLife-clockEarly && took < clockLife+clockLate
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked++; right {
		return
	}
	c.wrong++
	told := "none"
	if exit != nil {
		told = fmt.Sprint(*exit)
	}
	c.s.fail("%s: %s, exit code %s, after %s, %v; want %s %d after about %s", name, got, told, took, err, reason, code, clockLife)
}

// job starts a job and waits for its end.
func (c *clockRun) job(ctx context.Context, in *session, args ...string) (string, *int, error) {
	args = append([]string{"session", "exec", "--background"}, args...)
	started, err := c.l.cli(ctx, slices.Insert(args, len(args)-1, in.id)...)
	if err != nil {
		return "", nil, err
	}
	id := strings.TrimSpace(started)
	text, err := output(c.l.command(ctx, "job", "wait", "--session", in.id, "--json", id))
	if text == "" {
		return "", nil, err
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil || j.Error.Outcome != "" {
		return j.Error.Outcome, nil, errors.Join(err, errors.New(cut(text)))
	}
	if j.Reason == "exited" && j.Output != "out\n" {
		return j.Reason, j.ExitCode, fmt.Errorf("its output is %q", cut(j.Output))
	}
	return j.Reason, j.ExitCode, nil
}

// own runs a command in a session of its own.
func (c *clockRun) own(ctx context.Context, in *session, script string) (string, *int, error) {
	cmd := c.l.command(ctx, "run", "--quiet", "--json", "--workspace", "bind:"+in.dir+":at=/ws", script)
	stdout, err := output(cmd)
	if stdout == "" {
		return "", nil, err
	}
	r, err := readResult([]byte(stdout))
	return r.outcome(), r.ExitCode, err
}

// served has the server run a command.
func (c *clockRun) served(ctx context.Context, script string) (string, *int, error) {
	r, err := c.server.bash(ctx, c.kept.id, script)
	if err != nil {
		return "", nil, err
	}
	reason := r.Details.Reason
	if reason == "" { // of a command that has ended by itself there is only the code
		reason = "exited"
	}
	return reason, r.Details.ExitCode, nil
}
