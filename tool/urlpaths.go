package tool

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// Skill is a directory that skill:// reaches into.
type Skill struct {
	Name string
	Dir  string
	File string // what the bare URL stands for; "" is SKILL.md of Dir
}

// Local says where local:// is: below the artifacts of a session or, without artifacts,
// in a temporary directory with the session's name.
type Local struct {
	Artifacts string
	Session   string
	Temp      string // "" is the system's
}

// skillURL is a name, a path, and a query or fragment that does not matter.
var skillURL = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)\Askill://([^/?#]+)(/[^?#]*)?(?:[?#].*)?\z`)
})

func (u URLs) skill(raw string) (string, error) {
	m := skillURL().FindStringSubmatch(raw)
	if m == nil {
		return "", Refusef("Invalid skill:// URL: %s", raw)
	}
	name, rest := m[1], m[2]
	if decoded, ok := percentDecode(name); ok {
		name = decoded
	}
	skill, suffix, ok := u.matchSkill(name)
	if !ok {
		return "", Refusef("Unknown skill: %s. Available: %s", name, orNone(skillNames(u.Skills)))
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
		return "", Refusef("Invalid skill:// URL path encoding: %s", raw)
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
		return "", Refusef("Path traversal is not allowed in skill:// URLs")
	}
	return target, nil
}

// matchSkill finds the skill with a name, or with the longest part of the name that
// ends before a colon. The suffix is the text after that colon.
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

// Root returns the directory of local://.
func (l *Local) Root() string {
	if l.Artifacts != "" {
		return filepath.Join(l.Artifacts, "local")
	}
	temp := l.Temp
	if temp == "" {
		temp = os.TempDir()
	}
	return filepath.Join(temp, "omp-local", SafeSession(l.Session))
}

// SafeSession returns the name of a directory for a session's id. A character outside
// the basic plane becomes two underscores, because it is two UTF-16 units.
func SafeSession(id string) string {
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
		return "", Refusef("Invalid URL encoding in local:// path: %s", raw)
	}
	root, err := filepath.Abs(l.Root())
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
		return "", Refusef("local:// URL escapes local root")
	}
	return target, nil
}

// checkRelative refuses a path that does not stay below its directory.
func checkRelative(scheme, relative string) error {
	if strings.HasPrefix(relative, "/") || filepath.IsAbs(relative) {
		return Refusef("Absolute paths are not allowed in %s:// URLs", scheme)
	}
	if clean := path.Clean(relative); strings.HasPrefix(clean, "..") || strings.Contains(clean, "/..") {
		return Refusef("Path traversal (..) is not allowed in %s:// URLs", scheme)
	}
	return nil
}

// within reports whether a clean path is a clean directory or below it.
func within(dir, target string) bool {
	return target == dir || strings.HasPrefix(target, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}

// percentDecode is decodeURIComponent. ok is false if the result is not UTF-8 or has a
// NUL, which no path can have.
func percentDecode(text string) (string, bool) {
	decoded, err := url.PathUnescape(text)
	if err != nil || !utf8.ValidString(decoded) || strings.IndexByte(decoded, 0) >= 0 {
		return "", false
	}
	return decoded, true
}
