package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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
	// sign, if not nil, reports that the part of its life under test has begun: the
	// kill comes within the time after it. Otherwise the kill comes at any point from
	// the start to a little after the end.
	sign   func(h *mortal) bool
	within time.Duration
}

// mortal is one host process and what it needs.
type mortal struct {
	l      *lab
	mark   string
	shared *session // where commands and jobs run
	own    string   // id of a session of its own

	printed atomic.Int64 // bytes of its standard output
	enough  int64        // of those, for the sign
}

// Write counts what the process prints.
func (h *mortal) Write(p []byte) (int, error) {
	h.printed.Add(int64(len(p)))
	return len(p), nil
}

// runs reports whether the command has begun.
func (h *mortal) runs() bool {
	text, err := os.ReadFile(filepath.Join(h.shared.dir, "ran"))
	return err == nil && bytes.Contains(text, []byte(h.mark+"\n"))
}

// prints reports whether so much of its output is through as was drawn.
func (h *mortal) prints() bool { return h.printed.Load() >= h.enough }

// script runs for about half a second, and says so in a file.
func (h *mortal) script(body string) string {
	return fmt.Sprintf("export M=%s; echo $M >>/ws/ran; %s", h.mark, body)
}

// idle is a session of a host's own that no test needs afterwards.
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
	{name: "waits for a command that runs", args: func(h *mortal) []string {
		return []string{"session", "exec", h.shared.id, h.script("setsid sleep 300 & sleep 0.6; kill $!")}
	}, sign: (*mortal).runs, within: 700 * time.Millisecond},
	{name: "streams", args: stream, sign: (*mortal).prints, within: 20 * time.Millisecond},
	{name: "spills into an artifact", args: func(h *mortal) []string {
		return append([]string{"session", "exec", "--json"}, stream(h)[2:]...)
	}, sign: (*mortal).runs, within: 700 * time.Millisecond},
	{name: "kills a command", args: func(h *mortal) []string {
		return []string{"session", "exec", "--timeout", "200ms", h.shared.id, h.script(`trap "" TERM INT HUP; setsid sleep 300 & while :; do sleep 0.05; done`)}
	}, sign: (*mortal).runs, within: 800 * time.Millisecond},
	{name: "starts a job", args: startJob},
	{name: "has a job started", args: startJob, sign: (*mortal).runs, within: 30 * time.Millisecond},
	{name: "stops a session", before: func(ctx context.Context, h *mortal) (err error) {
		h.own, err = h.l.cli(ctx, h.idle()...)
		return err
	}, args: func(h *mortal) []string { return []string{"session", "stop", h.own} }},
}

func stream(h *mortal) []string {
	return []string{
		"session", "exec", "--artifacts", "always", h.shared.id,
		h.script(fmt.Sprintf("for i in 0 1 2 3; do seq $((i*%d+1)) $((i*%d+%d)); sleep 0.1; done", streamed/4, streamed/4, streamed/4)),
	}
}

func startJob(h *mortal) []string {
	return []string{"session", "exec", "--background", h.shared.id, h.script("echo out of $M; sleep 0.5; exit 3")}
}

// hosts kills the processes that run commands, at random points of their lives.
func hosts(ctx context.Context, l *lab) (s section, err error) {
	l = l.at("home-of-hosts", "")
	s = section{title: "Host processes killed", text: "The process of ours that runs a command is killed with SIGKILL at a random point of its life, " +
		"so it can clean up nothing. The point is anywhere from its start to a little after the time that it takes when it is not killed, which is measured again every " +
		"few kills. To meet states that are short or come late, it is a random moment after a sign: the command has written that it runs, or a random share of its output " +
		"has arrived. Then its commands must end, by the lease at the latest; " +
		"artifacts must be complete or marked; every job must have run once and have its true outcome, or never have started; `session reap` must leave nothing; " +
		"and other sessions must not be affected."}
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
	var killed []dead
	for n := 0; n < l.sizes.hosts && err == nil; n += round {
		var spans []time.Duration
		if spans, err = undisturbed(ctx, l, shared[0], n); err != nil {
			return s, err
		}
		var some []dead
		some, err = killHosts(ctx, l, shared, spans, n)
		killed = append(killed, some...)
		l.say("hosts: %d", len(killed))
	}
	if err != nil {
		return s, err
	}
	return s, judgeHosts(ctx, l, &s, killed, shared, neighbour, before)
}

// round is how many hosts are killed before it is measured again how long they live.
const round = 50

// undisturbed measures how long each life takes among as many others as there will be
// when they are killed.
func undisturbed(ctx context.Context, l *lab, shared *session, n int) ([]time.Duration, error) {
	spans := make([]time.Duration, len(lives))
	errs := make([]error, len(lives))
	next := make(chan int)
	var workers sync.WaitGroup
	for range hostWorkers {
		workers.Go(func() {
			for i := range next {
				spans[i], errs[i] = spanOf(ctx, l, shared, i, fmt.Sprintf("undisturbed-%x-%d-%d", l.seed, n, i))
			}
		})
	}
	for i := range lives {
		if lives[i].sign == nil {
			next <- i
		}
	}
	close(next)
	workers.Wait()
	return spans, errors.Join(errs...)
}

// longer is by how much a life may take longer than it has once: points are spread
// over all of it and a little more.
const longer = 1.2

func spanOf(ctx context.Context, l *lab, shared *session, i int, mark string) (time.Duration, error) {
	h := &mortal{l: l, shared: shared, mark: mark}
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

// order is to kill one host.
type order struct {
	n, life int
	at      time.Duration
	share   float64 // of the output, for lives that have a sign
}

// killHosts kills a round of them, the first of which is number from.
func killHosts(ctx context.Context, l *lab, shared []*session, spans []time.Duration, from int) ([]dead, error) {
	orders := make(chan order)
	go func() {
		defer close(orders)
		random := l.random(fmt.Sprint("hosts ", from))
		for n := from; n < min(from+round, l.sizes.hosts); n++ {
			i := n % len(lives)
			span := spans[i]
			if lives[i].sign != nil {
				span = lives[i].within
			}
			select {
			case orders <- order{n, i, time.Duration(random.Float64() * float64(span)), random.Float64()}:
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
				h.enough = int64(o.share * float64(len(everything())))
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
	cmd.Stdout = h
	if err := cmd.Start(); err != nil {
		return false, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // killed, or not: ProcessState says it
	}()
	for over := false; life.sign != nil && !over && !life.sign(h); {
		select {
		case <-ended:
			over = true
		case <-time.After(2 * time.Millisecond):
		}
	}
	select {
	case <-ended:
	case <-time.After(at): // the random point is the matter
	}
	_ = cmd.Process.Kill()
	<-ended
	return cmd.ProcessState.Exited(), nil
}
