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

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// ForeignBindError reports that the session has mounted another directory than the one
// that was to be bound. The engine is on another machine, or this process is in a
// container, and the path names another directory there. No command has run.
type ForeignBindError struct {
	Dir    string // as this process sees it
	Reason string
	Mount  bool // it is one of Spec.Mounts, not the workspace
}

func (e *ForeignBindError) helps() (Hint, string) {
	if e.Mount {
		return HintMount, e.Dir
	}
	return HintCopy, e.Dir
}

func (e *ForeignBindError) Error() string {
	return fmt.Sprintf("the engine does not see the same %s as this process does: %s", e.Dir, e.Reason)
}

// ownsBind refuses a bound directory that commands could not write because the engine maps users: its owner here is
// another user in the session than the one that commands run as.
func (s *Spec) ownsBind(info engine.Info) error {
	w := s.Workspace
	if w.Kind != WorkspaceBind || w.ReadOnly {
		return nil
	}
	var reason string
	switch {
	case info.Rootless && s.Profile == Strict:
		reason = "the engine is rootless: its user's files belong to uid 0 in a session, and commands in profile strict never run as uid 0"
	case info.Remapped:
		reason = "the engine maps the users of sessions to others (userns-remap), which this machine's files do not belong to"
	default:
		return nil
	}
	return &hinted{hint: HintMapped, about: w.Dir, error: badInput("workspace", "workspace bind:%s: commands could not write there: %s", w.Dir, reason)}
}

// location identifies a directory: its file system, and its path in that. On one kernel,
// two locations are equal if and only if the directories are the same.
type location struct{ device, path string }

// checkBinds checks that the session has mounted the directories that were to be bound.
func (s *Session) checkBinds(ctx context.Context, report wire.Posture) error {
	l := s.info.labels
	if w := l.Workspace; w.Kind == WorkspaceBind {
		if err := s.checkBind(ctx, report, w.Dir, w.Target); err != nil {
			return err
		}
	}
	for _, m := range l.Mounts {
		if m.Dir == "" {
			continue
		}
		var err error
		// Normalize has followed the links, and there are none any more.
		if now, linkErr := filepath.EvalSymlinks(m.Dir); linkErr != nil || now != m.Dir {
			err = &ForeignBindError{Dir: m.Dir, Reason: "it was replaced by a link while the session was being started"}
		} else {
			err = s.checkBind(ctx, report, m.Dir, m.Target)
		}
		if foreign, ok := errors.AsType[*ForeignBindError](err); ok {
			foreign.Mount = true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkBind checks that the session has mounted a directory at target. If the session runs on this kernel, it
// compares the two mount tables. Otherwise, as with an engine in a virtual machine that shares directories,
// it creates a file in the directory, reads it in the session, and removes it.
func (s *Session) checkBind(ctx context.Context, report wire.Posture, dir, target string) error {
	if theirs, ok := locationIn(report, target); ok {
		if ours, ok := hostLocation(dir); ok && ours == theirs {
			return nil
		}
	}
	probe, err := os.CreateTemp(dir, ".sandboxbash-probe-")
	if err != nil {
		return &ForeignBindError{Dir: dir, Reason: "it lies elsewhere by the mount table, and no file can be made in it to try: " + err.Error()}
	}
	defer os.Remove(probe.Name())
	word := rand.Text()
	_, err = io.WriteString(probe, word)
	// The session's user reads the file, and may be another user than this process's.
	if err = errors.Join(err, probe.Chmod(0o644), probe.Close()); err != nil {
		return fmt.Errorf("try whether the engine sees %s: %w", dir, err)
	}
	var got bytes.Buffer
	err = s.receive(ctx, path.Join(target, filepath.Base(probe.Name())), func(_ transfer.Entry, r io.Reader) error {
		_, err := io.Copy(&got, io.LimitReader(r, int64(len(word))+1))
		return err
	})
	if err == nil && got.String() == word {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &ForeignBindError{Dir: dir, Reason: "a file that was made here is not there"}
}

// locationIn returns the location of a mount in the session, from the posture report.
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

// hostLocation returns the location of a directory of this machine, and false if there is
// no mount table.
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

// locationOf finds the location of dir, which must have no symbolic links, in a table as
// described in proc_pid_mountinfo(5).
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
