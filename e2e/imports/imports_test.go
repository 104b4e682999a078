// Package imports keeps two promises about the source: who may import whom
// (docs/architecture.md), and that every package says what it is for. It asks
// `go list`, for every system that the binary is built for.
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sandboxbash/sandboxbash"

// mayImport says which packages of ours a package may import, test files not
// counted. A package that is not here does not belong anywhere yet: decide where
// it stands, then add it.
var mayImport = map[string][]string{
	// The library's front: an engine, sessions and commands in one import.
	".": {"engine/docker", "exec", "images", "sandbox"},

	// What an engine is, and the one that speaks to Docker's client.
	"engine":        {"internal/wire"},
	"engine/docker": {"engine", "internal/flight", "internal/ociarchive", "internal/wire"},
	// For tests alone: where they find an engine.
	"engine/docker/dockertest": {"engine/docker"},
	// For tests alone: an engine in memory.
	"engine/enginetest": {"engine"},

	// The leaves: no sibling but engine's types.
	"config":            {"engine", "internal/filelock", "network"}, // its rules are checked once, as all settings are
	"network":           {},
	"network/authority": {},
	"network/gateway":   {"network", "network/authority", "network/inject"},
	"network/inject":    {"internal/scrub", "network"},
	"internal/wire":     {},
	"internal/screen":   {},
	"exec":              {"engine", "internal/wire"},
	"images":            {"engine", "internal/flight", "internal/ociarchive"},
	"policy":            {"engine"},
	// For tests alone: bash against the policy.
	"policy/bashtest": {"policy"},
	"sink":            {"engine", "internal/background", "internal/filelock", "internal/scrub"},

	// One call for all who ask for the same at the same time.
	"internal/flight": {"engine"},

	// The form of archives that engines load: images and engine/docker write them.
	"internal/ociarchive": {},

	// Writes that may block for ever: live output, and the streams of the program.
	"internal/background": {},

	// Locks on files: artifacts, the audit log and the directories of servers.
	"internal/filelock": {},

	// JSON that no two readers understand in different ways.
	"internal/strictjson": {},

	// The search for secrets in streams.
	"internal/scrub": {},

	// Connections over one stream, both ends.
	"internal/mux": {"internal/wire"},

	// HTTP for who knows a token: the standard library only.
	"internal/webforward": {},

	// Trees to and from sessions: the standard library only.
	"internal/transfer": {},

	// Texts compared and merged, and what this machine's git is asked.
	"internal/merge":   {},
	"internal/hostgit": {},

	// What is kept and told of what happens. The command line fills it in.
	"internal/audit":     {"internal/filelock"},
	"internal/telemetry": {},

	// Each composes what stands below it.
	"sandbox":        {"engine", "exec", "internal/hostgit", "internal/merge", "internal/mux", "internal/screen", "internal/wire", "internal/transfer", "internal/webforward", "network", "network/authority", "network/gateway", "network/inject", "policy", "sink"},
	"tool":           {"engine", "exec", "internal/screen", "internal/strictjson", "policy", "sandbox", "sink"},
	"agent":          {"exec", "internal/screen", "policy", "sandbox", "sink", "tool"},
	"internal/serve": {"agent", "exec", "internal/screen", "internal/strictjson", "network", "policy", "sandbox", "sink", "tool"}, // tool's results and errors are in their types

	// The command line's parts.
	"internal/cli":             {"config", "exec", "images", "internal/cli/artifactcmd", "internal/cli/auditcmd", "internal/cli/cachecmd", "internal/cli/configcmd", "internal/cli/core", "internal/cli/doctorcmd", "internal/cli/exit", "internal/cli/flags", "internal/cli/imagecmd", "internal/cli/jobcmd", "internal/cli/networkcmd", "internal/cli/plancmd", "internal/cli/policycmd", "internal/cli/ptycmd", "internal/cli/runcmd", "internal/cli/servecmd", "internal/cli/sessioncmd", "internal/cli/stdio", "sandbox"},
	"internal/cli/artifactcmd": {"internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/stdio", "sink"},
	"internal/cli/auditcmd":    {"exec", "internal/audit", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/stdio", "sandbox"},
	"internal/cli/cachecmd":    {"engine", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/stdio", "sandbox"},
	"internal/cli/core":        {"config", "engine", "engine/docker", "exec", "images", "internal/audit", "internal/cli/exit", "internal/cli/flags", "internal/cli/holder", "internal/cli/stdio", "internal/serve", "internal/telemetry", "internal/wire", "network", "policy", "sandbox", "sink"},
	"internal/cli/doctorcmd":   {"config", "engine", "exec", "images", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/holder", "internal/cli/stdio", "network", "policy", "sandbox", "sink"},
	"internal/cli/exit":        {"config", "exec", "internal/wire", "policy", "sandbox"},
	"internal/cli/flags":       {"config", "internal/cli/exit"},
	"internal/cli/holder":      {"exec", "internal/cli/exit", "internal/filelock", "internal/screen", "internal/serve", "network", "sandbox"},
	"internal/cli/imagecmd":    {"config", "engine", "images", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/stdio", "sandbox"},
	"internal/cli/jobcmd":      {"exec", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/runcmd", "internal/cli/stdio", "sandbox", "sink"},
	"internal/cli/networkcmd":  {"config", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/stdio", "network"},
	"internal/cli/plancmd":     {"internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/stdio", "tool"},
	"internal/cli/configcmd":   {"config", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/stdio"},
	"internal/cli/policycmd":   {"config", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/stdio", "internal/strictjson", "policy", "tool"},
	"internal/cli/ptycmd":      {"exec", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/holder", "internal/cli/runcmd", "internal/cli/stdio", "internal/screen", "internal/serve", "sandbox"},
	"internal/cli/report":      {"config", "exec", "internal/cli/exit", "internal/cli/stdio", "sandbox", "sink"},
	"internal/cli/runcmd":      {"config", "engine", "exec", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/report", "internal/cli/stdio", "internal/screen", "policy", "sandbox", "sink", "tool"},
	"internal/cli/servecmd":    {"agent", "config", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/holder", "internal/cli/policycmd", "internal/cli/stdio", "internal/filelock", "internal/serve", "policy", "sandbox", "sink", "tool"},
	"internal/cli/sessioncmd":  {"engine", "internal/audit", "internal/cli/auditcmd", "internal/cli/core", "internal/cli/exit", "internal/cli/flags", "internal/cli/holder", "internal/cli/ptycmd", "internal/cli/runcmd", "internal/cli/stdio", "internal/hostgit", "internal/serve", "network", "sandbox", "sink"},
	"internal/cli/stdio":       {"internal/background", "internal/cli/exit", "sink"},
	// For tests alone: the whole program.
	"internal/cli/clitest": {"engine", "engine/enginetest", "internal/cli", "internal/cli/core", "internal/cli/exit", "internal/wire", "sandbox"},

	// Programs. The command line alone knows the configuration and which engine
	// it is; the runner is the only code of ours next to hostile code.
	"cmd/sandboxbash":        {"internal/cli"},
	"cmd/sandboxbash-runner": {"internal/wire", "internal/runner/jobs", "internal/runner/network", "internal/runner/prepare", "internal/runner/proc", "internal/runner/shells", "internal/runner/tty", "internal/runner/user", "internal/transfer"},
	"images/packrunner":      {},

	// Parts of the runner.
	"internal/runner/proc":    {"internal/wire"},
	"internal/runner/shells":  {},
	"internal/runner/jobs":    {"internal/wire"},
	"internal/runner/tty":     {"internal/wire", "internal/runner/proc"},
	"internal/runner/network": {"internal/mux", "internal/runner/proc", "internal/wire"},
	"internal/runner/prepare": {"internal/wire", "internal/runner/proc", "internal/runner/shells"},
	"internal/runner/user":    {"internal/wire", "internal/runner/proc", "internal/transfer"},

	// For tests alone: the rows of the contracts' corpus.
	"internal/corpus": {},

	// The test of the documents.
	"docs": {},

	// The conformance kit asks any tool from outside; ours is one of them.
	"conformance": {},

	// Black-box tests import nothing of ours but their own helpers. The benchmark is a program that
	// uses the library as its users do, and Docker's client as its rival.
	"e2e":              {"e2e/activity", "e2e/engines", "e2e/faultproxy", "e2e/probe/expect", "e2e/processes"},
	"e2e/activity":     {},
	"e2e/engines":      {"e2e/processes"},
	"e2e/faultproxy":   {},
	"e2e/imports":      {},
	"e2e/probe":        {"e2e/probe/expect"},
	"e2e/soak":         {"e2e/engines", "e2e/faultproxy", "e2e/processes", "policy", "policy/bashtest"},
	"e2e/probe/expect": {},
	"e2e/processes":    {},
	"e2e/bench":        {"e2e/activity", "engine", "engine/docker", "exec", "images", "network", "policy", "sandbox", "sink"},
	// Both ends of the network's measurements, one of them in a session.
	"e2e/bench/netload": {},
}

// dockerClient are the modules that speak to Docker. Their types stop at
// engine/docker; the benchmark measures them bare, as a baseline.
var (
	dockerClient  = []string{"github.com/docker/docker/", "github.com/docker/cli/", "github.com/docker/go-connections/"}
	dockerClients = []string{"engine/docker", "e2e/bench"}
)

// runnerImports are what the program inside the container is made of, besides
// the standard library.
var runnerImports = []string{module + "/internal/wire", module + "/internal/mux", module + "/internal/runner/", module + "/internal/transfer", "golang.org/x/sys/"}

// pkg is a package as `go list` tells of it.
type pkg struct {
	ImportPath string
	Doc        string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// name is the path below the module, "." for its root, and "" for a package of
// another repository.
func (p pkg) name() string {
	if p.ImportPath == module {
		return "."
	}
	name, ok := strings.CutPrefix(p.ImportPath, module+"/")
	if !ok || strings.HasPrefix(name, "scratch") { // git ignores that directory
		return ""
	}
	return name
}

// list asks go list for our packages, and what those depend on, as they are
// built for that system.
func list(t *testing.T, goos string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Doc,GoFiles,Imports,Deps", "./...")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v\n%s", goos, err, stderr.String())
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("go list for %s: %v", goos, err)
		}
		all = append(all, p)
	}
	return all
}

var systems = []string{"linux", "darwin", "windows"}

func TestImports(t *testing.T) {
	t.Parallel()
	for _, goos := range systems {
		t.Run(goos, func(t *testing.T) {
			t.Parallel()
			checked := 0
			for _, p := range list(t, goos) {
				if p.name() == "" {
					continue
				}
				checked++
				for _, complaint := range check(p) {
					t.Error(complaint)
				}
			}
			if checked < 8 {
				t.Errorf("go list showed %d packages of %s; want them all", checked, module)
			}
		})
	}
}

// check returns what is wrong with a package's imports, and what to do about it.
func check(p pkg) []string {
	allowed, known := mayImport[p.name()]
	if !known {
		return []string{p.name() + " is not in the import table: decide where it stands (docs/architecture.md) and add it to mayImport"}
	}
	var complaints []string
	for _, imported := range p.Imports {
		if sibling, ours := strings.CutPrefix(imported, module+"/"); ours && !slices.Contains(allowed, sibling) {
			complaints = append(complaints, p.name()+" imports "+sibling+": "+advice(p.name(), sibling))
		}
		if hasAnyPrefix(imported, dockerClient) && !slices.Contains(dockerClients, p.name()) {
			complaints = append(complaints, p.name()+" imports "+imported+": Docker's types stay in engine/docker; "+
				"declare the method in terms of package engine and implement it there")
		}
	}
	if p.name() != "cmd/sandboxbash-runner" {
		return complaints
	}
	for _, dep := range p.Deps {
		if first, _, _ := strings.Cut(dep, "/"); strings.Contains(first, ".") && !hasAnyPrefix(dep, runnerImports) {
			complaints = append(complaints, p.name()+" depends on "+dep+": it runs next to hostile code and must be readable in one sitting; "+
				"move what needs that package to the host's side")
		}
	}
	return complaints
}

// advice says what to move.
func advice(from, to string) string {
	switch {
	case to == "config":
		return "only the command line knows the configuration; take an option struct instead and fill it in there"
	case to == "engine/docker":
		return "only the command line and the root package know which engine it is; declare a small interface over engine's types and let main pass the client"
	case strings.HasPrefix(from, "e2e"):
		return "end-to-end tests see the built binary only; test the package next to its source, or go through the command line"
	case from == "cmd/sandboxbash-runner":
		return "the runner shares frames with the host and nothing else; move what both need to internal/wire"
	case to == "sandbox" || to == "tool" || to == "agent" || to == "internal/serve":
		return "that is above it; move the shared type down, or let the upper package pass a function"
	default:
		return "leaves know no sibling; let sandbox bring the two together, through an interface or a function type that " + from + " declares"
	}
}

func hasAnyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(s, prefix) })
}

// TestCheck shows that the check finds what it is there for.
func TestCheck(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		from    string
		imports []string
		deps    []string
		want    string // of the one complaint; "" for none
	}{
		{"a leaf and engine", "images", []string{module + "/engine", "fmt"}, nil, ""},
		{"a leaf and a leaf", "sink", []string{module + "/policy"}, nil, "let sandbox bring the two together"},
		{"a leaf and sandbox", "exec", []string{module + "/sandbox"}, nil, "that is above it"},
		{"config outside main", "sandbox", []string{module + "/config"}, nil, "take an option struct"},
		{"the client outside main", "sandbox", []string{module + "/engine/docker"}, nil, "let main pass the client"},
		{"docker's types outside engine/docker", "images", []string{"github.com/docker/docker/api/types"}, nil, "stay in engine/docker"},
		{"docker's types in it", "engine/docker", []string{"github.com/docker/docker/client"}, nil, ""},
		{"an unknown package", "helpers", nil, nil, "not in the import table"},
		{"the runner and x/sys", "cmd/sandboxbash-runner", nil, []string{"golang.org/x/sys/unix", "os"}, ""},
		{"the runner and a library", "cmd/sandboxbash-runner", nil, []string{"github.com/google/uuid"}, "next to hostile code"},
		{"the runner and a sibling", "cmd/sandboxbash-runner", []string{module + "/sink"}, nil, "to internal/wire"},
		{"a black-box test", "e2e", []string{module + "/sandbox"}, nil, "the built binary only"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := check(pkg{ImportPath: module + "/" + tt.from, Imports: tt.imports, Deps: tt.deps})
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("check(%s) = %q; want none", tt.from, got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("check(%s) = %q; want one with %q", tt.from, got, tt.want)
			}
		})
	}
}

func TestPackageDoc(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "linux") {
		if p.name() == "" || len(p.GoFiles) == 0 { // of test files go list shows no comment
			continue
		}
		if p.Doc == "" {
			t.Errorf("package %s has no doc comment; begin one file with `// Package … says what it is for.`", p.name())
		}
	}
}
