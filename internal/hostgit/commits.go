package hostgit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Bounds of what is read from objects of which nothing is known.
const (
	// MaxObjects bounds the files of objects that an Import takes together, in bytes.
	MaxObjects = 1 << 30

	importTime = 5 * time.Minute
	// allocLimit ends git when it is to hold an object in memory that is larger. Blobs above
	// bigFile are not held in memory.
	allocLimit = "512m"
	bigFile    = "64m"
	maxAnswer  = 16 << 20 // bytes of what git prints
	maxSaid    = 400      // bytes of what git says in an error
)

// Errors of an Import.
var (
	ErrNoGit        = errors.New("there is no git on this machine")
	ErrNoRepository = errors.New("it is not the top directory of a git repository on this machine that git trusts")
	ErrBranchName   = errors.New("it is not a name for a branch")
	ErrCheckedOut   = errors.New("the branch is checked out here: name another one, and merge it")
	ErrDiverged     = errors.New("the branch exists and has commits that are not in the session's: name another one")
	ErrIncomplete   = errors.New("objects of these commits are neither in the session's repository nor here (alternates and " +
		"partial clones are not followed); if the session has committed meanwhile, try again")
)

// Import brings commits that are not to be trusted to a branch of the repository of a directory:
// OpenImport, then Take for each file of objects, then Look and Bring, and Close in any case. The objects
// first go to a repository of their own, which has no configuration and borrows those that
// are here. From there git fetches them, and checks each one. The working tree and the index are not
// touched, and nothing that a repository or the user has configured to be run is run.
type Import struct {
	dir     string // the user's
	objects string // the directory of the user's objects
	own     string // the repository of its own
	digits  int    // of the name of an object
}

// Found says what an Import has found at Look.
type Found struct {
	Was     string   // the commit that the branch is at; "" if it does not exist
	Commits int      // that are on no branch here
	Files   []string // that differ between the commits here and the new ones
}

// OpenImport opens the repository that a directory is the top of.
func OpenImport(ctx context.Context, dir string) (_ *Import, err error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, ErrNoGit
	}
	// This asks with the user's configuration, which says what git trusts; later calls do without it.
	top, err := line(command(ctx, dir, "rev-parse", "--show-toplevel"))
	if err != nil || !sameDir(top, dir) {
		return nil, ErrNoRepository
	}
	c := &Import{dir: dir}
	if c.objects, err = line(command(ctx, dir, "rev-parse", "--path-format=absolute", "--git-path", "objects")); err != nil {
		return nil, err
	}
	shallow, err := line(command(ctx, dir, "rev-parse", "--path-format=absolute", "--git-path", "shallow"))
	if err != nil {
		return nil, err
	}
	format, err := line(command(ctx, dir, "rev-parse", "--show-object-format"))
	if err != nil {
		return nil, err
	}
	c.digits = map[string]int{"sha1": 40, "sha256": 64}[format]
	if c.own, err = os.MkdirTemp("", "sandboxbash-commits-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	init := c.command(ctx, c.own, "init", "--quiet", "--bare", "--template=", "--object-format="+format, c.own)
	if _, err := answer(init); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(c.own, "objects", "info", "alternates"), []byte(alternate(c.objects)+"\n"), 0o600); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(shallow)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	return c, os.WriteFile(filepath.Join(c.own, "shallow"), b, 0o600)
}

// Close removes the repository of its own.
func (c *Import) Close() error { return os.RemoveAll(c.own) }

// alternate is a directory as a line of info/alternates.
func alternate(dir string) string {
	if !strings.ContainsAny(dir, "\n\"#") {
		return dir
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(dir) + `"`
}

func sameDir(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// command is a call of git without the configuration of the user and of the system, and with
// bounded memory.
func (c *Import) command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	off := []string{
		"-c", "safe.directory=*", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.bigFileThreshold=" + bigFile, "-c", "pack.threads=1",
		"-c", "fetch.fsckObjects=true", "-c", "transfer.fsckObjects=true", "-c", "fetch.recurseSubmodules=false", "-c", "submodule.recurse=false",
		"-c", "fetch.writeCommitGraph=false", "-c", "core.alternateRefsCommand=", "-c", "credential.helper=", "-c", "core.askPass=", "-c", "core.sshCommand=false",
		"-c", "core.attributesFile=" + os.DevNull,
	}
	cmd := command(ctx, dir, append(off, args...)...)
	cmd.Env = append(cmd.Env, "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1",
		"GIT_ALLOC_LIMIT="+allocLimit, "GIT_ALLOW_PROTOCOL=file", "LC_ALL=C")
	return cmd
}

// ofOwn is a call of git about the repository of its own.
func (c *Import) ofOwn(ctx context.Context, args ...string) *exec.Cmd {
	return c.command(ctx, c.own, append([]string{"--git-dir=" + c.own}, args...)...)
}

// answer runs a call of git and returns what it prints. An error has what git says.
func answer(cmd *exec.Cmd) (string, error) {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &bounded{&out, maxAnswer}, &bounded{&said, maxAnswer}
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	text := strings.TrimSpace(said.String())
	if text == "" {
		return out.String(), fmt.Errorf("git: %w", err)
	}
	return out.String(), fmt.Errorf("git: %s", text[max(0, len(text)-maxSaid):])
}

// line is answer for a line.
func line(cmd *exec.Cmd) (string, error) {
	text, err := answer(cmd)
	return strings.TrimSuffix(text, "\n"), err
}

type bounded struct {
	w    io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("git prints too much")
	}
	return b.w.Write(p)
}

var (
	loosePath = regexp.MustCompile(`^[0-9a-f]{2}/([0-9a-f]{38}|[0-9a-f]{62})$`)
	packPath  = regexp.MustCompile(`^pack/pack-[0-9a-f]{40,64}\.pack$`)
)

// Wants reports whether a file of the objects of a repository, by its path from there, is one that
// Take takes: an object or a pack of objects, which is not here.
func (c *Import) Wants(name string) bool {
	if !loosePath.MatchString(name) && !packPath.MatchString(name) {
		return false
	}
	_, err := os.Lstat(filepath.Join(c.objects, filepath.FromSlash(name)))
	return err != nil
}

// Take takes the content of a file that it wants.
func (c *Import) Take(ctx context.Context, name string, content io.Reader) error {
	if !c.Wants(name) {
		return errors.New("it was not asked for")
	}
	if packPath.MatchString(name) {
		cmd := c.ofOwn(ctx, "index-pack", "--stdin", "--max-input-size="+strconv.Itoa(MaxObjects))
		cmd.Stdin = content
		if _, err := answer(cmd); err != nil {
			return fmt.Errorf("the pack %s of the session's repository is damaged: %w", path.Base(name), err)
		}
		return nil
	}
	file := filepath.Join(c.own, "objects", filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// Look checks that the branch can be made, or moved forward, to the commit, and that all of the
// commit is there. It changes nothing.
func (c *Import) Look(ctx context.Context, branch, tip string) (Found, error) {
	ctx, cancel := context.WithTimeout(ctx, importTime)
	defer cancel()
	if len(tip) != c.digits || strings.Trim(tip, "0123456789abcdef") != "" {
		return Found{}, fmt.Errorf("%q does not name a commit as the repository here names them", tip)
	}
	if err := c.free(ctx, branch); err != nil {
		return Found{}, err
	}
	if kind, err := line(c.ofOwn(ctx, "cat-file", "-t", tip)); err != nil {
		return Found{}, ErrIncomplete
	} else if kind != "commit" {
		return Found{}, fmt.Errorf("%s is a %s, not a commit", tip, kind)
	}
	var f Found
	var err error
	if f.Was, err = line(c.command(ctx, c.dir, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)); err != nil {
		return f, err
	}
	if f.Was != "" {
		if _, err := answer(c.ofOwn(ctx, "merge-base", "--is-ancestor", f.Was, tip)); err != nil {
			return f, ErrDiverged
		}
	}
	return f, c.compare(ctx, &f, tip)
}

// free checks that a branch may be written.
func (c *Import) free(ctx context.Context, branch string) error {
	name, err := line(c.command(ctx, c.dir, "check-ref-format", "--branch", branch))
	if err != nil || name != branch || branch == "HEAD" {
		return ErrBranchName
	}
	at, err := line(c.command(ctx, c.dir, "for-each-ref", "--format=%(worktreepath)", "refs/heads/"+branch))
	if err != nil {
		return err
	}
	head, _ := line(c.command(ctx, c.dir, "symbolic-ref", "--quiet", "HEAD")) // an error: it names a commit
	if at != "" || head == "refs/heads/"+branch {
		return ErrCheckedOut
	}
	return nil
}

// compare counts the commits and lists the files that are new, and looks for all of their objects.
func (c *Import) compare(ctx context.Context, f *Found, tip string) error {
	refs, err := answer(c.command(ctx, c.dir, "for-each-ref", "--format=%(objectname)"))
	if err != nil {
		return err
	}
	var input strings.Builder
	input.WriteString(tip + "\n")
	head, err := line(c.command(ctx, c.dir, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"))
	if err == nil { // else there is no commit yet
		refs += head + "\n"
	}
	for ref := range strings.Lines(refs) {
		input.WriteString("^" + ref)
	}
	list := func(args ...string) (string, error) {
		cmd := c.ofOwn(ctx, append(append([]string{"rev-list"}, args...), "--ignore-missing", "--stdin")...)
		cmd.Stdin = strings.NewReader(input.String())
		return line(cmd)
	}
	count, err := list("--count")
	if err != nil {
		return ErrIncomplete
	}
	if f.Commits, err = strconv.Atoi(count); err != nil {
		return err
	}
	if _, err := list("--objects", "--quiet"); err != nil {
		return ErrIncomplete
	}
	if head == "" || f.Commits == 0 {
		return nil
	}
	base, err := line(c.ofOwn(ctx, "merge-base", head, tip))
	if err != nil {
		return nil //nolint:nilerr // they have no commit in common
	}
	names, err := answer(c.ofOwn(ctx, "diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", "--diff-filter=d", base, tip))
	if err == nil && names != "" {
		f.Files = strings.Split(strings.TrimSuffix(names, "\x00"), "\x00")
	}
	return err
}

// Bring makes the branch, or moves it forward, after Look. Git checks all objects that are new.
func (c *Import) Bring(ctx context.Context, branch, tip string) error {
	ctx, cancel := context.WithTimeout(ctx, importTime)
	defer cancel()
	const ref = "refs/heads/tip"
	if _, err := answer(c.ofOwn(ctx, "update-ref", ref, tip)); err != nil {
		return err
	}
	_, err := answer(c.command(ctx, c.dir, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-gc",
		"--", c.own, ref+":refs/heads/"+branch))
	return err
}
