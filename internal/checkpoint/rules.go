package checkpoint

import (
	"path"
	"strings"
)

// rules say what is left out of checkpoints.
type rules struct {
	globs   []glob
	ignored [][]glob // those of the files .gitignore on the way, outermost first; see enter
	dirs    []string // in which they are
}

// glob is a pattern as in .gitignore.
type glob struct {
	parts    []string // between slashes; "**" stands for any number of names
	negated  bool
	dirsOnly bool
}

// parseGlob reads a line; false for a comment or an empty one.
func parseGlob(line string) (g glob, ok bool) {
	line = strings.TrimRight(line, "\r\n")
	if !strings.HasSuffix(line, `\ `) {
		line = strings.TrimRight(line, " ")
	}
	if line == "" || line[0] == '#' {
		return g, false
	}
	if line[0] == '!' {
		g.negated, line = true, line[1:]
	}
	line = strings.TrimPrefix(line, `\`)
	if g.dirsOnly = strings.HasSuffix(line, "/"); g.dirsOnly {
		line = strings.TrimRight(line, "/")
	}
	anchored := strings.Contains(line, "/")
	g.parts = strings.Split(strings.TrimPrefix(line, "/"), "/")
	if !anchored {
		g.parts = append([]string{"**"}, g.parts...)
	}
	return g, line != ""
}

func parseGlobs(lines []string) (all []glob) {
	for _, line := range lines {
		if g, ok := parseGlob(line); ok {
			all = append(all, g)
		}
	}
	return all
}

// CheckGlob returns an error if a pattern is malformed.
func CheckGlob(pattern string) error {
	g, _ := parseGlob(pattern)
	for _, part := range g.parts {
		if _, err := path.Match(part, "x"); err != nil {
			return err
		}
	}
	return nil
}

func (g glob) matches(name string, isDir bool) bool {
	if g.dirsOnly && !isDir {
		return false
	}
	return matchParts(g.parts, strings.Split(name, "/"))
}

// maxStars bounds the work for one name.
const maxStars = 4

func matchParts(pattern, name []string) bool {
	stars := 0
	var match func(pattern, name []string) bool
	match = func(pattern, name []string) bool {
		for len(pattern) > 0 {
			if pattern[0] == "**" {
				if stars++; stars > maxStars*len(name)+maxStars {
					return false
				}
				if len(pattern) == 1 {
					return len(name) > 0
				}
				for i := range len(name) + 1 {
					if match(pattern[1:], name[i:]) {
						return true
					}
				}
				return false
			}
			if len(name) == 0 {
				return false
			}
			if ok, err := path.Match(pattern[0], name[0]); err != nil || !ok {
				return false
			}
			pattern, name = pattern[1:], name[1:]
		}
		return len(name) == 0
	}
	return match(pattern, name)
}

// leave reports whether a path is left out. What is in a directory that is left out is not asked for.
func (r *rules) leave(name string, isDir bool) bool {
	out := decide(r.globs, name, isDir, false)
	for i, globs := range r.ignored {
		below := name
		if r.dirs[i] != "" {
			below = strings.TrimPrefix(name, r.dirs[i]+"/")
		}
		out = decide(globs, below, isDir, out)
	}
	return out
}

func decide(globs []glob, name string, isDir, out bool) bool {
	for _, g := range globs {
		if g.matches(name, isDir) {
			out = !g.negated
		}
	}
	return out
}

// enter adds the lines of the .gitignore of a directory, and leave takes them back.
func (r *rules) enter(dir string, content []byte) (leave func()) {
	r.ignored = append(r.ignored, parseGlobs(strings.Split(string(content), "\n")))
	r.dirs = append(r.dirs, dir)
	return func() {
		r.ignored, r.dirs = r.ignored[:len(r.ignored)-1], r.dirs[:len(r.dirs)-1]
	}
}
