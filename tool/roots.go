package tool

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Roots resolves URLs to a host's own files. A zero field means that the host has no
// such files.
type Roots struct {
	// Artifacts is where outputs of agents (<id>.md) and of commands (<id>.…) are;
	// "" means that there is no session that could have any.
	Artifacts string
	Rules     map[string]string // path of each rule by its name
	Memory    string            // directory of the namespace root
}

// Resolve implements Resolver.
func (r Roots) Resolve(scheme, raw string) (string, error) {
	rest := strings.TrimPrefix(raw, scheme+"://")
	switch scheme {
	case "artifact":
		return r.artifact(rest)
	case "agent":
		return r.agent(rest)
	case "rule":
		if path, ok := r.Rules[rest]; ok {
			return path, nil
		}
		return "", Refusef("Unknown rule: %s\nAvailable: %s", rest, orNone(slices.Sorted(maps.Keys(r.Rules))))
	case "memory":
		return r.memory(raw, rest)
	}
	return "", ErrNoHandler
}

// Texts of the contract.
var (
	errNoSession   = Refusef("No session - artifacts unavailable")
	errNoArtifacts = Refusef("No artifacts directory found")
	errNoMemory    = Refusef("Memory artifacts are not available for this project yet. Run a session with memories enabled first.")
)

func (r Roots) artifact(id string) (string, error) {
	if id == "" {
		return "", Refusef("artifact:// URL requires a numeric ID: artifact://0")
	}
	if strings.Trim(id, "0123456789") != "" {
		return "", Refusef("artifact:// ID must be numeric, got: %s", id)
	}
	names, err := r.files()
	if err != nil {
		return "", err
	}
	var ids []string
	found := ""
	for _, name := range names {
		number, rest, ok := strings.Cut(name, ".")
		if !ok || strings.Trim(number, "0123456789") != "" || number == "" || strings.HasSuffix(name, ".partial") {
			continue
		}
		ids = append(ids, number)
		// The original of a minimized output is next to the log, with the same id.
		if number == id && (found == "" || rest == "bash.log") {
			found = name
		}
	}
	if found != "" {
		return filepath.Join(r.Artifacts, found), nil
	}
	slices.SortFunc(ids, byNumber)
	return "", Refusef("Artifact %s not found. Available: %s", id, orNone(slices.Compact(ids)))
}

func byNumber(a, b string) int {
	n, _ := strconv.ParseUint(a, 10, 64)
	m, _ := strconv.ParseUint(b, 10, 64)
	switch {
	case n < m:
		return -1
	case n > m:
		return 1
	}
	return strings.Compare(a, b)
}

func (r Roots) agent(id string) (string, error) {
	names, err := r.files()
	if err != nil {
		return "", err
	}
	var ids []string
	for _, name := range names {
		if agent, ok := strings.CutSuffix(name, ".md"); ok {
			ids = append(ids, agent)
		}
	}
	if slices.Contains(ids, id) {
		return filepath.Join(r.Artifacts, id+".md"), nil
	}
	return "", Refusef("Not found: %s\nAvailable: %s", id, orNone(ids))
}

// files lists the regular files of the artifacts' directory, by name.
func (r Roots) files() ([]string, error) {
	if r.Artifacts == "" {
		return nil, errNoSession
	}
	entries, err := os.ReadDir(r.Artifacts)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoArtifacts
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (r Roots) memory(raw, rest string) (string, error) {
	rest, _, _ = strings.Cut(rest, "#")
	rest, _, _ = strings.Cut(rest, "?")
	space, relative, _ := strings.Cut(rest, "/")
	if space == "" {
		return "", Refusef("memory:// URL requires a namespace: memory://root")
	}
	if space != "root" {
		return "", Refusef("Unknown memory namespace: %s. Supported: root", space)
	}
	if r.Memory == "" {
		return "", errNoMemory
	}
	relative, ok := percentDecode(relative)
	if !ok {
		return "", Refusef("Invalid URL encoding in memory:// path: %s", raw)
	}
	if relative == "" {
		relative = "memory_summary.md"
	}
	if err := checkRelative("memory", relative); err != nil {
		return "", err
	}
	root, err := filepath.EvalSymlinks(r.Memory)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errNoMemory
	}
	if err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(filepath.Join(root, filepath.FromSlash(relative)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", Refusef("Memory file not found: %s", raw)
	case err != nil:
		return "", err
	case !within(root, target):
		return "", Refusef("memory:// URL escapes memory root")
	}
	if info, err := os.Stat(target); err != nil || !info.Mode().IsRegular() {
		return "", Refusef("memory:// URL must resolve to a file: %s", raw)
	}
	return target, nil
}
