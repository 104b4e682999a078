package keeper

import (
	"context"
	"errors"
	"io"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

type runner = sandbox.IdleRunner

// Store keeps nothing: files cannot be handed over here.
type Store struct{}

// New returns nil: there are no keepers here.
func New(Options) *Store { return nil }

// Take implements sandbox.Runners.
func (*Store) Take(context.Context, engine.Handle) (runner, bool) { return runner{}, false }

// Leave implements sandbox.Runners.
func (*Store) Leave(_ engine.Handle, r runner) { _ = r.File.Close() }

// Sweep does nothing.
func Sweep(holder.Environment) {}

// Main returns an error: there are no keepers here.
func Main(context.Context, io.Reader) error { return errors.ErrUnsupported }
