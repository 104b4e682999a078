package transfer

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, map[string]string{"bare/HEAD": "", "bare/objects/": "", "bare/refs/": "", "half/objects/": "", "half/refs/": "", "work/HEAD": "", "work/commondir": ""})
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	next := []Entry{
		{Name: "half/HEAD", Kind: File},
		{Name: "new/head", Kind: File},
		{Name: "new/Objects", Kind: Link},
		{Name: "new/refs", Kind: Dir},
		{Name: "HEAD", Kind: File},
	}
	g := newGuard(root, dir, next)
	for _, tt := range []struct {
		name string
		kind Kind
		want bool // it is refused
	}{
		{"a", File, false},
		{"config", File, false},
		{"hooks/pre-commit", File, false},
		{".gitmodules", File, false},
		{".gitattributes", File, false},
		{".gitignore", File, false},
		{".github/x", File, false},
		{"a.git/config", File, false}, // no repository

		{".git", Dir, false},
		{".git", File, true}, // gitdir: elsewhere
		{".git", Link, true},
		{"sub/.git", File, true},
		{"sub/.git", Dir, false},
		{".git/HEAD", File, false},
		{".git/HEAD", Link, true},
		{".git/index", File, false},
		{".git/refs/heads/config", File, false}, // a branch may be called so
		{".git/refs/heads/x", Link, true},
		{".git/objects/ab/cdef", File, false},
		{".git/objects/pack/pack-1.pack", File, false},
		{".git/objects/info/packs", File, false},
		{".git/objects/info/alternates", File, true},
		{".git/objects/info/http-alternates", File, true},
		{".git/logs/HEAD", File, false},
		{".git/info/exclude", File, false},
		{".git/info/attributes", File, true},
		{".git/config", File, true},
		{".git/config.worktree", File, true},
		{".git/commondir", File, true},
		{".git/gitdir", File, true},
		{".git/hooks", Dir, true},
		{".git/hooks/pre-commit", File, true},
		{".git/rebase-merge/git-rebase-todo", File, true}, // it has lines that are run
		{".git/sequencer/todo", File, true},
		{".git/worktrees/w/HEAD", File, true},
		{".git/worktrees/w/config.worktree", File, true},
		{".git/modules", Dir, false},
		{".git/modules/m/HEAD", File, false},
		{".git/modules/m/config", File, true},
		{".git/modules/a/b/config", File, true},
		{".git/modules/a/b/HEAD", File, false},
		{".git/modules/m/objects/ab/cd", File, false},
		{".git/modules/m/objects/info/alternates", File, true},
		{".git/modules/m/hooks/x", File, true},
		{".git/modules/m/info/attributes", File, true},
		{".git/modules/m/modules/n/config", File, true},
		{".git/modules/m/modules/n/HEAD", File, false},
		{".git/refs/.git/config", File, true},
		{".git/unknown", File, true},
		{"sub/deep/.git/config", File, true},

		// As macOS and Windows may spell it.
		{".GIT/config", File, true},
		{".Git/HOOKS/x", File, true},
		{".git /config", File, true},
		{".git./config", File, true},
		{".git. . /config", File, true},
		{"git~1/config", File, true},
		{"GIT~1", File, true},
		{"git~12/config", File, true},
		{"git~x/config", File, false},
		{".git::$INDEX_ALLOCATION/config", File, true},
		{".g\u200cit/config", File, true},
		{".gi\ufefft/config", File, true},
		{"\u202e.git/config", File, true},
		{"\u212aonfig", File, false},
		{".git/\u200dconfig", File, true},
		{`.git\config`, File, true},
		{`sub\.git\hooks\x`, File, true},

		// Repositories without a .git.
		{"bare/config", File, true},
		{"bare/hooks/x", File, true},
		{"bare/HEAD", File, false},
		{"bare/objects/ab/cd", File, false},
		{"bare/CONFIG", File, true},
		{"half/config", File, true}, // with the HEAD to come it is one
		{"new/config", File, true},
		{"new/objects", Link, true},
		{"new/sub/config", File, true},
		{"work/config", File, true},

		{".hg/hgrc", File, true},
		{".hg/store/x", File, true},
		{".jj", File, true},
		{"sub/.svn/wc.db", File, true},
		{"_darcs/prefs/defaults", File, true},
		{"hg/hgrc", File, false},
	} {
		if got := g.refuses(Entry{Name: tt.name, Kind: tt.kind}); got != tt.want {
			t.Errorf("refuses(%q, %c) = %t; want %t", tt.name, tt.kind, got, tt.want)
		}
	}
}

// Where the directory itself lies in a repository, what is below it does too.
func TestGuardOuter(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	plant(t, outer, map[string]string{".git/hooks/": "", ".git/refs/": "", "r.git/HEAD": "", "r.git/objects/": "", "r.git/refs/": "", "r.git/hooks/": "", "src/x/": ""})
	for dir, wants := range map[string]map[string]bool{
		".git":        {"config": true, "HEAD": false, "hooks/x": true},
		".git/hooks":  {"pre-commit": true},
		".git/refs":   {"heads/x": false},
		"r.git":       {"config": true, "HEAD": false},
		"r.git/hooks": {"x": true},
		"src/x":       {"config": false, "hooks/x": false},
	} {
		at := filepath.Join(outer, dir)
		root, err := os.OpenRoot(at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = root.Close() })
		g := newGuard(root, at, nil)
		for name, want := range wants {
			if got := g.refuses(Entry{Name: name, Kind: File}); got != want {
				t.Errorf("in %s: refuses(%q) = %t; want %t", dir, name, got, want)
			}
		}
	}
}

// git itself is the judge: after a transfer of everything that it would run, nothing
// of it runs.
func TestGuardGit(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git here")
	}
	outer := t.TempDir()
	dir, ran := filepath.Join(outer, "here"), filepath.Join(outer, "ran")
	run := func(at string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), git, args...)
		cmd.Dir = at
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "HOME="+outer,
			"GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@example.org", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@example.org")
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	plant(t, outer, map[string]string{"here/f": "x"})
	run(dir, "init", "-q")
	run(dir, "add", "f")
	run(dir, "commit", "-q", "-m", "one")
	head, err := os.ReadFile(filepath.Join(dir, ".git", "HEAD"))
	if err != nil {
		t.Skip("git does not work here")
	}
	evil := "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = \"touch " + ran + "; false\"\n\tsshCommand = touch " + ran + "\n\tpager = touch " + ran + "\n[alias]\n\tstatus = !touch " + ran + "\n"
	hook := "#!/bin/sh\ntouch " + ran + "\n"
	entries := []entry{regular(".git/config", evil), regular(".git/config.worktree", evil), regular(".git/commondir", "../evil\n"), regular("f", "y")}
	for _, name := range []string{"pre-commit", "post-checkout", "post-index-change", "reference-transaction"} {
		entries = append(entries, entry{regular(".git/hooks/"+name, hook).Header, hook})
	}
	for i := range entries {
		entries[i].Mode = 0o755
	}
	for _, repo := range []string{"bare", "sub/.git", "n/.GIT"} { // new ones, whole
		entries = append(entries, regular(repo+"/HEAD", string(head)), directory(repo+"/objects", 0o755), directory(repo+"/refs", 0o755), regular(repo+"/config", evil))
	}
	entries = append(entries, regular("linked/.git", "gitdir: ../evil\n"), regular("evil/HEAD", string(head)), directory("evil/objects", 0o755), directory("evil/refs", 0o755), regular("evil/config", evil))
	report, err := unpack(bytes.NewReader(pack(t, entries...)), dir, Options{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{".", "bare", "sub", "n", "linked", "evil"} {
		at = filepath.Join(dir, at)
		for _, args := range [][]string{{"status"}, {"add", "-A"}, {"commit", "-q", "-m", "two", "--allow-empty"}, {"checkout", "-q", "-b", "b"}, {"log", "-p"}} {
			run(at, args...)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Errorf("git ran what the session wanted; left out was %q", report.LeftOut)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "f")); string(b) != "y" {
		t.Errorf("f is %q; want y", b)
	}
	// The judge would have noticed.
	if err := os.WriteFile(filepath.Join(dir, "bare", "config"), []byte(evil), 0o644); err != nil {
		t.Fatal(err)
	}
	if run(filepath.Join(dir, "bare"), "log", "-p"); run(dir, "-C", "bare", "status") == "" {
		t.Log("git said nothing")
	}
	if _, err := os.Stat(ran); err != nil {
		run(dir, "-c", "core.fsmonitor=touch "+ran+"; false", "status")
		if _, err := os.Stat(ran); err != nil {
			t.Error("this git runs no fsmonitor: the test shows nothing")
		}
	}
	var names []string
	for _, l := range report.LeftOut {
		names = append(names, l.Name)
	}
	for _, want := range []string{".git/config", ".git/hooks", ".git/commondir", "bare/config", "sub/.git/config", "linked/.git", "evil/config"} {
		if !strings.Contains(strings.Join(names, "\n")+"\n", want+"\n") && !strings.Contains(strings.Join(names, "\n"), want) {
			t.Errorf("%s is not named as left out: %q", want, names)
		}
	}
}
