package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// PostureError lists how a container's confinement differs from what the engine was asked
// for. No command has run in the container.
type PostureError struct {
	Mismatches []string
}

func (e *PostureError) Error() string {
	return "the container is not confined as it should be: " + strings.Join(e.Mismatches, "; ")
}

// makeReady makes a new container ready for its first command. It checks the confinement from
// inside and creates the user's home.
func (s *Session) makeReady(ctx context.Context, info engine.Info) error {
	report, wrong, err := s.posture(ctx, s.pool.Run, info)
	if err != nil {
		return fmt.Errorf("session %s: %w", s.ID(), err)
	}
	for _, w := range wrong {
		s.notes = append(s.notes, "profile dev: "+w)
	}
	if report.Has(wire.FactCgroup, wire.CgroupShown) {
		s.notes = append(s.notes, "the engine gives its containers no cgroup namespace: commands see the path of their cgroup, and with it their container's id "+
			"(Podman: cgroupns = \"private\" in containers.conf)")
	}
	if report.Has(wire.FactHosts, wire.HostsForeign) {
		s.notes = append(s.notes, "the engine gives its containers the names in its machine's /etc/hosts "+
			"(Podman: base_hosts_file = \"none\" in containers.conf)")
	}
	if err := s.checkBinds(ctx, report); err != nil {
		return fmt.Errorf("session %s: %w", s.ID(), err)
	}
	if _, err := s.helper(ctx, wire.VerbHome.Command()); err != nil {
		return fmt.Errorf("session %s: home: %w", s.ID(), err)
	}
	return nil
}

// posture runs the verb that reports what confines the session, and compares the report with
// the expectation. A difference is an error in profile strict and a note in profile dev.
func (s *Session) posture(ctx context.Context, run runFunc, info engine.Info) (report wire.Posture, wrong []string, err error) {
	var out bytes.Buffer
	streams := helperStreams{out: &limited{w: &out, left: maxHelperOutput}, timeout: helperTime, run: run}
	if err := s.helperTo(ctx, streams, wire.VerbPosture.Command(&wire.PostureArgs{Masked: maskedPaths})); err != nil {
		return nil, nil, fmt.Errorf("posture: %w", err)
	}
	if report, err = wire.ParsePosture(out.Bytes()); err != nil {
		return nil, nil, fmt.Errorf("posture: %w", err)
	}
	if open := s.reachable(report); len(open) > 0 { // in profile dev too
		return nil, nil, &PostureError{Mismatches: open}
	}
	wrong = s.expect(info).compare(report)
	if len(wrong) > 0 && s.info.Profile == Strict {
		return nil, nil, &PostureError{Mismatches: wrong}
	}
	return report, wrong, nil
}

// expectation holds the facts that a posture report must have.
type expectation struct {
	exact  map[wire.FactKey]string   // key: value
	spare  map[wire.FactKey]int64    // key: by how much a number may be above its exact value
	oneOf  map[wire.FactKey][]string // key: values
	mounts map[string]bool           // target: read-only
}

// expect derives the expectation from the session's shape.
func (s *Session) expect(info engine.Info) expectation {
	l := s.info.labels
	id := func(n uint32) string {
		return strings.TrimSpace(strings.Repeat(strconv.FormatUint(uint64(n), 10)+" ", 4))
	}
	refused := []string{"EPERM", "EACCES", "ENOSYS", "EAFNOSUPPORT"}
	want := expectation{
		exact: map[wire.FactKey]string{
			"Uid": id(l.User.UID), "Gid": id(l.User.GID), "Groups": "",
			"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
			"CapBnd": "00000000000000e0", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
			wire.FactOOMScore: "1000", wire.FactRlimit.Of("core"): "0:0", wire.FactLimit.Of("pids"): strconv.FormatInt(l.Limits.Pids, 10),
			wire.FactLimit.Of("memory"): strconv.FormatInt(l.Limits.Memory, 10),
		},
		oneOf: map[wire.FactKey][]string{},
		spare: map[wire.FactKey]int64{},
		mounts: map[string]bool{
			"/": l.Profile == Strict, engine.RunnerDir: true, "/tmp": false, "/run": false, wire.JobsDir: false,
			l.Workspace.Target: l.Workspace.ReadOnly,
		},
	}
	if l.Programs {
		want.mounts[engine.ProgramsDir] = true
	}
	if l.Accounts {
		want.mounts[engine.AccountsDir] = true
	}
	for _, name := range []string{"unshare", "mount", "io_uring", "keyctl", "bpf", "userfaultfd", "af_alg", "af_vsock", "af_packet", "kill_init", "ptrace"} {
		want.oneOf[wire.FactTry.Of(name)] = refused
	}
	for _, path := range maskedPaths {
		want.oneOf[wire.FactMasked.Of(path)] = []string{wire.MaskedNothing, wire.MaskedClosed}
	}
	if l.Network == NetworkNone {
		want.exact[wire.FactInterfaces] = "lo"
	}
	if l.Shape >= 2 && l.Network == NetworkNone {
		for _, name := range []string{"public", "public6", "dns", "metadata", "gateway"} {
			want.oneOf[wire.FactReach.Of(name)] = unreachable
		}
	}
	if l.Shape >= 1 {
		// On a kernel without this setting only uid 0 may listen on low ports.
		want.oneOf[wire.FactSysctl.Of(wire.UnprivilegedPorts)] = []string{"0", wire.FactUnknown}
		if l.Network == NetworkNone {
			nameserver, options := wire.FactResolver.Of("nameserver"), wire.FactResolver.Of("options")
			want.oneOf[nameserver] = []string{"127.0.0.1"}
			want.oneOf[wire.FactResolver.Of("search")] = []string{"", "."} // engines leave the "." out
			want.oneOf[options] = []string{strings.Join(resolverOptions, " ")}
			if info.EmptyResolver {
				want.oneOf[nameserver] = append(want.oneOf[nameserver], "")
				want.oneOf[options] = append(want.oneOf[options], "")
			}
		}
	}
	if s.restarted != nil && s.restarted.pending.Load() {
		// Another process may be asking the session something at this moment: see withSpare.
		want.spare[wire.FactLimit.Of("pids")] = maxSpare
	}
	switch l.Profile {
	case Strict:
		if !l.HomeInside {
			want.mounts[l.home()] = false
		}
	case Dev:
		want.exact["CapPrm"], want.exact["CapEff"] = "00000000000000fb", "00000000000000fb"
		want.exact["CapBnd"] = "00000000200000fb" // CAP_AUDIT_WRITE, which no command can gain
		delete(want.oneOf, wire.FactTry.Of("ptrace"))
		delete(want.oneOf, wire.FactTry.Of("kill_init"))
	}
	for _, m := range l.Mounts {
		want.mounts[m.Target] = m.ReadOnly
	}
	for _, name := range info.Unenforced {
		delete(want.exact, wire.FactLimit.Of(name))
	}
	for _, name := range info.Unheld {
		delete(want.exact, wire.FactKey(name))
		delete(want.oneOf, wire.FactKey(name))
	}
	return want
}

// systemMounts are what every container of an engine has.
var systemMounts = []string{"/proc", "/sys", "/dev"}

// engineFiles are the files that engines mount over an image so that names resolve.
var engineFiles = []string{"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}

// compare returns the differences between the report and the expectation.
func (want expectation) compare(report wire.Posture) []string {
	var wrong []string
	seen := map[wire.FactKey]bool{}
	mounted := map[string]bool{}
	for _, fact := range report {
		key, value := fact.Key, fact.Value
		seen[key] = true
		if key == wire.FactMount {
			wrong = append(wrong, want.compareMount(fact, mounted)...)
			continue
		}
		if exact, ok := want.exact[key]; ok && value != exact && !within(value, exact, want.spare[key]) {
			wrong = append(wrong, fmt.Sprintf("%s is %q, not %q", key, value, exact))
		}
		if some, ok := want.oneOf[key]; ok && !slices.Contains(some, value) {
			if slices.Contains(some, "EPERM") {
				wrong = append(wrong, fmt.Sprintf("%s was answered with %s, not refused", key, value))
			} else {
				wrong = append(wrong, fmt.Sprintf("%s is %q, not one of %q", key, value, some))
			}
		}
	}
	for key := range want.exact {
		if !seen[key] {
			wrong = append(wrong, string(key)+" is not reported")
		}
	}
	for key := range want.oneOf {
		if !seen[key] {
			wrong = append(wrong, string(key)+" is not reported")
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

// within reports whether a number is above exact by at most spare.
func within(value, exact string, spare int64) bool {
	n, err := strconv.ParseInt(value, 10, 64)
	least, exactErr := strconv.ParseInt(exact, 10, 64)
	return spare > 0 && err == nil && exactErr == nil && n >= least && n-least <= spare
}

// compareMount checks one mount.
func (want expectation) compareMount(fact wire.Fact, mounted map[string]bool) []string {
	m, ok := fact.Mount()
	if !ok {
		return []string{fmt.Sprintf("mount %q is not understood", fact.Value)}
	}
	target, kind := m.Target, m.Type
	mounted[target] = true
	if readOnly, ok := want.mounts[target]; ok {
		if readOnly && !slices.Contains(m.Options, "ro") {
			return []string{target + " is writable"}
		}
		return nil
	}
	for _, dir := range systemMounts {
		if target == dir || strings.HasPrefix(target, dir+"/") {
			return nil
		}
	}
	// A tmpfs over a VOLUME of the image is empty.
	if slices.Contains(engineFiles, target) || kind == "tmpfs" {
		return nil
	}
	return []string{fmt.Sprintf("%s (%s) is mounted, and was not asked for", target, kind)}
}
