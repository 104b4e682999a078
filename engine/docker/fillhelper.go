package docker

import (
	"context"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

// fillHelper is a helper that fills the workspace of a session. The zero value is none.
type fillHelper struct{ helper ContainerID }

// fill starts the helper and has the workspace filled. A workspace in memory exists as long as the helper does, or the
// session: so the helper is ended later.
func (f *fillHelper) fill(ctx context.Context, e *Engine, s engine.Shape) (err error) {
	fill := s.Workspace.Fill
	own := []specs.Mount{readWrite(namePrefix+s.ID, fill.Target)}
	if fill.Records != "" {
		own = append(own, readWrite(namePrefix+s.ID+recordsSuffix, fill.Records))
	}
	if f.helper, err = e.attach(ctx, fill.Helper, own); err != nil {
		return e.discardMade(ctx, err)
	}
	return fill.Do(ctx, engine.Handle{ID: fill.Helper.ID, Ref: string(f.helper)})
}

// end removes the helper. One that the engine does not remove ends with its lease, and is reaped.
func (f *fillHelper) end(ctx context.Context, e *Engine) {
	if f.helper == "" {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), callTimeout, errSlow)
	defer cancel()
	_ = e.containers.RemoveContainer(ctx, f.helper)
}
