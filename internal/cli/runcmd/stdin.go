package runcmd

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// stdinFor returns the command's standard input: with --stdin this process's, whatever it is, and
// without it this process's if that is a pipe or a file. It is nil for a script that comes from
// standard input and for a job.
func (a *Runner) stdinFor(words core.Words, job bool) (io.Reader, error) {
	run := a.cfg.Run
	switch {
	case run.Stdin && run.NoStdin:
		return nil, exit.Misuse("leave out one of them", "--stdin and --no-stdin contradict each other")
	case run.Stdin:
		return a.streams.Stdin, nil
	case run.NoStdin, job, run.File == "-", run.File == "" && run.Script == "" && len(words.List) > 0 && words.List[0] == "-":
		return nil, nil //nolint:nilnil // there is none
	}
	f, ok := a.streams.Stdin.(*os.File)
	if !ok || !feeds(f) {
		return nil, nil //nolint:nilnil // there is none
	}
	a.fed = &given{File: f}
	return a.fed, nil
}

// feeds reports whether f is something that a program writes to or has written. A terminal is a
// person's, and /dev/null, as a job of cron or of a CI runner has it, says that there is nothing.
func feeds(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && (info.Mode().IsRegular() || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0)
}

// given is a standard input that the command got without --stdin.
type given struct {
	*os.File

	came atomic.Bool // something did, the end included
}

func (g *given) Read(p []byte) (int, error) {
	n, err := g.File.Read(p)
	if n > 0 || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // that is this process's, at the command's end
		g.came.Store(true)
	}
	return n, err
}

// silent reports whether a command that has timed out may have waited for an input that never came.
func (g *given) silent(res sandbox.Result) bool {
	return g != nil && res.Reason == exec.TimedOut && !g.came.Load()
}
