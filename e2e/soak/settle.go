package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/processes"
)

// settle ends all faults, and records the state after that.
func (n *nemesisRun) settle(ctx context.Context) error {
	n.proxy.Set()
	n.proxy.Heal()
	if _, err := n.engine.Docker(ctx, "version"); err != nil {
		if err := errors.Join(n.engine.Stop(ctx), n.engine.Again(ctx)); err != nil {
			return err
		}
	}
	for _, c := range n.servers {
		c.kill() // a client may have ended already
	}
	for _, s := range n.sessions { // before its lease can be over
		n.last(ctx, s)
	}
	for _, s := range n.slots {
		n.collect(ctx, s)
		for _, a := range s.pending { // still not delivered: the checker judges that
			end, _ := n.jobEnd(ctx, a)
			end.Outcome = "none"
			n.history.add(end)
		}
	}
	alive := n.untilGone()
	n.facts(alive)
	return n.clear(ctx)
}

// untilGone waits until no command is alive, for the lease at most. It returns how many
// processes of each command are still alive.
func (n *nemesisRun) untilGone() map[int]int {
	for until := time.Now().Add(nemesisIdle + afterLease); ; time.Sleep(500 * time.Millisecond) {
		alive := map[int]int{}
		for _, p := range processes.All() {
			for _, s := range n.sessions {
				if p.InContainer(s.container) && p.UID != 0 && p.State != "Z" {
					alive[n.opOf(p)]++
				}
			}
		}
		if len(alive) == 0 || time.Now().After(until) {
			return alive
		}
	}
}

// opOf returns the number of the command that a process belongs to, 0 if it is not known.
func (n *nemesisRun) opOf(p processes.Process) int {
	for op := range n.places {
		if p.Has(nonce(op)) {
			return op
		}
	}
	return 0
}

// facts records what the commands have written. It also records what looks wrong, because
// the workspaces are removed afterwards.
func (n *nemesisRun) facts(alive map[int]int) {
	begun, finished, odd := map[string]int{}, map[string]int{}, map[string]string{}
	for _, s := range n.sessions {
		text, _ := os.ReadFile(filepath.Join(s.dir, "facts")) // none if nothing has run
		for line := range strings.Lines(string(text)) {
			word, name, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch {
			case word == "b" && len(name) == len(nonce(0)):
				begun[name]++
			case word == "e" && len(name) == len(nonce(0)):
				finished[name]++
			default:
				odd[s.dir] += fmt.Sprintf("%q ", line)
			}
		}
		errs, _ := os.ReadFile(filepath.Join(s.dir, "errors"))
		odd[s.dir] += string(errs)
	}
	for op, dir := range n.places {
		n.history.add(event{Type: fact, Op: op, Ran: begun[nonce(op)], Finished: finished[nonce(op)], Alive: alive[op], Text: odd[dir]})
	}
}

// last records the final state of a session.
func (n *nemesisRun) last(ctx context.Context, s *session) {
	e := event{Type: last, Session: s.id}
	call, cancel := patient()
	defer cancel()
	r, err := n.l.exec(call, s.id, "echo works")
	e.Works = err == nil && r.Stdout == "works\n"
	if !e.Works {
		e.Outcome, e.Cause = r.outcome(), r.cause()
		if err != nil {
			e.Text = err.Error()
		}
	}
	state, err := n.direct.docker(ctx, "inspect", "--format", "{{.State.Running}}", "sandboxbash-"+s.id)
	e.Running = err == nil && state == "true"
	n.history.add(e)
}

// clear removes the sessions, and checks that the engine has nothing of them left.
func (n *nemesisRun) clear(ctx context.Context) error {
	for _, s := range n.sessions {
		_, _ = n.l.cli(ctx, "session", "stop", s.id) // lost sessions cannot be stopped
	}
	_, left, err := reap(ctx, n.l, nil)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left behind: %s", strings.Join(left, "; "))
		for _, thing := range left { // why the reaper does not take it stands in its labels
			_, name, _ := strings.Cut(thing, " ")
			about, inspectErr := n.direct.docker(ctx, "inspect", "--format", "{{json .}}", name)
			err = errors.Join(err, inspectErr, errors.New(about))
		}
	}
	return err
}
