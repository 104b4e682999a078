package exec

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Openings bounds how many runners are opened at a time. Otherwise a burst of commands could
// make each opening take longer than its time limit. A command waits for a slot before the
// time of its opening starts. Often it needs no slot in the end, because another command has
// given its runner back. The pools of one engine should share one Openings. It is safe for
// concurrent use.
type Openings struct{ slots chan struct{} }

// NewOpenings returns an Openings with one slot for each processor, but at least four. More
// would not help an engine on this machine, and a remote engine can do some in parallel.
func NewOpenings() *Openings {
	return &Openings{slots: make(chan struct{}, max(4, runtime.NumCPU()))}
}

// slotTime is how long an opening keeps its slot. An opening that takes longer may hang
// because of its container, and must not keep other sessions waiting.
const slotTime = 2 * time.Second

// openingWait is how long a command waits for a slot. It is much longer than a burst takes.
const openingWait = time.Minute

var errCrowded = fmt.Errorf("no runner came free and none could be opened within %s: the engine is opening too many, or hangs; "+
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

// crowded returns the error of a command that has waited too long for a slot.
func crowded() error {
	return &Error{Outcome: NotStarted, Cause: CauseEngine, Err: fmt.Errorf("runner: %w", errCrowded)}
}
