package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/engines"
	"github.com/sandboxbash/sandboxbash/e2e/faultproxy"
	"github.com/sandboxbash/sandboxbash/e2e/processes"
)

const (
	slots          = 4
	workersOfSlot  = 2 // and one with a long-lived client
	maxPendingJobs = 4
	// nemesisIdle is the lease: what an engine's fault leaves running ends within it.
	// It is longer than any fault, so that no session is lost to that alone.
	nemesisIdle = time.Minute
)

// nemesisRun is a run of random commands under random faults.
type nemesisRun struct {
	l       *lab // connects through the proxy
	direct  *lab // connects to the engine
	engine  *engines.Engine
	proxy   *faultproxy.Proxy
	state   string // where artifacts are, on a small disk
	history *history
	slots   []*slot

	mu       sync.Mutex
	sessions []*session     // guarded by mu; all that were ever started
	servers  []*server      // guarded by mu; all that were not killed
	places   map[int]string // guarded by mu; the workspace of each command
}

func (n *nemesisRun) keep(s *session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sessions = append(n.sessions, s)
}

func (n *nemesisRun) keepServer(s *server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers = append(n.servers, s)
}

// errEngineHangs is returned for a call that the engine itself does not answer.
var errEngineHangs = errors.New("the engine does not answer")

func (n *nemesisRun) docker(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 15*time.Second, errEngineHangs)
	defer cancel()
	_, err := n.direct.docker(ctx, args...)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: docker %s", context.Cause(ctx), strings.Join(args, " "))
	}
	return err
}

// nemesis runs random commands under random faults and has the history checked.
func nemesis(ctx context.Context, l *lab) (s section, err error) {
	s = section{title: "A nemesis", text: fmt.Sprintf("For %g minutes random commands run in %d sessions of an engine of its own (live-restore on), from the command line and over "+
		"long-lived connections, while random faults hit sessions, engine, network and disk, two at a time. All requests, answers and faults are recorded in a history. A checker "+
		"compares it with the files that the commands have written: every command has one outcome and it is true; none ran twice, and none ran that was reported as not started; "+
		"no process survives; jobs keep output and outcome unless their container was killed; at the end each session works or is reported as lost.", l.minutes, slots)}
	dir := filepath.Join(l.dir, "engine")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return s, err
	}
	engine, err := engines.Start(ctx, engines.Options{Dir: dir, LiveRestore: true})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, engine.Close(context.WithoutCancel(ctx))) }()
	proxy, err := faultproxy.Start(engine.Host())
	if err != nil {
		return s, err
	}
	defer proxy.Close()
	n := &nemesisRun{l: l.at("home-of-nemesis", proxy.Host()), direct: l.at("home-of-control", engine.Host()), engine: engine, proxy: proxy, places: map[int]string{}}
	n.state = filepath.Join(l.dir, "home-of-nemesis", "state")
	unmount, err := mountDisk(ctx, n.state)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, unmount()) }()
	if err := n.prepare(ctx); err != nil {
		return s, err
	}
	if n.history, err = newHistory(l.history); err != nil {
		return s, err
	}
	for range slots {
		one := &slot{n: n, starting: make(chan struct{}, 1)}
		n.slots = append(n.slots, one)
		if _, err := one.session(ctx); err != nil {
			return s, err
		}
	}
	n.storm(ctx)
	if err := n.settle(context.WithoutCancel(ctx)); err != nil {
		s.fail("%v", err) // the history is judged anyway
	}
	events, err := n.history.close()
	if err != nil {
		return s, fmt.Errorf("%w (history: %s)", err, l.history)
	}
	judgeHistory(&s, events)
	if err := s.err(); err != nil {
		return s, fmt.Errorf("%w\nhistory: %s", err, l.history)
	}
	return s, nil
}

// prepare creates what sessions share, before there are faults.
func (n *nemesisRun) prepare(ctx context.Context) error {
	var err error
	for range 3 {
		if _, err = n.direct.cli(ctx, "run", "true"); err == nil {
			return nil
		}
	}
	return err
}

// judgeHistory checks the history and adds the counts to the section.
func judgeHistory(s *section, events []event) {
	wrong := check(events)
	for _, w := range wrong {
		s.fail("%s", w)
	}
	counted := tally(events)
	total := func(kind string) (n int) {
		for _, c := range counted[kind] {
			n += c
		}
		return n
	}
	s.tell("commands, of them over long-lived connections, and jobs", "%d, %d, %d", total("command")+total("call")+total("job"), total("call"), total("job"))
	s.tell("faults", "%d", total("fault"))
	s.count("violations in the history", len(wrong), 0)
	t := table{head: []string{"of", "how often"}}
	for _, kind := range slices.Sorted(maps.Keys(counted)) {
		t.rows = append(t.rows, []string{kind, counts(counted[kind])})
	}
	s.tables = append(s.tables, t)
}

// storm runs commands and faults until the time is over.
func (n *nemesisRun) storm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n.l.minutes*float64(time.Minute)))
	defer cancel()
	var all sync.WaitGroup
	for i, s := range n.slots {
		for j := range workersOfSlot + 1 {
			all.Go(func() { n.work(ctx, s, n.l.random(fmt.Sprint("worker ", i, j)), j == workersOfSlot) })
		}
	}
	all.Go(func() { n.plague(ctx, hardware, "hardware") })
	all.Go(func() { n.plague(ctx, network, "network") })
	all.Wait()
}

// work runs one command after the other in a slot's session.
func (n *nemesisRun) work(ctx context.Context, s *slot, random *rand.Rand, long bool) {
	for ctx.Err() == nil {
		// A command that was started is waited for even when the time is over.
		now, err := s.session(context.WithoutCancel(ctx))
		if err != nil {
			sleep(ctx, 200*time.Millisecond) // the engine does not run at the moment
			continue
		}
		in := event{Type: invoke, Session: now.id, Code: random.IntN(5), Life: []int64{0, 0, 300, 1000, 30000}[random.IntN(5)]}
		switch {
		case long:
			n.runCall(s, now, in, random)
		case random.IntN(6) == 0:
			in.Life = min(in.Life, 2000)
			n.runJob(s, now, in)
		default:
			in.Timeout = int64(500 + random.IntN(2000))
			n.runCommand(s, now, in, random.IntN(3) == 0)
		}
	}
}

// script returns a script that records its start and its end in a file, so that the outcome
// can be checked.
func (n *nemesisRun) script(in event, s *session) string {
	n.mu.Lock()
	n.places[in.Op] = s.dir
	n.mu.Unlock()
	pause := ""
	if in.Life > 0 {
		pause = fmt.Sprintf("sleep %g; ", float64(in.Life)/1000)
	}
	return fmt.Sprintf("export M=%s; { echo b $M >>/ws/facts; } 2>>/ws/errors; echo $M; %s{ echo e $M >>/ws/facts; } 2>>/ws/errors; exit %d", nonce(in.Op), pause, in.Code)
}

// patient returns a context that bounds what should be bounded by itself, so that a run ends
// in any case.
func patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 3*time.Minute)
}

func (n *nemesisRun) runCommand(s *slot, now *session, in event, keep bool) {
	ctx, cancel := patient()
	defer cancel()
	in.Op, in.Kind = n.history.op(), "command"
	args := []string{"--timeout", (time.Duration(in.Timeout) * time.Millisecond).String()}
	if keep {
		args = append(args, "--artifacts", "always")
	}
	script := n.script(in, now)
	n.history.add(in)
	r, err := n.l.exec(ctx, now.id, append(args, script)...)
	out := event{Type: outcome, Op: in.Op, Outcome: r.outcome(), Cause: r.cause(), ExitCode: r.ExitCode, Output: r.Stdout, Killed: r.Killed}
	if err != nil {
		out.Outcome, out.Text = "none", err.Error()
	}
	n.told(s, now, out)
}

// told records an outcome, and which processes of the command are alive then.
func (n *nemesisRun) told(s *slot, now *session, out event) {
	out.Alive = len(living(out.Op, now))
	n.history.add(out)
	if out.Outcome == "session-lost" || out.Cause == "unknown-session" {
		s.lose(now.id)
	}
}

// living returns the processes of a command.
func living(op int, in *session) []processes.Process {
	return slices.DeleteFunc(marked(nonce(op)), func(p processes.Process) bool { return !p.InContainer(in.container) })
}

func (n *nemesisRun) runCall(s *slot, now *session, in event, random *rand.Rand) {
	ctx, cancel := patient()
	defer cancel()
	client, err := s.client(ctx, now)
	if err != nil {
		if e, ok := errors.AsType[*rpcError](err); ok && (e.Data.Kind == "session-lost" || e.Data.Kind == "unknown-session") {
			s.lose(now.id)
		}
		time.Sleep(200 * time.Millisecond) // the engine does not run at the moment
		return
	}
	in.Op, in.Kind = n.history.op(), "call"
	if in.Life > 2000 || random.IntN(4) == 0 {
		in.Cancel = int64(1 + random.IntN(1500))
	}
	script := n.script(in, now)
	n.history.add(in)
	id, answer, err := client.send("bash", map[string]any{"session": now.id, "command": script})
	if err == nil && in.Cancel > 0 {
		time.AfterFunc(time.Duration(in.Cancel)*time.Millisecond, func() { _ = client.cancel(id) })
	}
	var r toolResult
	if err == nil {
		err = client.wait(ctx, answer, &r)
	} else {
		<-client.done
		err = errServerEnded
	}
	n.told(s, now, callOutcome(in.Op, r, err))
}

// callOutcome returns the outcome that an answer of the server reports.
func callOutcome(op int, r toolResult, err error) event {
	out := event{Type: outcome, Op: op}
	switch e, refused := errors.AsType[*rpcError](err); {
	case refused:
		out.Outcome, out.Cause, out.Text = e.Data.Kind, e.Data.Cause, e.Message
		if e.Data.Kind == "unknown-session" {
			out.Outcome, out.Cause = "session-lost", e.Data.Kind
		}
	case errors.Is(err, errServerEnded):
		out.Outcome = lostClient
	case err != nil:
		out.Outcome, out.Text = "none", err.Error()
	case r.Details.Reason == "" && r.Thrown == "abort":
		out.Outcome = "cancelled"
	case r.Details.Reason == "":
		// The contract reports these as text only.
		out.Outcome, out.Cause, out.Text = "not-started", "in-words", r.Text
		if strings.HasSuffix(r.Text, "Command failed: missing exit status") {
			out.Outcome = "outcome-unknown"
		}
	default:
		out.Outcome, out.ExitCode, out.Text, out.Killed = r.Details.Reason, r.Details.ExitCode, r.Text, r.Details.Run.Killed
		if out.Outcome == "exited" && out.ExitCode == nil && !r.IsError {
			out.ExitCode = new(int) // the contract leaves a 0 out
		}
		line, _, _ := strings.Cut(r.Text, "\n")
		out.Output = line + "\n"
	}
	return out
}

func (n *nemesisRun) runJob(s *slot, now *session, in event) {
	ctx, cancel := patient()
	defer cancel()
	in.Op, in.Kind, in.Timeout = n.history.op(), "job", 60000
	script := n.script(in, now)
	n.history.add(in)
	text, err := n.l.cli(ctx, "session", "exec", "--json", "--background", "--timeout", "60s", now.id, script)
	var j struct {
		job
		Error *struct{ Outcome, Cause, Message string }
	}
	out := event{Type: outcome, Op: in.Op}
	switch bad := json.Unmarshal([]byte(text), &j); {
	case bad != nil:
		out.Outcome, out.Text = "none", fmt.Sprintf("%q, %v", text, err)
	case j.Error != nil:
		out.Outcome, out.Cause, out.Text = j.Error.Outcome, j.Error.Cause, j.Error.Message
	default:
		out.Outcome = accepted
		s.mu.Lock()
		s.pending = append(s.pending, accept{in.Op, now.id, j.ID})
		s.mu.Unlock()
	}
	n.told(s, now, out)
	s.mu.Lock()
	many := len(s.pending) > maxPendingJobs
	s.mu.Unlock()
	if many {
		n.collect(ctx, s)
	}
}

// collect asks for the ends of jobs. If the answer is an error, it asks again later.
func (n *nemesisRun) collect(ctx context.Context, s *slot) {
	s.mu.Lock()
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	for i, a := range pending {
		end, known := n.jobEnd(ctx, a)
		if known {
			n.history.add(end)
			continue
		}
		s.mu.Lock()
		s.pending = append(s.pending, pending[i])
		s.mu.Unlock()
	}
}

func (n *nemesisRun) jobEnd(ctx context.Context, a accept) (event, bool) {
	text, err := n.l.cli(ctx, "job", "wait", "--json", "--session", a.session, a.job)
	end := event{Type: ended, Op: a.op}
	var j job
	switch {
	case json.Unmarshal([]byte(text), &j) != nil:
		end.Text = fmt.Sprintf("%s, %v", text, err)
		return end, false
	case j.Error.Outcome == "session-lost", j.Error.Cause == "unknown-session":
		end.Outcome, end.Text = "session-lost", text
	case j.Error.Outcome != "" || j.State == "running" || j.State == "":
		end.Text = text
		return end, false
	default:
		end.Outcome, end.ExitCode, end.Output = j.Reason, j.ExitCode, j.Output
	}
	return end, true
}
