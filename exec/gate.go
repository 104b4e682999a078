package exec

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// An engine that is asked to open hundreds of runners at once takes longer for each
// of them than anybody waits. So they wait here, before their time begins; and most of
// them need none any more when their turn comes, for another command has ended.

// Gate lets few runners be opened at a time. Pools of one engine share one. It is
// safe for concurrent use.
type Gate struct{ places chan struct{} }

// NewGate returns a Gate with a place for each processor, and four at least: an
// engine on this machine cannot open more, and one elsewhere is asked for a few.
func NewGate() *Gate {
	return &Gate{places: make(chan struct{}, max(4, runtime.NumCPU()))}
}

// placeTime is how long an opening keeps its place. One that takes longer may hang,
// with its container, and must not keep out other sessions for long.
const placeTime = 2 * time.Second

// gateTime is how long a command waits for a place. It is far more than a burst takes.
const gateTime = time.Minute

var errCrowded = fmt.Errorf("no runner came free and none could be opened within %s: the engine opens too many, or hangs; "+
	"run fewer commands at once, or look at the engine", gateTime)

// keep starts the time of a place that was taken and returns how to give it back.
func (g *Gate) keep() (giveBack func()) {
	once := sync.OnceFunc(func() { <-g.places })
	timer := time.AfterFunc(placeTime, once)
	return func() {
		timer.Stop()
		once()
	}
}

// crowded is the error of a command that has waited for too long.
func crowded() error {
	return &Error{Outcome: NotStarted, Cause: CauseEngine, Err: fmt.Errorf("runner: %w", errCrowded)}
}
