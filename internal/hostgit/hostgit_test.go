package hostgit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// git runs git in dir as a user would.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e@example.org"}, args...)...)
	cmd.Env = append(cmd.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// repository makes one with a commit and an index that differs from it.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	write(t, dir, "both", "committed\n")
	write(t, dir, "sub/deep", "deep\n")
	write(t, dir, "a b blob 3", "spaces\n")
	write(t, dir, "large", strings.Repeat("x", 5000))
	write(t, dir, "empty", "")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "m")
	write(t, dir, "both", "staged\n")
	write(t, dir, "staged", "new\n")
	git(t, dir, "add", ".")
	write(t, dir, "both", "neither\n")
	return dir
}

func contents(ctx context.Context, t *testing.T, dir string, names ...string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := Contents(ctx, dir, names, 1000, func(name string, content []byte) { found[name] = append(found[name], string(content)) })
	if err != nil {
		t.Errorf("Contents() = %v; want no error", err)
	}
	return found
}

func TestContents(t *testing.T) {
	dir := repository(t)
	got := contents(t.Context(), t, dir, "both", "missing", "a b blob 3", "large", "empty", "staged", "line\nend", "sub", "sub/deep")
	want := map[string][]string{
		"both": {"committed\n", "staged\n"}, "a b blob 3": {"spaces\n", "spaces\n"}, "empty": {"", ""}, "staged": {"new\n"}, "sub/deep": {"deep\n", "deep\n"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Contents() differs (-want +got):\n%s", d)
	}
	if got := contents(t.Context(), t, filepath.Join(dir, "sub"), "deep", "both"); !cmp.Equal(got, map[string][]string{"deep": {"deep\n", "deep\n"}}) {
		t.Errorf("Contents() below the repository's root = %q; want the names relative to that directory", got)
	}
}

// Where there is nothing to be had, there is no error either: the caller does without.
func TestContentsNone(t *testing.T) {
	dir := repository(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		dir  string
		path string
		ask  []string
	}{
		{"no repository", t.TempDir(), os.Getenv("PATH"), []string{"both"}},
		{"no directory", filepath.Join(dir, "gone"), os.Getenv("PATH"), []string{"both"}},
		{"no git", dir, t.TempDir(), []string{"both"}},
		{"no names", dir, os.Getenv("PATH"), nil},
		{"a name of two lines", dir, os.Getenv("PATH"), []string{"both\n:./both"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PATH", tt.path)
			if got := contents(t.Context(), t, tt.dir, tt.ask...); len(got) != 0 {
				t.Errorf("Contents() = %q; want nothing", got)
			}
		})
	}
	if err := Contents(ended, dir, []string{"both"}, 1000, func(string, []byte) {}); err == nil {
		t.Error("Contents() with a context that has ended = nil; want its error")
	}
}

// What the repository configures to be run is not run, and variables of git's own do not lead
// elsewhere.
func TestContentsRunsNothing(t *testing.T) {
	dir, elsewhere := repository(t), repository(t)
	ran := filepath.Join(t.TempDir(), "ran")
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\necho \"$0 $*\" >>%s\ncat\n", ran), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"core.fsmonitor", "core.pager", "pager.cat-file", "filter.f.smudge", "filter.f.process", "diff.f.textconv", "core.sshCommand", "core.askPass", "credential.helper", "core.editor"} {
		git(t, dir, "config", key, program)
	}
	git(t, dir, "config", "core.hooksPath", filepath.Dir(program))
	write(t, dir, ".git/info/attributes", "* filter=f diff=f\n")
	git(t, elsewhere, "commit", "-q", "-m", "another", "--allow-empty")
	t.Setenv("GIT_DIR", filepath.Join(elsewhere, ".git"))
	t.Setenv("GIT_INDEX_FILE", filepath.Join(elsewhere, ".git", "none"))
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
	t.Setenv("GIT_CONFIG_VALUE_0", program)
	t.Setenv("GIT_TRACE", ran)
	if got, want := contents(t.Context(), t, dir, "both"), []string{"committed\n", "staged\n"}; !cmp.Equal(got["both"], want) {
		t.Errorf("Contents() = %q; want %q", got["both"], want)
	}
	if said, err := os.ReadFile(ran); err == nil {
		t.Errorf("a program of the repository's ran, or a trace was written: %s", said)
	}
}

// What git has is known; what was changed or made since is not, unless it is ignored. No filter runs.
func TestUnknown(t *testing.T) {
	dir := repository(t)
	write(t, dir, ".gitignore", "ignored\n")
	write(t, dir, "ignored", "x\n")
	write(t, dir, "new\nline", "x\n")
	write(t, dir, "sub/new", "x\n")
	ran := filepath.Join(t.TempDir(), "ran")
	git(t, dir, "config", "filter.f=x.clean", "touch "+ran+"; cat")
	git(t, dir, "config", "filter.f=x.process", "touch "+ran)
	git(t, dir, "config", "filter.f=x.required", "true")
	write(t, dir, ".git/info/attributes", "* filter=f=x\n")
	got, all, err := Unknown(t.Context(), dir)
	want := map[string]bool{"both": true, ".gitignore": true, "new\nline": true, "sub/new": true}
	if d := cmp.Diff(want, got); d != "" || all || err != nil {
		t.Errorf("Unknown() = %t, %v, differs (-want +got):\n%s", all, err, d)
	}
	if got, all, err = Unknown(t.Context(), filepath.Join(dir, "sub")); !cmp.Equal(got, map[string]bool{"new": true}) || all || err != nil {
		t.Errorf("Unknown() below the top = %v, %t, %v; want the names from there", got, all, err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a filter ran")
	}
	if got, all, err := Unknown(t.Context(), t.TempDir()); len(got) != 0 || !all || err != nil {
		t.Errorf("Unknown(no repository) = %v, %t, %v; want all", got, all, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Unknown(ended, dir); err == nil {
		t.Error("Unknown() with a context that has ended = nil; want its error")
	}
	t.Setenv("PATH", t.TempDir())
	if _, all, err := Unknown(t.Context(), dir); !all || err != nil {
		t.Errorf("Unknown() without git = %t, %v; want all", all, err)
	}
}

// Hooks in the working tree are the user's programs. The last value of a configuration counts.
func TestHooks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values    []string
		sub, want string
	}{
		{nil, "", ""},
		{[]string{"hooks"}, "", "hooks"},
		{[]string{"first", "sub/hooks"}, "", "sub/hooks"},
		{[]string{"sub/hooks"}, "sub", "hooks"},
		{[]string{"hooks"}, "sub", ""},
		{[]string{"/usr/share/hooks"}, "", ""},
		{[]string{"../hooks"}, "", ""},
		{[]string{"."}, "", "."},
	} {
		dir := repository(t)
		for _, value := range tt.values {
			git(t, dir, "config", "--add", "core.hooksPath", value)
		}
		if got := Hooks(t.Context(), filepath.Join(dir, tt.sub)); got != tt.want {
			t.Errorf("Hooks(%q) with core.hooksPath %q = %q; want %q", tt.sub, tt.values, got, tt.want)
		}
	}
	if got := Hooks(t.Context(), t.TempDir()); got != "" {
		t.Errorf("Hooks(no repository) = %q; want none", got)
	}
}

func TestIgnored(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	write(t, dir, ".gitignore", "/build/\n*.log\n!keep.log\n")
	write(t, dir, "tracked.log", "x")
	git(t, dir, "add", "-f", "tracked.log")
	for _, name := range []string{"build/a/b", "a.log", "sub/b\n.log", "sub/keep.log", "other"} {
		write(t, dir, name, "x")
	}
	got, err := Ignored(t.Context(), dir)
	if diff := cmp.Diff(map[string]bool{"build": true, "a.log": true, "sub/b\n.log": true}, got); diff != "" || err != nil {
		t.Errorf("Ignored() = %v (-want +got):\n%s", err, diff)
	}
	below, err := Ignored(t.Context(), filepath.Join(dir, "sub"))
	if diff := cmp.Diff(map[string]bool{"b\n.log": true}, below); diff != "" || err != nil {
		t.Errorf("Ignored(sub) = %v (-want +got):\n%s", err, diff)
	}
	if _, err := Ignored(t.Context(), t.TempDir()); !errors.Is(err, ErrNoRepository) {
		t.Errorf("Ignored() of no repository = %v; want %v", err, ErrNoRepository)
	}
}
