package transfer

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A link that is made has a plain target: first as many ".." as it likes, no more
// than it has directories above it, then names only. Its own directory and those
// above are directories and no links. So it leads inside whatever the names on its
// way become later, by another transfer or by the user, as long as all links on the
// way are such: a ".." behind a name is what turns around where a link has led.
//
// The user's own links may lead anywhere. What would pass one that leads outside is
// left out.

// plainTarget reports whether the target of a link at name is plain and stays
// inside.
func plainTarget(name, target string) bool {
	if target == "" || path.IsAbs(target) {
		return false
	}
	if filepath.Separator != '/' && strings.ContainsAny(target, `\:`) {
		return false
	}
	above, named := strings.Count(name, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if above--; named || above < 0 {
				return false
			}
		default:
			named = true
		}
	}
	return true
}

// maxHops is how many links the kernel follows on the way to a file: MAXSYMLINKS.
const maxHops = 40

// resolver follows links over what is there and what is to come.
type resolver struct {
	root    *os.Root
	pending map[string]string // links to come: name to target
	made    func(name string) (Kind, bool)
}

// inside reports whether a link leads inside, or to nothing inside, by the way that
// the kernel would go.
func (r *resolver) inside(name, target string) bool {
	var at []string // where the way has led, without links
	if dir := path.Dir(name); dir != "." {
		at = strings.Split(dir, "/")
	}
	way := strings.Split(target, "/")
	for hops := 0; len(way) > 0; {
		part := way[0]
		way = way[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return false
			}
			at = at[:len(at)-1]
			continue
		}
		next := path.Join(append(slices.Clip(at), part)...)
		to, isLink := r.link(next)
		if !isLink {
			at = append(at, part)
			continue
		}
		if hops++; hops > maxHops || path.IsAbs(to) || filepath.IsAbs(filepath.FromSlash(to)) {
			return false
		}
		way = append(strings.Split(to, "/"), way...)
		if len(way) > maxPath {
			return false
		}
	}
	return true
}

// link returns the target of what is, or is to be, a link.
func (r *resolver) link(name string) (string, bool) {
	if to, ok := r.pending[name]; ok {
		return to, true
	}
	if _, ok := r.made(name); ok {
		return "", false
	}
	info, err := r.root.Lstat(filepath.FromSlash(name))
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return "", false
	}
	to, err := r.root.Readlink(filepath.FromSlash(name))
	if err != nil {
		return "/", true // it cannot be told: it leads out
	}
	return filepath.ToSlash(to), true
}
