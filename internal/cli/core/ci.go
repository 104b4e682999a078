package core

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// ciRunners are the kinds of CI runner by their names in the configuration, and
// the variable by which a job of theirs is known.
var ciRunners = []struct {
	name     string
	variable string
	kind     sink.Runners
}{
	{"github", "GITHUB_ACTIONS", sink.GitHub},
	{"gitlab", "GITLAB_CI", sink.GitLab},
	{"azure", "TF_BUILD", sink.Azure},
	{"teamcity", "TEAMCITY_VERSION", sink.TeamCity},
}

// ciAuto is the choice of whatever runner the environment tells of.
const ciAuto = "auto"

// runnersOf returns the runners that read this process's output.
func runnersOf(choice string, getenv func(string) string) sink.Runners {
	var kinds sink.Runners
	for _, r := range ciRunners {
		if choice == r.name || choice == ciAuto && getenv(r.variable) != "" {
			kinds |= r.kind
		}
	}
	return kinds
}

// ciPrivate are variables that name files and directories of a runner's own:
// what a job writes there becomes its environment, its path, its outputs; what
// lies there are tokens.
var ciPrivate = []string{
	"RUNNER_TEMP", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY", "GITHUB_EVENT_PATH",
	"AGENT_TEMPDIRECTORY", "AGENT_HOMEDIRECTORY", "VSS_NUGET_URI_PREFIXES_FILE", "DOCKER_CONFIG", "KUBECONFIG", "GOOGLE_APPLICATION_CREDENTIALS",
}

// CheckWorkspace refuses to show a session what belongs to the runner: a workspace
// around its private files, or credentials in a bound repository.
func (c *Configuration) CheckWorkspace(w sandbox.Workspace) error {
	if w.Kind != sandbox.WorkspaceBind && w.Kind != sandbox.WorkspaceCopy {
		return nil
	}
	inCI := runnersOf(ciAuto, c.env.Getenv) != 0
	if w.Kind == sandbox.WorkspaceBind && sandbox.GitCredentials(w.Dir) {
		const fact = "the repository in %s has credentials in its .git/config, and commands of a session that it is bound to can read them"
		if inCI {
			return exit.Misuse("use --workspace copy:DIR, which leaves them out; or check it out without them (persist-credentials: false)", fact, w.Dir)
		}
		c.notes.Add("warning: " + fmt.Sprintf(fact, w.Dir))
	}
	if !inCI {
		return nil
	}
	for _, name := range ciPrivate {
		if at := c.env.Getenv(name); at != "" && within(w.Dir, at) {
			return exit.Misuse("name the directory of the checkout alone, or a part of it", "%s holds %s, which belongs to the runner ($%s)", w.Dir, at, name)
		}
	}
	if project := c.env.Getenv("CI_PROJECT_DIR"); project != "" && within(w.Dir, project+".tmp") {
		return exit.Misuse("name the directory of the checkout alone, or a part of it", "%s holds %s.tmp, where GitLab's runner keeps variables", w.Dir, project)
	}
	return nil
}

// within reports whether a path is a directory or something in it, by name or by
// what the names lead to.
func within(dir, path string) bool {
	for _, p := range [][2]string{{dir, path}, {target(dir), target(path)}} {
		if rel, err := filepath.Rel(p[0], p[1]); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// target resolves the symbolic links in a path, as far as it exists: the runner may make the
// rest later.
func target(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(target(parent), filepath.Base(path))
}
