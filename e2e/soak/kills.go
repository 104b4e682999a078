package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// How many commands are killed at once, and in which sessions.
const (
	calmWorkers    = 13 // over calmSessions
	calmSessions   = 3
	violentWorkers = 3 // each with its own session, the last one in profile dev
)

// kill is the result of killing one command.
type kill struct {
	adversary adversary
	ending    ending
	outcome   string
	again     int           // how often it was tried again because it had not started
	grown     string        // the file that it made grow
	size      int64         // of that file, when the command was reported as dead
	late      time.Duration // from then until nothing was left
	problems  []string
}

// notStarted is the outcome of a command for which the engine opened no runner in time. maxAgain
// is how often such a command is tried again.
const (
	notStarted = "not-started{engine}"
	maxAgain   = 2
)

// one kills one command and checks that it is dead.
func (w *killer) one(ctx context.Context, mark string, a adversary, e ending) kill {
	k := kill{adversary: a, ending: e, grown: filepath.Join(w.session.dir, "grow-"+mark)}
	note := func(format string, args ...any) {
		k.problems = append(k.problems, fmt.Sprintf("%s: %s, by %s: ", mark, a.name, e.name)+fmt.Sprintf(format, args...))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	script := fmt.Sprintf(prelude, mark) + a.script
	outcome, err := e.end(ctx, w, script)
	for err == nil && outcome == notStarted && k.again < maxAgain {
		// The machine was too busy to start it within its own timeout. If it has run all the
		// same, its mark is found below.
		k.again++
		outcome, err = e.end(ctx, w, script)
	}
	k.outcome = outcome
	if err != nil {
		note("%v", err)
		if w.server != nil {
			w.server.kill() // the next command gets another server
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
	if w.session.dev && !slices.Contains(e.want, outcome) && err == nil {
		// Such an end is allowed only if nothing is left, under whatever name. Nothing else
		// runs in this session.
		if err := awaitEmpty(w.session); err != nil {
			note("%v", err)
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

// able returns the adversaries that can run with this image and on this machine.
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

// devSession has the pids limit of profile strict. A command that forks up to the limit is to
// be killed here, not to test how many processes this machine can schedule.
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
	text := fmt.Sprintf("These commands do what they can to outlive their end (rows K of the threat model). They run %d at a time over %d sessions and are ended at random "+
		"points of their lives. Survivors are counted on the host: by a mark in arguments and environment right after the outcome, and by the containers' cgroups "+
		"after the run; a file that each command makes grow must not grow after its outcome. All three of these found a command that was left running on purpose. "+
		"One of the sessions has the profile dev, in which a command is root in its container: there an end may be unknown, never wrong.",
		calmWorkers+violentWorkers, calmSessions+violentWorkers)
	if len(without) > 0 {
		text += " Left out: " + strings.Join(without, "; ") + "."
	}
	return text
}

// control checks that a survivor would be found. It uses one that may survive: a process that
// a command leaves in the background when it ends by itself.
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
	if len(marked(mark)) < 2 || len(commandsIn(s)) < 2 {
		return fmt.Errorf("control: what lives was not found: by its mark %v, in its cgroup %v", marked(mark), commandsIn(s))
	}
	// The command cannot kill itself. Everything else in the session must go.
	if _, err := l.exec(ctx, s.id, "kill -KILL -1"); err != nil {
		return err
	}
	return awaitEmpty(s)
}

// awaitEmpty waits until no process of a command is left in a session.
func awaitEmpty(s *session) error {
	for until := time.Now().Add(settle); ; time.Sleep(50 * time.Millisecond) {
		left := commandsIn(s)
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
				// If a command of profile dev kills its runner, only its client can end it.
				// Without a client it lives until the lease is over.
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
