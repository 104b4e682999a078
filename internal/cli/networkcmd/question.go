package networkcmd

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// question is what `network check` is asked about.
type question struct {
	method string
	host   string // as it was given
	port   int
	target string // the path and query; "" for a host and port alone
}

// ports are those of the schemes of URLs.
var ports = map[string]int{"http": 80, "ws": 80, "https": 443, "wss": 443, "ssh": 22, "git": 9418, "ftp": 21, "postgres": 5432, "postgresql": 5432, "mysql": 3306, "redis": 6379}

// parseQuestion reads [METHOD] URL|HOST[:PORT]. It splits the text and decodes nothing: what a
// host may look like is the policy's to say.
func parseQuestion(args []string) (question, error) {
	q := question{method: "GET", port: 443}
	text := args[len(args)-1]
	if len(args) == 2 {
		q.method = args[0]
	}
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		scheme, rest = "", text
	} else if q.port = ports[strings.ToLower(scheme)]; q.port == 0 {
		q.port = -1
	}
	rest, _, _ = strings.Cut(rest, "#")
	authority := rest
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		authority, q.target = rest[:end], rest[end:]
		if q.target[0] == '?' {
			q.target = "/" + q.target
		}
	}
	http := scheme == "" || slices.Contains([]string{"http", "https", "ws", "wss"}, strings.ToLower(scheme))
	switch {
	case !http:
		q.target = "" // not a request that can be judged
	case q.target == "" && (isURL || len(args) == 2):
		q.target = "/"
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	host, port := splitPort(authority)
	if q.host = host; port != "" {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return q, exit.Misuse("write HOST:PORT, or a URL such as ssh://git@github.com/owner/repository", "%q is not a port", port)
		}
		q.port = n
	}
	switch {
	case host == "":
		return q, exit.Misuse("write HOST:PORT or a URL", "the host is missing")
	case q.port < 0:
		return q, exit.Misuse("write the port too, as in "+scheme+"://"+host+":PORT", "the port of the scheme %q is unknown", scheme)
	}
	return q, nil
}

// splitPort splits a host from its port. An IPv6 address without brackets has no port.
func splitPort(authority string) (host, port string) {
	colon := strings.LastIndexByte(authority, ':')
	if colon < strings.LastIndexByte(authority, ']') || strings.Count(authority, ":") > 1 && !strings.HasPrefix(authority, "[") {
		colon = -1
	}
	if colon < 0 {
		return authority, ""
	}
	return authority[:colon], authority[colon+1:]
}
