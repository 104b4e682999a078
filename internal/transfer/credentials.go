package transfer

import (
	"bufio"
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
		gitPatterns.line = regexp.MustCompile(`(?i)^(\s*\[.*\])?\s*(extraheader|helper|password|token|cookiefile|sslkey)\s*=`)
		gitPatterns.url = regexp.MustCompile(`(\w+://)[^/@\s]+@`)
	})
	return gitPatterns.line, gitPatterns.url
}

var gitPatterns struct {
	once      sync.Once
	line, url *regexp.Regexp
}

// cleanGitConfig drops the lines that carry credentials and the user part of
// URLs.
func cleanGitConfig(b []byte) []byte {
	gitSecretLine, gitURLSecret := gitSecrets()
	var out bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, maxGitConfig+1)
	dropped := false // the line above, and it goes on in this one
	for lines.Scan() {
		secret := gitSecretLine.FindSubmatch(lines.Bytes())
		if dropped || secret != nil {
			dropped = bytes.HasSuffix(bytes.TrimRight(lines.Bytes(), "\r"), []byte(`\`))
			if secret != nil && len(secret[1]) > 0 { // its section is for the lines below
				out.Write(append(gitURLSecret.ReplaceAll(secret[1], []byte("$1")), '\n'))
			}
			continue
		}
		out.Write(gitURLSecret.ReplaceAll(lines.Bytes(), []byte("$1")))
		out.WriteByte('\n')
	}
	if !bytes.HasSuffix(b, []byte("\n")) && out.Len() > 0 {
		out.Truncate(out.Len() - 1)
	}
	return out.Bytes()
}
