package images

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/engine"
)

// labelTools holds the tools of a snapshot and their sizes, as JSON.
const labelTools = labelPrefix + "tools"

// hostTool is what can be added to a snapshot: programs of this machine, and the files that they need.
type hostTool struct {
	programs []string // the first is the one that must be here
	dirs     []string // searched besides the usual directories
	packages []string // of dpkg, taken too if they are installed
	// own returns the files and directories of a tool that is not from a package, by the path of its
	// first program; nil: the tool is only taken from packages.
	own func(program string) []string
}

// hostTools are the tools by their names in `image host --add`.
var hostTools = map[string]hostTool{
	"cmake": {programs: []string{"cmake", "ctest", "cpack", "ninja"}},
	"gcc": {
		programs: strings.Fields("gcc cc g++ c++ cpp gcov as ld ar nm ranlib strip objcopy objdump readelf size strings addr2line c++filt pkg-config"),
		packages: []string{"libc6-dev", "linux-libc-dev"},
	},
	"go":    {programs: []string{"go", "gofmt"}, dirs: []string{"/usr/local/go/bin"}, own: goFiles},
	"java":  {programs: []string{"java", "javac", "jar", "javap", "jshell", "keytool"}, own: javaFiles},
	"maven": {programs: []string{"mvn"}},
	"node":  {programs: []string{"node", "npm", "npx", "corepack", "nodejs"}, own: nodeFiles},
	"pip":   {programs: []string{"pip3", "pip"}, packages: []string{"python3-venv", "python3-distutils"}, own: pipFiles},
	"ruby":  {programs: []string{"ruby", "gem", "irb", "bundle", "rake", "erb"}},
	"rust":  {programs: []string{"rustc", "cargo", "rustdoc"}},
}

// goFiles are the parts of a Go tree that building and testing need.
func goFiles(program string) []string {
	root := filepath.Dir(filepath.Dir(program))
	if !isFile(filepath.Join(root, "VERSION")) || !isFile(filepath.Join(root, "src/runtime/runtime.go")) {
		return nil
	}
	return below(root, "VERSION", "LICENSE", "go.env", "bin", "lib", "pkg", "src")
}

// javaFiles is a JDK that lies in a directory of its own.
func javaFiles(program string) []string {
	root := filepath.Dir(filepath.Dir(program))
	if !isFile(filepath.Join(root, "release")) || !isFile(filepath.Join(root, "lib/modules")) {
		return nil
	}
	return []string{root}
}

// nodeFiles are those of Node's own archives. Packages that were installed with `npm install -g` stay out.
func nodeFiles(program string) []string {
	root := filepath.Dir(filepath.Dir(program))
	return below(root, "bin/node", "bin/npm", "bin/npx", "bin/corepack", "lib/node_modules/npm", "lib/node_modules/corepack", "include/node")
}

// pipFiles are pip's own where Python was not installed by dpkg. Other packages of that Python stay out.
func pipFiles(program string) []string {
	lib := filepath.Join(filepath.Dir(filepath.Dir(program)), "lib", "python3*", "*-packages")
	var paths []string
	for _, name := range []string{"pip", "pip-*.dist-info"} {
		found, _ := filepath.Glob(filepath.Join(lib, name)) // the pattern is well-formed
		paths = append(paths, found...)
	}
	if len(paths) > 0 {
		paths = append(paths, program)
	}
	return paths
}

func below(root string, names ...string) []string {
	paths := make([]string, 0, len(names))
	for _, name := range names {
		paths = append(paths, filepath.Join(root, name))
	}
	return paths
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// KnownTools returns the names of the tools that HostWith can add, sorted.
func KnownTools() []string { return slices.Sorted(maps.Keys(hostTools)) }

// ToolError says that there is no such tool to add to the snapshot.
type ToolError struct{ Name string }

func (e *ToolError) Error() string {
	return fmt.Sprintf("tool %q cannot be added to the image %s: the tools are %s; others come with an image of your own", e.Name, HostRef, strings.Join(KnownTools(), ", "))
}

// Is reports whether target is engine.ErrImage.
func (*ToolError) Is(target error) bool { return target == engine.ErrImage }

// HostWithRef returns the reference of the snapshot with tools: "host+gcc+go". Without tools it is HostRef.
// The error is a *ToolError.
func HostWithRef(tools []string) (string, error) {
	tools = slices.Clone(tools)
	slices.Sort(tools)
	parts := []string{HostRef}
	for _, name := range slices.Compact(tools) {
		if _, ok := hostTools[name]; !ok {
			return "", &ToolError{name}
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, "+"), nil
}

// isHost reports whether a reference that was parsed is of a snapshot.
func isHost(name string) bool { return name == HostRef || strings.HasPrefix(name, HostRef+"+") }

// toolsOf returns the tools of a snapshot's reference.
func toolsOf(name string) []string {
	if name == HostRef {
		return nil
	}
	return strings.Split(strings.TrimPrefix(name, HostRef+"+"), "+")
}

// Tools returns the tools that a snapshot was made with, and how many bytes each added; nil if there
// are none.
func Tools(img engine.Image) map[string]int64 {
	var sizes map[string]int64
	if img.Labels[engine.LabelRole] != engine.RoleSnapshot || json.Unmarshal([]byte(img.Labels[labelTools]), &sizes) != nil {
		return nil
	}
	return sizes
}

// programsOf returns the paths of a tool's programs by name, and where else one was seen that a
// snapshot may not take.
func (h hostTool) programsOf() (paths map[string]string, elsewhere string) {
	paths = map[string]string{}
	for _, name := range h.programs {
		var places []string
		for _, dir := range slices.Concat(searchDirs, h.dirs) {
			places = append(places, filepath.Join(dir, name))
		}
		if path, err := exec.LookPath(name); err == nil {
			places = append(places, path)
		}
		for _, path := range places {
			target, err := filepath.EvalSymlinks(path)
			if err != nil || !filepath.IsAbs(path) {
				continue
			}
			if info, err := os.Stat(target); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
				continue
			}
			if permitted(path) && ownPlace(target) {
				paths[name] = path
				break
			}
			elsewhere = path
		}
	}
	return paths, elsewhere
}

// ownPlace reports whether a tool may be taken from a path: only from the directories of the
// system and its packages, never from a user's.
func ownPlace(path string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(path, a) }) && !strings.HasPrefix(path, "/etc/")
}

// addTools takes tools into the tree, and returns how many bytes each added to it.
func (c *collector) addTools(ctx context.Context, names []string) (map[string]int64, error) {
	if len(names) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	installed, err := readDebian(dpkgStatus, dpkgInfo)
	if err != nil {
		return nil, &HostError{Reason: fmt.Sprintf("the installed packages cannot be read: %v", err)}
	}
	sizes := map[string]int64{}
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		before := c.tree.size()
		if err := c.addTool(name, installed); err != nil {
			return nil, err
		}
		sizes[name] = c.tree.size() - before
	}
	return sizes, nil
}

// addTool takes a tool into the tree.
func (c *collector) addTool(name string, installed *debian) error {
	tool := hostTools[name]
	paths, elsewhere := tool.programsOf()
	first := tool.programs[0]
	program, ok := paths[first]
	switch {
	case !ok && elsewhere != "":
		return &HostError{Reason: fmt.Sprintf("tool %s: %s lies where no files are taken from; install it for all users, below /usr or /opt", name, elsewhere)}
	case !ok:
		return &HostError{Reason: fmt.Sprintf("tool %s: there is no %s on this machine; install it, or leave the tool out", name, first)}
	}
	target, err := filepath.EvalSymlinks(program)
	if err != nil {
		return &HostError{Reason: fmt.Sprintf("tool %s: %v", name, err)}
	}
	files, own, err := tool.files(name, target, paths, installed)
	if err != nil {
		return err
	}
	c.tree.permit(files, own)
	for _, path := range files {
		c.tree.add(path)
	}
	for _, path := range own {
		c.tree.addAll(path)
	}
	for program, path := range paths {
		if c.tree.add(path) != "" && !slices.Contains(searchDirs, filepath.Dir(path)) {
			c.tree.link(filepath.Join("/usr/local/bin", program), path)
		}
	}
	c.closure()
	return nil
}

// files returns the files of a tool's packages or, if its first program belongs to none, the files and
// directories that are its own.
func (h hostTool) files(name, target string, paths map[string]string, installed *debian) (files, own []string, err error) {
	roots := installed.owners(map[string]bool{target: true})
	if len(roots) == 0 {
		if h.own != nil {
			own = h.own(target)
		}
		if len(own) == 0 {
			return nil, nil, &HostError{Reason: fmt.Sprintf("tool %s: %s belongs to no package of dpkg, so that its files are not known", name, target)}
		}
		return nil, own, nil
	}
	wanted := map[string]bool{}
	for _, path := range paths {
		wanted[path] = true
		if to, err := filepath.EvalSymlinks(path); err == nil {
			wanted[to] = true
		}
	}
	roots = slices.Concat(roots, installed.owners(wanted), h.packages)
	for _, p := range installed.needed(roots) {
		for _, path := range installed.files(p) {
			if useful(path) {
				files = append(files, path)
			}
		}
	}
	return files, nil, nil
}

// useful reports whether a path of a package is for its use, not for its reader or this machine.
func useful(path string) bool {
	for _, prefix := range []string{
		"/usr/share/doc/", "/usr/share/man/", "/usr/share/info/", "/usr/share/locale/", "/usr/share/lintian/", "/usr/share/bug/",
		"/usr/share/doc-base/", "/usr/share/bash-completion/", "/usr/share/zsh/", "/usr/share/icons/", "/usr/share/applications/", "/usr/share/pixmaps/",
		"/usr/lib/systemd/", "/lib/systemd/", "/etc/init.d/", "/etc/cron", "/etc/default/", "/etc/pam.d/", "/etc/profile.d/", "/var/", "/boot/", "/root/", "/home/",
	} {
		if strings.HasPrefix(path, prefix) {
			return false
		}
	}
	return true
}
