package core

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Environment is the environment variables of one call, and the directories that they name.
type Environment struct {
	vars []string // K=V; the last of a name counts
}

// All returns the variables, as K=V.
func (e *Environment) All() []string { return e.vars }

// Use has the variables of another process stand for this one's.
func (e *Environment) Use(vars []string) { e.vars = vars }

// Getenv is a variable, or "".
func (e *Environment) Getenv(name string) string {
	for _, kv := range slices.Backward(e.vars) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// Home is the user's home directory, or "".
func (e *Environment) Home() string {
	if runtime.GOOS == "windows" {
		return e.Getenv("USERPROFILE")
	}
	return e.Getenv("HOME")
}

// userDir returns a directory of the user's by its XDG variable, or the place
// that the system has for it; "" if there is none.
func (e *Environment) userDir(variable, fallback string) string {
	if dir := e.Getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	home := e.Home()
	switch {
	case runtime.GOOS == "windows" && e.Getenv("LOCALAPPDATA") != "":
		return e.Getenv("LOCALAPPDATA")
	case home == "":
		return ""
	case runtime.GOOS == "darwin":
		return filepath.Join(home, "Library", "Application Support")
	}
	return filepath.Join(home, filepath.FromSlash(fallback))
}

// StateDir is the user's directory for what programs keep, "" if there is none.
func (e *Environment) StateDir() string { return e.userDir("XDG_STATE_HOME", ".local/state") }

// cacheDir is the user's cache directory for us, "" where there is none.
func (e *Environment) cacheDir() string {
	dir := e.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(e.Home(), ".cache")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, "sandboxbash")
}
