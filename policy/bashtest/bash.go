//go:build unix

package bashtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// note records a command. Bash calls it for every name that it cannot find, and there are
// only a few that it can.
const note = `() { builtin printf '%%s\0' "$@" $'\036' >>'%s'/.ran.$BASHPID; [[ $1 != f* ]]
}`

// shim is the program behind the markers that other programs run. It records its call.
const shim = "#!/bin/sh\nprintf '%s\\0' \"${0##*/}\" \"$@\" '\036' >>.ran.$$\n"

// programs are the programs that scripts can run besides markers: they run others, or copy
// text.
var programs = []string{"bash", "env", "xargs", "find", "timeout", "nice", "nohup", "setsid", "stdbuf", "cat"}

// Bash runs scripts in a directory of its own. It is for one goroutine at a time.
type Bash struct {
	path, root string
	env        []string
	credential *syscall.Credential
	runs       int
}

// NewBash returns a Bash that works in a temporary directory, which Close removes.
// If the process is root, scripts run as the user nobody.
func NewBash() (*Bash, error) {
	path, err := exec.LookPath("bash")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bashtest-")
	if err != nil {
		return nil, err
	}
	b := &Bash{path: path, root: dir}
	if err := b.fill(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close removes the directory.
func (b *Bash) Close() error { return os.RemoveAll(b.root) }

// fill makes the files that scripts need.
func (b *Bash) fill() error {
	bin := filepath.Join(b.root, "bin")
	if os.Geteuid() == 0 {
		const nobody = 65534
		b.credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		if err := os.Chmod(b.root, 0o755); err != nil {
			return err
		}
	}
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	for _, name := range programs {
		if program, err := exec.LookPath(name); err == nil {
			if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"s1", "s2", "s3"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(shim), 0o755); err != nil {
			return err
		}
	}
	b.env = []string{"PATH=" + bin, "HOME=/nonexistent", "LC_ALL=C.UTF-8", "FUNCNEST=16"}
	return nil
}

// Version returns bash's version.
func (b *Bash) Version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, b.path, "--norc", "--noprofile", "-c", `printf %s "$BASH_VERSION"`).Output()
	return string(out), err
}

// Run runs a script and returns the commands that it ran, in no order. It fails if ctx ends
// first, or if bash cannot be started.
func (b *Bash) Run(ctx context.Context, script string) ([][]string, error) {
	dir, err := b.workingDirectory()
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a process that outlives the script may still write there
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, scriptTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.path, "--norc", "--noprofile", "-c", script)
	cmd.Dir, cmd.Env = dir, append(slices.Clip(b.env), "BASH_FUNC_command_not_found_handle%%="+fmt.Sprintf(note, dir))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: b.credential}
	cmd.Cancel = func() error { return end(cmd.Process.Pid) }
	err = cmd.Run()
	if cmd.Process != nil { // kill what it has left
		_ = end(cmd.Process.Pid)
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited && ctx.Err() == nil {
		return nil, err
	}
	if err := parent.Err(); err != nil {
		return nil, err
	}
	return records(dir)
}

// end kills a process group. It tries again, because a group that forks meanwhile survives.
func end(group int) (err error) {
	const most = 1000
	for range most {
		if err = syscall.Kill(-group, syscall.SIGKILL); err != nil {
			break
		}
	}
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// records returns the commands that were run. Each process has a file of its own, so that
// writes do not mix.
func records(dir string) ([][]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, ".ran.*"))
	if err != nil {
		return nil, err
	}
	var argvs [][]string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for argv := range strings.SplitSeq(string(text), "\036\x00") {
			if whole, ok := strings.CutSuffix(argv, "\x00"); ok {
				argvs = append(argvs, strings.Split(whole, "\x00"))
			}
		}
	}
	return argvs, nil
}

// workingDirectory makes a directory for a script. Each script has its own, so that a
// process that outlives its script does not write into the directory of another.
func (b *Bash) workingDirectory() (string, error) {
	b.runs++
	dir := filepath.Join(b.root, fmt.Sprintf("work-%d", b.runs))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if b.credential == nil {
		return dir, nil
	}
	id := int(b.credential.Uid)
	return dir, os.Chown(dir, id, id)
}
