// Package engine says what an engine is: a program that runs sessions, such as a Docker
// daemon. Engine is its interface, in terms of sessions: an engine provisions a session
// from a Shape, finds and lists sessions, opens processes in them, and resets, ends and
// removes them. What not every engine can do is in optional interfaces: see Workspaces,
// Limiter, Holder, Pauser, Waiter and Pruner. How a session comes about, with containers, volumes or pods, is the
// engine's own business.
//
// Package engine/docker has an Engine for Docker and Podman, and engine/enginetest has one
// in memory, for tests. The packages above this one do not know which engine they use.
// docs/engines.md says how to write another.
//
// Image, Build and Progress are for engines that also store images: package images has
// the interface that it needs of those.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// ImageID is the engine's own full identifier of an image. It has the form
// "sha256:<64 hex digits>": it is a content address, a reference is not.
type ImageID string

// Info describes an engine. Limits that it cannot enforce are listed by name,
// because some engines drop those silently.
type Info struct {
	Name           string   // product, as in "docker"
	Version        string   // of the engine
	APIVersion     string   // negotiated
	Address        string   // where it was reached, as in "unix:///var/run/docker.sock"
	Source         string   // what named the address, or whose socket it is, as in "DOCKER_HOST" and "Podman's"; may be ""
	OS             string   // as in "linux"
	Arch           string   // GOARCH form, as in "amd64"
	CPUs           int      // online on the engine's machine
	MemoryBytes    int64    // of the engine's machine
	CgroupVersion  string   // "1" or "2"
	CgroupDriver   string   // as in "systemd"
	StorageDriver  string   // as in "overlay2"
	RuncVersion    string   // of the default runtime, as reported; "" if unknown
	KernelVersion  string   // of the engine's machine
	DefaultRuntime string   // as in "runc"
	Runtimes       []string // registered, sorted
	SecurityOpts   []string // as reported, as in "name=seccomp,profile=default"
	Rootless       bool     // the engine runs as an ordinary user: uid 0 of a session is that user, and other uids are subordinate ones
	Remapped       bool     // uids of a session are others on the engine's machine (userns-remap); not set where Rootless is
	// EmptyResolver: /etc/resolv.conf of a session without a network is empty, whatever
	// DNS it was given. A resolver then asks 127.0.0.1, where nothing answers.
	EmptyResolver bool
	ResetKeeps    Survival // what of a workspace outlives Engine.Reset
	Unenforced    []string // limits the engine would drop, as in "memory", "swap", "pids", "cpus"
	// Unheld are parts of the posture that the engine cannot give, by their names in the
	// runner's report, as in "Seccomp". Profile strict refuses such an engine.
	Unheld   []string
	Warnings []string // the engine's warnings about itself
}

// Survival says what of a workspace outlives a reset.
type Survival int

// Kinds of survival.
const (
	KeepsDisk   Survival = iota // what is on disk; a Helper over a workspace in memory keeps that too
	KeepsMemory                 // what is in memory too
	KeepsNone                   // the engine has no reset: a session that needs one is removed
)

// Image is an image that is present on the engine.
type Image struct {
	ID      ImageID
	Refs    []string // "repo:tag" names, sorted; empty for a dangling image
	OS      string
	Arch    string // GOARCH form
	Size    int64  // bytes
	Created time.Time
	Labels  map[string]string
	Env     []string // the image's ENV, as K=V; data only, it decides nothing by itself
}

// ImageConfig is the configuration given to an image that is made from a root
// file system.
type ImageConfig struct {
	Ref    string // repo:tag to give it
	OS     string
	Arch   string // GOARCH form
	Labels map[string]string
}

// Build is an image to build from a Dockerfile.
type Build struct {
	Dockerfile string // its path within the context; "" is "Dockerfile"
	Target     string // the stage to build; "" is the last one
	Ref        string // repo:tag to give the image; "" gives it none
	Labels     map[string]string
	Args       map[string]string // values of the Dockerfile's ARG
	Network    string            // of what it runs: "host" or "none"; "" is the engine's own choice
}

// Progress is one step of a pull, load or build. Current and Total are bytes,
// both zero when the step has no size.
type Progress struct {
	ID      string // layer or step; empty for a message about the whole
	Status  string
	Current int64
	Total   int64
}

// DNS is what /etc/resolv.conf of a session says. Engines fill an empty field from
// their own machine. Search may be ".", which means that there is no search list.
type DNS struct {
	Servers []string // IP addresses
	Search  []string
	Options []string // as in resolv.conf(5)
}

// Status says what a session is doing.
type Status string

// Statuses.
const (
	StatusCreated    Status = "created" // not started so far
	StatusRunning    Status = "running"
	StatusPaused     Status = "paused"
	StatusRestarting Status = "restarting"
	StatusRemoving   Status = "removing"
	StatusExited     Status = "exited"
	StatusDead       Status = "dead" // it has ended, and the engine could not remove it
)

// Usage is what a running session uses at this moment, by the engine's count, and what it may
// use. A limit of zero means that there is none.
type Usage struct {
	Pids        int64 // processes and threads
	PidsLimit   int64
	Memory      int64 // bytes that cannot be given back without killing
	MemoryLimit int64 // bytes
}

// Exec is a process to start in a running session. Its working directory is
// always "/" and its environment the session's.
type Exec struct {
	Args []string // constant: engines log them
	User string   // numeric uid:gid
	TTY  bool
	Rows uint // initial size of the terminal; 0 leaves it to the engine
	Cols uint
}

// Stream is the attached standard streams of an exec. Write feeds its standard
// input and CloseWrite ends it. Read returns its standard output (with a
// terminal: its output), demultiplexed; what the process writes to standard
// error is given to Stderr in bounded form. Read and Write may be called
// concurrently with each other and with Close, which unblocks both.
type Stream interface {
	io.ReadWriteCloser
	CloseWrite() error
	// Stderr returns the last bytes (at most 4 KiB) that the process wrote to
	// its standard error, for an error message.
	Stderr() string
	// Resize sets the size of the terminal. The error is ErrNotFound or ErrNotRunning
	// if the process has ended.
	Resize(ctx context.Context, rows, cols uint) error
	// ExitCode waits until the engine knows the exit code of the process, or ctx ends.
	// It does not read the stream, and may be called after Close.
	ExitCode(ctx context.Context) (int, error)
}

// Errors that an engine reports, to be tested with errors.Is. They come wrapped
// in an *Error that carries the engine's own words.
var (
	ErrNotFound    = errors.New("not found")              // no such session, workspace, image or process
	ErrConflict    = errors.New("conflict")               // the name is taken, the state does not allow it
	ErrNotRunning  = errors.New("not running")            // the session has ended or is paused
	ErrDenied      = errors.New("denied")                 // authentication or authorisation
	ErrInvalid     = errors.New("invalid request")        // the engine refused the parameters
	ErrUnreachable = errors.New("engine is unreachable")  // no connection, or it broke before the request was sent
	ErrTooOld      = errors.New("engine is too old")      // below the API version we need
	ErrAnswer      = errors.New("not an engine's answer") // what answered is longer than any engine's word
	ErrAddress     = errors.New("bad engine address")     // it, or what it needs, is not usable as it was given
	ErrImage       = errors.New("no such image")          // the reference is malformed, or there is no image for it
	ErrSource      = errors.New("not an image")           // what an image was to be made from is missing or cannot be used
)

// Error is a failed engine call.
type Error struct {
	Op   string // what was asked, as in "create container sandboxbash-…"
	Kind error  // one of the errors above, or nil
	Err  error  // the engine's own error; its text is for people, nothing is decided by it
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Op, e.Err) }

// Unwrap makes both the kind and the cause visible to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Err}
	}
	return []error{e.Kind, e.Err}
}
