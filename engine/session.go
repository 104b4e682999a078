package engine

import (
	"context"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Engine runs sessions. Its methods may be called concurrently. Every call ends with its
// context, or within a bound of the engine's own.
//
// Optional interfaces say what else an engine can do: see Workspaces, Limiter, Cloner and
// Mounter. Which parts of a Shape an engine can hold is in Info.
type Engine interface {
	// Info describes the engine. It is called often, for what does not change: an engine that has to
	// ask another process remembers the answer.
	Info(ctx context.Context) (Info, error)
	// Provision makes and starts a session: the runner is its PID 1, and its workspace
	// belongs to its account. The notes are for the owner of the session. After an error
	// nothing is left of it. ErrNotFound: the image is not there.
	Provision(ctx context.Context, s Shape) (h Handle, notes []string, err error)
	// Find returns the session of that id. ErrNotFound: there is none, or what has its
	// name was not made by Provision.
	Find(ctx context.Context, id string) (Session, error)
	// List returns all that Provision, Attach and Keep have made, in any status, oldest first.
	List(ctx context.Context) ([]Session, error)
	// Open starts a process in a running session and attaches to it. ctx bounds only the
	// opening: the stream lives until its Close, which does not end the process.
	// ErrNotRunning: the session has ended or is paused.
	Open(ctx context.Context, h Handle, e Exec) (Stream, error)
	// Sweep tells PID 1 to end the processes that finished commands have left running. It must
	// work when the session can start no process any more.
	Sweep(ctx context.Context, h Handle) error
	// Reset ends every process of the session and starts it again. What outlives that is
	// in Info.ResetKeeps. ErrNotRunning: all has ended, and the session did not start
	// again. After any other error its processes may still run.
	Reset(ctx context.Context, h Handle) error
	// End ends the session and removes what was made for it, but for its workspace and its
	// records: it has StatusLeft then. A session that is not there is not an error.
	End(ctx context.Context, h Handle) error
	// Remove ends the session and removes all that was made for it. ErrNotFound: there was
	// nothing of it. ErrConflict: its workspace is being read.
	Remove(ctx context.Context, h Handle) error
	// Usage says what the session uses now.
	Usage(ctx context.Context, h Handle) (Usage, error)
}

// Handle names a session on its engine.
type Handle struct {
	ID string // of the session
	// Ref is the engine's own name for what runs; "" where nothing is left but a
	// workspace. A session that was made again has another.
	Ref string
}

// Session is a session as its engine knows it.
type Session struct {
	Handle
	Labels    map[string]string // those of its Shape, its Helper, or Keep
	Status    Status
	OOMKilled bool      // memory ran out in it
	ExitCode  int       // of PID 1; meaningful when Status is StatusExited
	Created   time.Time // by the engine's clock
	Started   time.Time // zero if never
	Finished  time.Time // zero if never or running
}

// Statuses of sessions that have ended, of which only a workspace may be left. Their
// Handle has no Ref.
const (
	StatusKept  Status = "kept"  // see Workspaces.Keep
	StatusLeft  Status = "left"  // it was never started, or something else removed it
	StatusStray Status = "stray" // it was kept, and its workspace has gone
)

// Confinement is everything that a process of a session, or a helper, is given. Spec holds what
// the OCI specification describes.
//
// Of Spec these fields are read, and no others: Process.{Args,Env,Cwd,
// Capabilities.Bounding,NoNewPrivileges,OOMScoreAdj,Rlimits}, Root.Readonly, Hostname,
// Mounts (of type tmpfs), Linux.{Resources.{Memory.{Limit,Swap,Swappiness},
// CPU.{Quota,Period},Pids.Limit},Seccomp,MaskedPaths,ReadonlyPaths,Sysctl}.
type Confinement struct {
	// Exact refuses what the engine would drop a part of with a warning.
	Exact    bool
	Network  string // "none" or "bridge"
	Runtime  string // "" is the engine's default
	ShmBytes int64  // size of /dev/shm
	DNS      *DNS   // nil: what the engine's own machine has
	Spec     specs.Spec
}

// Shape is a session to provision.
type Shape struct {
	ID string // a ValidID
	Confinement
	Image Image
	// Account is the user of its commands, who owns the workspace.
	Account   Account
	Workspace Workspace
	// Mounts are what the session sees besides. A cache that does not exist is made, for the account:
	// see Caches. The error is a *CacheError if the session cannot have one. An engine that is not a
	// Caches is asked for none.
	Mounts  []Mount
	Records string // a directory of uid 0's, absolute, on disk, that outlives a reset
	// Programs lets the engine lay a read-only copy of the image's ProgramsDir over it,
	// where that is faster. Names lets it do so with AccountsDir, so that the account has
	// a name.
	Programs, Names bool
	// Made are labels of all that is made for the session, and Draft of its workspace as well:
	// they identify a session whose making was interrupted.
	Made, Draft map[string]string
	// Labels are the session's. It is called once, before the session starts, with what
	// was laid over the image.
	Labels func(Overlays) map[string]string
}

// Overlays say which directories of the image a copy was laid over. See Shape.
type Overlays struct{ Programs, Accounts bool }

// Workspace is the directory that a session works in. Its zero value with a Target is
// empty and on disk.
type Workspace struct {
	Target   string // absolute
	Bind     string // a directory of the engine's machine that is the workspace; "" for one of its own
	ReadOnly bool   // with Bind
	Size     int64  // bytes, kept in memory; 0 is on disk, without a limit
}

// Content is files for an engine to put in place.
type Content struct {
	// ID is part of names: digits and lower-case letters. Other files have another ID.
	ID string
	// Write writes the files as a tar archive of a root file system, the same bytes each
	// time.
	Write func(w io.Writer) error
}

// Account is a user and the name that it has in passwd and group.
type Account struct {
	UID, GID   uint32
	Name, Home string
}

// Helper is a process of the runner's program over workspaces of sessions, in an image
// that holds that program alone. It has no workspace of its own, and those that it sees
// are read-only.
type Helper struct {
	ID string // a ValidID
	Confinement
	Over   []Attachment
	Labels map[string]string
}

// Attachment is a workspace that a helper sees.
type Attachment struct {
	Session string // its id
	Target  string // where the workspace is mounted
	Records string // where the session's records are mounted, if there are any; "": nowhere
}

// GoneError says that a workspace is not there. It is an ErrNotFound.
type GoneError struct{ Session string }

func (e *GoneError) Error() string { return "session " + e.Session + ": its workspace is gone" }

func (e *GoneError) Unwrap() error { return ErrNotFound }

// What every engine and every session agree on.
const (
	RunnerDir   = wire.RunnerDir  // where the runner is mounted, read-only
	RunnerPath  = wire.RunnerPath // the runner
	ProgramsDir = "/usr"          // see Shape.Programs
	AccountsDir = "/etc"          // see Shape.Names
)

// LabelRole is the label that says what something that we have made on an engine is for.
// RoleSnapshot is its value for images of a machine's own programs.
const (
	LabelRole    = "sandboxbash.role"
	RoleSnapshot = "host"
)

// The repositories of images that an engine may make for itself. Images of users cannot
// have these names.
const (
	RunnerRepo    = "sandboxbash/runner"
	WorkspaceRepo = "sandboxbash/workspace"
)

// ValidID reports whether id has the form of a session's: a UUID in lower case.
func ValidID(id string) bool {
	u, err := uuid.Parse(id)
	return err == nil && u.String() == id
}

// Mount is a directory that a session sees besides its workspace: one of the engine's machine, or a cache.
type Mount struct {
	Dir      string // of the engine's machine, absolute; "" for a cache
	Cache    string // the cache's name, a ValidCacheName; "" for a Dir
	Target   string // absolute
	ReadOnly bool
}

// ValidCacheName reports whether a cache can have this name: up to 63 of a-z, 0-9, '.', '_' and '-', of which
// the first is a letter or a digit.
func ValidCacheName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return name != "" && len(name) <= 63
}

// CacheError says why a session cannot have a cache. Nothing was changed.
type CacheError struct{ Name, Reason string }

func (e *CacheError) Error() string { return "cache " + e.Name + ": " + e.Reason }
