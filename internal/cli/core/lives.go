package core

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// How much the heap may grow before garbage is collected, in percent. A call lives for some
// milliseconds, in which the usual 100 would have it collect once or twice, for nothing.
const (
	shortGC = 400
	longGC  = 100
)

// LivesShort is for a process of one call, unless its user has chosen a GOGC. The memory that it needs
// at most, before garbage is collected for the first time, is 16 MiB.
func (e *Environment) LivesShort() {
	if e.Getenv("GOGC") == "" {
		debug.SetGCPercent(shortGC)
	}
}

// LivesLong takes LivesShort back, for a server or a holder.
func LivesLong() {
	if before := debug.SetGCPercent(longGC); before != shortGC {
		debug.SetGCPercent(before)
	}
}

// ErrSessionEnded is the cause of a context of Lives whose session has ended.
var ErrSessionEnded = errors.New("the session has ended")

// Lives returns a context that ends with ctx, when the session has ended, or when the engine can no
// longer say whether it has. An engine that cannot be asked this leaves the context as it is. The caller calls the function.
func Lives(ctx context.Context, sessions *sandbox.Engine, id string) (context.Context, func()) {
	lives, end := context.WithCancelCause(ctx)
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, err := sessions.Wait(lives, id)
		if err == nil {
			end(ErrSessionEnded)
		} else if !errors.Is(err, errors.ErrUnsupported) {
			end(err)
		}
	}()
	return lives, func() { end(nil); <-waited }
}
