package docker

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// answers refuses responses that no engine gives. A proxy or a portal between us and an
// engine may answer 200 to anything, and the Docker client would take that for success.
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
	if !streams(r, resp) {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: maxAnswer}
	}
	return resp, nil
}

// maxAnswer bounds an answer that is one document, in bytes: the list of ten
// thousand containers has less. A longer one comes from a broken engine, or from something else.
const maxAnswer = 64 << 20

var errLongAnswer = errors.New("the answer is longer than any that an engine gives")

var errNoContainer = errors.New("the answer describes no container")

// boundedBody is a body that fails once it is longer than its bound.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errLongAnswer
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return n - 1, errLongAnswer
	}
	return n, err
}

// streams reports whether an answer may have any length: its reader keeps little of it.
func streams(r *http.Request, resp *http.Response) bool {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return true
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return false
	}
	ends := []string{"/events", "/logs", "/get", "/export", "/archive"}
	if r.Method == http.MethodPost {
		ends = []string{"/images/create", "/images/load", "/build", "/attach", "/start"}
	}
	return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(r.URL.Path, end) })
}

// CloseIdleConnections lets an http.Client close those of the transport below.
func (a answers) CloseIdleConnections() {
	if c, ok := a.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// strange returns what is wrong with an answer that claims success.
func strange(r *http.Request, resp *http.Response) error {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && kind == "text/html" {
		return fmt.Errorf("what answers is not a container engine: it sent a page (%s)", resp.Status)
	}
	if saysNothing(r) && resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("what answers is not a container engine: it answered %s where an engine sends no body", resp.Status)
	}
	return nil
}

// saysNothing reports whether a call's only success is 204.
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
