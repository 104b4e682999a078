package tool

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// schemes are those of internal URLs, in lower case. URLs with other schemes are left
// alone.
var schemes = []string{"skill", "agent", "artifact", "plan", "memory", "rule", "local"}

// URLs says what internal URLs stand for. The zero value resolves none.
type URLs struct {
	Skills []Skill
	// Local is where local:// is; nil means that there is no such place.
	Local *Local
	// Resolver resolves all other schemes; nil: they have no handler.
	Resolver Resolver
	// Unknown means that this program does not know what URLs stand for, and leaves all alone.
	Unknown bool
	// SkillsOnly leaves all URLs alone but those of skills, and those as well if there
	// are no skills.
	SkillsOnly bool
}

// Resolver finds the path on the host that a URL of the schemes agent, artifact,
// memory, plan or rule stands for. It returns ErrNoHandler if the scheme has no
// handler, and neither a path nor an error if the URL stands for something without a
// path. The text of any other error is for the model.
type Resolver interface {
	Resolve(scheme, url string) (path string, err error)
}

// ErrNoHandler is returned for a scheme without a handler.
var ErrNoHandler = errors.New("this scheme has no handler")

// Expansion is an internal URL in a text, with what it stands for.
type Expansion struct {
	URL    string `json:"url"`
	Kind   string `json:"kind"`             // its scheme
	Path   string `json:"path"`             // on the host; the file need not be there
	Field  string `json:"field"`            // "command", "cwd" or "env"
	Name   string `json:"name,omitempty"`   // of env
	Offset int    `json:"offset"`           // bytes, of the token in the field's text
	Length int    `json:"length"`           // bytes, of the token, its quotes included
	Placed string `json:"placed,omitempty"` // where the command sees it, if not at Path
}

// expand replaces the internal URLs of a text by paths: in a command as quoted words,
// elsewhere unquoted. It calls place once for each URL for the path in the session;
// with a nil place that is the path on the host. It resolves URLs from the last to the
// first, and returns the first error, which is for the model.
func (u URLs) expand(text string, in Expansion, place func(Expansion) (string, error)) (string, []Expansion, error) {
	tokens := u.tokens(text)
	if len(tokens) == 0 {
		return text, nil, nil
	}
	found := make([]Expansion, len(tokens))
	known := map[string]Expansion{}
	for i, t := range slices.Backward(tokens) {
		e, ok := known[t.url]
		e.Offset, e.Length = t.start, t.end-t.start
		if !ok {
			e.Field, e.Name, e.URL = in.Field, in.Name, t.url
			if err := u.settle(&e, place); err != nil {
				return "", nil, err
			}
			known[t.url] = e
		}
		found[i] = e
	}
	var b strings.Builder
	at := 0
	for _, e := range found {
		b.WriteString(text[at:e.Offset])
		seen := cmp.Or(e.Placed, e.Path)
		if e.Field == fieldCommand {
			seen = shellQuote(seen)
		}
		b.WriteString(seen)
		at = e.Offset + e.Length
	}
	b.WriteString(text[at:])
	return b.String(), found, nil
}

// settle sets the paths of an expansion.
func (u URLs) settle(e *Expansion, place func(Expansion) (string, error)) (err error) {
	e.Kind, _, _ = strings.Cut(e.URL, "://")
	if e.Path, err = u.resolve(e.Kind, e.URL); err == nil && place != nil {
		e.Placed, err = place(*e)
	}
	return err
}

const (
	fieldCommand = "command"
	fieldCwd     = "cwd"
	fieldEnv     = "env"
)

// shellQuote quotes a text so that it is one word of the shell.
func shellQuote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// urlToken is an internal URL in a text, with the quotes directly around it.
type urlToken struct {
	start, end int
	url        string
}

// tokens finds the internal URLs of a text.
func (u URLs) tokens(text string) []urlToken {
	if u.Unknown || u.SkillsOnly && len(u.Skills) == 0 || !strings.Contains(text, "://") && !strings.Contains(text, "local:/") {
		return nil
	}
	var all []urlToken
	for at := 0; at < len(text); {
		colon := strings.IndexByte(text[at:], ':')
		if colon < 0 {
			break
		}
		colon += at
		t, ok := u.tokenAt(text, at, colon)
		if !ok {
			at = colon + 1
			continue
		}
		all = append(all, t)
		at = t.end
	}
	return all
}

// tokenAt reads the URL whose scheme ends at a colon and starts at from or later.
func (u URLs) tokenAt(text string, from, colon int) (t urlToken, ok bool) {
	scheme := schemeBefore(text[from:colon])
	if scheme == "" || u.SkillsOnly && scheme != "skill" {
		return t, false
	}
	t.start = colon - len(scheme)
	quote := byte(0) // right before it
	if t.start > from && (text[t.start-1] == '\'' || text[t.start-1] == '"') {
		quote = text[t.start-1]
	}
	body, double := strings.CutPrefix(text[colon:], "://")
	length := 0
	if double {
		length = tokenLength(body)
	}
	if length == 0 {
		// local:/x and a bare local://, but not where they look like a part of a path.
		double = false
		if body, ok = strings.CutPrefix(text[colon:], ":/"); !ok || scheme != "local" || t.start > 0 && partOfPath(text[t.start-1]) {
			return t, false
		}
		if length = tokenLength(body); length == 0 {
			return t, false
		}
	}
	t.end = len(text) - len(body) + length
	t.url = text[t.start:t.end]
	if quote != 0 && t.end < len(text) && text[t.end] == quote {
		t.start, t.end = t.start-1, t.end+1
	}
	if !double && !strings.HasPrefix(t.url, "local://") {
		t.url = "local://" + strings.TrimPrefix(t.url, "local:/")
	}
	return t, true
}

// schemeBefore returns the scheme at the end of text. The text before it does not
// matter: agent://x is found in myagent://x.
func schemeBefore(text string) string {
	for _, s := range schemes {
		if strings.HasSuffix(text, s) {
			return s
		}
	}
	return ""
}

// tokenLength returns the length of a URL at the start of text: it ends at white space,
// a quote, a backquote, a closing parenthesis or a backslash.
func tokenLength(text string) int {
	end := strings.IndexFunc(text, func(r rune) bool { return isSpace(r) || strings.ContainsRune("'\")`\\", r) })
	if end < 0 {
		return len(text)
	}
	return end
}

func partOfPath(c byte) bool {
	return c < utf8.RuneSelf && strings.IndexByte("./\\-_", c) >= 0 ||
		c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// resolve returns the path on the host that a URL stands for.
func (u URLs) resolve(scheme, url string) (string, error) {
	switch scheme {
	case "skill":
		return u.skill(url)
	case "local":
		if u.Local == nil {
			return "", Refusef("Cannot resolve local:// URL in bash command: local protocol options are unavailable for this session.")
		}
		return u.Local.resolve(url)
	}
	if !slices.Contains(schemes, scheme) {
		return "", Refusef("Unsupported internal URL in bash command: %s", url)
	}
	path, err := "", ErrNoHandler
	if u.Resolver != nil {
		path, err = u.Resolver.Resolve(scheme, url)
	}
	switch {
	case errors.Is(err, ErrNoHandler):
		return "", Refusef("Cannot resolve %s:// URL in bash command: %s\nInternal URL router is unavailable for this protocol in the current session.", scheme, url)
	case err != nil:
		return "", Refusef("Failed to resolve %s:// URL in bash command: %s\n%s", scheme, url, err)
	case path == "":
		return "", Refusef("%s:// URL resolved without a filesystem path and cannot be used in bash: %s", scheme, url)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("path of %s: %w", url, err)
	}
	return abs, nil
}
