package transfer

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// What this machine's own tools run by themselves is never written: the next `git
// status` in the directory would run a command of the session.
//
// Only what is known to be data is taken from a git repository, so that what is not
// known, or comes with a later version of git, stays out. A repository is a
// directory named .git, as any file system that git cares for spells it, and any
// directory that git takes for a bare one. Repositories of other systems, whose
// data and configuration lie together, stay out as a whole.

// gitFiles are the files right in a repository of git that are data.
var gitFiles = map[string]bool{
	"head": true, "orig_head": true, "fetch_head": true, "merge_head": true, "cherry_pick_head": true, "revert_head": true,
	"rebase_head": true, "auto_merge": true, "merge_msg": true, "merge_mode": true, "merge_rr": true, "squash_msg": true,
	"commit_editmsg": true, "tag_editmsg": true, "index": true, "packed-refs": true, "shallow": true, "description": true,
}

// otherRepositories are the directories, and files in their place, of other systems.
var otherRepositories = map[string]bool{".hg": true, ".sl": true, ".jj": true, ".bzr": true, "_darcs": true, ".pijul": true, ".svn": true}

// gitData reports whether a path below a repository of git is data. parts are
// folded; there are none for the repository itself.
func gitData(parts []string) bool {
	if len(parts) == 0 {
		return true
	}
	if slices.ContainsFunc(parts, isDotGit) {
		return false // a repository in a repository
	}
	switch parts[0] {
	case "objects":
		return len(parts) < 3 || parts[1] != "info" || parts[2] == "packs" || parts[2] == "commit-graph" || parts[2] == "commit-graphs"
	case "refs", "logs":
		return true
	case "info":
		return len(parts) == 1 || len(parts) == 2 && (parts[1] == "exclude" || parts[1] == "refs")
	case "modules":
		return moduleData(parts[1:])
	}
	return len(parts) == 1 && gitFiles[parts[0]]
}

// moduleData is gitData for what lies below the repositories of submodules, whose
// names may have slashes. A directory on the way is data.
func moduleData(parts []string) bool {
	for i := 1; i < len(parts); i++ {
		switch parts[i] {
		case "objects", "refs", "logs", "info", "modules":
			return gitData(parts[i:])
		case "hooks", "worktrees", "config", "commondir", "gitdir":
			return false
		}
	}
	// A file of a repository, or one of the directories of its name: a directory that
	// has a file's name does no harm, a file that has a directory's neither.
	return len(parts) < 2 || gitFiles[parts[len(parts)-1]]
}

// fold is a name as the file systems of macOS and Windows may take it: in lower
// case, without the code points that HFS+ ignores, and without what NTFS cuts off
// a name.
func fold(name string) string {
	name = strings.Map(func(r rune) rune {
		if ignoredByHFS(r) {
			return -1
		}
		least := r // of all that differ by case alone
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		return unicode.ToLower(least)
	}, name)
	name, _, _ = strings.Cut(name, ":") // a stream of NTFS, as in .git::$INDEX_ALLOCATION
	return strings.TrimRight(name, ". ")
}

// ignoredByHFS is git's own list: next_hfs_char of utf8.c.
func ignoredByHFS(r rune) bool {
	return r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff
}

// isDotGit takes a folded name. The short names of NTFS are those that it gives to
// .git: git~1, and where that is taken a number of others.
func isDotGit(name string) bool {
	if name == ".git" {
		return true
	}
	number, short := strings.CutPrefix(name, "git~")
	return short && number != "" && strings.Trim(number, "0123456789") == ""
}

// foldAll splits a name at both kinds of separators and folds its parts.
func foldAll(name string) []string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '\\' })
	for i, part := range parts {
		parts[i] = fold(part)
	}
	return parts
}

// guard knows which directories are repositories: by their names, by what is there
// already, and by what is to come.
type guard struct {
	root  *os.Root
	outer []string        // below which repository the root lies, folded; nil: below none
	marks map[string]byte // directory, as it is named in the tree, to what marks it
	bare  map[string]bool // directory to whether git takes it for a repository; found so far
}

// Marks of a repository.
const (
	markHead = 1 << iota
	markObjects
	markRefs
	markCommon
)

var markNames = map[string]byte{"head": markHead, "objects": markObjects, "refs": markRefs, "commondir": markCommon}

// repository reports whether git takes a directory with these marks for one. With a
// commondir the rest lies elsewhere.
func repository(marks byte) bool {
	return marks&markHead != 0 && (marks&markCommon != 0 || marks&markObjects != 0 && marks&markRefs != 0)
}

// newGuard guards a directory, of which dir is the path without links, against a
// tree.
func newGuard(root *os.Root, dir string, tree []Entry) *guard {
	g := &guard{root: root, marks: map[string]byte{}, bare: map[string]bool{}, outer: outerRepository(dir)}
	for _, e := range tree {
		if mark := markNames[fold(path.Base(e.Name))]; mark != 0 {
			g.marks[path.Dir(e.Name)] |= mark
		}
	}
	return g
}

// outerRepository returns the way from the repository that a directory lies in, if
// it does: at least one word, of which the first stands for the repository.
func outerRepository(dir string) []string {
	var below []string
	for at := dir; ; at = filepath.Dir(at) {
		name := fold(filepath.Base(at))
		if isDotGit(name) || otherRepositories[name] || at != dir && looksBare(at) {
			slices.Reverse(below)
			return append([]string{name}, below...)
		}
		if filepath.Dir(at) == at {
			return nil
		}
		below = append(below, name)
	}
}

func looksBare(dir string) bool {
	var marks byte
	for _, name := range []string{"HEAD", "objects", "refs", "commondir"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			marks |= markNames[strings.ToLower(name)]
		}
	}
	return repository(marks)
}

// refuses reports whether an entry must not be written.
func (g *guard) refuses(e Entry) bool {
	parts := foldAll(e.Name)
	if e.Name == "." {
		parts = nil
	}
	if g.outer != nil {
		below := slices.Concat(g.outer[1:], parts)
		if otherRepositories[g.outer[0]] || !gitData(below) || e.Kind == Link {
			return true
		}
	}
	for i, part := range parts {
		switch {
		case otherRepositories[part] || ofOurs(part):
			return true
		case !isDotGit(part):
		case e.Kind == Link || !gitData(parts[i+1:]):
			return true
		case i == len(parts)-1 && e.Kind != Dir: // a file leads to a repository elsewhere
			return true
		}
	}
	return g.inBare(e, parts)
}

// inBare reports whether an entry lies in a directory that git takes for a bare
// repository, and is not data there.
func (g *guard) inBare(e Entry, parts []string) bool {
	for at, n := path.Dir(e.Name), 1; n <= len(parts); at, n = path.Dir(at), n+1 {
		if g.isBare(at) && (e.Kind == Link || !gitData(parts[len(parts)-n:])) {
			return true
		}
		if at == "." {
			return false
		}
	}
	return false
}

func (g *guard) isBare(dir string) bool {
	is, known := g.bare[dir]
	if known {
		return is
	}
	marks := g.marks[dir]
	for _, name := range []string{"HEAD", "objects", "refs", "commondir"} {
		if mark := markNames[strings.ToLower(name)]; marks&mark == 0 {
			if _, err := g.root.Lstat(filepath.FromSlash(path.Join(dir, name))); err == nil {
				marks |= mark
			}
		}
	}
	g.bare[dir] = repository(marks)
	return g.bare[dir]
}
