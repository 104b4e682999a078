package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// How many are killed at once, and where.
const (
	calmWorkers    = 13 // over calmSessions
	calmSessions   = 3
	violentWorkers = 3 // each with a session to itself, the last of profile dev
)

// patience is how long a command may live when its client is gone. The lease is
// longer, but an end of the stream says it all.
const patience = 10 * time.Second

// onTheWay is how long a request may travel from a client that is gone to a runner.
const onTheWay = time.Second

// ending is a way to end a command. It returns how the command has ended, by the
// program's word; gone is a client that has said nothing, because it was killed.
type ending struct {
	name string
	end  func(ctx context.Context, w *killer, script string) (outcome string, err error)
	want []string
	slow bool // the survivors may take patience
}

// wants reports whether a command may have ended so. In profile dev a command is root
// in its container and can stop or kill its runner and PID 1: its end is then unknown,
// or its session is lost, and never something else.
func (e ending) wants(outcome string, dev bool) bool {
	kind, _, _ := strings.Cut(outcome, "{")
	return slices.Contains(e.want, outcome) || dev && (kind == "outcome-unknown" || kind == "session-lost")
}

const gone = "(client gone)"

var endings = []ending{
	{name: "timeout", end: byTimeout, want: []string{"timed-out"}},
	{name: "cancel", end: byCancel, want: []string{"cancelled"}},
	{name: "client killed", end: byKill, want: []string{gone}, slow: true},
	{name: "client closes", end: byClose, want: []string{gone}, slow: true},
	{name: "output limit", end: byOutputLimit, want: []string{"output-limit", "timed-out"}},
	{name: "job: killed", end: byJobKill, want: []string{"cancelled"}},
	{name: "job: timeout", end: byJobTimeout, want: []string{"timed-out"}},
	{name: "terminal: timeout", end: byTerminalTimeout, want: []string{"timed-out"}},
	{name: "terminal: ended", end: byTerminalEnd, want: []string{"cancelled"}},
}

// killer kills one command after the other.
type killer struct {
	l       *lab
	session *session
	rand    *rand.Rand
	server  *server // attached to the session; nil until it is needed
}

// attached is a server with the session.
func (w *killer) attached(ctx context.Context) (*server, error) {
	if w.server != nil {
		return w.server, nil
	}
	s, err := w.l.serve(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.call(ctx, "session/attach", map[string]any{"session": w.session.id}, nil); err != nil {
		return nil, errors.Join(err, s.close())
	}
	w.server = s
	return s, nil
}

// soon is a point in time early in a command's life.
func (w *killer) soon() time.Duration { return time.Duration(w.rand.IntN(700)) * time.Millisecond }

func byTimeout(ctx context.Context, w *killer, script string) (string, error) {
	return w.exec(ctx, "--timeout", (200*time.Millisecond + w.soon()).String(), script)
}

// byOutputLimit lets the command write more than it may. One that has killed what
// writes is ended by its timeout.
func byOutputLimit(ctx context.Context, w *killer, script string) (string, error) {
	flood := fmt.Sprintf("(sleep %.3f; exec yes) & ", 0.2+w.soon().Seconds())
	return w.exec(ctx, "--timeout", "10s", "--output-limit", "1048576", flood+script)
}

// exec runs a script and returns its outcome, with the cause if there is one.
func (w *killer) exec(ctx context.Context, args ...string) (string, error) {
	r, err := w.l.exec(ctx, w.session.id, args...)
	return r.full(), err
}

// job starts a script as a job.
func (w *killer) job(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"session", "exec", "--quiet", "--background"}, args...)
	out, err := w.l.cli(ctx, slices.Insert(args, len(args)-1, w.session.id)...)
	id, _, _ := strings.Cut(out, " ") // its pid and its file follow
	return id, err
}

func byJobKill(ctx context.Context, w *killer, script string) (string, error) {
	id, err := w.job(ctx, script)
	if err != nil {
		return "", err
	}
	time.Sleep(w.soon())
	_, killed := w.l.cli(ctx, "job", "kill", "--quiet", "--session", w.session.id, id)
	return w.waited(ctx, id, killed)
}

func byJobTimeout(ctx context.Context, w *killer, script string) (string, error) {
	id, err := w.job(ctx, "--timeout", (200*time.Millisecond + w.soon()).String(), script)
	if err != nil {
		return "", err
	}
	return w.waited(ctx, id, nil)
}

// waited is how a job has ended.
func (w *killer) waited(ctx context.Context, id string, before error) (string, error) {
	cmd := w.l.command(ctx, "job", "wait", "--json", "--session", w.session.id, id)
	out, _ := cmd.Output() // its status is the job's
	var job struct {
		Reason string
		Error  *struct{ Outcome, Cause string }
	}
	if err := json.Unmarshal(out, &job); err != nil {
		return "", errors.Join(before, fmt.Errorf("%w: %q: %w", errNoOutcome, cut(string(out)), err))
	}
	if job.Error != nil {
		return job.Error.Outcome + "{" + job.Error.Cause + "}", nil
	}
	return job.Reason, nil
}

func byCancel(ctx context.Context, w *killer, script string) (string, error) {
	s, err := w.attached(ctx)
	if err != nil {
		return "", err
	}
	id, answer, err := s.send("bash", map[string]any{"session": w.session.id, "command": script})
	if err != nil {
		return "", err
	}
	time.Sleep(w.soon()) // the random point is the matter
	if err := s.cancel(id); err != nil {
		return "", err
	}
	var r toolResult
	err = s.wait(ctx, answer, &r)
	if e, ok := errors.AsType[*rpcError](err); ok {
		return e.kind(), nil
	}
	if err == nil && r.Details.Reason == "" {
		return "cancelled", nil // before it began: contract agent has no details then
	}
	return r.Details.Reason, err
}

func byKill(ctx context.Context, w *killer, script string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := w.l.command(ctx, "session", "exec", "--json", w.session.id, script)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	time.Sleep(w.soon())
	cancel()
	_ = cmd.Wait()
	return gone, nil
}

func byClose(ctx context.Context, w *killer, script string) (string, error) {
	s, err := w.attached(ctx)
	if err != nil {
		return "", err
	}
	if _, _, err := s.send("bash", map[string]any{"session": w.session.id, "command": script}); err != nil {
		return "", err
	}
	time.Sleep(w.soon())
	w.server = nil
	return gone, s.close()
}

// startTerminal runs the script on a terminal.
func (w *killer) startTerminal(ctx context.Context, script string, seconds float64) (*server, string, error) {
	s, err := w.attached(ctx)
	if err != nil {
		return nil, "", err
	}
	var made struct{ Terminal string }
	err = s.call(ctx, "pty/start", map[string]any{"session": w.session.id, "command": script, "timeoutSeconds": seconds}, &made)
	return s, made.Terminal, err
}

func endTerminal(ctx context.Context, s *server, terminal string) (string, error) {
	var end struct{ Reason string }
	err := s.call(ctx, "pty/end", map[string]any{"terminal": terminal}, &end)
	if e, ok := errors.AsType[*rpcError](err); ok {
		return e.kind(), nil
	}
	return end.Reason, err
}

func byTerminalTimeout(ctx context.Context, w *killer, script string) (string, error) {
	s, terminal, err := w.startTerminal(ctx, script, 0.3+w.soon().Seconds())
	if err != nil {
		return "", err
	}
	var how struct{ Event string }
	if err := s.call(ctx, "pty/wait", map[string]any{"terminal": terminal, "end": true}, &how); err != nil {
		return "", err
	}
	if how.Event != "ended" {
		return "", fmt.Errorf("the terminal's command has not ended: %s", how.Event)
	}
	return endTerminal(ctx, s, terminal)
}

func byTerminalEnd(ctx context.Context, w *killer, script string) (string, error) {
	s, terminal, err := w.startTerminal(ctx, script, 300)
	if err != nil {
		return "", err
	}
	time.Sleep(w.soon())
	return endTerminal(ctx, s, terminal)
}

// kill is what became of one.
type kill struct {
	adversary adversary
	ending    ending
	outcome   string
	grown     string        // the file that it made grow
	size      int64         // of that, when it was said to be dead
	late      time.Duration // until nothing was left
	problems  []string
}

// one kills one command and looks whether it is dead.
func (w *killer) one(ctx context.Context, mark string, a adversary, e ending) kill {
	k := kill{adversary: a, ending: e, grown: filepath.Join(w.session.dir, "grow-"+mark)}
	note := func(format string, args ...any) {
		k.problems = append(k.problems, fmt.Sprintf("%s: %s, by %s: ", mark, a.name, e.name)+fmt.Sprintf(format, args...))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	outcome, err := e.end(ctx, w, fmt.Sprintf(prelude, mark)+a.script)
	k.outcome = outcome
	if err != nil {
		note("%v", err)
		if w.server != nil {
			w.server.kill() // the next one gets another
			w.server = nil
		}
	} else if !e.wants(outcome, w.session.dev) {
		note("ended as %q; want one of %q", outcome, e.want)
	}
	start, allowed := time.Now(), time.Duration(0)
	if e.slow || !slices.Contains(e.want, outcome) { // an unknown end says nothing of survivors
		allowed = patience
	}
	for {
		left := marked(mark)
		k.late = time.Since(start)
		if len(left) == 0 {
			break
		}
		if k.late > allowed {
			note("%d survive: %v", len(left), left)
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if e.slow && k.late <= allowed {
		// What its client had sent before it was killed may still have been on the way.
		time.Sleep(onTheWay)
		if left := marked(mark); len(left) > 0 {
			note("%d survive: %v", len(left), left)
		}
	}
	k.size = size(k.grown)
	if w.session.dev {
		if err := w.renew(ctx); err != nil {
			note("%v", err)
		}
	}
	return k
}

// renew starts another session if a command has made the engine remove this one.
func (w *killer) renew(ctx context.Context) error {
	if r, err := w.l.exec(ctx, w.session.id, "true"); err != nil || r.outcome() == "exited" {
		return err
	}
	if w.server != nil {
		w.server.kill()
		w.server = nil
	}
	_ = w.l.stop(ctx, w.session) // it may be gone
	one, err := w.l.startSession(ctx, devSession...)
	if err == nil {
		one.dev = true
		*w.session = *one
	}
	return err
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// able are the adversaries that an image and this machine have what they need for.
func able(ctx context.Context, l *lab, s *session) (chosen []adversary, without []string, err error) {
	for _, a := range adversaries {
		if a.arch != "" && a.arch != runtime.GOARCH {
			without = append(without, fmt.Sprintf("%s (%s only)", a.name, a.arch))
			continue
		}
		if a.needs != "" {
			r, err := l.exec(ctx, s.id, "type "+a.needs)
			if err != nil {
				return nil, nil, err
			}
			if r.ExitCode == nil || *r.ExitCode != 0 {
				without = append(without, fmt.Sprintf("%s (the image has no %s)", a.name, a.needs))
				continue
			}
		}
		chosen = append(chosen, a)
	}
	return chosen, without, nil
}

// devSession has as many processes as one of profile strict: what forks to the limit is
// to be killed here, and not to see how many this machine can schedule.
var devSession = []string{"--profile", "dev", "--pids", "512"}

// kills kills commands that resist.
func kills(ctx context.Context, l *lab) (s section, err error) {
	s = section{title: "Adversarial kills"}
	var sessions []*session
	defer func() { err = errors.Join(err, l.stop(context.WithoutCancel(ctx), sessions...)) }()
	for i := range calmSessions + violentWorkers {
		var args []string
		dev := i == calmSessions+violentWorkers-1
		if dev {
			args = devSession
		}
		one, err := l.startSession(ctx, args...)
		sessions = append(sessions, one)
		if err != nil {
			return s, err
		}
		one.dev = dev
	}
	chosen, without, err := able(ctx, l, sessions[0])
	if err != nil {
		return s, err
	}
	if err := control(ctx, l, sessions[0]); err != nil {
		return s, err
	}
	all := killAll(ctx, l, sessions, chosen)
	s.text = killText(without)
	judgeKills(ctx, &s, l, all, sessions)
	return s, errors.Join(s.err(), ctx.Err())
}

func killText(without []string) string {
	text := fmt.Sprintf("Commands that do what they can to outlive their end (rows K of the threat model), %d at a time over %d sessions, ended at random "+
		"points of their lives. Survivors are counted on the host, by a mark in arguments and environment right after the outcome, and by the containers' cgroups "+
		"when all is over; a file that each of them makes grow must not grow after its outcome. A command that was left running on purpose was found by all three. "+
		"One of the sessions has the profile dev, in which a command is root in its container: there an end may be unknown, never wrong.",
		calmWorkers+violentWorkers, calmSessions+violentWorkers)
	if len(without) > 0 {
		text += " Left out: " + strings.Join(without, "; ") + "."
	}
	return text
}

// control shows that a survivor would be found, with a command that is meant to
// survive: what a command leaves in the background when it ends by itself.
func control(ctx context.Context, l *lab, s *session) error {
	const mark = "control-of-kills"
	if _, err := l.exec(ctx, s.id, fmt.Sprintf(prelude, mark)+`exec >/dev/null 2>&1; sleep 300 & disown`); err != nil {
		return err
	}
	file := filepath.Join(s.dir, "grow-"+mark)
	before := size(file)
	for until := time.Now().Add(patience); size(file) == before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			return errors.New("control: a command that lives makes its file grow, and it did not")
		}
	}
	if len(marked(mark)) < 2 || len(commandsIn(s.container)) < 2 {
		return fmt.Errorf("control: what lives was not found: by its mark %v, in its cgroup %v", marked(mark), commandsIn(s.container))
	}
	// It cannot kill itself, and everything else of this session is to go.
	if _, err := l.exec(ctx, s.id, "kill -KILL -1"); err != nil {
		return err
	}
	return nobodyIn(s)
}

// nobodyIn waits until a session runs nothing.
func nobodyIn(s *session) error {
	for until := time.Now().Add(settle); ; time.Sleep(50 * time.Millisecond) {
		left := commandsIn(s.container)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("session %s: %d processes in its cgroup: %v", s.id, len(left), left)
		}
	}
}

// killAll kills as many as the lab's sizes say.
func killAll(ctx context.Context, l *lab, sessions []*session, chosen []adversary) []kill {
	random := l.random("kills")
	calm := slices.DeleteFunc(slices.Clone(chosen), func(a adversary) bool { return a.violent })
	type order struct {
		n int
		a adversary
		e ending
	}
	calmOrders, violentOrders := make(chan order), make(chan order)
	go func() {
		defer close(calmOrders)
		defer close(violentOrders)
		for n := range l.sizes.kills {
			a, to := chosen[random.IntN(len(chosen))], calmOrders
			if n < len(chosen) { // each at least once
				a = chosen[n]
			}
			if a.violent {
				to = violentOrders
			} else if n%5 == 4 { // they take turns on every kind of session
				a, to = calm[random.IntN(len(calm))], violentOrders
			}
			select {
			case to <- order{n, a, endings[random.IntN(len(endings))]}:
			case <-ctx.Done():
				return
			}
		}
	}()
	var mu sync.Mutex
	var all []kill
	var workers sync.WaitGroup
	for i := range calmWorkers + violentWorkers {
		w := &killer{l: l, session: sessions[i%calmSessions], rand: l.random(fmt.Sprint("killer ", i))}
		orders := calmOrders
		if i >= calmWorkers {
			w.session, orders = sessions[calmSessions+i-calmWorkers], violentOrders
		}
		workers.Go(func() {
			for o := range orders {
				// A command of profile dev that kills its runner is left to its client, and
				// without one lives until the lease is over.
				if w.session.dev && o.e.slow {
					o.e = endings[0]
				}
				k := w.one(ctx, fmt.Sprintf("kill-%x-%05d", l.seed, o.n), o.a, o.e)
				mu.Lock()
				all = append(all, k)
				if len(all)%100 == 0 {
					l.say("kills: %d", len(all))
				}
				mu.Unlock()
			}
			if w.server != nil {
				if err := w.server.close(); err != nil || len(w.server.odds()) > 0 {
					mu.Lock()
					all = append(all, kill{problems: []string{fmt.Sprintf("a server at its end: %v, and messages that should not be: %q", err, w.server.odds())}})
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return all
}
