package audit

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
)

// errFound ends a walk over lines.
var errFound = errors.New("found")

// known reports whether r is the end of a job and the log has that end already. Each
// process that waits for a job learns its end and tries to record it; the caller holds
// the lock, so exactly one of them is first. known searches back to the record of the
// job's start.
func (l *Log) known(r Record) (bool, error) {
	if r.Kind != JobEnd || r.JobTag == "" {
		return false, nil
	}
	names, err := sealedFiles(l.root)
	if err != nil {
		return false, err
	}
	for _, name := range slices.Backward(append(names, currentName)) {
		begun, ended, err := l.lookFor(name, r)
		if ended || begun || err != nil {
			return ended, err
		}
	}
	return false, nil
}

// lookFor reports whether a file records the start and the end of r's job.
func (l *Log) lookFor(name string, r Record) (begun, ended bool, err error) {
	f, err := l.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil // removed after its retention
	}
	if err != nil {
		return false, false, err
	}
	defer f.Close()
	tag := []byte(r.JobTag)
	err = lines(f, func(_ int, line []byte, _ bool) error {
		if !bytes.Contains(line, tag) {
			return nil
		}
		old, _ := parse(line) // a line that is not a record has no session
		if old.Session != r.Session || old.JobTag != r.JobTag {
			return nil
		}
		begun = true
		if old.Kind == JobEnd {
			ended = true
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return begun, ended, err
}
