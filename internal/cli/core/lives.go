package core

import (
	"context"
	"errors"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

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
