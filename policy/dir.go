package policy

import (
	"path"
	"strings"
)

// changeDir follows cd, if the new directory is known.
func (c call) changeDir() {
	operands := c.args[1:]
	for len(operands) > 0 && len(operands[0].text) > 1 && strings.HasPrefix(operands[0].text, "-") {
		operands = operands[1:]
	}
	if len(operands) == 0 {
		c.shell.dir = "~"
		return
	}
	c.shell.dir = c.resolve(operands[0])
}

// resolve returns a path, cleaned: absolute, below ~, or "" if it is not known. Relative
// paths are resolved against the working directory.
func (w *walker) resolve(a arg) string {
	if !a.known() || a.isPattern() || a.is("-") {
		return ""
	}
	if a.parts != nil && a.parts[0].kind == home {
		return cleanHome("~" + a.text[len(a.parts[0].text):])
	}
	if strings.HasPrefix(a.text, "/") {
		return path.Clean(a.text)
	}
	w.shell.usesState = true
	switch {
	case w.shell.dir == "":
		return ""
	case w.shell.dir[0] == '~':
		return cleanHome(w.shell.dir + "/" + a.text)
	}
	return path.Clean(w.shell.dir + "/" + a.text)
}

// cleanHome cleans a path that begins with ~. A path that leaves the home is not known.
func cleanHome(p string) string {
	p = path.Clean(p)
	if p != "~" && !strings.HasPrefix(p, "~/") {
		return ""
	}
	return p
}
