package core

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// When this user has used a session last from this machine is the time of a file, whose name is the
// session's id. In it is until when the session was kept from ending, if it was. It decides nothing but what - stands for and what ls shows, so errors are ignored.

// usedFor is how long a file is kept that is not renewed.
const usedFor = 30 * 24 * time.Hour

// usedDir is the directory of the files, "" if there is none.
func (e *Environment) usedDir() string {
	dir := e.StateDir()
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "sandboxbash", "used")
}

// NoteUse records that a session is used now.
func (e *Environment) NoteUse(id string) {
	dir := e.usedDir()
	if dir == "" || !engine.ValidID(id) {
		return
	}
	path, now := filepath.Join(dir, id), time.Now()
	if os.Chtimes(path, now, now) == nil {
		return
	}
	_ = os.MkdirAll(dir, 0o700)
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600); err == nil { //nolint:gosec // the name is an id
		_ = f.Close()
	}
}

// LastUsed returns when a session was used last, zero if it is not known.
func (e *Environment) LastUsed(id string) time.Time {
	dir := e.usedDir()
	if dir == "" || !engine.ValidID(id) {
		return time.Time{}
	}
	info, err := os.Lstat(filepath.Join(dir, id))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// NoteKept records until when a session does not end although it is idle; zero is not at all.
func (e *Environment) NoteKept(id string, until time.Time) {
	e.NoteUse(id) // there is a file now
	dir := e.usedDir()
	if dir == "" || !engine.ValidID(id) {
		return
	}
	text := ""
	if !until.IsZero() {
		text = until.UTC().Format(time.RFC3339)
	}
	_ = os.WriteFile(filepath.Join(dir, id), []byte(text), 0o600)
}

// KeptUntil returns what NoteKept has recorded, zero if it is nothing.
func (e *Environment) KeptUntil(id string) time.Time {
	dir := e.usedDir()
	if dir == "" || !engine.ValidID(id) {
		return time.Time{}
	}
	text, err := os.ReadFile(filepath.Join(dir, id))
	if err != nil {
		return time.Time{}
	}
	until, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return time.Time{}
	}
	return until
}

// ForgetUse removes the record of a session that was stopped, and records that are old.
func (e *Environment) ForgetUse(id string) {
	dir, now := e.usedDir(), time.Now()
	if dir == "" {
		return
	}
	for _, one := range e.usedSessions() {
		if one == id || now.Sub(e.LastUsed(one)) > usedFor {
			_ = os.Remove(filepath.Join(dir, one))
		}
	}
}

// usedSessions returns the ids of the sessions that were used, the one used last first.
func (e *Environment) usedSessions() []string {
	dir := e.usedDir()
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	at := map[string]time.Time{}
	var ids []string
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && engine.ValidID(entry.Name()) {
			at[entry.Name()] = info.ModTime()
			ids = append(ids, entry.Name())
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return at[b].Compare(at[a]) })
	return ids
}
