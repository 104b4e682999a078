package engines

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxbash/sandboxbash/e2e/processes"
)

// PID returns the daemon's process id.
func (e *Engine) PID() int { return e.daemon.Process.Pid }

// Containerd returns the process id of the engine's containerd.
func (e *Engine) Containerd() (int, error) {
	for _, p := range running() {
		if filepath.Base(p.Argv[0]) == "containerd" && e.mentions(p.Argv) {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("the engine at %s has no containerd", e.opts.Dir)
}

// Shims returns the process ids of the shims of the engine's containers, by container id.
func (e *Engine) Shims() map[string]int {
	shims := map[string]int{}
	for _, p := range running() {
		if !strings.HasPrefix(filepath.Base(p.Argv[0]), "containerd-shim") || !e.mentions(p.Argv) {
			continue
		}
		if i := slices.Index(p.Argv, "-id"); i >= 0 && i+1 < len(p.Argv) {
			shims[p.Argv[i+1]] = p.PID
		}
	}
	return shims
}

// Init returns the process id on this machine of a running container's PID 1.
func (e *Engine) Init(ctx context.Context, container string) (int, error) {
	out, err := e.Docker(ctx, "inspect", "--format", "{{.State.Pid}}", container)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(out)
	if err != nil || pid == 0 {
		return 0, fmt.Errorf("container %s has no process: %q", container, out)
	}
	return pid, nil
}

// mentions reports whether arguments name a path of the engine's.
func (e *Engine) mentions(argv []string) bool {
	return slices.ContainsFunc(argv, e.owns)
}

// descendants returns the engine's processes: those whose arguments name its directories,
// everything that these have started, and the processes of its containers, which are
// orphans after their shim has ended.
func (e *Engine) descendants() []*os.Process {
	all := running()
	mine := map[int]bool{}
	containers := e.containers()
	for _, p := range all {
		if p.PID != os.Getpid() && (e.mentions(p.Argv) && program(p.Argv[0]) || p.InContainer(containers...)) {
			mine[p.PID] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if mine[p.Parent] && !mine[p.PID] {
				mine[p.PID], grown = true, true
			}
		}
	}
	var list []*os.Process
	for pid := range mine {
		if p, err := os.FindProcess(pid); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// containers returns the ids of the containers that the engine knows, or knew when it was
// last stopped.
func (e *Engine) containers() []string {
	entries, _ := os.ReadDir(filepath.Join(e.opts.DataRoot, "containers")) // none: no containers
	var ids []string
	for _, entry := range entries {
		ids = append(ids, entry.Name())
	}
	return ids
}

// program reports whether a program is one that makes up an engine.
func program(name string) bool {
	base := filepath.Base(name)
	switch base {
	case "dockerd", "unshare", "runc", "crun", "podman", "conmon", "fuse-overlayfs":
		return true
	}
	return strings.HasPrefix(base, "containerd") || strings.HasPrefix(base, "runsc")
}

// running returns the processes of this machine that have arguments.
func running() []processes.Process {
	return slices.DeleteFunc(processes.All(), func(p processes.Process) bool { return len(p.Argv) == 0 })
}
