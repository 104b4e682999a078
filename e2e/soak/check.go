package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of the checker, in milliseconds.
const (
	// lateBy is how long after its timeout or cancel a call may end: what SECURITY.md
	// promises, and what a process takes to start and find its session on a machine
	// that is busy with all of this.
	lateBy = 5000 + 15000
	// engineTime is how long two calls of the engine may take that it does not answer;
	// only then has a command not started, or may one without a timeout take longer.
	engineTime = 2 * 30000
	// aftermath is how long a fault may still be the reason of something.
	aftermath = 5000
)

// fatal faults end a container's processes, or may make us do so. After one of these
// a session may be lost, and a job with it.
var fatal = []string{faultKill, faultRemove, faultShim, faultOOM, faultPause, resetByUs}

// resetByUs is what the kill ladder does when no runner confirms a kill: it ends the
// container, and with it the session's jobs. It is one of the fatal, and must have a fault
// for its own reason.
const resetByUs = "reset by us"

// resets makes reasons of the resets that operations tell of.
func (c *checker) resets() {
	for _, id := range slices.Sorted(maps.Keys(c.ops)) {
		o := c.ops[id]
		if len(o.invoked) != 1 || len(o.outcomes) != 1 {
			continue // it is complained of
		}
		in, out := o.invoked[0], o.outcomes[0]
		if out.Cause != "kill-unconfirmed" && out.Killed != "reset" && out.Killed != "removed" {
			continue
		}
		if !c.hit(in.Session, in.At, out.At) {
			c.say(o, "its kill took the container (%s%s), and nothing was in its way", out.Cause, out.Killed)
			continue
		}
		c.faults = append(c.faults, span{event{At: in.At, Fault: resetByUs, Session: in.Session}, out.At + aftermath})
	}
}

// operation is what the history says of one command.
type operation struct {
	id       int
	invoked  []event
	outcomes []event
	ends     []event
	facts    []event
}

// check decides whether a history is one that sandboxbash may have. It returns what is
// wrong with it.
func check(events []event) []string {
	c := &checker{ops: map[int]*operation{}}
	for _, e := range events {
		c.take(e)
	}
	c.resets()
	for _, id := range slices.Sorted(maps.Keys(c.ops)) {
		c.operation(c.ops[id])
	}
	for _, e := range c.sessions {
		c.session(e)
	}
	return c.wrong
}

type checker struct {
	ops      map[int]*operation
	faults   []span
	sessions []event
	wrong    []string
}

// span is a fault with its end.
type span struct {
	event
	until int64
}

func (c *checker) take(e event) {
	switch e.Type {
	case fault:
		c.faults = append(c.faults, span{e, 1 << 60})
		return
	case healed:
		for i := range c.faults {
			if c.faults[i].ID == e.ID {
				c.faults[i].until = e.At + aftermath
			}
		}
		return
	case last:
		c.sessions = append(c.sessions, e)
		return
	}
	o := c.ops[e.Op]
	if o == nil {
		o = &operation{id: e.Op}
		c.ops[e.Op] = o
	}
	switch e.Type {
	case invoke:
		o.invoked = append(o.invoked, e)
	case outcome:
		o.outcomes = append(o.outcomes, e)
	case ended:
		o.ends = append(o.ends, e)
	case fact:
		o.facts = append(o.facts, e)
	default:
		c.say(o, "an event of unknown type %q", e.Type)
	}
}

func (c *checker) say(o *operation, format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf("op %d: ", o.id)+fmt.Sprintf(format, args...))
}

// hit reports whether a fault of the kinds, or of any without, can be the reason
// of something in a session that happened between two points in time.
func (c *checker) hit(session string, from, to int64, kinds ...string) bool {
	return slices.ContainsFunc(c.faults, func(f span) bool {
		return (f.Session == "" || f.Session == session) && f.At <= to && f.until >= from && (len(kinds) == 0 || slices.Contains(kinds, f.Fault))
	})
}

// mayLose reports whether a session may be lost for what was done to it.
func (c *checker) mayLose(session string, e event) bool {
	kinds := fatal
	switch e.Cause {
	case "lease-over": // no call could reach it
		kinds = []string{faultRestart, faultCrash}
	case "unknown-session": // also of one whose end an engine has found when it was there again
		kinds = append([]string{faultRestart, faultCrash}, fatal...)
	}
	return c.hit(session, 0, e.At, kinds...)
}

func (c *checker) operation(o *operation) {
	if len(o.invoked) != 1 || len(o.facts) != 1 {
		c.say(o, "asked %d times, and %d facts of it; want one of each", len(o.invoked), len(o.facts))
		return
	}
	if len(o.outcomes) != 1 {
		c.say(o, "%d outcomes; want just one", len(o.outcomes))
		return
	}
	in, out, is := o.invoked[0], o.outcomes[0], o.facts[0]
	if is.Ran > 1 || is.Finished > is.Ran {
		c.say(o, "it has begun %d times, and come to its end %d times (what is odd in its session: %q)", is.Ran, is.Finished, is.Text)
	}
	if out.Alive > 0 && out.Outcome != accepted && out.Outcome != lostClient && out.Outcome != "outcome-unknown" && out.Outcome != "session-lost" {
		c.say(o, "it was reported to have ended as %s, and %d of its processes live", out.Outcome, out.Alive)
	}
	if is.Alive > 0 {
		c.say(o, "%d of its processes live when all is over", is.Alive)
	}
	limit := max(in.Timeout, in.Cancel, in.Life) + lateBy
	if in.Timeout == 0 || out.Outcome == "not-started" {
		limit += engineTime
	}
	if in.Kind != "job" && out.At-in.At > limit {
		c.say(o, "it took %d ms; want at most %d", out.At-in.At, limit)
	}
	if in.Kind == "job" {
		c.job(o, in, out, is)
		return
	}
	if len(o.ends) > 0 {
		c.say(o, "an end of a job, and it is none")
	}
	c.truth(o, in, out, is)
}

// truth holds an outcome against what has happened.
func (c *checker) truth(o *operation, in, out, is event) {
	hurt := func(kinds ...string) bool { return c.hit(in.Session, in.At, out.At, kinds...) }
	switch out.Outcome {
	case "exited":
		if out.ExitCode == nil || *out.ExitCode != in.Code {
			c.say(o, "it has exited with %s; want %d", codeText(out.ExitCode), in.Code)
		}
		if is.Ran != 1 || is.Finished != 1 {
			c.say(o, "it was reported to have exited, and has begun %d times and come to its end %d times", is.Ran, is.Finished)
		}
		if out.Output != nonce(o.id)+"\n" {
			c.say(o, "its output is %q; want %q", out.Output, nonce(o.id)+"\n")
		}
	case "timed-out":
		if in.Timeout == 0 || out.At-in.At < in.Timeout {
			c.say(o, "timed out after %d ms, and it had %d", out.At-in.At, in.Timeout)
		}
		if in.Life < in.Timeout && !hurt() && out.At-in.At < in.Life {
			c.say(o, "timed out, and nothing kept it from ending in time")
		}
		if is.Ran != 1 && !hurt() {
			c.say(o, "timed out, and has begun %d times", is.Ran)
		}
	case "cancelled":
		if in.Cancel == 0 {
			c.say(o, "cancelled, but no cancel was sent")
		}
	case "signalled", "oom-killed":
		if is.Finished != 0 || is.Ran != 1 {
			c.say(o, "%s, and has begun %d times and come to its end %d times", out.Outcome, is.Ran, is.Finished)
		}
		if !hurt(append(slices.Clone(fatal), faultRestart)...) {
			c.say(o, "%s, and nothing has killed it", out.Outcome)
		}
	default:
		c.failed(o, in, out, is, hurt())
	}
}

// failed holds against what has happened that there is no status.
func (c *checker) failed(o *operation, in, out, is event, hurt bool) {
	switch out.Outcome {
	case lostClient:
		if !c.hit(in.Session, in.At, out.At, faultHost) {
			c.say(o, "its client was killed, but no fault did that")
		}
	case "not-started":
		if is.Ran != 0 {
			c.say(o, "it was reported not to have started (%s), and has run", out.Cause)
		}
		if !hurt {
			c.say(o, "not started (%s), and nothing was in its way", out.Cause)
		}
	case "session-lost":
		if !c.mayLose(in.Session, out) {
			c.say(o, "session lost (%s), and nothing has been done to it", out.Cause)
		}
	case "outcome-unknown":
		if !hurt {
			c.say(o, "outcome unknown (%s), and nothing has happened", out.Cause)
		}
	default:
		c.say(o, "no outcome that there is: %q", out.Outcome)
	}
}

// job holds the end of a job against what has happened.
func (c *checker) job(o *operation, in, out, is event) {
	if out.Outcome != accepted {
		if len(o.ends) > 0 && out.Outcome == "not-started" {
			c.say(o, "a job that was reported not to have started has an end")
		}
		c.failed(o, in, out, is, c.hit(in.Session, in.At, out.At))
		return
	}
	if len(o.ends) != 1 {
		c.say(o, "an accepted job has %d ends; want just one", len(o.ends))
		return
	}
	end := o.ends[0]
	switch end.Outcome {
	case "exited":
		if end.ExitCode == nil || *end.ExitCode != in.Code || is.Ran != 1 || is.Finished != 1 || end.Output != nonce(o.id)+"\n" {
			c.say(o, "the job has exited with %s, output %q, began %d times, came to its end %d times; want %d, its nonce, 1 and 1",
				codeText(end.ExitCode), end.Output, is.Ran, is.Finished, in.Code)
		}
	case "timed-out":
		if in.Life < in.Timeout && !c.hit(in.Session, in.At, end.At) {
			c.say(o, "the job timed out, and nothing kept it from ending")
		}
	case "lost", "signalled", "oom-killed", "session-lost":
		if !c.hit(in.Session, in.At, end.At, fatal...) {
			c.say(o, "the job is %s (%s), and nothing that may do that has happened", end.Outcome, end.Cause)
		}
	default:
		c.say(o, "the job has no end that there is: %q", end.Outcome)
	}
}

// session holds what a session is when all is over against what was done to it.
func (c *checker) session(e event) {
	switch {
	case e.Works:
	case e.Outcome != "session-lost" && e.Outcome != "not-started":
		c.wrong = append(c.wrong, fmt.Sprintf("session %s: it neither works nor is typed as lost: %q (%s)", e.Session, e.Outcome, e.Cause))
	case e.Running:
		c.wrong = append(c.wrong, fmt.Sprintf("session %s: it was reported as lost (%s), and its container runs", e.Session, e.Cause))
	case !c.mayLose(e.Session, e):
		c.wrong = append(c.wrong, fmt.Sprintf("session %s: it is lost (%s), and nothing was done to it", e.Session, e.Cause))
	}
}

func codeText(code *int) string {
	if code == nil {
		return "no code"
	}
	return fmt.Sprint(*code)
}

// nonce is what a command prints and writes.
func nonce(op int) string { return fmt.Sprintf("nonce-%06d", op) }

// tally counts outcomes by kind, for the page.
func tally(events []event) map[string]map[string]int {
	kinds := map[int]string{}
	counted := map[string]map[string]int{}
	add := func(kind, what string) {
		if counted[kind] == nil {
			counted[kind] = map[string]int{}
		}
		counted[kind][what]++
	}
	for _, e := range events {
		switch e.Type {
		case invoke:
			kinds[e.Op] = e.Kind
		case outcome:
			add(kinds[e.Op], cmp.Or(strings.TrimSuffix(e.Outcome+"{"+e.Cause+"}", "{}"), "?"))
		case ended:
			add("end of a job", e.Outcome)
		case fault:
			add("fault", e.Fault)
		}
	}
	return counted
}
