package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
)

// Profile says how much a session's commands may do inside their container.
type Profile string

// Profiles.
const (
	// Strict is the default: an ordinary user without capabilities on a
	// read-only root.
	Strict Profile = "strict"
	// Dev is for installing packages: uid 0 in the container with the few
	// capabilities that package managers need, on a writable root.
	Dev Profile = "dev"
)

// Network says what a session may reach.
type Network string

// Networks.
const (
	NetworkNone   Network = "none"   // loopback only; the default
	NetworkBridge Network = "bridge" // what the engine's default bridge reaches
)

// WorkspaceKind says where a session's workspace comes from.
type WorkspaceKind string

// Kinds of workspace.
const (
	WorkspaceVolume WorkspaceKind = "volume" // a fresh volume; the default
	WorkspaceCopy   WorkspaceKind = "copy"   // a fresh volume with a copy of a host directory
	WorkspaceBind   WorkspaceKind = "bind"   // a host directory itself
)

// Workspace is a session's working directory. The zero value is a fresh volume.
type Workspace struct {
	Kind     WorkspaceKind `json:"kind"`
	Dir      string        `json:"dir,omitempty"`      // on the host, absolute; for copy and bind
	Target   string        `json:"target"`             // in the container, absolute
	ReadOnly bool          `json:"readOnly,omitempty"` // for bind
}

// DefaultTarget is where a workspace is mounted unless it is bound at its own path.
const DefaultTarget = "/workspace"

// ParseWorkspace reads "volume", "copy:DIR" or "bind:DIR[:ro][:at=PATH]". DIR is
// made absolute.
func ParseWorkspace(text string) (Workspace, error) {
	kind, rest, _ := strings.Cut(text, ":")
	w := Workspace{Kind: WorkspaceKind(kind), Target: DefaultTarget}
	switch w.Kind {
	case WorkspaceVolume:
		if rest != "" {
			return w, fmt.Errorf("workspace %q: volume takes no options", text)
		}
		return w, nil
	case WorkspaceCopy, WorkspaceBind:
	default:
		return w, fmt.Errorf("workspace %q: it can be volume, copy:DIR or bind:DIR[:ro][:at=PATH]", text)
	}
	dir := rest
	for w.Kind == WorkspaceBind {
		if cut, ok := strings.CutSuffix(dir, ":ro"); ok {
			dir, w.ReadOnly = cut, true
			continue
		}
		if i := strings.LastIndex(dir, ":at="); i >= 0 {
			dir, w.Target = dir[:i], dir[i+len(":at="):]
			if !path.IsAbs(w.Target) || path.Clean(w.Target) == "/" {
				return w, fmt.Errorf("workspace %q: at=%s must be an absolute path below /", text, w.Target)
			}
			w.Target = path.Clean(w.Target)
			continue
		}
		break
	}
	if dir == "" {
		return w, fmt.Errorf("workspace %q: the directory is missing, as in copy:DIR", text)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return w, fmt.Errorf("workspace %q: %w", text, err)
	}
	w.Dir = abs
	if w.Kind == WorkspaceBind && !strings.Contains(rest, ":at=") {
		w.Target = filepath.ToSlash(abs)
	}
	return w, nil
}

// User is a numeric user and group.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// ParseUser reads "UID[:GID]". Without a GID, the group has the same number as the user.
func ParseUser(text string) (*User, error) {
	uid, gid, both := strings.Cut(text, ":")
	if !both {
		gid = uid
	}
	u, err := strconv.ParseUint(uid, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("user %q: it must be numeric, as in 1000 or 1000:1000", text)
	}
	g, err := strconv.ParseUint(gid, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("user %q: the group must be numeric, as in 1000:1000", text)
	}
	return &User{UID: uint32(u), GID: uint32(g)}, nil
}

// Limits bound what a session may use. Zero values mean the profile's defaults.
type Limits struct {
	Memory int64   `json:"memory"`         // bytes, swap included
	CPUs   float64 `json:"cpus"`           // cores
	Pids   int64   `json:"pids"`           // processes and threads
	Disk   int64   `json:"disk,omitempty"` // bytes of workspace, kept in memory; 0: no limit, on disk
	Home   int64   `json:"home,omitempty"` // bytes of the home, kept in memory; 0: a quarter of the memory, at most 512 MiB; none in profile dev
	Tmp    int64   `json:"tmp,omitempty"`  // bytes of /tmp, kept in memory; 0: as home
}

// Spec is the shape of a session to start. The zero value of each field is a
// default; Normalize fills them in.
type Spec struct {
	// Name is for people: up to 63 of a-z, 0-9 and -. No other session of this user on the engine
	// may live under it. Empty: one that is made up from the id.
	Name string
	// Directory is the directory of this machine that the session was started in, absolute. It
	// decides nothing here; empty: not said.
	Directory string
	Image     string // a reference, an image ID or "host"; empty: the default image
	Profile   Profile
	Workspace Workspace
	User      *User // nil: the profile's, or the owner of a bound directory
	// UserName is what passwd and group call the session's user, unless the image has a name for its uid; "" is agent.
	UserName string
	Network  Network
	// Allow and Deny are exceptions from NetworkNone: hosts that the session's programs may
	// reach. This process carries the connections, as long as it holds the session. A Deny wins
	// over every Allow; without an Allow nothing can be reached.
	Allow, Deny []network.Rule
	// Secrets are put into requests that leave the session. Its programs know them by placeholders.
	// The values must be among Options.Secrets, so that they are masked wherever they turn up.
	Secrets []Secret
	// Exclude are rules for hosts whose TLS is never read, because their programs accept no
	// certificate but the host's. What a rule for some requests allows there is refused.
	Exclude []network.Rule
	// NetworkLimits bound the connections that Allow lets through. Zero values are defaults.
	NetworkLimits NetworkLimits
	// AskNetwork is asked where no rule allows what a program wants to reach, before anything is
	// dialled; the program waits. Its context ends when nothing waits for the answer any more, or
	// after AskTime (0: 30s), which is a no. It is called concurrently, once for a host and port
	// at a time; a no stands for a few minutes. It is never asked about what a rule denies, nor
	// about local addresses. nil: what no rule allows is refused at once.
	AskNetwork func(context.Context, NetworkQuestion) NetworkAnswer `json:"-"`
	AskTime    time.Duration
	// Detached says that another process carries the connections, which calls
	// Session.CarryNetwork: the session is to outlive this one. Until then nothing can be
	// reached.
	Detached bool
	Limits   Limits
	Runtime  string // "" is the engine's default
	// Env are variables K=V that every command of the session has, from any process. They are in the
	// session's label, which every client of the engine can read: a secret is refused. ImageEnv adds those
	// of the image's own ENV before them, as far as the session does not set them itself.
	Env      []string
	ImageEnv bool
	// HomeInside puts the home into the workspace, at .home: it is on disk, has no size of its own, and is kept with
	// the workspace. Diff and apply leave it out. It is not for bound directories.
	HomeInside bool
	// Mounts are directories that the session sees besides its workspace.
	Mounts []Mount
	// Lease is how long the session lives while it is idle. It must
	// be at least a second; 0 is DefaultLease. With Forever it does not end by itself.
	Lease time.Duration
	// Keep is how long the workspace is kept if the session ends in another way than by
	// Stop. Bound directories, workspaces with a Limits.Disk and empty workspaces are not
	// kept. 0 means that nothing is kept.
	Keep time.Duration
}

const (
	// DefaultLease is for a session that belongs to one process. It is long enough for a
	// host that stalls, and short if the host has died.
	DefaultLease = 15 * time.Second
)

// Defaults of a session, from the threat model's table of hardened defaults.
const (
	strictUID       = 1000
	defaultMemory   = 2 << 30 // bytes
	defaultCPUs     = 2
	strictPids      = 512
	devPids         = 4096
	minMemory       = 6 << 20 // bytes; what engines refuse to go below
	pageSize        = 4096    // bytes
	minSize         = 1 << 20 // bytes
	minCPUs         = 0.01    // the kernel's shortest quota is 1 ms of 100
	maxPids         = 4 << 20 // PID_MAX_LIMIT of the kernel
	minPids         = 64      // a runner and PID 1 have 20 threads each
	maxTargetLength = 4096    // PATH_MAX
)

// Normalize returns s with its defaults filled in, or an error if s is not valid. It reads
// the owner of a bound directory.
func (s Spec) Normalize() (Spec, error) {
	if err := checkName(s.Name); err != nil {
		return s, err
	}
	if s.Profile == "" {
		s.Profile = Strict
	}
	if s.Profile != Strict && s.Profile != Dev {
		return s, fmt.Errorf("profile %q: it can be strict or dev", s.Profile)
	}
	if s.Network == "" {
		s.Network = NetworkNone
	}
	if s.Network != NetworkNone && s.Network != NetworkBridge {
		return s, fmt.Errorf("network %q: it can be none or bridge", s.Network)
	}
	if err := s.checkNetwork(); err != nil {
		return s, err
	}
	if err := checkSecrets(s.Secrets); err != nil {
		return s, err
	}
	if s.Lease == 0 {
		s.Lease = DefaultLease
	}
	s.Lease = min(s.Lease, Forever)
	if s.Lease < time.Second {
		return s, fmt.Errorf("lease %s: it must be at least 1s", s.Lease)
	}
	if s.Keep < 0 {
		return s, fmt.Errorf("keep %s: it must not be negative", s.Keep)
	}
	if err := s.checkUserName(); err != nil {
		return s, err
	}
	if err := checkSessionEnv(s.Env); err != nil {
		return s, err
	}
	if err := s.Limits.normalize(s.Profile); err != nil {
		return s, err
	}
	if s.Workspace.Kind == "" {
		s.Workspace.Kind = WorkspaceVolume
	}
	if s.Workspace.Target == "" {
		s.Workspace.Target = DefaultTarget
	}
	s, err := s.normalizeUser()
	if err != nil {
		return s, err
	}
	if s.HomeInside && s.Workspace.Kind == WorkspaceBind {
		return s, errors.New("the home cannot lie in a bound directory, which it would fill: give the session a copy, or a cache at its home")
	}
	if s.HomeInside && s.Limits.Home != 0 {
		return s, errors.New("a home in the workspace has no size of its own: leave the size out")
	}
	return s, s.normalizeMounts()
}

func (l *Limits) normalize(p Profile) error {
	if l.Memory == 0 {
		l.Memory = defaultMemory
	}
	if l.Memory < minMemory {
		return fmt.Errorf("memory %d bytes: it must be at least %d (6 MiB)", l.Memory, minMemory)
	}
	l.Memory -= l.Memory % pageSize // the kernel counts whole pages
	if l.Pids == 0 {
		l.Pids = strictPids
		if p == Dev {
			l.Pids = devPids
		}
	}
	if l.Pids > maxPids {
		return fmt.Errorf("pids %d: it must be at most %d", l.Pids, maxPids)
	}
	if l.Pids < minPids {
		return fmt.Errorf("pids %d: it must be at least %d", l.Pids, minPids)
	}
	if l.CPUs > 0 && l.CPUs < minCPUs {
		return fmt.Errorf("cpus %v: it must be at least %v", l.CPUs, minCPUs)
	}
	if l.CPUs < 0 || l.CPUs != l.CPUs || l.CPUs > 1e6 {
		return fmt.Errorf("cpus %v: it must be a positive number", l.CPUs)
	}
	if l.Disk < 0 {
		return fmt.Errorf("disk %d: it must not be negative", l.Disk)
	}
	return l.checkSizes()
}

// checkSizes returns an error for sizes that file systems in memory cannot have.
func (l *Limits) checkSizes() error {
	for _, size := range []struct {
		name  string
		bytes int64
	}{{"home", l.Home}, {"tmp", l.Tmp}} {
		switch {
		case size.bytes == 0:
		case size.bytes < minSize:
			return fmt.Errorf("%s %d bytes: it must be at least %d (1 MiB)", size.name, size.bytes, minSize)
		case size.bytes > l.Memory:
			return fmt.Errorf("%s %d bytes: its files count as memory, of which the session has %d", size.name, size.bytes, l.Memory)
		}
	}
	return nil
}

// sized returns l with the default sizes filled in. In profile dev the home is on the
// container's root and has no size.
func (l Limits) sized(p Profile) Limits {
	l.Home, l.Tmp = cmp.Or(l.Home, quarter(l.Memory)), cmp.Or(l.Tmp, quarter(l.Memory))
	if p == Dev {
		l.Home = 0
	}
	return l
}

// normalizeUser decides which user commands run as.
func (s Spec) normalizeUser() (Spec, error) {
	owner := User{UID: strictUID, GID: strictUID}
	if s.Profile == Dev {
		owner = User{}
	}
	if s.Workspace.Kind == WorkspaceBind || s.Workspace.Kind == WorkspaceCopy {
		dirOwner, err := directoryOwner(s.Workspace.Dir)
		if err != nil {
			return s, fmt.Errorf("workspace: %w", err)
		}
		if s.Workspace.Kind == WorkspaceBind && s.Profile == Strict && dirOwner != nil {
			if dirOwner.UID == 0 && s.User == nil {
				return s, &hinted{hint: HintOwner, about: s.Workspace.Dir, error: fmt.Errorf(
					"workspace: %s belongs to root, and commands in profile strict never run as root", s.Workspace.Dir)}
			}
			owner = *dirOwner
		}
	}
	if s.User == nil {
		s.User = &owner
	}
	if s.Profile == Strict && (s.User.UID == 0 || s.User.GID == 0) {
		return s, &hinted{hint: HintDev, error: fmt.Errorf("user %d:%d: profile strict does not run commands as uid or gid 0", s.User.UID, s.User.GID)}
	}
	if s.Profile == Dev && s.User.UID != 0 {
		return s, &hinted{hint: HintStrict, error: fmt.Errorf("user %d: profile dev runs commands as uid 0", s.User.UID)}
	}
	return s, nil
}

// labelSpec is the part of a Spec that is kept in a label, for processes that adopt the
// session. It holds no secret.
type labelSpec struct {
	Name      string    `json:"name,omitempty"` // as given
	Directory string    `json:"directory,omitempty"`
	By        string    `json:"by,omitempty"` // the user who started it, as userKey
	Image     string    `json:"image"`        // as asked for
	ImageID   string    `json:"imageID"`
	Profile   Profile   `json:"profile"`
	User      User      `json:"user"`
	Network   Network   `json:"network"`
	Limits    Limits    `json:"limits"`
	Workspace Workspace `json:"workspace"`
	Path      string    `json:"path"`               // of commands
	Programs  bool      `json:"programs,omitempty"` // /usr is a volume
	Accounts  bool      `json:"accounts,omitempty"` // /etc is a volume
	Proxy     bool      `json:"proxy,omitempty"`    // programs find the network by proxy variables, because the resolver cannot be ours
	// Shape is the version of what sessions are created with. It is 0 for sessions without
	// dns and sysctls, whose runners do not watch for full file systems, and 1 for those whose
	// runners do not try what can be reached.
	Shape int `json:"shape,omitempty"`
	// Rules are nil for a session that never has exceptions from its network.
	Rules *NetworkRules `json:"rules,omitempty"`
	Env   []string      `json:"env,omitempty"` // of every command, K=V: see Spec.Env
	// Mounts are directories besides the workspace.
	Mounts   []Mount `json:"mounts,omitempty"`
	UserName string  `json:"userName,omitempty"` // as given
	// HomeInside says that the home lies in the workspace.
	HomeInside bool `json:"homeInside,omitempty"`
}

// rules are what a session's label says of its network.
func (s *Spec) rules() *NetworkRules {
	if s.Network != NetworkNone || len(s.Allow) == 0 && !s.Detached {
		return nil
	}
	rules := &NetworkRules{Allow: network.Texts(s.Allow), Deny: network.Texts(s.Deny), Detached: s.Detached}
	if s.Detached {
		rules.Secrets = describedSecrets(s.Secrets)
	}
	return rules
}

// currentShape is the Shape of the sessions that this version creates.
const currentShape = 2

func (l labelSpec) encode() string {
	b, err := json.Marshal(l)
	if err != nil {
		panic(err) // plain fields only: cannot happen
	}
	return string(b)
}

// home is the session user's home directory.
func (l labelSpec) home() string {
	switch {
	case l.HomeInside:
		return path.Join(l.Workspace.Target, homeInside)
	case l.User.UID == 0:
		return "/root"
	}
	return strictHome
}

// homeInside is the home in a workspace. Comparisons and what is applied leave it out.
const homeInside = ".home"

// strictHome is the home in profile strict.
const strictHome = "/home/agent"

// environment returns the variables that every command has, before the caller adds others.
// SHELL is set because bash otherwise looks up the user in the passwd file at every start,
// and many images have no entry for the user.
func (l labelSpec) environment() []string {
	name := l.userName()
	env := []string{
		"PATH=" + l.Path, "HOME=" + l.home(), "USER=" + name, "LOGNAME=" + name,
		"SHELL=/bin/sh", "TMPDIR=/tmp", "LANG=C.UTF-8",
	}
	if l.Proxy {
		env = append(env, proxyVariables()...)
	}
	return env
}

// proxyVariables name the session's proxy in the forms that programs read. curl reads http_proxy in lower
// case alone, others all of them in capitals.
func proxyVariables() (env []string) {
	for name, value := range map[string]string{
		"http_proxy": "http://" + proxyAddr.String(), "https_proxy": "http://" + proxyAddr.String(),
		"all_proxy": "socks5h://" + proxyAddr.String(), "no_proxy": "localhost,127.0.0.0/8,::1",
	} {
		env = append(env, name+"="+value, strings.ToUpper(name)+"="+value)
	}
	slices.Sort(env)
	return env
}

// standardPath is searched before the directories of an image's PATH.
const standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// commandPath returns standardPath followed by the other directories of the image's PATH,
// where images have their tools. An image can add directories. It can neither remove a
// standard one nor put one before them.
func commandPath(imageEnv []string) string {
	dirs := strings.Split(standardPath, ":")
	seen := map[string]bool{}
	for _, d := range dirs {
		seen[d] = true
	}
	for _, kv := range imageEnv {
		value, ok := strings.CutPrefix(kv, "PATH=")
		if !ok || len(value) > maxTargetLength {
			continue
		}
		for d := range strings.SplitSeq(value, ":") {
			if path.IsAbs(d) && path.Clean(d) == d && !seen[d] {
				seen[d] = true
				dirs = append(dirs, d)
			}
		}
	}
	return strings.Join(dirs, ":")
}
