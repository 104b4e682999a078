package sandbox

import (
	"fmt"
	"strconv"

	"github.com/docker/go-units"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Full is a file system of the session that was full when a command failed, as the kernel counted at that
// moment, or another limit of the session that was met while the command ran. The command may have failed for
// another reason.
type Full struct {
	Path  string // where it is mounted; or FullPids, FullMemory
	Files bool   // true: no file can be created; false: no byte can be written
	Limit int64  // bytes, files or processes; 0: the size of the engine's disk
	// Setting is the key of the setting that limits it, or "".
	Setting string
	flag    string
}

// Limits of a session, as the Path of a Full that is not a file system.
const (
	FullPids   = wire.RoomPids   // the kernel refused a new process or thread
	FullMemory = wire.RoomMemory // the kernel killed a process at the memory limit, and the command went on without it
)

// MarshalText returns the path, which represents f in JSON.
func (f Full) MarshalText() ([]byte, error) {
	return []byte(f.Path), nil
}

// String says what is full, and which setting would give the session more room.
func (f Full) String() string {
	switch {
	case f.Path == FullPids:
		return fmt.Sprintf("the session has reached its limit of %d processes and threads; give it more with --%s (%s)", f.Limit, f.flag, f.Setting)
	case f.Path == FullMemory:
		return fmt.Sprintf("the kernel killed a process at the session's memory limit of %s; give it more with --%s (%s)", units.BytesSize(float64(f.Limit)), f.flag, f.Setting)
	case f.Limit == 0 && f.Files:
		return f.Path + " is full: the engine's disk takes no more files"
	case f.Limit == 0:
		return f.Path + " is full: the engine's disk has no room left"
	}
	text := f.Path + " is full: all of its " + units.BytesSize(float64(f.Limit)) + " are used; "
	if f.Files {
		text = f.Path + " is full: it has as many files as it takes, " + strconv.FormatInt(f.Limit, 10) + "; "
	}
	if f.Setting == "" || f.Files {
		return text + "that number is fixed"
	}
	return text + fmt.Sprintf("give the session more with --%s (%s)", f.flag, f.Setting)
}

// watch lists the file systems that a failing command may have filled, besides those in
// memory. A bound directory is not listed, because its file system might not answer.
func (l labelSpec) watch() []string {
	if l.Shape == 0 {
		return nil // its runner cannot watch
	}
	paths := []string{"/tmp"}
	if l.Workspace.Kind != WorkspaceBind {
		paths = append(paths, l.Workspace.Target)
	}
	if l.Profile == Dev {
		paths = append(paths, "/")
	}
	return paths
}

// full adds the limits to what the runner found full.
func (l labelSpec) full(all []wire.NoRoom) []Full {
	var out []Full
	for _, n := range all {
		f := Full{Path: n.Path, Files: n.Files, Limit: int64(min(n.Size, 1<<62))}
		switch {
		case n.Path == FullPids:
			f.Setting, f.flag, f.Limit = "limits.pids", "pids", l.Limits.Pids
		case n.Path == FullMemory:
			f.Setting, f.flag, f.Limit = "limits.memory", "memory", l.Limits.Memory
		case n.Path == "/tmp":
			f.Setting, f.flag = "limits.tmp", "tmp"
		case below(n.Path, l.home()) && l.Profile == Strict: // or on the way to a mount in it
			f.Setting, f.flag = "limits.home", "home"
		case n.Path == l.Workspace.Target && l.Limits.Disk > 0:
			f.Setting, f.flag = "limits.disk", "disk"
		case n.Path == "/" || n.Path == l.Workspace.Target:
			f.Limit = 0
		}
		out = append(out, f)
	}
	return out
}
