package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// ForeignBindError says that a bound directory is another one in the session: the
// engine is on another machine, or this process is in a container, and the
// directory's path means something else to the engine. Nothing has run there.
type ForeignBindError struct {
	Dir    string // as this process sees it
	Reason string
}

func (e *ForeignBindError) helps() (Hint, string) { return HintCopy, e.Dir }

func (e *ForeignBindError) Error() string {
	return fmt.Sprintf("the engine does not see the same %s as this process does: %s", e.Dir, e.Reason)
}

// location is where a directory lies: on which file system, and where in it. Two
// locations of one kernel are equal if and only if the directories are the same.
type location struct{ device, path string }

// checkBind makes sure that the bound directory is the one that was meant. Where the
// session runs on this kernel, the mount tables of both show it. Where they do not, as
// with an engine in a virtual machine that shares directories, checkBind makes a file in
// the directory for a moment and reads it in the session.
func (s *Session) checkBind(ctx context.Context, report wire.Posture) error {
	w := s.info.labels.Workspace
	if w.Kind != WorkspaceBind {
		return nil
	}
	if theirs, ok := locationIn(report, w.Target); ok {
		if ours, ok := hostLocation(w.Dir); ok && ours == theirs {
			return nil
		}
	}
	probe, err := os.CreateTemp(w.Dir, ".sandboxbash-probe-")
	if err != nil {
		return &ForeignBindError{Dir: w.Dir, Reason: "it lies elsewhere by the mount table, and no file can be made in it to try: " + err.Error()}
	}
	defer os.Remove(probe.Name())
	word := rand.Text()
	_, err = io.WriteString(probe, word)
	// The session's user reads it, and need not be the one that this process runs as.
	if err = errors.Join(err, probe.Chmod(0o644), probe.Close()); err != nil {
		return fmt.Errorf("try whether the engine sees %s: %w", w.Dir, err)
	}
	var got bytes.Buffer
	err = s.receive(ctx, path.Join(w.Target, filepath.Base(probe.Name())), func(_ transfer.Entry, r io.Reader) error {
		_, err := io.Copy(&got, io.LimitReader(r, int64(len(word))+1))
		return err
	})
	if err == nil && got.String() == word {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &ForeignBindError{Dir: w.Dir, Reason: "a file that was made here is not there"}
}

// locationIn returns where a mount of the session lies, by the posture report.
func locationIn(report wire.Posture, target string) (location, bool) {
	var found location
	ok := false
	for _, fact := range report {
		if m, is := fact.Mount(); is && fact.Key == wire.FactPlace && m.Target == target {
			found, ok = location{m.Device, m.Root}, true // a later mount is above an earlier one
		}
	}
	return found, ok
}

// hostLocation returns where a directory of this machine lies, false if there is no
// mount table.
func hostLocation(dir string) (location, bool) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return location{}, false
	}
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return location{}, false
	}
	return locationOf(string(table), dir)
}

// locationOf looks a path without links up in a table of proc_pid_mountinfo(5).
func locationOf(table, dir string) (location, bool) {
	var found location
	longest := -1
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		at := wire.UnescapeMount(f[4])
		rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(at, "/"))
		if !ok || rest != "" && rest[0] != '/' || len(at) < longest {
			continue
		}
		found, longest = location{f[2], path.Join(wire.UnescapeMount(f[3]), rest)}, len(at)
	}
	return found, longest >= 0
}

// GitCredentials reports whether the configuration of a directory's repository
// holds credentials, which a copy leaves out and a bind would show.
func GitCredentials(dir string) bool {
	f, err := os.Open(filepath.Join(dir, ".git", "config"))
	if err != nil {
		return false
	}
	defer f.Close()
	return transfer.GitCredentials(f)
}
