package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// workspace completes a kind of workspace. The kinds copy and bind are followed by
// a path, which is made absolute, and perhaps by options, each after a colon.
func (r *reader) workspace(text string) string {
	kind, rest, ok := strings.Cut(text, ":")
	if !ok || kind != "copy" && kind != "bind" {
		return text
	}
	dir, options, more := strings.Cut(rest, ":")
	if runtime.GOOS == "windows" && len(dir) == 1 { // the letter of a drive
		dir, options, more = rest, "", false
	}
	dir = r.place("workspace", dir)
	if more {
		dir += ":" + options
	}
	return kind + ":" + dir
}

// mounts completes the directories of mounts, each DIR:PATH[:ro].
func (r *reader) mounts(texts []string) []string {
	var all []string
	for _, text := range texts {
		if at := strings.LastIndex(strings.TrimSuffix(text, ":ro"), ":/"); at > 0 {
			text = r.place("mounts", text[:at]) + text[at:]
		}
		all = append(all, text)
	}
	return all
}

// engine completes the engine's address, or the path of its socket.
func (r *reader) engine(text string) string {
	scheme, path, ok := strings.Cut(text, "://")
	if !ok {
		scheme, path = "", text
	}
	if scheme != "" && scheme != "unix" || !strings.HasPrefix(path, "~") {
		return text
	}
	return "unix://" + r.place("engine", path)
}

// place makes the value of a key a path of this machine. A path in the configuration file
// is relative to that file; one in a flag or a variable is relative to the current
// directory. A leading ~ is the user's home directory.
func (r *reader) place(key, path string) string {
	path, err := r.expandHome(path)
	if err != nil {
		r.bad(key, err.Error(), "")
	}
	if path == "" || filepath.IsAbs(path) || r.file == "" || r.from[key] != r.file {
		return path
	}
	return filepath.Join(filepath.Dir(r.file), path)
}

var errNoHome = errors.New("~ stands for the home directory, and this user has none: write an absolute path")

// expandHome replaces a leading ~.
func (r *reader) expandHome(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~")
	switch {
	case !ok:
		return path, nil
	case rest != "" && rest[0] != '/' && rest[0] != filepath.Separator:
		return "", fmt.Errorf("%s: only ~ and ~/ stand for a home directory: write an absolute path, or ./%s for that name", shown(path), shownPlain(path))
	case !filepath.IsAbs(r.home):
		return "", errNoHome
	}
	return filepath.Join(r.home, rest), nil
}

// shownPlain is shown without quotes.
func shownPlain(text string) string { return strings.Trim(shown(text), `"`) }
