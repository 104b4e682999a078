package inject

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Outgoing changes a request that the rules allow and that goes out over TLS. It returns the names of
// the secrets that it has put in.
//
// host is the canonical name that the request is judged and dialled by, never what the request
// itself says. In requests to hosts that secrets are for, whatever their path, Outgoing also
// removes credentials that are not ours, and headers that would keep Incoming from finding a
// value. Outgoing does not change a placeholder in a request that no rule of its secret matches.
// The error is a *MissingError if a secret that has to be put in has no value here.
// Plain HTTP is left alone.
func (s *Set) Outgoing(r *http.Request, host string, port int) (used []string, err error) {
	if s == nil {
		return nil, nil
	}
	ours := s.Intercepts(host, port)
	remember(r, ours)
	if !ours || !overTLS(r) {
		return nil, nil
	}
	upgrades, err := asksWebSocket(r)
	if err != nil {
		return nil, err
	}
	p := &placing{secrets: s.forRequest(r, host, port), used: map[string]bool{}}
	r.Header = r.Header.Clone() // the client's own request stays as it came
	for name, values := range r.Header {
		if r.Header[name] = p.header(name, values); len(r.Header[name]) == 0 {
			delete(r.Header, name)
		}
	}
	for _, name := range hindering {
		r.Header.Del(name)
	}
	if !upgrades {
		r.Header.Del("Upgrade")
	}
	r.Header.Set("Accept-Encoding", "identity")
	r.Trailer = nil
	p.query(r.URL)
	if p.missing != "" {
		return nil, &MissingError{p.missing}
	}
	for name := range p.used {
		used = append(used, name)
	}
	slices.Sort(used)
	return used, nil
}

// overTLS says whether a request goes out over TLS. One that a server has received, and whose URL is
// not complete so far, goes out as it came.
func overTLS(r *http.Request) bool {
	return r.URL.Scheme == "https" || r.URL.Scheme == "" && r.TLS != nil
}

// hindering are headers that are removed from requests to hosts that secrets are for.
var hindering = []string{
	// The answer could hold a value in a form that is not looked for, or a part of it that is
	// not recognised.
	"Range", "If-Range", "Accept-Charset", "A-Im", "Grpc-Accept-Encoding", "Connect-Accept-Encoding", "Sec-Websocket-Extensions", "Http2-Settings",
	// It is for this process, if for anyone.
	"Proxy-Authorization",
	// Some servers take these for the method and the path that the rules have judged.
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url",
}

// placing puts secrets into one request.
type placing struct {
	secrets []Secret
	used    map[string]bool // by name
	missing string          // the name of one that should be put in and has no value
}

// use notes that a secret is put in.
func (p *placing) use(s Secret) {
	p.used[s.Name] = true
	if s.Missing {
		p.missing = s.Name
	}
}

// holds says whether a text has a placeholder.
func (p *placing) holds(text string) bool {
	return slices.ContainsFunc(p.secrets, func(s Secret) bool { return strings.Contains(text, s.Placeholder) })
}

// put replaces the placeholders in a text, all at once: a value is never searched for others.
func (p *placing) put(text string) string {
	var pairs []string
	for _, s := range p.secrets {
		if strings.Contains(text, s.Placeholder) {
			pairs = append(pairs, s.Placeholder, s.Value)
			p.use(s)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// header returns what goes out for the values of a header.
func (p *placing) header(name string, values []string) []string {
	isCredential := credential(name)
	if !isCredential && descriptive(name) {
		return values
	}
	var out []string
	for _, v := range values {
		if !isCredential {
			out = append(out, p.put(v))
		} else if placed, ok := p.credential(name, v); ok {
			out = append(out, placed)
		}
	}
	return out
}

// credential returns a credential with a secret in it. It is false for any other credential.
func (p *placing) credential(name, value string) (string, bool) {
	if scheme, encoded, ok := strings.Cut(strings.TrimSpace(value), " "); ok && strings.EqualFold(name, "Authorization") && strings.EqualFold(scheme, "Basic") {
		plain, err := decodeBasic(encoded)
		if err != nil || !p.holds(plain) {
			return "", false
		}
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(p.put(plain))), true
	}
	// Another credential may stand in the same header: Authorization: Bearer mine, Bearer PLACEHOLDER.
	separator := ","
	if strings.EqualFold(name, "Cookie") {
		separator = ";"
	}
	parts := slices.DeleteFunc(strings.Split(value, separator), func(part string) bool { return !p.holds(part) })
	if len(parts) == 0 {
		return "", false
	}
	return p.put(strings.TrimSpace(strings.Join(parts, separator))), true
}

func decodeBasic(text string) (string, error) {
	text = strings.TrimRight(strings.TrimSpace(text), "=")
	plain, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		plain, err = base64.RawURLEncoding.DecodeString(text)
	}
	return string(plain), err
}

// query replaces the placeholders of those secrets that may stand in the query.
func (p *placing) query(u *url.URL) {
	var pairs []string
	for _, s := range p.secrets {
		if s.InQuery && strings.Contains(u.RawQuery, s.Placeholder) {
			pairs = append(pairs, s.Placeholder, url.QueryEscape(s.Value))
			p.use(s)
		}
	}
	u.RawQuery = strings.NewReplacer(pairs...).Replace(u.RawQuery)
}
