package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/processes"
)

// scriptVariable marks every process that a script starts on this host. Nothing
// of the host's environment enters a container, so it marks no other.
const scriptVariable = "E2E_SCRIPT"

// settle is how long the engine has to finish what it does in the background
// after it has answered.
// It is only for a loaded machine that it is that long.
const settle = 20 * time.Second

// expectedLeft is how long to look for what is expected to be left.
const expectedLeft = 3 * time.Second

// leftovers says what is left after a while of things with these names on the engine
// and of the processes that a script has started. It removes all of it.
func leftovers(names []string, work string, after time.Duration) []string {
	var left []string
	for deadline := time.Now().Add(after); ; time.Sleep(50 * time.Millisecond) {
		left = append(engineThings(names), scriptProcesses(work)...)
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(left) == 0 {
		return nil
	}
	for _, p := range running(func(p process) bool { return p.of(work) }) {
		if left, err := os.FindProcess(p.PID); err == nil {
			_ = left.Kill()
		}
	}
	for _, name := range names { // before any volume that they use
		_ = exec.Command("docker", "rm", "-fv", name).Run()
	}
	for _, name := range names {
		// The engine cannot remove directories that lie too deep.
		if dir, err := exec.Command("docker", "volume", "inspect", "-f", "{{.Mountpoint}}", name).Output(); err == nil {
			_ = exec.Command("find", strings.TrimSpace(string(dir)), "-mindepth", "1", "-maxdepth", "1", "-exec", "rm", "-rf", "{}", "+").Run()
		}
		for _, args := range [][]string{{"volume", "rm", "-f", name}, {"network", "rm", name}} {
			_ = exec.Command("docker", args...).Run()
		}
	}
	return left
}

// engineThings lists the containers, volumes and networks with these names.
func engineThings(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	var left []string
	for what, args := range map[string][]string{
		"container": {"ps", "-a", "--format", "{{.Names}}"},
		"volume":    {"volume", "ls", "--format", "{{.Name}}"},
		"network":   {"network", "ls", "--format", "{{.Name}}"},
	} {
		out, err := exec.Command("docker", args...).Output()
		if err != nil {
			left = append(left, fmt.Sprintf("%s: cannot tell: %v", what, err))
			continue
		}
		for name := range strings.FieldsSeq(string(out)) {
			if slices.Contains(names, name) {
				left = append(left, what+" "+name)
			}
		}
	}
	slices.Sort(left)
	return left
}

func scriptProcesses(work string) []string {
	var left []string
	for _, p := range running(func(p process) bool { return p.of(work) }) {
		left = append(left, p.String())
	}
	return left
}

// process is one of this host, containers' included.
type process struct{ processes.Process }

func (p process) String() string { return fmt.Sprintf("process %d: %s", p.PID, p.Command()) }

// of reports whether a script started it on the host; "" stands for any script. The
// holder of a terminal or of a network has next to no environment, and the script's directory
// in it; the slash keeps script a from taking those of script a-b.
func (p process) of(work string) bool {
	mark := scriptVariable + "="
	if work != "" {
		mark += work + "\x00"
	}
	if bytes.Contains(append(append([]byte{0}, p.Environ...), 0), []byte("\x00"+mark)) {
		return true
	}
	return (strings.Contains(p.Command(), " pty hold ") || strings.Contains(p.Command(), " session hold ")) && bytes.Contains(p.Environ, []byte("XDG_STATE_HOME="+work+"/"))
}

// running lists what a filter picks of all processes but this one and zombies.
func running(pick func(process) bool) []process {
	var list []process
	for _, one := range processes.All() {
		if p := (process{one}); len(p.Argv) > 0 && p.PID != os.Getpid() && pick(p) {
			list = append(list, p)
		}
	}
	return list
}

// inContainers lists the processes that no script has started on the host and
// whose arguments or environment match.
func inContainers(pattern *regexp.Regexp) []process {
	return running(func(p process) bool {
		return !p.of("") && (pattern.MatchString(p.Command()) || pattern.Match(p.Environ))
	})
}
