package gateway_test

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/gateway"
	"github.com/sandboxbash/sandboxbash/network/inject"
)

const (
	secretValue       = "hunter2/hunter2+x"
	secretPlaceholder = "sandboxbash_secret_TOKEN_0123456789abcdef"
)

// newSecretLab is a lab with a secret for hosts, in a session that may reach what allow says.
func newSecretLab(t *testing.T, hosts []string, allow ...string) *secureLab {
	t.Helper()
	var rules []network.Rule
	for _, text := range hosts {
		rules = append(rules, rule(t, text))
	}
	set, err := inject.New([]inject.Secret{{Name: "TOKEN", Placeholder: secretPlaceholder, Value: secretValue, Rules: rules, InQuery: true}})
	if err != nil {
		t.Fatal(err)
	}
	return newSecretLabWith(t, set, allow...)
}

// newSecretLabWith is newSecretLab with any secrets.
func newSecretLabWith(t *testing.T, set *inject.Set, allow ...string) *secureLab {
	t.Helper()
	l := newSecureLabWith(t, gateway.Options{Rules: policy(t, allow), Secrets: set})
	l.session.AppendCertsFromPEM(l.outside.PEM()) // for hosts that pass unread
	return l
}

// ask sends a request from the session, and returns the status, the header and the body as a text.
func (l *secureLab) ask(http2 bool, url string, header http.Header) string {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header = header
	r.Host = strings.ToUpper(r.URL.Host) + "." // one of many spellings
	client := l.client(http2)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return fmt.Sprintf("%d %v %s %v %v", res.StatusCode, res.Header, body, res.Trailer, err)
}

// The host sees the value, and the session never does: as it is, redirected, encoded and in errors.
func TestSecrets(t *testing.T) {
	t.Parallel()
	l := newSecretLab(t, []string{"api.example.com"}, "api.example.com", "*.example.org")
	seen := make(chan *http.Request, 1)
	l.serve("api.example.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		token := r.Header.Get("Authorization")
		switch r.URL.Path {
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
		case "/redirect":
			w.Header().Set("Location", "https://elsewhere.example.org/?t="+token)
			w.WriteHeader(http.StatusFound)
		}
		fmt.Fprintln(w, r.Header, r.URL)
	}))
	other := make(chan *http.Request, 1)
	l.serve("elsewhere.example.org", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { other <- r }))
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+secretPlaceholder))
	for _, http2 := range []bool{true, false} {
		for _, tt := range []struct {
			url    string
			header http.Header
			saw    string // the host: Authorization
			status string
		}{
			{"https://api.example.com/v1", http.Header{"Authorization": {"Bearer " + secretPlaceholder}, "X-Api-Key": {"mine"}}, "Bearer " + secretValue, "200"},
			{"https://API.Example.com/v1", http.Header{"Authorization": {"Bearer " + secretPlaceholder}}, "Bearer " + secretValue, "200"},
			{"https://api.example.com/v1", http.Header{"Authorization": {basic}}, "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+secretValue)), "200"},
			{"https://api.example.com/v1?k=" + secretPlaceholder, http.Header{"Authorization": {"Bearer mine"}}, "", "200"},
			{"https://api.example.com/redirect", http.Header{"Authorization": {"Bearer " + secretPlaceholder}}, "Bearer " + secretValue, "302"},
			{"https://api.example.com/gzip", http.Header{"Authorization": {"Bearer " + secretPlaceholder}, "Accept-Encoding": {"gzip"}}, "Bearer " + secretValue, "502"},
		} {
			got := l.ask(http2, tt.url, tt.header)
			r := <-seen
			if !strings.HasPrefix(got, tt.status+" ") || r.Header.Get("Authorization") != tt.saw || r.Header.Get("X-Api-Key") != "" {
				t.Errorf("HTTP/2 %v, %s: the host saw %v; the session %s; want status %s", http2, tt.url, r.Header, got, tt.status)
			}
			if strings.Contains(got, "hunter2") || strings.Contains(got, base64.RawStdEncoding.EncodeToString([]byte(secretValue))[4:]) {
				t.Errorf("HTTP/2 %v, %s: the session sees the value: %s", http2, tt.url, got)
			}
		}
		if got := l.ask(http2, "https://elsewhere.example.org/", http.Header{"Authorization": {"Bearer " + secretPlaceholder}}); !strings.HasPrefix(got, "200") {
			t.Errorf("another host: %s", got)
		}
		if r := <-other; r.Header.Get("Authorization") != "Bearer "+secretPlaceholder {
			t.Errorf("another host saw %v", r.Header)
		}
	}
	record := l.recorded(func(r gateway.Record) bool { return r.Path == "/v1" && len(r.Secrets) > 0 })
	if !slices.Equal(record.Secrets, []string{"TOKEN"}) || strings.Contains(fmt.Sprintf("%+v", record), "hunter2") {
		t.Errorf("record %+v; want the name of the secret, and no value", record)
	}
}

// An error of the way to a host repeats what the host has sent.
func TestSecretInError(t *testing.T) {
	t.Parallel()
	l := newSecretLab(t, []string{"api.example.com"}, "api.example.com")
	cert, err := l.outside.Certificate("api.example.com")
	if err != nil {
		t.Fatal(err)
	}
	l.host("api.example.com", 443, rawTLS(t, cert, func(request string) string {
		_, token, _ := strings.Cut(request, "Bearer ")
		token, _, _ = strings.Cut(token, "\r\n")
		return "HTTP/1.1 " + token + "\r\n\r\n"
	}))
	got := l.ask(false, "https://api.example.com/", http.Header{"Authorization": {"Bearer " + secretPlaceholder}})
	if !strings.HasPrefix(got, "502") || strings.Contains(got, "hunter2") || !strings.Contains(got, "REDACTED") {
		t.Errorf("a malformed answer with the value: %s; want 502, and the mask", got)
	}
	if record := l.recorded(func(r gateway.Record) bool { return r.Err != "" }); strings.Contains(record.Err, "hunter2") {
		t.Errorf("its record: %+v", record)
	}
}

// rawTLS is a server that answers the header of a request with any text.
func rawTLS(t *testing.T, cert *tls.Certificate, answer func(request string) string) string {
	t.Helper()
	return server(t, func(conn *net.TCPConn) {
		secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12})
		defer func() { _ = secure.Close() }()
		var request strings.Builder
		for buf := make([]byte, 1024); !strings.Contains(request.String(), "\r\n\r\n"); {
			n, err := secure.Read(buf)
			if err != nil {
				return
			}
			request.Write(buf[:n])
		}
		_, _ = io.WriteString(secure, answer(request.String()))
	})
}

// A request that needs a secret without a value is answered with what is to be done, and the host sees nothing.
func TestMissingSecret(t *testing.T) {
	t.Parallel()
	const gone = "sandboxbash_secret_GONE_0123456789abcdef"
	set, err := inject.New([]inject.Secret{{Name: "GONE", Placeholder: gone, Rules: []network.Rule{rule(t, "api.example.com")}, Missing: true}})
	if err != nil {
		t.Fatal(err)
	}
	l := newSecretLabWith(t, set, "api.example.com")
	asked := 0
	l.serve("api.example.com", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	const why = "the secret GONE has no value where the connections of this session are carried. The user has to give it again"
	if got := l.ask(true, "https://api.example.com/", http.Header{"Authorization": {"Bearer " + gone}}); !strings.HasPrefix(got, "502") || !strings.Contains(got, why) {
		t.Errorf("a request that needs it: %s; want 502 and the reason", got)
	}
	if record := l.recorded(func(r gateway.Record) bool { return r.Err != "" }); !strings.Contains(record.Err, why) || len(record.Secrets) > 0 {
		t.Errorf("its record: %+v", record)
	}
	if asked != 0 {
		t.Error("the host was asked")
	}
	if got := l.ask(false, "https://api.example.com/", http.Header{"Authorization": {"Bearer mine"}}); !strings.HasPrefix(got, "200") {
		t.Errorf("a request without it: %s", got)
	}
}
