package core

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"
)

// What a note said to this user and when is the name (a digest of its text) and the time of an empty
// file. It decides only whether the note is printed again, so errors are ignored: then it is.

// noteEvery is how long a note that was printed is not printed again.
const noteEvery = 24 * time.Hour

// maxSaid bounds the files: with more, the old ones are removed.
const maxSaid = 100

// firstToday reports whether a note with this text was not printed in the last 24 hours, and
// records that it is printed now. Of two processes at the same time both may print it.
func (e *Environment) firstToday(text string) bool {
	state := e.StateDir()
	if state == "" {
		return true
	}
	dir := filepath.Join(state, "sandboxbash", "notes")
	sum := sha256.Sum256([]byte(text))
	path, now := filepath.Join(dir, hex.EncodeToString(sum[:16])), time.Now()
	// A time that lies ahead is of a clock that was wrong.
	if info, err := os.Lstat(path); err == nil && now.Sub(info.ModTime()) < noteEvery && info.ModTime().Before(now.Add(noteEvery)) {
		return false
	}
	if os.Chtimes(path, now, now) == nil {
		return true
	}
	_ = os.MkdirAll(dir, 0o700)
	forgetSaid(dir, now)
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600); err == nil { //nolint:gosec // the name is a digest
		_ = f.Close()
	}
	return true
}

// forgetSaid removes the files of notes that may be printed again, if there are many files.
func forgetSaid(dir string, now time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < maxSaid {
		return
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && now.Sub(info.ModTime()) >= noteEvery {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}
