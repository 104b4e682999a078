package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Mount is a directory that a session sees besides its workspace: one of this machine that the caller has
// named, or a cache, which the engine keeps between sessions. A cache belongs to the uid of the session that it
// was made for. See docs/adr/0054.
type Mount struct {
	Dir      string `json:"dir,omitempty"`   // on the host, absolute; Normalize follows its links
	Cache    string `json:"cache,omitempty"` // the name of a cache, in the place of a Dir
	Target   string `json:"target"`          // in the container, absolute
	ReadOnly bool   `json:"readOnly,omitempty"`

	link string // what Dir was before its links were followed, if there were any
}

// ParseMount reads "DIR:PATH[:ro]". DIR is made absolute.
func ParseMount(text string) (Mount, error) {
	dir, target, readOnly, err := parsePlace(text)
	if err != nil {
		return Mount{}, fmt.Errorf("mount %q: %w, as in ./data:/data or ./data:/data:ro", text, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Mount{}, fmt.Errorf("mount %q: %w", text, err)
	}
	return Mount{Dir: dir, Target: target, ReadOnly: readOnly}, nil
}

// ParseCache reads "NAME:PATH[:ro]".
func ParseCache(text string) (Mount, error) {
	name, target, readOnly, err := parsePlace(text)
	if err != nil {
		return Mount{}, fmt.Errorf("cache %q: %w, as in npm:/home/agent/.npm", text, err)
	}
	if strings.ContainsAny(name, `/\~`) {
		return Mount{}, fmt.Errorf("cache %q: a cache has a name, and %q is a path: a directory of this machine is a mount", text, name)
	}
	return Mount{Cache: name, Target: target, ReadOnly: readOnly}, nil
}

// parsePlace splits at the last colon that begins a path of the container: DIR may be C:/data.
func parsePlace(text string) (source, target string, readOnly bool, err error) {
	rest, readOnly := strings.CutSuffix(text, ":ro")
	at := strings.LastIndex(rest, ":/")
	if at <= 0 {
		return "", "", false, errors.New("it must be a source, a colon, and an absolute path of the session")
	}
	return rest[:at], path.Clean(rest[at+1:]), readOnly, nil
}

// String returns m as ParseMount or ParseCache read it.
func (m Mount) String() string {
	text := m.source() + ":" + m.Target
	if m.ReadOnly {
		text += ":ro"
	}
	return text
}

func (m Mount) source() string {
	if m.Cache != "" {
		return m.Cache
	}
	return m.Dir
}

// kind is what an error calls m.
func (m Mount) kind() string {
	if m.Cache != "" {
		return "cache"
	}
	return "mount"
}

// Places of a session that are not for mounts.
var (
	// closedTrees are the engine's and the runner's.
	closedTrees = []string{"/proc", "/sys", "/dev", "/run", engine.RunnerDir}
	// closedPlaces are needed whole; below them there may be a mount.
	closedPlaces = []string{"/", "/bin", "/etc", "/lib", "/lib64", "/sbin", "/tmp", "/usr", "/var"}
)

// Directories of this machine that no session sees.
var (
	// hostTrees are the kernel's, where services have their sockets, and where engines keep images and containers.
	hostTrees = []string{"/proc", "/sys", "/dev", "/run", "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers"}
	// hostPlaces hold what the whole machine depends on.
	hostPlaces = []string{"/", "/boot", "/etc", "/root", "/home", "/Users", "/var", "/var/lib"}
	// engineSockets are where a directory that holds an engine's socket has it.
	engineSockets = []string{"docker.sock", "podman.sock", "podman/podman.sock", "containerd.sock", "containerd/containerd.sock", "crio/crio.sock", "buildkit/buildkitd.sock"}
)

// normalizeMounts checks the mounts of a session, and follows the links of their directories. It returns a
// list of its own.
func (s *Spec) normalizeMounts() error {
	all := slices.Clone(s.Mounts)
	for i := range all {
		m := &all[i]
		if err := m.normalize(); err != nil {
			return fmt.Errorf("%s %s: %w", m.kind(), m, err)
		}
		if m.ReadOnly && m.Target == s.home() {
			return fmt.Errorf("%s %s: the home must be writable: leave out :ro, or name a directory in it", m.kind(), m)
		}
		if err := s.checkTarget(m.Target, all[:i]); err != nil {
			return fmt.Errorf("%s %s: %w", m.kind(), m, err)
		}
	}
	s.Mounts = all
	return nil
}

func (m *Mount) normalize() error {
	if m.Cache != "" && m.Dir != "" {
		return errors.New("it is a directory or a cache, not both")
	}
	if !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || len(m.Target) >= maxTargetLength || strings.ContainsAny(m.Target, "\x00\n") {
		return errors.New("its place in the session must be an absolute path, without dots as parts")
	}
	if m.Cache != "" {
		if !engine.ValidCacheName(m.Cache) {
			return errors.New("a cache's name has up to 63 of a-z, 0-9, . _ and -, and begins with a letter or a digit")
		}
		return nil
	}
	if !filepath.IsAbs(m.Dir) {
		return errors.New("its directory must be an absolute path")
	}
	dir, err := filepath.EvalSymlinks(m.Dir)
	if err != nil {
		return err
	}
	if dir != m.Dir {
		m.link, m.Dir = m.Dir, dir
	}
	return m.checkDir()
}

// checkDir refuses what is not a directory, and those that would give a session this machine or its engine.
func (m *Mount) checkDir() error {
	info, err := os.Stat(m.Dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory: name the directory that it is in", m.Dir)
	}
	dir := filepath.ToSlash(m.Dir)
	if slices.Contains(hostPlaces, dir) || slices.ContainsFunc(hostTrees, func(tree string) bool { return below(dir, tree) }) {
		return fmt.Errorf("%s belongs to the machine as a whole, and no session sees it: name the directory that is needed", m.Dir)
	}
	for _, name := range engineSockets {
		if _, err := os.Lstat(filepath.Join(m.Dir, filepath.FromSlash(name))); err == nil {
			return fmt.Errorf("%s holds a container engine's socket (%s), which would give the session this machine: name another directory", m.Dir, name)
		}
	}
	return nil
}

// below reports whether a path is tree or lies in it. Both are clean.
func below(at, tree string) bool {
	return at == tree || strings.HasPrefix(at, strings.TrimSuffix(tree, "/")+"/")
}

// checkTarget refuses a place in the session that something else needs. others are the mounts before it.
func (s *Spec) checkTarget(target string, others []Mount) error {
	if slices.Contains(closedPlaces, target) || slices.ContainsFunc(closedTrees, func(tree string) bool { return below(target, tree) }) {
		return fmt.Errorf("%s of the session is not for mounts: name another path, as in /data", target)
	}
	home := s.home()
	if home != target && below(home, target) {
		return fmt.Errorf("the session's home %s lies in %s: name another path", home, target)
	}
	w := s.Workspace.Target
	switch {
	case below(w, target):
		return fmt.Errorf("the workspace lies at %s: name another path", w)
	case below(target, w):
		return fmt.Errorf("it lies in the workspace %s, whose files are copied, compared and kept: name a path outside, and link to it", w)
	}
	for _, m := range others {
		if below(target, m.Target) || below(m.Target, target) {
			return fmt.Errorf("%s is mounted at %s: two mounts cannot lie in one another", m.source(), m.Target)
		}
	}
	return nil
}

// holdsSocket refuses mounts that hold the socket of the engine itself.
func (s *Spec) holdsSocket(info engine.Info) error {
	socket, ok := strings.CutPrefix(info.Address, "unix://")
	if !ok {
		return nil
	}
	if target, err := filepath.EvalSymlinks(socket); err == nil {
		socket = target
	}
	for _, m := range s.Mounts {
		if m.Dir != "" && below(filepath.ToSlash(socket), filepath.ToSlash(m.Dir)) {
			return badInput("mounts", "mount %s: %s holds the engine's socket %s, which would give the session this machine: name another directory", m, m.Dir, socket)
		}
	}
	return nil
}

// mountNotes tell the owner of a session what a mount turned out to be.
func (s *Spec) mountNotes() (notes []string) {
	for _, m := range s.Mounts {
		if m.link != "" {
			notes = append(notes, fmt.Sprintf("mount %s: %s leads to %s, which is mounted", m.Target, m.link, m.Dir))
		}
		if m.Dir == "" || m.ReadOnly || s.User.UID == 0 {
			continue
		}
		if owner, err := directoryOwner(m.Dir); err == nil && owner != nil && owner.UID != s.User.UID {
			notes = append(notes, fmt.Sprintf("mount %s: %s belongs to uid %d, and commands run as uid %d: they may not be able to write there", m.Target, m.Dir, owner.UID, s.User.UID))
		}
	}
	return notes
}

// engineMounts are the mounts as an engine takes them.
func (s *Spec) engineMounts() (all []engine.Mount) {
	for _, m := range s.Mounts {
		all = append(all, engine.Mount{Dir: m.Dir, Cache: m.Cache, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return all
}

// home is the home of the session's user.
func (s *Spec) home() string {
	return labelSpec{User: *s.User, Workspace: s.Workspace, HomeInside: s.HomeInside}.home()
}

// mountsIn reports whether the workspace or a mount is in or below a directory of the session.
func (s *Spec) mountsIn(dir string) bool {
	return below(s.Workspace.Target, dir) || slices.ContainsFunc(s.Mounts, func(m Mount) bool { return below(m.Target, dir) })
}

// mountsAt reports whether a mount lies at a path.
func (s *Spec) mountsAt(at string) bool {
	return slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Target == at })
}

// wayTo returns file systems in memory for the directories between the home and the mounts in it, such as
// .cache for a mount at .cache/pip. The engine would make them as root's, and the user could put nothing
// else there.
func (s *Spec) wayTo(home string, tmpfs func(at, options string) specs.Mount) (all []specs.Mount) {
	seen := map[string]bool{}
	for _, m := range s.Mounts {
		if m.Target == home || !below(m.Target, home) {
			continue
		}
		for dir := path.Dir(m.Target); dir != home && !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			all = append(all, tmpfs(dir, fmt.Sprintf("exec,size=%d,mode=1777", s.Limits.Home)))
		}
	}
	slices.SortFunc(all, func(a, b specs.Mount) int { return strings.Compare(a.Destination, b.Destination) })
	return all
}
