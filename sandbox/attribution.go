package sandbox

import (
	"slices"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// maxRan bounds the commands that connections are attributed to.
const maxRan = 256

// ran knows which commands have run lately on which runners. A connection belongs to the
// command that its runner ran when it was made.
type ran struct {
	mu  sync.Mutex
	all []*ranOn // guarded by mu; the oldest first
}

// ranOn is a command on a runner. All is guarded by ran.mu.
type ranOn struct {
	id         string
	runner     int // pid in the session
	start, end time.Time
}

// follow returns an OnRunner for one command, and a function to call when the command has ended
// or has become a job. Both must be called by the goroutine that runs the command.
func (r *ran) follow(id string) (onRunner func(pid int), over func(job bool)) {
	var on *ranOn
	over = func(job bool) { r.over(on, job) }
	return func(pid int) {
		over(false) // a first try that found no room
		on = r.begin(id, pid)
	}, over
}

// begin notes that a runner runs a command.
func (r *ran) begin(id string, runner int) *ranOn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= maxRan {
		r.all = r.all[1:]
	}
	on := &ranOn{id: id, runner: runner, start: time.Now()}
	r.all = append(r.all, on)
	return on
}

// over notes that the command has ended. A job goes on, and so does its runner.
func (r *ran) over(on *ranOn, job bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if on != nil && !job {
		on.end = time.Now()
	}
}

// find returns the command that a runner ran at a time, or "".
func (r *ran) find(runner int, at time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, on := range slices.Backward(r.all) {
		if on.runner == runner && !at.Before(on.start) && (on.end.IsZero() || !at.After(on.end)) {
			return on.id
		}
	}
	return ""
}

// owner returns the command that has made a connection, or "" if the runner has not said.
func (x *exceptions) owner(conn gateway.Conn, at time.Time) string {
	c, ok := conn.(connection)
	if !ok {
		return ""
	}
	owner, known := c.Owner()
	if !known || owner.Runner == 0 {
		return ""
	}
	return x.session.ran.find(owner.Runner, at)
}
