//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/runner/network"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// start forks the command. On a Failure there is no command.
func (c *command) start() (wire.Failed, bool) {
	// The child inherits the directory, which is entered once with the user's rights.
	if err := as(c.req.UID, c.req.GID, func() error { return unix.Chdir(c.req.Dir) }); err != nil {
		return failedDir(c.req.Dir, err), false
	}
	defer func() { _ = unix.Chdir("/") }()
	path := c.req.Path
	if path == "" {
		if !c.server.has(c.req.Shell) {
			return wire.Failed{Failure: wire.FailNoShell, Detail: c.req.Shell}, false
		}
		path = c.server.shells[c.req.Shell].File
	}
	child, err := c.openFiles()
	defer closeAll(child)
	if err != nil {
		return failedErrno(err), false
	}
	c.ooms, c.count, c.refusals = c.server.oom.watch(), c.server.pids.Count(), c.server.refusals.read()
	c.count.OnSample(c.ooms.sample)
	if err = c.fork(path, child); err != nil {
		c.count.End()
	}
	c.req.Script = nil // a script of megabytes must not stay
	if err != nil {
		for _, p := range c.out {
			p.close()
		}
		c.stdin.close()
		return failedErrno(fmt.Errorf("start %s: %w", path, err)), false
	}
	return wire.Failed{}, true
}

// fork starts the program with the highest OOM score.
func (c *command) fork(path string, child []*os.File) error {
	fds := make([]uintptr, len(child))
	for i, f := range child {
		fds[i] = f.Fd()
	}
	if err := c.server.kids.raise(); err != nil {
		return fmt.Errorf("raise oom_score_adj: %w", err)
	}
	fork := func() (int, error) {
		return syscall.ForkExec(path, c.argv(), &syscall.ProcAttr{
			Env:   network.TrustEnv(c.req.Env),
			Files: fds,
			Sys: &syscall.SysProcAttr{
				Setsid: true,
				// The supplementary groups were emptied by harden and are inherited.
				Setctty:    c.onTerminal, // its standard input
				Credential: &syscall.Credential{Uid: c.req.UID, Gid: c.req.GID, NoSetGroups: true},
			},
		})
	}
	var pid int
	var err error
	if c.trusted() {
		pid, err = fork()
	} else {
		pid, err = c.server.forker.do(fork)
	}
	if restoreErr := c.server.kids.restore(); restoreErr != nil && err == nil {
		// The runner itself is now the kernel's first choice when memory runs out, so it ends
		// after its answer. PID 1 then kills what the child has started meanwhile.
		c.server.spoiled = true
		_ = unix.Kill(-pid, unix.SIGKILL)
		return fmt.Errorf("restore oom_score_adj: %w", restoreErr)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = pid
	return nil
}

// argv returns the program's argument list. A script that is too long for one argument of
// execve is read from file descriptor 3.
func (c *command) argv() []string {
	if c.req.Path != "" {
		return append([]string{filepath.Base(c.req.Path)}, c.req.Args...)
	}
	// Bash gets its full path, so that it does not search PATH for itself. A script may begin
	// with a dash: -- ends the shell's options.
	argv := []string{c.server.shells[c.req.Shell].Name}
	if c.req.Shell == "bash" {
		argv = append(argv, "--noprofile", "--norc")
	}
	if c.scriptInFile() {
		argv = append(argv, "/proc/self/fd/3")
	} else {
		argv = append(argv, "-c", "--", string(c.req.Script), c.req.Shell)
	}
	return append(argv, c.req.Args...)
}

func (c *command) scriptInFile() bool { return len(c.req.Script) >= wire.MaxArgument }

// openFiles creates the command's standard streams, and a file for its script if it needs
// one. It returns the child's ends, even with an error.
func (c *command) openFiles() (child []*os.File, err error) {
	if c.onTerminal {
		return c.openTerminal()
	}
	in, err := c.openStdin()
	if err != nil {
		return nil, err
	}
	child = append(child, in)
	c.out[0], in, err = newOutPipe(wire.TypeStdout, c.job)
	if err != nil {
		return child, err
	}
	child = append(child, in)
	if c.req.Merged {
		in, err = duplicate(in)
	} else {
		c.out[1], in, err = newOutPipe(wire.TypeStderr, c.job)
	}
	if err != nil {
		return child, err
	}
	child = append(child, in)
	return c.withScript(child)
}

// openTerminal is openFiles for a command on this process's own terminal.
func (c *command) openTerminal() (child []*os.File, err error) {
	for _, f := range []*os.File{os.Stdin, os.Stdin, os.Stdin} {
		f, err := duplicate(f)
		if err != nil {
			return child, err
		}
		child = append(child, f)
	}
	return c.withScript(child)
}

// withScript adds the script to the child's files, if it gets it as one.
func (c *command) withScript(child []*os.File) ([]*os.File, error) {
	if !c.scriptInFile() {
		return child, nil
	}
	script, err := scriptFile(c.req.Script)
	if err != nil {
		return child, err
	}
	return append(child, script), nil
}

func (c *command) openStdin() (*os.File, error) {
	if !c.req.Stdin {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
		}
		return os.NewFile(uintptr(fd), os.DevNull), nil
	}
	r, w, err := openPipe()
	if err != nil {
		return nil, err
	}
	if c.stdin.w, err = pollable(w, "stdin"); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(r), "stdin"), nil
}

// openPipe creates a pipe that the session's user may open by its path in /proc, as
// `echo >/dev/stderr` does, although the pipe was created by uid 0.
func openPipe() (r, w int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("pipe: %w", err)
	}
	if err := unix.Fchmod(p[1], 0o666); err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return -1, -1, fmt.Errorf("fchmod pipe: %w", err)
	}
	return p[0], p[1], nil
}

func newOutPipe(kind wire.Type, j *job) (*outPipe, *os.File, error) {
	r, w, err := openPipe()
	if err != nil {
		return nil, nil, err
	}
	file, err := pollable(r, "output")
	if err != nil {
		return nil, nil, err
	}
	return &outPipe{kind: kind, r: file, job: j}, os.NewFile(uintptr(w), "output"), nil
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("dup: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// scriptFile holds a script in memory, readable by its path in /proc.
func scriptFile(script []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("script", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "script")
	if _, err := f.Write(script); err != nil {
		f.Close()
		return nil, fmt.Errorf("write script: %w", err)
	}
	if err := unix.Fchmod(fd, 0o444); err != nil {
		f.Close()
		return nil, fmt.Errorf("fchmod script: %w", err)
	}
	return f, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func failedDir(dir string, err error) wire.Failed {
	failed := wire.Failed{Failure: wire.FailDirDenied, Detail: dir, Errno: errno(err)}
	switch {
	case errors.Is(err, unix.ENOENT):
		failed.Failure = wire.FailDirMissing
	case errors.Is(err, unix.ENOTDIR):
		failed.Failure = wire.FailDirNotDir
	}
	return failed
}

func failedErrno(err error) wire.Failed {
	failed := wire.Failed{Failure: wire.FailOther, Errno: errno(err), Detail: err.Error()}
	switch unix.Errno(failed.Errno) {
	case unix.E2BIG:
		failed.Failure = wire.FailTooBig
	case unix.EAGAIN, unix.ENOMEM:
		failed.Failure = wire.FailResources
	}
	return failed
}

func errno(err error) int {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return int(e)
	}
	return 0
}
