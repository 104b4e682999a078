package sandbox

import (
	"archive/tar"
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
)

// ForeignBindError says that a bound directory is another one in the session: the
// engine is on another machine, or this process is in a container, and the
// directory's path means something else to the engine. Nothing has run there.
type ForeignBindError struct {
	Dir    string // as this process sees it
	Reason string
}

func (e *ForeignBindError) Error() string {
	return fmt.Sprintf("the engine does not see the same %s as this process does: %s\n"+
		"copy it into the session with --workspace copy:%[1]s, and take changes out with `sandboxbash session pull`; "+
		"or give this process that directory of the engine's machine at the same path", e.Dir, e.Reason)
}

// place is where a directory lies: on which file system, and where in it. Two
// places of one kernel are equal if and only if the directories are the same.
type place struct{ device, path string }

// checkBind makes sure that the bound directory is the one that was meant. The
// mount table tells it where the session runs on this kernel. Where it does not,
// as with an engine in a virtual machine that shares directories, a file tells it
// that is made in the directory for a moment.
func (s *Session) checkBind(ctx context.Context, report string) error {
	w := s.info.labels.Workspace
	if w.Kind != WorkspaceBind {
		return nil
	}
	if theirs, ok := placeIn(report, w.Target); ok {
		if ours, ok := hostPlace(w.Dir); ok && ours == theirs {
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
	// The session's user reads it, who may be another one.
	if err = errors.Join(err, probe.Chmod(0o644), probe.Close()); err != nil {
		return fmt.Errorf("try whether the engine sees %s: %w", w.Dir, err)
	}
	var got bytes.Buffer
	err = s.receive(ctx, path.Join(w.Target, filepath.Base(probe.Name())), func(_ *tar.Header, r io.Reader) error {
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

// placeIn returns where a mount of the session lies, by the posture report.
func placeIn(report, target string) (place, bool) {
	var found place
	ok := false
	for line := range strings.Lines(report) {
		value, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "place=")
		if f := strings.Fields(value); is && len(f) == 3 && unescapeMount(f[0]) == target {
			found, ok = place{f[1], unescapeMount(f[2])}, true // a later mount is above an earlier one
		}
	}
	return found, ok
}

// hostPlace returns where a directory of this machine lies, false if there is no
// mount table.
func hostPlace(dir string) (place, bool) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return place{}, false
	}
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return place{}, false
	}
	return placeOf(string(table), dir)
}

// placeOf looks a path without links up in a table of proc_pid_mountinfo(5).
func placeOf(table, dir string) (place, bool) {
	var found place
	longest := -1
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		at := unescapeMount(f[4])
		rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(at, "/"))
		if !ok || rest != "" && rest[0] != '/' || len(at) < longest {
			continue
		}
		found, longest = place{f[2], path.Join(unescapeMount(f[3]), rest)}, len(at)
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
	b, err := io.ReadAll(io.LimitReader(f, maxGitConfig))
	return err == nil && !bytes.Equal(b, cleanGitConfig(b))
}
