package hostgit

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// said is what git says.
func said(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// clone copies a repository with all of its files, as a session gets it.
func clone(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "session")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// commit makes a commit of all files.
func commit(t *testing.T, dir, name, text string) string {
	t.Helper()
	write(t, dir, name, text)
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", name)
	return said(t, dir, "rev-parse", "HEAD")
}

// take opens an import of a session's objects to a directory.
func take(t *testing.T, dir, session string) *Import {
	t.Helper()
	c, err := OpenImport(t.Context(), dir)
	if err != nil {
		t.Fatalf("OpenImport() = %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(c.own); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after Close() there is %s", c.own)
		}
	})
	if err := takeAll(t, c, session); err != nil {
		t.Fatalf("Take() = %v", err)
	}
	return c
}

func takeAll(t *testing.T, c *Import, session string) error {
	t.Helper()
	objects := filepath.Join(session, ".git", "objects")
	return fs.WalkDir(os.DirFS(objects), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !c.Wants(name) {
			return err
		}
		f, err := os.Open(filepath.Join(objects, name))
		if err != nil {
			return err
		}
		defer f.Close()
		return c.Take(t.Context(), name, f)
	})
}

func bring(ctx context.Context, c *Import, branch, tip string) (Found, error) {
	found, err := c.Look(ctx, branch, tip)
	if err == nil {
		err = c.Bring(ctx, branch, tip)
	}
	return found, err
}

// Commits come to a new branch, and move one forward; the working tree stays as it is.
func TestImport(t *testing.T) {
	t.Parallel()
	for _, packed := range []bool{false, true} {
		dir := repository(t)
		was := said(t, dir, "status", "--porcelain=v2", "--branch")
		session := clone(t, dir)
		one := commit(t, session, "new", "1\n")
		two := commit(t, session, "Makefile", "all:\n")
		if packed {
			git(t, session, "gc", "-q")
		}
		c := take(t, dir, session)
		found, err := bring(t.Context(), c, "agent/work", one)
		if err != nil || found.Commits != 1 || found.Was != "" {
			t.Fatalf("packed %t: Look() = %+v, Bring() = %v", packed, found, err)
		}
		if found, err = bring(t.Context(), c, "agent/work", two); err != nil || found.Commits != 1 || found.Was != one {
			t.Errorf("Look() = %+v, Bring() = %v; want the branch moved from %s", found, err, one)
		}
		if d := cmp.Diff([]string{"Makefile", "both", "new", "staged"}, found.Files); d != "" {
			t.Errorf("Look() finds other files (-want +got):\n%s", d)
		}
		if got := said(t, dir, "rev-parse", "agent/work"); got != two {
			t.Errorf("the branch is at %s; want %s", got, two)
		}
		if found, err = bring(t.Context(), c, "agent/work", two); err != nil || found.Commits != 0 || found.Was != two {
			t.Errorf("once more: Look() = %+v, Bring() = %v; want nothing new", found, err)
		}
		if got := said(t, dir, "status", "--porcelain=v2", "--branch"); got != was {
			t.Errorf("git status says\n%s\nand said before\n%s", got, was)
		}
		git(t, dir, "fsck", "--strict")
	}
}

// What cannot be brought changes nothing here.
func TestImportRefused(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	git(t, dir, "branch", "behind")
	git(t, dir, "branch", "a/b")
	session := clone(t, dir)
	tip := commit(t, session, "new", "1\n")
	git(t, dir, "checkout", "-q", "-b", "diverged")
	commit(t, dir, "mine", "1\n")
	git(t, dir, "checkout", "-q", "-b", "here")
	blob := said(t, session, "rev-parse", "HEAD:new")
	c := take(t, dir, session)
	refs := said(t, dir, "for-each-ref")
	for _, tt := range []struct {
		name, branch, tip string
		want              error
	}{
		{"checked out", "here", tip, ErrCheckedOut},
		{"diverged", "diverged", tip, ErrDiverged},
		{"an option", "--upload-pack=x", tip, ErrBranchName},
		{"two dots", "a..b", tip, ErrBranchName},
		{"HEAD", "HEAD", tip, ErrBranchName},
		{"the branch before", "@{-1}", tip, ErrBranchName},
		{"empty", "", tip, ErrBranchName},
		{"a refspec", "x:refs/heads/y", tip, ErrBranchName},
		{"below a branch", "a/b/c", tip, nil},
		{"a blob", "new", blob, nil},
		{"no such object", "new", strings.Repeat("1", 40), ErrIncomplete},
		{"a name", "new", "HEAD", nil},
		{"short", "new", tip[:10], nil},
	} {
		if _, err := bring(t.Context(), c, tt.branch, tt.tip); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: an import of %s to %q = %v; want the error %v", tt.name, tt.tip, tt.branch, err, tt.want)
		}
	}
	if got := said(t, dir, "for-each-ref"); got != refs {
		t.Errorf("the refs are\n%s\nand were\n%s", got, refs)
	}
	if _, err := OpenImport(t.Context(), filepath.Join(dir, "sub")); !errors.Is(err, ErrNoRepository) {
		t.Errorf("OpenImport(below the top) = %v; want ErrNoRepository", err)
	}
	if _, err := OpenImport(t.Context(), t.TempDir()); !errors.Is(err, ErrNoRepository) {
		t.Errorf("OpenImport(no repository) = %v; want ErrNoRepository", err)
	}
	for _, name := range []string{"info/alternates", "../config", "pack/pack-1.idx", "pack/pack-" + strings.Repeat("a", 40) + ".keep", "aa/../../config", "AA/" + strings.Repeat("b", 38)} {
		if c.Wants(name) || c.Take(t.Context(), name, strings.NewReader("x")) == nil {
			t.Errorf("Take(%q) takes it; want an error", name)
		}
	}
}

// loose writes an object as a session can, and returns its name.
func loose(t *testing.T, session, kind string, content []byte) string {
	t.Helper()
	all := append(fmt.Appendf(nil, "%s %d\x00", kind, len(content)), content...)
	sum := sha1.Sum(all)
	name := hex.EncodeToString(sum[:])
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	if _, err := z.Write(all); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, session, ".git/objects/"+name[:2]+"/"+name[2:], b.String())
	return name
}

// A session's repository can have anything in it. What git would not take from a stranger, it
// does not take here, and no branch is made.
func TestImportHostile(t *testing.T) {
	t.Parallel()
	who := "x <x@example.org> 1 +0000"
	tree := func(t *testing.T, session, mode, name, object string) string {
		t.Helper()
		raw, err := hex.DecodeString(object)
		if err != nil {
			t.Fatal(err)
		}
		return loose(t, session, "tree", append([]byte(mode+" "+name+"\x00"), raw...))
	}
	commitOf := func(t *testing.T, session, tree string) string {
		t.Helper()
		return loose(t, session, "commit", fmt.Appendf(nil, "tree %s\nauthor %s\ncommitter %s\n\nm\n", tree, who, who))
	}
	for name, plant := range map[string]func(t *testing.T, session string) string{
		"a repository in the tree": func(t *testing.T, s string) string {
			t.Helper()
			return commitOf(t, s, tree(t, s, "40000", ".git", tree(t, s, "100644", "config", loose(t, s, "blob", []byte("x")))))
		},
		"a name that leads out": func(t *testing.T, s string) string {
			t.Helper()
			return commitOf(t, s, tree(t, s, "40000", "..", tree(t, s, "100644", "x", loose(t, s, "blob", []byte("x")))))
		},
		"an option as the address of a submodule": func(t *testing.T, s string) string {
			t.Helper()
			return commitOf(t, s, tree(t, s, "100644", ".gitmodules", loose(t, s, "blob", []byte("[submodule \"x\"]\n\tpath = x\n\turl = --upload-pack=touch x\n"))))
		},
		"a blob that is missing": func(t *testing.T, s string) string {
			t.Helper()
			return commitOf(t, s, tree(t, s, "100644", "x", strings.Repeat("12", 20)))
		},
		"a commit that is not one": func(t *testing.T, s string) string {
			t.Helper()
			return loose(t, s, "commit", []byte("nothing"))
		},
		"another content than the name says": func(t *testing.T, s string) string {
			t.Helper()
			blob := loose(t, s, "blob", []byte("shown"))
			other := loose(t, s, "blob", []byte("other"))
			file := func(o string) string { return filepath.Join(s, ".git", "objects", o[:2], o[2:]) }
			if err := os.Rename(file(other), file(blob)); err != nil {
				t.Fatal(err)
			}
			return commitOf(t, s, tree(t, s, "100644", "x", blob))
		},
		"an object of a size that is not there": func(t *testing.T, s string) string {
			t.Helper()
			tip := commitOf(t, s, strings.Repeat("1", 40))
			var b bytes.Buffer
			z := zlib.NewWriter(&b)
			fmt.Fprintf(z, "commit %d\x00tree", 1<<40)
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			write(t, s, ".git/objects/"+tip[:2]+"/"+tip[2:], b.String())
			return tip
		},
		"no object at all": func(t *testing.T, s string) string {
			t.Helper()
			tip := commitOf(t, s, strings.Repeat("1", 40))
			write(t, s, ".git/objects/"+tip[:2]+"/"+tip[2:], "garbage")
			return tip
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := repository(t)
			session := clone(t, dir)
			tip := plant(t, session)
			c := take(t, dir, session)
			if found, err := bring(t.Context(), c, "new", tip); err == nil {
				t.Errorf("the import is taken: %+v", found)
			} else {
				t.Log(err)
			}
			if got := said(t, dir, "for-each-ref", "refs/heads/new"); got != "" {
				t.Errorf("there is the branch %s", got)
			}
		})
	}
	t.Run("a pack that is cut", func(t *testing.T) {
		t.Parallel()
		dir := repository(t)
		c, err := OpenImport(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		if err := c.Take(t.Context(), "pack/pack-"+strings.Repeat("a", 40)+".pack", strings.NewReader("PACK\x00\x00\x00\x02\x00\x00\x00\x01")); err == nil {
			t.Error("Take(a pack that is cut) = nil; want an error")
		}
	})
}

// Nothing that the repository here configures is run, and a session's configuration, alternates,
// replacements and hooks mean nothing.
func TestImportRunsNothing(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	session := clone(t, dir)
	tip := commit(t, session, "new", "1\n")
	ran := filepath.Join(t.TempDir(), "ran")
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\necho \"$0 $*\" >>%s\ncat\n", ran), 0o755); err != nil {
		t.Fatal(err)
	}
	hooks := t.TempDir()
	for _, hook := range []string{"reference-transaction", "post-checkout", "pre-auto-gc", "post-index-change"} {
		for _, at := range []string{hooks, filepath.Join(dir, ".git", "hooks"), filepath.Join(session, ".git", "hooks")} {
			if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, hook), fmt.Appendf(nil, "#!/bin/sh\necho %s >>%s\n", hook, ran), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
	}
	git(t, session, "replace", tip, said(t, session, "rev-parse", "HEAD~1"))
	for _, at := range []string{dir, session} {
		for _, key := range []string{"core.fsmonitor", "core.pager", "uploadpack.packObjectsHook", "core.sshCommand", "core.askPass", "credential.helper", "core.alternateRefsCommand", "filter.f.smudge"} {
			git(t, at, "config", key, program)
		}
		git(t, at, "config", "core.hooksPath", hooks)
	}
	write(t, session, ".git/objects/info/alternates", "/\n")
	c := take(t, dir, session)
	if _, err := os.Stat(ran); err == nil {
		_ = os.Remove(ran) // git of this test ran it
	}
	if found, err := bring(t.Context(), c, "new", tip); err != nil || found.Commits != 1 {
		t.Errorf("Look() = %+v, Bring() = %v; want one commit", found, err)
	}
	if b, err := os.ReadFile(ran); err == nil {
		t.Errorf("these programs ran:\n%s", b)
	}
}

func TestAlternate(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	for _, name := range []string{"plain", "a b", "quote\"d", "new\nline", "#x", `back\slash`, "back\\slash\nline"} {
		dir := filepath.Join(top, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		git(t, dir, "init", "-q")
		commit(t, dir, "f", "1\n")
		session := clone(t, dir)
		tip := commit(t, session, "g", "1\n")
		if found, err := bring(t.Context(), take(t, dir, session), "new", tip); err != nil || found.Commits != 1 {
			t.Errorf("in %q: Look() = %+v, Bring() = %v", name, found, err)
		}
	}
}
