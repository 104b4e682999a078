package engines

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// PID is the daemon's process id.
func (e *Engine) PID() int { return e.daemon.Process.Pid }

// Containerd is the process id of the engine's own containerd.
func (e *Engine) Containerd() (int, error) {
	for _, p := range processes() {
		if filepath.Base(p.argv[0]) == "containerd" && e.mentions(p.argv) {
			return p.pid, nil
		}
	}
	return 0, fmt.Errorf("the engine at %s has no containerd", e.opts.Dir)
}

// Shims are the process ids of the shims of the engine's containers, by the
// containers' ids.
func (e *Engine) Shims() map[string]int {
	shims := map[string]int{}
	for _, p := range processes() {
		if !strings.HasPrefix(filepath.Base(p.argv[0]), "containerd-shim") || !e.mentions(p.argv) {
			continue
		}
		if i := slices.Index(p.argv, "-id"); i >= 0 && i+1 < len(p.argv) {
			shims[p.argv[i+1]] = p.pid
		}
	}
	return shims
}

// Init is the process id, on this machine, of a running container's PID 1.
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

// descendants are the engine's processes: those that name its directories,
// whatever these have started, and those of its containers, which lose their
// parents with a shim.
func (e *Engine) descendants() []*os.Process {
	all := processes()
	mine := map[int]bool{}
	containers := e.containers()
	for _, p := range all {
		if p.pid != os.Getpid() && (e.mentions(p.argv) && program(p.argv[0]) || p.inOneOf(containers)) {
			mine[p.pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if mine[p.parent] && !mine[p.pid] {
				mine[p.pid], grown = true, true
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

// containers are the ids of those that the engine knows, or knew when it was
// last stopped.
func (e *Engine) containers() []string {
	entries, _ := os.ReadDir(filepath.Join(e.opts.DataRoot, "containers")) // none: no containers
	var ids []string
	for _, entry := range entries {
		ids = append(ids, entry.Name())
	}
	return ids
}

// inOneOf reports whether a process is in one of the containers, by its cgroups.
func (p process) inOneOf(containers []string) bool {
	groups, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "cgroup"))
	return err == nil && slices.ContainsFunc(containers, func(id string) bool { return strings.Contains(string(groups), id) })
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

type process struct {
	pid, parent int
	argv        []string
}

// processes lists those of this machine that have arguments.
func processes() []process {
	var list []process
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		argv, err := os.ReadFile(dir + "/cmdline")
		if err != nil || len(argv) == 0 { // gone, a zombie, or the kernel's
			continue
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		// The name stands in parentheses and may hold anything.
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		f := strings.Fields(rest)
		if len(f) < 2 {
			continue
		}
		parent, err := strconv.Atoi(f[1])
		if err != nil {
			continue
		}
		list = append(list, process{pid: pid, parent: parent, argv: strings.Split(strings.TrimRight(string(argv), "\x00"), "\x00")})
	}
	return list
}
