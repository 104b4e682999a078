package docker

import (
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

// ContainerID is the engine's own full identifier of a container.
type ContainerID string

// Container is the shape of a container to create. The sandbox's shape is the
// OCI specification's; what OCI does not say stands next to it.
//
// Of Spec these fields are read, and no others: Process.{Args,Env,Cwd,User,
// Capabilities.Bounding,NoNewPrivileges,OOMScoreAdj,Rlimits}, Root.Readonly,
// Hostname, Mounts, Linux.{Resources.{Memory.{Limit,Swap,Swappiness},CPU.{Quota,Period},
// Pids.Limit},Seccomp,MaskedPaths,ReadonlyPaths,Sysctl}.
//
// A mount has Type "tmpfs" (Options as for mount(8)), "volume" (Source is a
// volume's name; Options "ro", "nocopy") or "bind" (Source is a path on the
// engine's machine; Options "ro").
type Container struct {
	Name     string
	Image    engine.ImageID
	Labels   map[string]string
	Network  string      // "none" or "bridge"
	Runtime  string      // "" is the engine's default
	ShmBytes int64       // size of /dev/shm
	DNS      *engine.DNS // nil: what the engine's own machine has
	Spec     specs.Spec
}

// ContainerState is what the engine knows of a container.
type ContainerState struct {
	ID         ContainerID
	Name       string // without a leading slash
	Image      engine.ImageID
	Labels     map[string]string
	Entrypoint []string // the program and its arguments as run
	Mounts     []Mount
	Status     engine.Status
	OOMKilled  bool
	ExitCode   int       // of PID 1; meaningful when Status is engine.StatusExited
	Error      string    // the engine's words when the start went wrong
	Created    time.Time // by the engine's clock
	Started    time.Time // zero if never
	Finished   time.Time // zero if never or running
	PID        int       // of PID 1 on the engine's machine; 0 if not running
}

// Mount is a mount of an existing container.
type Mount struct {
	Type     string // "volume", "bind" or "tmpfs"
	Source   string // volume name, or a path on the engine's machine
	Target   string
	ReadOnly bool
}

// Volume is a named volume. Options are those of the engine's local driver.
type Volume struct {
	Name    string
	Labels  map[string]string
	Options map[string]string
	// Root: its root directory is uid 0's, whatever it is mounted over with
	// "nocopy". Used on create; without it that is left to the engine.
	Root    bool
	Created time.Time // set by the engine; ignored on create
}
