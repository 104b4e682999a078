package sandbox

import (
	"fmt"
	"io/fs"
	"strings"
)

// Unified returns the file as a unified diff shows it. name makes a name fit to be shown, and clean a
// text. Control characters of the contents are written out: what a terminal would do instead of showing
// them must not be hidden in a change.
func (f FileDiff) Unified(name, clean func(string) string) string {
	var b strings.Builder
	as := name(f.Path)
	fmt.Fprintf(&b, "diff a/%s b/%s\n", as, as)
	switch {
	case f.Was == nil:
		fmt.Fprintf(&b, "new file mode %s\n", f.Now.gitMode())
	case f.Now == nil:
		fmt.Fprintf(&b, "deleted file mode %s\n", f.Was.gitMode())
	case f.OtherMode():
		b.WriteString(f.ModeLines())
	}
	was, now := f.Was.link(), f.Now.link()
	if was != "" || now != "" {
		fmt.Fprintf(&b, "link from %s to %s\n", name(was), name(now))
	}
	switch {
	case f.Note != "":
		fmt.Fprintf(&b, "(%s)\n", f.Note)
	case len(f.Hunks) > 0:
		from, to := "a/"+as, "b/"+as
		if f.Was == nil {
			from = "/dev/null"
		}
		if f.Now == nil {
			to = "/dev/null"
		}
		fmt.Fprintf(&b, "--- %s\n+++ %s\n%s", from, to, clean(VisibleControls(string(f.Hunks))))
	}
	return b.String()
}

// VisibleControls writes the control characters of a text as \xNN, but for tabs and line feeds.
func VisibleControls(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < ' ' && r != '\t' && r != '\n' || r >= 0x7f && r < 0xa0 {
			fmt.Fprintf(&b, "\\x%02x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// gitMode is a mode as git writes it.
func (f *FileState) gitMode() string {
	if f.Mode&fs.ModeSymlink != 0 {
		return "120000"
	}
	return fmt.Sprintf("100%03o", f.Mode.Perm())
}

// link is the target of a link, "" for anything else.
func (f *FileState) link() string {
	if f == nil {
		return ""
	}
	return f.Target
}

// OtherMode reports whether the permissions of a file that was modified differ.
func (f FileDiff) OtherMode() bool { return f.Was.gitMode() != f.Now.gitMode() }

// ModeLines are the lines of a diff about other permissions.
func (f FileDiff) ModeLines() string {
	return fmt.Sprintf("old mode %s\nnew mode %s\n", f.Was.gitMode(), f.Now.gitMode())
}
