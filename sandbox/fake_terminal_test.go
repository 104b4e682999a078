package sandbox

import (
	"context"

	"github.com/sandboxbash/sandboxbash/engine"
)

// The fake engine has no terminals.

func (*fakeDocker) Exec(context.Context, engine.ExecID) (engine.ExecState, error) {
	return engine.ExecState{}, engine.ErrNotFound
}

func (*fakeDocker) ResizeExec(context.Context, engine.ExecID, uint, uint) error {
	return engine.ErrNotFound
}

func (*fakeImages) ClearWorkspace(context.Context, string) error { return nil }

func (*fakeImages) ReleaseWorkspace(context.Context, string) error { return nil }
