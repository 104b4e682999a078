package tool

import (
	"net/url"
	"path"
	"strings"
)

// resolveDir makes a working directory absolute, as an agent gives it. It does not
// check that the directory exists: the session does. "", / and // stand for the
// session's own directory.
func resolveDir(text, dir, home string) (string, error) {
	text = strings.Map(plainSpace, text)
	if strings.HasPrefix(text, "@/") || strings.HasPrefix(text, "@~") {
		text = text[1:]
	}
	if strings.HasPrefix(text, "file://") {
		u, err := url.Parse(text)
		if err != nil || u.Host != "" && u.Host != "localhost" || strings.IndexByte(u.Path, 0) >= 0 {
			return "", Refusef("Working directory is not a local file URL: %s", text)
		}
		text = u.Path
	}
	switch {
	case strings.Trim(text, "/") == "":
		return path.Clean(dir), nil
	case len((URLs{}).tokens(text)) > 0:
		return "", Refusef("Working directory is an internal URL that was not resolved: %s", text)
	case text == "~" || strings.HasPrefix(text, "~/"):
		return path.Join(home, text[1:]), nil
	case path.IsAbs(text):
		return path.Clean(text), nil
	}
	return path.Join(dir, text), nil
}

// plainSpace replaces characters that look like a space by a space.
func plainSpace(r rune) rune {
	if r == 0x00A0 || r >= 0x2000 && r <= 0x200A || r == 0x202F || r == 0x205F || r == 0x3000 {
		return ' '
	}
	return r
}
