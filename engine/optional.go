package engine

import (
	"context"
	"time"
)

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
	// Hold stops the processes of commands until the next runner has started, but only for a
	// short time. It starts no process. It may have no effect while a command is being killed.
	Hold(ctx context.Context, h Handle) error
}

// Pauser is an engine that can stop all processes of a session where they are.
type Pauser interface {
	// Pause stops the processes of a session, which has StatusPaused then, and Resume lets them go on.
	// It is not an error if the session is in that state already. ErrNotRunning: it has ended.
	Pause(ctx context.Context, h Handle) error
	Resume(ctx context.Context, h Handle) error
}

// Waiter is an engine that tells when a session ends.
type Waiter interface {
	// Wait returns once the session is not running, at once if it is not. It may return when the
	// session is reset. Only ctx bounds it. ErrNotFound: the session is not there.
	Wait(ctx context.Context, h Handle) error
}

// Pruner is an engine that keeps something between sessions.
type Pruner interface {
	// Prune removes what is kept and will hardly be used again: what was made from images that
	// are gone, or for other versions of this program. It keeps what a session uses, and returns
	// the names of what it has removed. Provision makes again what is missing.
	Prune(ctx context.Context) ([]string, error)
}

// Caches is an engine that keeps directories between sessions: see Mount. A cache belongs to the uid of the
// session that it was made for, and other uids cannot have it.
type Caches interface {
	// Caches returns all caches, by name.
	Caches(ctx context.Context) ([]Cache, error)
	// RemoveCache removes a cache. ErrNotFound: there is none of that name. ErrConflict: a session has it.
	RemoveCache(ctx context.Context, name string) error
}

// Cache is a directory that is kept between sessions.
type Cache struct {
	Name    string
	UID     uint32
	Created time.Time // by the engine's clock
	Used    time.Time // about when a session last started with it, by the engine's clock
}

// Stock is an engine that can tell how much room what is stored on it takes. That may take long.
type Stock interface {
	// Stored returns what this program has stored on the engine.
	Stored(ctx context.Context) ([]Stored, error)
}

// Stored is something that takes room on an engine.
type Stored struct {
	Kind  StoredKind
	Name  string // the session's id, the cache's name, the image's reference, or the engine's name for it
	Bytes int64  // -1: the engine does not tell
	InUse bool   // a session has it
}

// Add adds to the room that s takes. What is not known makes the sum unknown.
func (s *Stored) Add(bytes int64) {
	if s.Bytes < 0 || bytes < 0 {
		s.Bytes = -1
		return
	}
	s.Bytes += bytes
}

// StoredKind says what something stored is for.
type StoredKind string

// Kinds of what is stored.
const (
	StoredSession StoredKind = "session" // a session that lives: its workspace, its records and what it changed of its image
	StoredKept    StoredKind = "kept"    // a workspace that is kept of a session that has ended
	StoredCache   StoredKind = "cache"
	StoredImage   StoredKind = "image"  // one that this program has made
	StoredShared  StoredKind = "shared" // what sessions share: programs, accounts, runners
)

// The interfaces below are named so that engines agree on them. No caller uses them yet.

// Cloner is an engine that can copy a workspace without the help of a session.
type Cloner interface {
	// Clone copies the workspace of a session, as it is at one moment, for a session that does
	// not exist yet. Provision then uses the copy as it is.
	Clone(ctx context.Context, from, to string) error
}

// Mounter is an engine that can show a running session more of its own machine.
type Mounter interface {
	// Mount shows source at target, and Unmount takes it away again.
	Mount(ctx context.Context, h Handle, source, target string, readOnly bool) error
	Unmount(ctx context.Context, h Handle, target string) error
}
