package exec

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Openings bounds how many runners are opened at a time, so that a burst of commands
// does not make each opening slower than its time limit. A command waits for a slot
// before the time of its opening starts, and often needs none in the end, because
// another command has given its runner back. Pools of one engine share one Openings. It
// is safe for concurrent use.
type Openings struct{ slots chan struct{} }

// NewOpenings returns an Openings with a slot for each processor, and at least four: an
// engine on this machine gains nothing from more, and a remote one takes a few.
func NewOpenings() *Openings {
	return &Openings{slots: make(chan struct{}, max(4, runtime.NumCPU()))}
}

// slotTime is how long an opening keeps its slot. One that takes longer may hang, with
// its container, and must not keep other sessions waiting.
const slotTime = 2 * time.Second

// openingWait is how long a command waits for a slot: far more than a burst takes.
const openingWait = time.Minute

var errCrowded = fmt.Errorf("no runner came free and none could be opened within %s: the engine opens too many, or hangs; "+
	"run fewer commands at once, or look at the engine", openingWait)

// hold starts the time of a slot that has been taken. The slot is free again after
// slotTime, or when release is called.
func (o *Openings) hold() (release func()) {
	once := sync.OnceFunc(func() { <-o.slots })
	timer := time.AfterFunc(slotTime, once)
	return func() {
		timer.Stop()
		once()
	}
}

// crowded is the error of a command that has waited for too long.
func crowded() error {
	return &Error{Outcome: NotStarted, Cause: CauseEngine, Err: fmt.Errorf("runner: %w", errCrowded)}
}
