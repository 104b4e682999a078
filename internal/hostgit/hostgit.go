// Package hostgit asks this machine's git, with all that a repository's configuration could
// have it run switched off.
package hostgit

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxTime bounds one call of git.
const maxTime = 30 * time.Second

// command is a call of git in a directory. Nothing that the repository or the user has
// configured to be run is run: no hook, monitor, pager, filter or prompt, and nothing is
// fetched.
func command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	off := []string{"-C", dir, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.DevNull, "-c", "safe.bareRepository=explicit", "--no-pager"}
	cmd := exec.CommandContext(ctx, "git", append(off, args...)...)
	// The user's home says which repositories git trusts; variables of git's own could say what it runs.
	env := slices.DeleteFunc(cmd.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	cmd.Env = append(env, "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_ALLOW_PROTOCOL=none")
	cmd.WaitDelay = time.Second
	return cmd
}

// Contents calls take with the contents that the repository of a directory has of files
// there, in its last commit and in its index. Files larger than most are left out, and so is
// all if there is no git or no repository.
func Contents(ctx context.Context, dir string, names []string, most int64, take func(name string, content []byte)) error {
	if _, err := exec.LookPath("git"); err != nil {
		return nil // there is nothing to ask
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	var ask bytes.Buffer
	var asked []string
	for _, name := range names {
		if strings.ContainsAny(name, "\n\r") {
			continue // a question is a line
		}
		for _, from := range []string{"HEAD:./", ":./"} {
			fmt.Fprintf(&ask, "%s%s\n", from, name)
			asked = append(asked, name)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	cmd := command(ctx, dir, "cat-file", "--batch")
	cmd.Stdin = &ask
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := read(bufio.NewReader(out), asked, most, take)
	if readErr != nil {
		cancel()
	}
	if err := cmd.Wait(); err != nil {
		return nil // no repository, or none that git trusts
	}
	return readErr
}

// read reads the answers: a line "OBJECT TYPE SIZE", the content and a line end, or a line
// that ends in another word.
func read(r *bufio.Reader, asked []string, most int64, take func(string, []byte)) error {
	for _, name := range asked {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		var object, kind string
		var size int64
		if n, err := fmt.Sscanf(line, "%s %s %d", &object, &kind, &size); n != 3 || err != nil || size < 0 || strings.HasSuffix(line, "missing\n") {
			continue
		}
		if kind != "blob" || size > most {
			if _, err := r.Discard(int(size) + 1); err != nil {
				return err
			}
			continue
		}
		content := make([]byte, size)
		if _, err := io.ReadFull(r, content); err != nil {
			return err
		}
		if _, err := r.Discard(1); err != nil {
			return err
		}
		take(name, content)
	}
	return nil
}

// Unknown returns the files below a directory of which the repository there has no content that they
// have now: those that were changed since they were added to its index, and those that were not added
// and are not ignored. all says that it has none, because there is no repository, or no git.
func Unknown(ctx context.Context, dir string) (names map[string]bool, all bool, err error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, true, nil // there is nothing to ask
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	filters := command(ctx, dir, "config", "--null", "--name-only", "--get-regexp", `^filter\.`)
	text, _ := answer(filters) // an error: there are none, or there is no repository
	cmd := command(ctx, dir, "ls-files", "-z", "--modified", "--others", "--exclude-standard")
	n := 0
	for key := range strings.SplitSeq(text, "\x00") {
		value := ""
		switch {
		case strings.HasSuffix(key, ".required"):
			value = "false"
		case key == "":
			continue
		}
		cmd.Env = append(cmd.Env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", n, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, value))
		n++
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", n))
	list, err := answer(cmd)
	if err != nil {
		return nil, true, context.Cause(ctx)
	}
	names = map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		names[name] = true
	}
	return names, false, nil
}

// Hooks returns the directory of the hooks that git runs for a directory, relative to it and with
// slashes, if the configuration names one that is in it: what lies there is run by the user's next
// commit. It is "" otherwise.
func Hooks(ctx context.Context, dir string) string {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	cmd := command(ctx, dir, "config", "--null", "--type=path", "--get-all", "core.hooksPath")
	list, err := answer(cmd)
	if err != nil {
		return ""
	}
	values := strings.Split(strings.TrimSuffix(list, "\x00"), "\x00")
	i := len(values) - 2 // the last one is that of command
	if i < 0 || values[i] == "" {
		return ""
	}
	top, err := line(command(ctx, dir, "rev-parse", "--show-toplevel"))
	if err != nil {
		return ""
	}
	hooks := values[i]
	if !filepath.IsAbs(hooks) {
		hooks = filepath.Join(top, hooks)
	}
	if at, err := filepath.EvalSymlinks(hooks); err == nil {
		hooks = at
	}
	at, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(at, hooks)
	if err != nil || !filepath.IsLocal(rel) {
		return ""
	}
	return filepath.ToSlash(rel)
}

// Ignored returns what git ignores below a directory, as its ignore files and the user's say: files,
// and directories that are ignored as a whole, relative to it and with slashes. What is in the index
// is not ignored. The error is ErrNoRepository if the directory is in none, or there is no git.
func Ignored(ctx context.Context, dir string) (map[string]bool, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, ErrNoRepository
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	list, err := answer(command(ctx, dir, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"))
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, ErrNoRepository
	}
	out := map[string]bool{}
	for name := range strings.SplitSeq(list, "\x00") {
		if name = strings.TrimSuffix(name, "/"); name != "" {
			out[name] = true
		}
	}
	return out, nil
}
