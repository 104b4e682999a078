package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// PostureError says in what a container differs from what was asked of the
// engine. Nothing has run in it.
type PostureError struct {
	Mismatches []string
}

func (e *PostureError) Error() string {
	return "the container is not confined as it should be: " + strings.Join(e.Mismatches, "; ") +
		" (run `sandboxbash doctor` to see what this engine can do)"
}

// settle makes a fresh container ready for its first command: its confinement is
// checked from inside, and its user gets a home.
func (s *Session) settle(ctx context.Context, unenforced []string) error {
	report, err := s.helper(ctx, "posture", maskedPaths...)
	if err != nil {
		return fmt.Errorf("session %s: posture: %w", s.ID(), err)
	}
	want := s.expect(unenforced)
	if wrong := want.compare(string(report)); len(wrong) > 0 {
		if s.info.Profile == Strict {
			return fmt.Errorf("session %s: %w", s.ID(), &PostureError{Mismatches: wrong})
		}
		for _, w := range wrong {
			s.notes = append(s.notes, "profile dev: "+w)
		}
	}
	if strings.Contains("\n"+string(report), "\ncgroup=shown\n") {
		s.notes = append(s.notes, "the engine gives its containers no cgroup namespace: commands see the path of their cgroup, and with it their container's id "+
			"(Podman: cgroupns = \"private\" in containers.conf)")
	}
	if err := s.checkBind(ctx, string(report)); err != nil {
		return fmt.Errorf("session %s: %w", s.ID(), err)
	}
	if _, err := s.helper(ctx, "home"); err != nil {
		return fmt.Errorf("session %s: home: %w", s.ID(), err)
	}
	return nil
}

// expectation is what the posture report must say.
type expectation struct {
	exact  map[string]string   // key: value
	oneOf  map[string][]string // key: values
	mounts map[string]bool     // target: read-only
}

// expect derives the expectation from the session's shape.
func (s *Session) expect(unenforced []string) expectation {
	l := s.info.labels
	id := func(n uint32) string {
		return strings.TrimSpace(strings.Repeat(strconv.FormatUint(uint64(n), 10)+" ", 4))
	}
	refused := []string{"EPERM", "EACCES", "ENOSYS", "EAFNOSUPPORT"}
	want := expectation{
		exact: map[string]string{
			"Uid": id(l.User.UID), "Gid": id(l.User.GID), "Groups": "",
			"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
			"CapBnd": "00000000000000e0", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
			"oom_score_adj": "1000", "rlimit.core": "0:0", "limit.pids": strconv.FormatInt(l.Limits.Pids, 10),
			"limit.memory": strconv.FormatInt(l.Limits.Memory, 10),
		},
		oneOf: map[string][]string{},
		mounts: map[string]bool{
			"/": l.Profile == Strict, runnerDir: true, "/tmp": false, "/run": false, wire.JobsDir: false,
			l.Workspace.Target: l.Workspace.ReadOnly,
		},
	}
	if l.Programs {
		want.mounts[programsDir] = true
	}
	for _, name := range []string{"unshare", "mount", "io_uring", "keyctl", "bpf", "userfaultfd", "af_alg", "af_vsock", "af_packet", "kill_init", "ptrace"} {
		want.oneOf["try."+name] = refused
	}
	for _, path := range maskedPaths {
		want.oneOf["masked."+path] = []string{"nothing", "closed"}
	}
	if l.Network == NetworkNone {
		want.exact["interfaces"] = "lo"
	}
	switch l.Profile {
	case Strict:
		want.mounts[l.home()] = false
	case Dev:
		for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
			want.exact[set] = "00000000000000fb"
		}
		delete(want.oneOf, "try.ptrace")
		delete(want.oneOf, "try.kill_init")
	}
	for _, name := range unenforced {
		delete(want.exact, "limit."+name)
	}
	return want
}

// systemMounts are what every container of an engine has.
var systemMounts = []string{"/proc", "/sys", "/dev"}

// engineFiles are what engines lay over an image so that names resolve.
var engineFiles = []string{"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}

// compare returns what the report says otherwise than expected.
func (want expectation) compare(report string) []string {
	var wrong []string
	seen := map[string]bool{}
	mounted := map[string]bool{}
	for line := range strings.Lines(report) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		seen[key] = true
		if key == "mount" {
			wrong = append(wrong, want.compareMount(value, mounted)...)
			continue
		}
		if exact, ok := want.exact[key]; ok && value != exact {
			wrong = append(wrong, fmt.Sprintf("%s is %q, not %q", key, value, exact))
		}
		if some, ok := want.oneOf[key]; ok && !slices.Contains(some, value) {
			wrong = append(wrong, fmt.Sprintf("%s was answered with %s, not refused", key, value))
		}
	}
	for key := range want.exact {
		if !seen[key] {
			wrong = append(wrong, key+" is not reported")
		}
	}
	for key := range want.oneOf {
		if !seen[key] {
			wrong = append(wrong, key+" is not reported")
		}
	}
	for target := range want.mounts {
		if !mounted[target] {
			wrong = append(wrong, "nothing is mounted at "+target)
		}
	}
	slices.Sort(wrong)
	return wrong
}

// compareMount checks one mount: "target type options".
func (want expectation) compareMount(value string, mounted map[string]bool) []string {
	f := strings.Fields(value)
	if len(f) != 3 {
		return []string{fmt.Sprintf("mount %q is not understood", value)}
	}
	target, kind, options := unescapeMount(f[0]), f[1], strings.Split(f[2], ",")
	mounted[target] = true
	if readOnly, ok := want.mounts[target]; ok {
		if readOnly && !slices.Contains(options, "ro") {
			return []string{target + " is writable"}
		}
		return nil
	}
	for _, dir := range systemMounts {
		if target == dir || strings.HasPrefix(target, dir+"/") {
			return nil
		}
	}
	// A tmpfs over a VOLUME of the image holds nothing of anybody.
	if slices.Contains(engineFiles, target) || kind == "tmpfs" {
		return nil
	}
	return []string{fmt.Sprintf("%s (%s) is mounted, and nobody has asked for it", target, kind)}
}

// unescapeMount undoes the octal escapes of proc_pid_mountinfo(5).
func unescapeMount(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}
