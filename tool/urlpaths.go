package tool

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Skill is a directory that skill:// reaches into.
type Skill struct {
	Name string
	Dir  string
	File string // what the bare URL stands for; "" is SKILL.md of Dir
}

// Local is where local:// is: below the artifacts of a session, or where there are
// none, in a temporary directory of the session's name.
type Local struct {
	Artifacts string
	Session   string
	Temp      string // "" is the system's
}

// skillURL is a name, a path, and a query or fragment that does not matter.
var skillURL = regexp.MustCompile(`(?s)\Askill://([^/?#]+)(/[^?#]*)?(?:[?#].*)?\z`)

func (u URLs) skill(raw string) (string, error) {
	m := skillURL.FindStringSubmatch(raw)
	if m == nil {
		return "", refuse("Invalid skill:// URL: %s", raw)
	}
	name, rest := m[1], m[2]
	if decoded, ok := percentDecode(name); ok {
		name = decoded
	}
	skill, suffix, ok := u.matchSkill(name)
	if !ok {
		return "", refuse("Unknown skill: %s. Available: %s", name, orNone(skillNames(u.Skills)))
	}
	if suffix != "" {
		rest += "/" + suffix
	}
	if rest == "" || rest == "/" {
		if skill.File != "" {
			return filepath.Abs(skill.File)
		}
		return filepath.Abs(filepath.Join(skill.Dir, "SKILL.md"))
	}
	relative, ok := percentDecode(rest[1:])
	if !ok {
		return "", refuse("Invalid skill:// URL path encoding: %s", raw)
	}
	if err := checkRelative("skill", relative); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(skill.Dir)
	if err != nil {
		return "", err
	}
	target := filepath.Join(dir, filepath.FromSlash(relative))
	if !within(dir, target) {
		return "", refuse("Path traversal is not allowed in skill:// URLs")
	}
	return target, nil
}

// matchSkill finds the skill of a name, or of the longest part of the name up to a
// colon; what is behind that colon is the suffix.
func (u URLs) matchSkill(name string) (skill Skill, suffix string, ok bool) {
	for candidate := name; ; {
		for _, s := range u.Skills {
			if s.Name == candidate {
				return s, strings.TrimPrefix(name[len(candidate):], ":"), true
			}
		}
		colon := strings.LastIndexByte(candidate, ':')
		if colon <= 0 {
			return Skill{}, "", false
		}
		candidate = candidate[:colon]
	}
}

func skillNames(skills []Skill) []string {
	names := make([]string, len(skills))
	for i, s := range skills {
		names[i] = s.Name
	}
	return names
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// root is the directory of local://.
func (l *Local) root() string {
	if l.Artifacts != "" {
		return filepath.Join(l.Artifacts, "local")
	}
	temp := l.Temp
	if temp == "" {
		temp = os.TempDir()
	}
	return filepath.Join(temp, "omp-local", safeSession(l.Session))
}

// safeSession makes a session's id the name of a directory. A character beyond the
// basic plane is two there, as it is two UTF-16 units.
func safeSession(id string) string {
	var b strings.Builder
	for _, r := range id {
		if r < utf8.RuneSelf && (partOfPath(byte(r)) && r != '/' && r != '\\') {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Repeat("_", max(1, utf16.RuneLen(r))))
	}
	if name := b.String(); name != "" && name != "." && name != ".." {
		return name
	}
	return "session"
}

func (l *Local) resolve(raw string) (string, error) {
	rest, _, _ := strings.Cut(strings.TrimPrefix(raw, "local://"), "#")
	rest, _, _ = strings.Cut(rest, "?")
	relative, ok := percentDecode(strings.TrimPrefix(rest, "/"))
	if !ok {
		return "", refuse("Invalid URL encoding in local:// path: %s", raw)
	}
	root, err := filepath.Abs(l.root())
	if err != nil {
		return "", err
	}
	if relative == "" {
		return root, nil
	}
	if err := checkRelative("local", relative); err != nil {
		return "", err
	}
	target := filepath.Join(root, filepath.FromSlash(relative))
	if !within(root, target) {
		return "", refuse("local:// URL escapes local root")
	}
	return target, nil
}

// checkRelative refuses what is no path below a directory.
func checkRelative(scheme, relative string) error {
	if strings.HasPrefix(relative, "/") || filepath.IsAbs(relative) {
		return refuse("Absolute paths are not allowed in %s:// URLs", scheme)
	}
	if clean := path.Clean(relative); strings.HasPrefix(clean, "..") || strings.Contains(clean, "/..") {
		return refuse("Path traversal (..) is not allowed in %s:// URLs", scheme)
	}
	return nil
}

// within tells whether a clean path is a clean directory or below it.
func within(dir, target string) bool {
	return target == dir || strings.HasPrefix(target, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}

// percentDecode is decodeURIComponent: it is not ok if what comes out is not
// UTF-8. Nor is it with a NUL, which no path can have.
func percentDecode(text string) (string, bool) {
	decoded, err := url.PathUnescape(text)
	if err != nil || !utf8.ValidString(decoded) || strings.IndexByte(decoded, 0) >= 0 {
		return "", false
	}
	return decoded, true
}
