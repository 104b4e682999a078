package core

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// TestCheckWorkspace names workspaces of jobs of CI: one that holds files of the runner's own
// is refused, by its name and by what symbolic links lead to.
func TestCheckWorkspace(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("needs symbolic links")
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(top, name) }
	for _, dir := range []string{"work/repo/src", "work/_temp", "work-2", "builds/repo"} {
		if err := os.MkdirAll(in(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(in("work"), in("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(in("builds"), in("builds-link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in("work/_temp/env"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	github := func(env string) []string { return []string{"GITHUB_ACTIONS=true", "GITHUB_ENV=" + env} }
	gitlab := func(project string) []string { return []string{"GITLAB_CI=true", "CI_PROJECT_DIR=" + project} }
	for _, tt := range []struct {
		name string
		kind sandbox.WorkspaceKind
		dir  string
		env  []string
		want string // in the error; "" means none
	}{
		{"the checkout", sandbox.WorkspaceBind, in("work/repo"), github(in("work/_temp/env")), ""},
		{"around the runner's files", sandbox.WorkspaceBind, in("work"), github(in("work/_temp/env")), "$GITHUB_ENV"},
		{"a copy of it", sandbox.WorkspaceCopy, in("work"), github(in("work/_temp/env")), "$GITHUB_ENV"},
		{"nothing of this machine", sandbox.WorkspaceVolume, in("work"), github(in("work/_temp/env")), ""},
		{"the root", sandbox.WorkspaceBind, "/", github(in("work/_temp/env")), "$GITHUB_ENV"},
		{"a name that begins alike", sandbox.WorkspaceBind, in("work-2"), github(in("work/_temp/env")), ""},
		{"the file itself", sandbox.WorkspaceBind, in("work/_temp/env"), github(in("work/_temp/env")), "$GITHUB_ENV"},
		{"a link to it", sandbox.WorkspaceBind, in("link"), github(in("work/_temp/env")), "$GITHUB_ENV"},
		{"the runner's name is a link", sandbox.WorkspaceBind, in("work"), github(in("link/_temp/env")), "$GITHUB_ENV"},
		{"a link to a file that is not there yet", sandbox.WorkspaceBind, in("work"), github(in("link/_temp/later/env")), "$GITHUB_ENV"},
		{"no job", sandbox.WorkspaceBind, in("work"), []string{"GITHUB_ENV=" + in("work/_temp/env")}, ""},
		{"the checkout of GitLab", sandbox.WorkspaceBind, in("builds/repo"), gitlab(in("builds/repo")), ""},
		{"around it", sandbox.WorkspaceBind, in("builds"), gitlab(in("builds/repo")), "repo.tmp"},
		{"around it, by a link", sandbox.WorkspaceBind, in("builds"), gitlab(in("builds-link/repo")), "repo.tmp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &Configuration{env: &Environment{vars: tt.env}}
			err := c.CheckWorkspace(sandbox.Workspace{Kind: tt.kind, Dir: tt.dir})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("CheckWorkspace(%s) = %v; want an error with %q, or none", tt.dir, err, tt.want)
			}
		})
	}
}

// TestDirectoriesOfXDG says where programs keep what lasts. A relative path in an XDG variable is
// not used, as its specification says: it would be another directory for each caller.
func TestDirectoriesOfXDG(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the directories of another system")
	}
	for _, tt := range []struct {
		name, state, cache string
		env                []string
	}{
		{"nothing is set", "", "", nil},
		{"HOME", "/home/a/.local/state", "/home/a/.cache/sandboxbash", []string{"HOME=/home/a"}},
		{"the last one counts", "/home/b/.local/state", "/home/b/.cache/sandboxbash", []string{"HOME=/home/a", "HOME=/home/b"}},
		{"XDG variables", "/s", "/c/sandboxbash", []string{"HOME=/home/a", "XDG_STATE_HOME=/s", "XDG_CACHE_HOME=/c"}},
		{"relative ones", "/home/a/.local/state", "/home/a/.cache/sandboxbash", []string{"HOME=/home/a", "XDG_STATE_HOME=s", "XDG_CACHE_HOME=c"}},
		{"names that begin alike", "", "", []string{"HOMEX=/x", "XDG_STATE_HOMES=/x"}},
	} {
		e := &Environment{vars: tt.env}
		if state, cache := e.StateDir(), e.cacheDir(); state != tt.state || cache != tt.cache {
			t.Errorf("%s: %q, %q; want %q, %q", tt.name, state, cache, tt.state, tt.cache)
		}
	}
}
