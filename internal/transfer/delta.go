package transfer

import (
	"cmp"
	"slices"
	"strings"
)

// Delta is what a session has made of one entry.
type Delta struct {
	Name string
	Was  Entry // its Kind is 0 if it is new
	Now  Entry // its Kind is 0 if it was deleted
}

// Change describes a delta.
func (d Delta) Change() Change {
	c := Change{Path: d.Name, Kind: "modified", By: Session}
	switch {
	case d.Was.Kind == 0:
		c.Kind = "added"
	case d.Now.Kind == 0:
		c.Kind = "deleted"
	case d.Was.Kind != d.Now.Kind:
		c.Kind = "type"
	}
	return c
}

// Deltas returns what differs between two states of one tree, sorted by name.
func Deltas(was, now State) []Delta {
	var out []Delta
	for len(was) > 0 || len(now) > 0 {
		var order int
		switch {
		case len(was) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			order = cmp.Compare(was[0].Name, now[0].Name)
		}
		switch {
		case order < 0:
			out = append(out, Delta{Name: was[0].Name, Was: was[0]})
			was = was[1:]
		case order > 0:
			out = append(out, Delta{Name: now[0].Name, Now: now[0]})
			now = now[1:]
		default:
			if !was[0].Same(now[0]) {
				out = append(out, Delta{Name: now[0].Name, Was: was[0], Now: now[0]})
			}
			was, now = was[1:], now[1:]
		}
	}
	return out
}

// Repository reports whether a name is that of a repository, or of something in one.
func Repository(name string) bool { return repositoryOf(name) != "" }

// RepositoryOf returns the directory of the repository that a name lies in or names, "" if there
// is none.
func RepositoryOf(name string) string { return repositoryOf(name) }

// repositoryOf returns the part of a name that names a repository, "" if there is none.
func repositoryOf(name string) string {
	if !strings.ContainsAny(name, ".~_:\u200c") && isASCII(name) {
		return "" // no part can be one of those
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if slices.ContainsFunc(foldAll(part), func(p string) bool { return isDotGit(p) || otherRepositories[p] }) {
			return strings.Join(parts[:i+1], "/")
		}
	}
	return ""
}

func isASCII(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 }) < 0 }

// SkipTree reports whether a name is left out of comparisons and of what is applied because
// it looks like credentials.
func SkipTree(name string) bool { return Tree{Leave: IsCredential}.leaves(name) }

// ofOurs reports whether a name without slashes is that of a directory where files lie aside.
// What a session makes of that name is never taken: what lies there is believed.
func ofOurs(name string) bool { return strings.HasPrefix(name, stagePrefix) || name == applyDir }
