package audit

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
)

// errFound ends a walk over lines.
var errFound = errors.New("found")

// known tells whether r is the end of a job that the log has already: each process
// that waits for a job is told its end, and the lock, which is held here, makes one of
// them the first. It looks back to the record that says that there is such a job.
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

// lookFor tells what a file has of r's job: that it began, and that it has ended.
func (l *Log) lookFor(name string, r Record) (begun, ended bool, err error) {
	f, err := l.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil // it was removed for its age
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
		old, _ := parse(line) // what is no record is of no job
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
