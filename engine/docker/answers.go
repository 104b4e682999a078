package docker

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// answers refuses what no engine answers: what stands between us and one, a proxy
// or a portal, may say 200 to anything, and the Docker client would take that for
// done.
type answers struct{ http.RoundTripper }

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.RoundTripper.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	if err := strange(r, resp); err != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, maxError)
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// CloseIdleConnections is what an http.Client asks of its transport.
func (a answers) CloseIdleConnections() {
	if c, ok := a.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// strange says what is wrong with an answer that claims success.
func strange(r *http.Request, resp *http.Response) error {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && kind == "text/html" {
		return fmt.Errorf("what answers is no container engine: it sent a page (%s)", resp.Status)
	}
	if saysNothing(r) && resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("what answers is no container engine: it said %s where an engine has nothing to say", resp.Status)
	}
	return nil
}

// saysNothing reports whether engines answer a call with 204 alone when they have
// done it.
func saysNothing(r *http.Request) bool {
	path := r.URL.Path
	switch r.Method {
	case http.MethodDelete:
		return strings.Contains(path, "/containers/") || strings.Contains(path, "/volumes/")
	case http.MethodPost:
		return strings.Contains(path, "/containers/") && (strings.HasSuffix(path, "/start") || strings.HasSuffix(path, "/kill"))
	}
	return false
}
