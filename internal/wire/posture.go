package wire

import (
	"fmt"
	"slices"
	"strings"
)

// Posture is the answer of VerbPosture: what confines a command of the session,
// according to the kernel and to harmless attempts. A key may repeat.
type Posture []Fact

// Fact is one line of a Posture, key=value. The value holds no line break.
type Fact struct {
	Key   FactKey
	Value string
}

// FactKey says what a Fact is about.
type FactKey string

// Keys. Besides these there are the keys of proc_pid_status(5) in StatusKeys.
const (
	FactOOMScore   FactKey = "oom_score_adj"
	FactCgroup     FactKey = "cgroup"     // CgroupHidden, or CgroupShown: the path of the cgroup is visible
	FactHosts      FactKey = "hosts"      // HostsOwn, or HostsForeign: hosts(5) names other machines
	FactInterfaces FactKey = "interfaces" // names of network interfaces, with commas
	FactMount      FactKey = "mount"      // target, type and options of a mount
	FactPlace      FactKey = "place"      // target, device and root of a mount
)

// Kinds of keys, which a name completes.
const (
	FactLimit    FactKey = "limit."    // of the cgroup, by LimitNames; "unknown" where it cannot be read
	FactRlimit   FactKey = "rlimit."   // soft:hard, by RLIMIT's name
	FactTry      FactKey = "try."      // the errno that refused an attempt, or "allowed"
	FactMasked   FactKey = "masked."   // MaskedNothing, MaskedClosed or MaskedSomething, by path
	FactResolver FactKey = "resolver." // what resolv.conf(5) says, by keyword
	FactSysctl   FactKey = "sysctl."   // "unknown" where it cannot be read
	FactReach    FactKey = "reach."    // the errno that refused an attempt to connect, TryAllowed, or one of the values Reach*
)

// StatusKeys are the lines of proc_pid_status(5) in a Posture.
func StatusKeys() []FactKey {
	return []FactKey{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"}
}

// Values of a Posture's facts.
const (
	CgroupHidden    = "root"
	CgroupShown     = "shown"
	HostsOwn        = "own"
	HostsForeign    = "foreign"
	MaskedNothing   = "nothing"   // it does not exist, or is empty
	MaskedClosed    = "closed"    // this user may not read it
	MaskedSomething = "something" // there is something to read
	TryAllowed      = "allowed"
	FactUnknown     = "unknown"
	ReachDenied     = "denied"  // the gateway answered that it refuses
	ReachNoName     = "no-name" // the name does not exist
	ReachNoDNS      = "no-dns"  // the name cannot be looked up
)

// UnprivilegedPorts is the sysctl that names the first port a user may listen on.
const UnprivilegedPorts = "net.ipv4.ip_unprivileged_port_start"

// Of returns the key that the name completes.
func (k FactKey) Of(name string) FactKey { return k + FactKey(name) }

// Mount is a mount of the session.
type Mount struct {
	Target  string
	Type    string
	Options []string
	// Device and Root are where it lies: the device of its file system, and the
	// directory in that. Mounts of one kernel are of the same directory if and only if
	// both are equal.
	Device, Root string
}

// Add appends a fact.
func (p *Posture) Add(key FactKey, value string) { *p = append(*p, Fact{key, value}) }

// AddMount appends the facts of a mount.
func (p *Posture) AddMount(m Mount) {
	target := mountEscapes.Replace(m.Target)
	p.Add(FactMount, target+" "+m.Type+" "+strings.Join(m.Options, ","))
	p.Add(FactPlace, target+" "+m.Device+" "+mountEscapes.Replace(m.Root))
}

// Has reports whether the posture says so.
func (p Posture) Has(key FactKey, value string) bool { return slices.Contains(p, Fact{key, value}) }

// Mount returns the mount that the fact is about: its Target, Type and Options for a
// FactMount, and its Target, Device and Root for a FactPlace. It reports false for any
// other fact.
func (f Fact) Mount() (m Mount, ok bool) {
	w := strings.Split(f.Value, " ") // and at no other space of Unicode, which a name may hold
	if len(w) != 3 || slices.Contains(w, "") {
		return m, false
	}
	m.Target = UnescapeMount(w[0])
	switch f.Key {
	case FactMount:
		m.Type, m.Options = w[1], strings.Split(w[2], ",")
	case FactPlace:
		m.Device, m.Root = w[1], UnescapeMount(w[2])
	default:
		return Mount{}, false
	}
	return m, true
}

// Append appends the encoding to dst.
func (p Posture) Append(dst []byte) []byte {
	for _, f := range p {
		dst = fmt.Appendf(dst, "%s=%s\n", f.Key, f.Value)
	}
	return dst
}

// ParsePosture reads an answer of VerbPosture.
func ParsePosture(b []byte) (Posture, error) {
	var p Posture
	for line := range textLines(b) {
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("%w: fact %q", ErrFrame, line)
		}
		p.Add(FactKey(key), value)
	}
	return p, nil
}

// The octal escapes of proc_pid_mountinfo(5), which a Posture has too.
var (
	mountEscapes   = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`)
	mountUnescapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
)

// UnescapeMount undoes the escapes of a path in proc_pid_mountinfo(5).
func UnescapeMount(text string) string { return mountUnescapes.Replace(text) }
