package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

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
func (a *app) runnersOf(choice string) sink.Runners {
	var kinds sink.Runners
	for _, r := range ciRunners {
		if choice == r.name || choice == ciAuto && a.getenv(r.variable) != "" {
			kinds |= r.kind
		}
	}
	return kinds
}

// guard makes standard output and standard error fit for the log of a job of
// those runners: whatever is printed there, by whichever command of ours, is no
// command to them. It may be called again, before anything was printed.
func (a *app) guard(kinds sink.Runners) {
	a.stdout, a.stderr = a.rawStdout, a.rawStderr
	if kinds == 0 {
		return
	}
	out := sink.NewDefused(a.rawStdout, kinds)
	errs := sink.NewDefused(a.rawStderr, kinds)
	if sameFile(a.rawStdout, a.rawStderr) {
		errs = out.With(a.rawStderr) // what one has begun the other could end
	}
	if logsTo(a.rawStdout, kinds) {
		a.stdout = out
	}
	if logsTo(a.rawStderr, kinds) {
		a.stderr = errs
	}
}

// logsTo reports whether a stream can be the log of a job. The runners read pipes,
// but GitLab's also files; another pipe cannot be told from theirs.
func logsTo(w io.Writer, kinds sink.Runners) bool {
	f, ok := w.(*os.File)
	if !ok {
		return true
	}
	info, err := f.Stat()
	return err != nil || !info.Mode().IsRegular() || kinds&sink.GitLab != 0
}

func sameFile(a, b io.Writer) bool {
	f, ok := a.(*os.File)
	g, both := b.(*os.File)
	if !ok || !both {
		return a == b
	}
	one, err := f.Stat()
	other, otherErr := g.Stat()
	return err == nil && otherErr == nil && os.SameFile(one, other)
}

// raw returns a stream as it is, without its guard: for what is no text.
func raw(w io.Writer) io.Writer {
	if d, ok := w.(*sink.Defused); ok {
		return d.Unwrap()
	}
	return w
}

// unguard ends what this process writes to the log of a job, and tells if
// something in it was no more than text on purpose. A reader that has stopped
// does not hold it up.
func (a *app) unguard() {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	count := 0
	for _, w := range []io.Writer{a.stdout, a.stderr} {
		if d, ok := w.(*sink.Defused); ok {
			g, closeGate := newGate(over, d.Unwrap(), 0, nil)
			_ = d.With(g).Close()
			closeGate()
			count = max(count, d.Count())
		}
	}
	if count > 0 && (a.cfg == nil || !a.cfg.Quiet) {
		g, closeGate := newGate(over, a.rawStderr, 0, nil)
		defer closeGate()
		fmt.Fprintf(g, "sandboxbash: note: %d places in the output looked like commands to this CI's runner, and got a space (--ci none leaves it out)\n", count)
	}
}

// ciPrivate are variables that name files and directories of a runner's own:
// what a job writes there becomes its environment, its path, its outputs; what
// lies there are tokens.
var ciPrivate = []string{
	"RUNNER_TEMP", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY", "GITHUB_EVENT_PATH",
	"AGENT_TEMPDIRECTORY", "AGENT_HOMEDIRECTORY", "VSS_NUGET_URI_PREFIXES_FILE", "DOCKER_CONFIG", "KUBECONFIG", "GOOGLE_APPLICATION_CREDENTIALS",
}

// ciWorkspace refuses to show a session what belongs to the runner: a workspace
// around its private files, or credentials in a bound repository.
func (a *app) ciWorkspace(w sandbox.Workspace) error {
	if w.Kind != sandbox.WorkspaceBind && w.Kind != sandbox.WorkspaceCopy {
		return nil
	}
	inCI := a.runnersOf(ciAuto) != 0
	if w.Kind == sandbox.WorkspaceBind && sandbox.GitCredentials(w.Dir) {
		const fact = "the repository in %s has credentials in its .git/config, and commands of a session that it is bound to can read them"
		if inCI {
			return misuse("use --workspace copy:DIR, which leaves them out; or check it out without them (persist-credentials: false)", fact, w.Dir)
		}
		a.note("warning: " + fmt.Sprintf(fact, w.Dir))
	}
	if !inCI {
		return nil
	}
	for _, name := range ciPrivate {
		if at := a.getenv(name); at != "" && within(w.Dir, at) {
			return misuse("name the directory of the checkout alone, or a part of it", "%s holds %s, which belongs to the runner ($%s)", w.Dir, at, name)
		}
	}
	if project := a.getenv("CI_PROJECT_DIR"); project != "" && within(w.Dir, project+".tmp") {
		return misuse("name the directory of the checkout alone, or a part of it", "%s holds %s.tmp, where GitLab's runner keeps variables", w.Dir, project)
	}
	return nil
}

// within reports whether a path is a directory or something in it, by name or by
// what the names lead to.
func within(dir, path string) bool {
	target := func(p string) string {
		if r, err := filepath.EvalSymlinks(p); err == nil {
			return r
		}
		return p
	}
	for _, p := range [][2]string{{dir, path}, {target(dir), target(path)}} {
		if rel, err := filepath.Rel(p[0], p[1]); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return true
		}
	}
	return false
}
