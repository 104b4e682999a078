package engine

import "context"

// Workspaces is an engine that can keep the workspace of a session that has ended, and
// read it.
type Workspaces interface {
	// Keep makes a workspace whose session has ended a kept one. From then on Find and List
	// return it with StatusKept and these labels. ErrNotFound: the workspace has gone, and
	// nothing is kept.
	Keep(ctx context.Context, id string, labels map[string]string) error
	// Attach starts a helper, as Provision starts a session. The error is a *GoneError if
	// a workspace is not there.
	Attach(ctx context.Context, p Helper) (Handle, error)
}

// Limiter is an engine that can change the limits of a running session.
type Limiter interface {
	// Limit sets the limits of u that are not zero, from now on. Processes beyond PidsLimit
	// go on; only new ones are refused. ErrInvalid: the engine cannot set MemoryLimit, as
	// the session uses more.
	Limit(ctx context.Context, h Handle, u Usage) error
}

// Holder is an engine that can hold the commands of a session.
type Holder interface {
	// Hold stops what commands run until the next runner has started, for a short time at
	// most. It starts no process. It may have no effect while a command is being killed.
	Hold(ctx context.Context, h Handle) error
}

// Pruner is an engine that keeps something between sessions.
type Pruner interface {
	// Prune removes what it keeps and will hardly be used again: what was made of images
	// that are gone, or for other versions of this program. What a session uses stays. It
	// returns the names. Provision makes again what it misses.
	Prune(ctx context.Context) ([]string, error)
}

// The interfaces below are named so that engines agree on them. No caller uses them yet.

// Cloner is an engine that can copy a workspace without the help of a session.
type Cloner interface {
	// Clone makes the workspace of a session that is not there yet a copy of another's, as
	// it is at one moment. Provision then takes it as it is.
	Clone(ctx context.Context, from, to string) error
}

// Mounter is an engine that can show a running session more of its own machine.
type Mounter interface {
	// Mount shows source at target, and Unmount takes it away again.
	Mount(ctx context.Context, h Handle, source, target string, readOnly bool) error
	Unmount(ctx context.Context, h Handle, target string) error
}
