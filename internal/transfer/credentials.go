package transfer

import (
	"bytes"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// credentialNames are files and directories whose purpose is to hold secrets.
var credentialNames = map[string]bool{
	".env": true, ".npmrc": true, ".netrc": true, "_netrc": true, ".pypirc": true, ".git-credentials": true,
	".ssh": true, ".gnupg": true, ".aws": true, ".azure": true, ".kube": true, ".docker": true, ".pgpass": true,
	"id_rsa": true, "id_ecdsa": true, "id_ed25519": true, "id_dsa": true,
}

// IsCredential reports whether a file of a workspace stays on the host:
// well-known names, and .env.* but for examples.
func IsCredential(name string) bool {
	base := path.Base(filepath.ToSlash(name))
	if credentialNames[base] {
		return true
	}
	kind, ok := strings.CutPrefix(base, ".env.")
	return ok && !slices.Contains([]string{"example", "sample", "template", "dist"}, kind)
}

// Clean returns what a session gets of a file's content, and whether that can be less
// than all of it: credentials in git's configuration stay out.
func Clean(name string, content []byte) ([]byte, bool) {
	if !isGitConfig(name) {
		return nil, false
	}
	return cleanGitConfig(content), true
}

// GitCredentials reports whether a git configuration holds credentials.
func GitCredentials(config io.Reader) bool {
	b, err := io.ReadAll(io.LimitReader(config, maxGitConfig))
	return err == nil && !bytes.Equal(b, cleanGitConfig(b))
}

// maxGitConfig bounds what of a .git/config is read; git's own are small.
const maxGitConfig = 1 << 20 // bytes

func isGitConfig(name string) bool {
	name = filepath.ToSlash(name)
	return strings.HasSuffix("/"+name, "/.git/config") || strings.Contains("/"+name, "/.git/modules/") && path.Base(name) == "config"
}

// gitSecrets returns patterns of a line that holds credentials, and of the user part of
// a URL. They are made at their first use, so that the runner, which packs too, is
// linked without package regexp.
func gitSecrets() (line, url *regexp.Regexp) {
	gitPatterns.once.Do(func() {
		gitPatterns.line = regexp.MustCompile(`(?i)^(\x{feff}?\s*\[.*\])?\s*[a-z0-9-]*(extraheader|helper|pass|password|token|cookiefile|sslkey)\s*=`)
		// A proxy needs no scheme.
		gitPatterns.url = regexp.MustCompile(`(?i)(\w+://|proxy\s*=\s*"?)[^/\s]*@`)
	})
	return gitPatterns.line, gitPatterns.url
}

var gitPatterns struct {
	once      sync.Once
	line, url *regexp.Regexp
}

// cleanGitConfig drops the lines that carry credentials and the user part of URLs. It keeps
// all others as they are.
func cleanGitConfig(b []byte) []byte { return cleanWithin(b, maxGitConfig) }

// cleanWithin is cleanGitConfig of what was read with a bound. A configuration that is as long
// may have been cut there: its last line, which may be half of a secret, is dropped.
func cleanWithin(b []byte, bound int) []byte {
	secretLine, urlUser := gitSecrets()
	cut := len(b) >= bound
	if cut {
		b = b[:bytes.LastIndexByte(b, '\n')+1]
	}
	var out, value []byte // value has the lines so far of a value that goes on
	dropped := false      // the line above, and it goes on in this one
	var end lineEnd
	for line := range bytes.Lines(b) {
		content := bytes.TrimRight(line, "\r\n")
		on := end.goesOn(content)
		if secret := secretLine.FindSubmatch(line); dropped || secret != nil {
			out = append(out, withoutUser(value)...)
			value = nil
			if !dropped && len(secret[1]) > 0 { // its section is for the lines below
				out = append(append(out, urlUser.ReplaceAll(secret[1], []byte("$1"))...), line[len(content):]...)
			}
			dropped = on
			continue
		}
		if value = append(value, urlUser.ReplaceAll(line, []byte("$1"))...); !on {
			out = append(out, withoutUser(value)...)
			value = nil
		}
	}
	if !cut {
		out = append(out, withoutUser(value)...)
	}
	return out
}

// lineEnd says of one line after the other whether its value goes on in the next.
type lineEnd struct{ quoted bool }

// goesOn reports whether the line ends with a backslash that no other one escapes, and that is
// not in a comment.
func (e *lineEnd) goesOn(line []byte) bool {
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && i == len(line)-1:
			return true
		case c == '\\':
			i++
		case c == '"':
			e.quoted = !e.quoted
		case (c == '#' || c == ';') && !e.quoted:
			return false
		}
	}
	e.quoted = false
	return false
}

// withoutUser removes the user part of a URL that is on several lines, and then joins them.
func withoutUser(value []byte) []byte {
	_, urlUser := gitSecrets()
	joined := bytes.ReplaceAll(bytes.ReplaceAll(value, []byte("\\\r\n"), nil), []byte("\\\n"), nil)
	if clean := urlUser.ReplaceAll(joined, []byte("$1")); !bytes.Equal(clean, joined) {
		return clean
	}
	return value
}
