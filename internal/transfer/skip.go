package transfer

import "strings"

// Skip says of a name, relative to the directory that is copied, that it is not wanted, and if
// it is a directory's, that nothing below it is. It is asked of names below unwanted ones, too.
// nil wants all.
type Skip func(name string, dir bool) (unwanted, all bool)

// of asks Skip. The directory itself is always wanted.
func (s Skip) of(name string, dir bool) (unwanted, all bool) {
	if s == nil || name == "." {
		return false, false
	}
	unwanted, all = s(name, dir)
	return unwanted, all || !dir
}

// held are the unwanted directories on the way to the entry that a walk has reached: they
// are copied if something in them is wanted.
type held []Entry

// hold takes an unwanted directory, which the walk enters.
func (h *held) hold(dir Entry) {
	h.leave(dir.Name)
	*h = append(*h, dir)
}

// above returns the directories that a wanted name needs, outermost first, each once.
func (h *held) above(name string) []Entry {
	h.leave(name)
	out := *h
	*h = nil
	return out
}

// leave drops the directories that a name does not lie in.
func (h *held) leave(name string) {
	for n := len(*h); n > 0 && !strings.HasPrefix(name, (*h)[n-1].Name+"/"); n-- {
		*h = (*h)[:n-1]
	}
}
