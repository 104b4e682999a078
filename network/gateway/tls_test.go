package gateway_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/authority"
	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// secureLab is a lab whose session trusts an authority, and whose hosts have certificates of another one.
type secureLab struct {
	*lab

	session *x509.CertPool       // what a program of the session trusts
	outside *authority.Authority // of the hosts
}

func newSecureLab(t *testing.T, exclude []string, allow ...string) *secureLab {
	t.Helper()
	opts := gateway.Options{Rules: policy(t, allow)}
	for _, text := range exclude {
		opts.Exclude = append(opts.Exclude, rule(t, text))
	}
	return newSecureLabWith(t, opts)
}

// newSecureLabWith is newSecureLab with any options but for the authorities.
func newSecureLabWith(t *testing.T, opts gateway.Options) *secureLab {
	t.Helper()
	session, err := authority.New("test")
	if err != nil {
		t.Fatal(err)
	}
	outside, err := authority.New("outside")
	if err != nil {
		t.Fatal(err)
	}
	l := &secureLab{session: x509.NewCertPool(), outside: outside}
	l.session.AppendCertsFromPEM(session.PEM())
	opts.Authority, opts.Roots = session, x509.NewCertPool()
	opts.Roots.AppendCertsFromPEM(outside.PEM())
	l.lab = newLabWith(t, opts)
	return l
}

// serve starts a server for a name and a port, with a certificate for it.
func (l *secureLab) serve(name string, handler http.Handler) {
	l.t.Helper()
	cert, err := l.outside.Certificate(name)
	if err != nil {
		l.t.Fatal(err)
	}
	l.serveWith(name, 443, handler, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12})
}

func (l *secureLab) serveWith(name string, port int, handler http.Handler, config *tls.Config) {
	l.t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = config
	server.StartTLS()
	l.t.Cleanup(server.Close)
	l.host(name, port, server.Listener.Addr().String())
}

// secure is TLS on a new connection to a name, which the client names as sni.
func (l *secureLab) secure(name string, port uint16, sni string, protocols ...string) *tls.Conn {
	l.t.Helper()
	conn := tls.Client(l.connect(name, port), &tls.Config{ServerName: sni, RootCAs: l.session, NextProtos: protocols, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(l.t.Context()); err != nil {
		l.t.Fatalf("TLS with %s:%d: %v", name, port, err)
	}
	return conn
}

// client is an HTTP client in the session.
func (l *secureLab) client(http2 bool) *http.Client {
	transport := &http.Transport{
		ForceAttemptHTTP2: http2, DisableCompression: true,
		TLSClientConfig: &tls.Config{RootCAs: l.session, MinVersion: tls.VersionTLS12},
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			var n uint16
			if _, err := fmt.Sscan(port, &n); err != nil {
				return nil, err
			}
			return l.connect(host, n), nil
		},
	}
	l.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// tells is a server that says what it was asked.
var tells = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	w.Header().Set("Alt-Svc", `h3=":443"`)
	w.Header().Set("Trailer", "X-End")
	fmt.Fprintf(w, "%s %s %s %s %q %v", r.Proto, r.Method, r.Host, r.RequestURI, body, err)
	for _, name := range []string{"X-HTTP-Method-Override", "X_http_method", "X-Original-URL", "X-Forwarded-For", "Proxy-Authorization", "X-Mine"} {
		if v := r.Header[name]; len(v) > 0 {
			fmt.Fprintf(w, " %s=%s", name, v[0])
		}
	}
	w.Header().Set("X-End", "trailer")
})

func TestIntercept(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2 %v", http2), func(t *testing.T) {
			l := newSecureLab(t, nil, "GET,POST example.com/a/*")
			l.serve("example.com", tells)
			client := l.client(http2)
			proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]
			do := func(method, path, body string) (*http.Response, string) {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), method, "https://example.com"+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header["X-HTTP-Method-Override"] = []string{"DELETE"}
				req.Header["X_http_method"] = []string{"DELETE"}
				req.Header["X-Original-URL"] = []string{"/b"}
				req.Header.Set("X-Mine", "1")
				r, err := client.Do(req)
				if err != nil {
					t.Fatalf("%s %s: %v", method, path, err)
				}
				defer r.Body.Close()
				got, err := io.ReadAll(r.Body)
				if err != nil {
					t.Fatal(err)
				}
				return r, string(got)
			}
			r, got := do(http.MethodPost, "/a/b%20c?d;e=%zz", "body")
			if want := `HTTP/2.0 POST example.com /a/b%20c?d;e=%zz "body" <nil> X-Mine=1`; r.StatusCode != 200 || got != want || r.Proto != proto {
				t.Errorf("%s %d %q; want %s 200 %q", r.Proto, r.StatusCode, got, proto, want)
			}
			if r.Header.Get("Alt-Svc") != "" || r.Trailer.Get("X-End") != "trailer" {
				t.Errorf("Alt-Svc %q, trailer %q", r.Header.Get("Alt-Svc"), r.Trailer.Get("X-End"))
			}
			rec := l.recorded(func(r gateway.Record) bool { return r.Method == http.MethodPost })
			if !rec.Allowed || rec.Status != 200 || rec.Sent != 4 || rec.Received != int64(len(got)) || rec.Path != "/a/b%20c" || rec.Host != "example.com" || rec.Port != 443 || rec.Kind != gateway.KindRequest {
				t.Errorf("recorded as %+v", rec)
			}
			for _, row := range []struct {
				method, path string
				status       int
				says         string
			}{
				{http.MethodDelete, "/a/b", 403, "ask the user to allow DELETE example.com:443/a/b"},
				{http.MethodGet, "/b", 403, "ask the user to allow GET example.com:443/b"},
				{http.MethodGet, "/a/../b", 403, "a segment of one dot or two"},
				{http.MethodGet, "/a/%2e%2e/b", 403, "a segment of one dot or two"},
				{http.MethodGet, "/a/..%2fb", 403, "encoded slash"},
				{http.MethodTrace, "/a/b", 405, "TRACE"},
			} {
				r, got := do(row.method, row.path, "")
				if r.StatusCode != row.status || !strings.Contains(got, row.says) || !strings.Contains(r.Header.Get("X-Sandboxbash-Denied"), row.says) {
					t.Errorf("%s %s: %d %q; want %d and %q", row.method, row.path, r.StatusCode, got, row.status, row.says)
				}
				if !http2 && r.Status != fmt.Sprintf("%d %s", row.status, strings.TrimSpace(got)) {
					t.Errorf("%s %s: the phrase is %q, the body %q", row.method, row.path, r.Status, got)
				}
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.dialled) != 1 {
				t.Errorf("%v was dialled; want one connection", l.dialled)
			}
		})
	}
}

// The name that TLS gives, the host of a request and the name that was looked up are one.
func TestInterceptNamesAgree(t *testing.T) {
	for _, row := range []struct {
		name, sni, request string
		status             int
	}{
		{"all agree", "example.com", "GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n", 200},
		{"with the port", "example.com", "GET /a HTTP/1.1\r\nHost: EXAMPLE.com:443\r\n\r\n", 200},
		{"absolute", "example.com", "GET https://example.com/a HTTP/1.1\r\nHost: evil.com\r\n\r\n", 200}, // RFC 9112: the target decides, and is what is sent
		{"another host", "example.com", "GET /a HTTP/1.1\r\nHost: other.com\r\n\r\n", 421},
		{"another port", "example.com", "GET /a HTTP/1.1\r\nHost: example.com:8443\r\n\r\n", 421},
		{"another name in TLS", "other.com", "GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n", 421},
		{"another name in TLS and the request", "other.com", "GET /a HTTP/1.1\r\nHost: other.com\r\n\r\n", 421},
		{"absolute for another host", "example.com", "GET https://other.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n", 421},
		{"absolute and not over TLS", "example.com", "GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n", 421},
		{"no host", "example.com", "GET /a HTTP/1.0\r\n\r\n", 421},
		{"a tunnel to another host", "example.com", "CONNECT other.com:443 HTTP/1.1\r\nHost: other.com:443\r\n\r\n", 421},
		{"a tunnel to the host", "example.com", "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", 405},
		{"two hosts", "example.com", "GET /a HTTP/1.1\r\nHost: example.com\r\nHost: other.com\r\n\r\n", 400},
		{"a huge header", "example.com", "GET /a HTTP/1.1\r\nHost: example.com\r\nX: " + strings.Repeat("x", 128<<10) + "\r\n\r\n", 431},
		{"two lengths", "example.com", "GET /a HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
		{"a bad chunk", "example.com", "GET /a HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: xchunked\r\n\r\n", 501},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newSecureLab(t, nil, "GET example.com/a", "other.com")
			l.serve("example.com", tells)
			l.host("other.com", 443, "")
			r, body := request(t, l.secure("example.com", 443, row.sni), row.request)
			if r.StatusCode != row.status || r.StatusCode == 200 && !strings.Contains(body, " GET example.com /a ") {
				t.Errorf("%s %q; want %d", r.Status, body, row.status)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if row.status != 200 && len(l.dialled) > 0 {
				t.Errorf("%v was dialled", l.dialled)
			}
		})
	}
}

// What does not begin as TLS does not pass on a port of TLS, and is judged on others.
func TestInterceptPlaintext(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/a", "GET example.com:8080/a")
	upstream := httptest.NewServer(tells)
	defer upstream.Close()
	l.host("example.com", 443, upstream.Listener.Addr().String())
	l.host("example.com", 8080, upstream.Listener.Addr().String())
	if r, body := request(t, l.connect("example.com", 443), "GET /a HTTP/1.1\r\nHost: example.com:443\r\n\r\n"); r.StatusCode != 400 || !strings.Contains(body, "blocked by sandbox policy") {
		t.Errorf("plain HTTP on port 443: %s %q; want 400", r.Status, body)
	}
	for _, port := range []uint16{443, 8080} {
		conn := l.connect("example.com", port)
		_, _ = io.WriteString(conn, "SSH-2.0-x\r\n")
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("another protocol on port %d: %v; want a reset", port, err)
		}
		l.recorded(func(r gateway.Record) bool { return r.Reason == gateway.ReasonPlain && r.Port == int(port) })
	}
	if r, body := request(t, l.connect("example.com", 8080), "GET /a HTTP/1.1\r\nHost: example.com:8080\r\n\r\n"); r.StatusCode != 200 || !strings.Contains(body, "GET example.com:8080 /a") {
		t.Errorf("the request of the rule, on its port: %s %q", r.Status, body)
	}
	if r, body := request(t, l.connect("example.com", 8080), "GET /b HTTP/1.1\r\nHost: example.com:8080\r\n\r\n"); r.StatusCode != 403 {
		t.Errorf("another request, on its port: %s %q", r.Status, body)
	}
	cert, err := l.outside.Certificate("example.com")
	if err != nil {
		t.Fatal(err)
	}
	l.serveWith("example.com", 8080, tells, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12})
	if r, body := request(t, l.secure("example.com", 8080, "example.com"), "GET /a HTTP/1.1\r\nHost: example.com:8080\r\n\r\n"); r.StatusCode != 200 || !strings.Contains(body, "GET example.com:8080 /a") {
		t.Errorf("over TLS on that port: %s %q", r.Status, body)
	}
}

func TestInterceptWebSocket(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/ws")
	l.serve("example.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			http.Error(w, "no upgrade: "+r.Header.Get("Upgrade"), http.StatusTeapot)
			return
		}
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, buf)
	}))
	const head = "GET /ws HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: "
	conn := l.secure("example.com", 443, "example.com")
	if _, err := io.WriteString(conn, head+"websocket\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", r, err)
	}
	for range 3 {
		if _, err := io.WriteString(conn, "ping"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4)
		if _, err := io.ReadFull(in, b); err != nil || string(b) != "ping" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	_ = conn.Close()
	// After an upgrade to HTTP/2 there would be requests that are not judged.
	if r, body := request(t, l.secure("example.com", 443, "example.com"), head+"h2c\r\nHTTP2-Settings: AA\r\n\r\n"); r.StatusCode != http.StatusTeapot || !strings.Contains(body, "no upgrade: \n") {
		t.Errorf("an upgrade to h2c: %s %q; want that it is not passed on", r.Status, body)
	}
}

// A server that streams is heard at once, in both directions and with its trailers, as gRPC needs it.
func TestInterceptStreams(t *testing.T) {
	l := newSecureLab(t, nil, "POST example.com/svc/*")
	l.serve("example.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("X-Te", r.Header.Get("Te"))
		_ = http.NewResponseController(w).Flush()
		b := make([]byte, 4)
		for {
			if _, err := io.ReadFull(r.Body, b); err != nil {
				break
			}
			_, _ = w.Write(b)
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "5")
	}))
	body, send := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://example.com/svc/echo", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Te", "trailers")
	r, err := l.client(true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for range 3 {
		if _, err := io.WriteString(send, "ping"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4)
		if _, err := io.ReadFull(r.Body, b); err != nil || string(b) != "ping" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	_ = send.Close()
	if rest, err := io.ReadAll(r.Body); err != nil || len(rest) > 0 || r.Trailer.Get("Grpc-Status") != "5" || r.Header.Get("X-Te") != "trailers" {
		t.Errorf("%q, %v, trailers %v, te %q", rest, err, r.Trailer, r.Header.Get("X-Te"))
	}
}

// A body that breaks off must not look whole, whatever says its length.
func TestInterceptBrokenOff(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/a")
	l.serve("example.com", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	for _, version := range []string{"1.0", "1.1"} {
		conn := l.secure("example.com", 443, "example.com")
		fmt.Fprintf(conn, "GET /a HTTP/%s\r\nHost: example.com\r\n\r\n", version)
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(r.Body); err == nil {
			t.Errorf("HTTP/%s: %q and no error", version, body)
		}
		_ = r.Body.Close()
	}
}

func TestInterceptExpect(t *testing.T) {
	l := newSecureLab(t, nil, "PUT example.com/*")
	l.serve("example.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		tells(w, r)
	}))
	conn := l.secure("example.com", 443, "example.com")
	in := bufio.NewReader(conn)
	fmt.Fprintf(conn, "PUT /yes HTTP/1.1\r\nHost: example.com\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != http.StatusContinue {
		t.Fatalf("%+v, %v; want status 100", r, err)
	}
	fmt.Fprint(conn, "body")
	if r, err = http.ReadResponse(in, nil); err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("%+v, %v", r, err)
	}
	r, _ = request(t, l.secure("example.com", 443, "example.com"), "PUT /no HTTP/1.1\r\nHost: example.com\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	if r.StatusCode != http.StatusExpectationFailed {
		t.Errorf("%s; want 417 and no 100 before it", r.Status)
	}
}

func TestInterceptBadCertificate(t *testing.T) {
	stranger, err := authority.New("stranger")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, says string
		cert       func(l *secureLab) (*tls.Certificate, error)
	}{
		{"of an unknown authority", "this machine does not know the authority that has signed it", func(*secureLab) (*tls.Certificate, error) { return stranger.Certificate("example.com") }},
		{"for another name", "it is for another name", func(l *secureLab) (*tls.Certificate, error) { return l.outside.Certificate("other.com") }},
		{"that has expired", "it has expired, or is not valid yet", func(*secureLab) (*tls.Certificate, error) { return expired() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newSecureLab(t, nil, "GET example.com/a")
			cert, err := row.cert(l)
			if err != nil {
				t.Fatal(err)
			}
			l.serveWith("example.com", 443, tells, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12})
			r, body := request(t, l.secure("example.com", 443, "example.com"), "GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n")
			if r.StatusCode != http.StatusBadGateway || !strings.Contains(body, "its certificate cannot be trusted: "+row.says) {
				t.Errorf("%s %q; want 502 and %q", r.Status, body, row.says)
			}
			rec := l.recorded(func(r gateway.Record) bool { return r.Kind == gateway.KindRequest })
			if !rec.Allowed || !strings.Contains(rec.Err, row.says) {
				t.Errorf("recorded as %+v", rec)
			}
		})
	}
	t.Run("of the client", func(t *testing.T) {
		l := newSecureLab(t, nil, "GET example.com/a")
		cert, err := l.outside.Certificate("example.com")
		if err != nil {
			t.Fatal(err)
		}
		l.serveWith("example.com", 443, tells, &tls.Config{Certificates: []tls.Certificate{*cert}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13})
		r, body := request(t, l.secure("example.com", 443, "example.com"), "GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n")
		if r.StatusCode != http.StatusBadGateway || !strings.Contains(body, "exclude the host from being read") {
			t.Errorf("%s %q", r.Status, body)
		}
	})
}

// expired is a certificate for example.com that ended yesterday.
func expired() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "example.com"}, DNSNames: []string{"example.com"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// An excluded host is not read: what must be judged is refused.
func TestInterceptExcluded(t *testing.T) {
	l := newSecureLab(t, []string{"*.pinned.com"}, "GET a.pinned.com/a", "b.pinned.com", "GET example.com/a")
	for _, name := range []string{"a.pinned.com", "b.pinned.com"} {
		l.serve(name, tells)
	}
	conn, err := l.dialName("a.pinned.com", 443)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("an excluded host with a rule for some requests: %v; want a reset", err)
	}
	rec := l.recorded(func(r gateway.Record) bool { return r.Reason == gateway.ReasonUnread })
	if rec.Allowed || !strings.Contains(rec.Why, "the host is excluded from being read") {
		t.Errorf("recorded as %+v", rec)
	}
	own := x509.NewCertPool()
	own.AppendCertsFromPEM(l.outside.PEM())
	pass := tls.Client(l.connect("b.pinned.com", 443), &tls.Config{ServerName: "b.pinned.com", RootCAs: own, MinVersion: tls.VersionTLS12})
	if r, body := request(t, pass, "GET /x HTTP/1.1\r\nHost: b.pinned.com\r\n\r\n"); r.StatusCode != 200 {
		t.Errorf("an excluded host, all of whose requests are allowed: %s %q; want its own certificate", r.Status, body)
	}
}

// The names of refused hosts: the reason comes as a response that the session's authority vouches for.
func TestInterceptRefusedName(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/a")
	r, body := request(t, l.secure("evil.com", 443, "evil.com", "h2", "http/1.1"), "GET /a HTTP/1.1\r\nHost: evil.com\r\n\r\n")
	if r.StatusCode != http.StatusForbidden || !strings.Contains(body, "ask the user to allow evil.com:443") || !strings.Contains(r.Status, "evil.com") {
		t.Errorf("%s %q; want 403 and what to ask for", r.Status, body)
	}
	// A client that does not trust the session's authority is refused too.
	conn := tls.Client(l.connect("evil.com", 443), &tls.Config{ServerName: "evil.com", RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(t.Context()); err == nil {
		t.Error("a client that trusts nothing accepts the certificate")
	}
	l.recorded(func(r gateway.Record) bool {
		return r.Kind == gateway.KindConnection && r.Reason == network.NoRule && r.Host == "evil.com"
	})
}

func TestInterceptUntrusted(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/a")
	l.serve("example.com", tells)
	conn := tls.Client(l.connect("example.com", 443), &tls.Config{ServerName: "example.com", RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(t.Context()); err == nil {
		t.Error("a client that trusts nothing accepts the certificate")
	}
	rec := l.recorded(func(r gateway.Record) bool { return r.Reason == gateway.ReasonUntrusted })
	if rec.Allowed || !strings.Contains(rec.Why, "/run/sandboxbash-ca") {
		t.Errorf("recorded as %+v", rec)
	}
}

// A tunnel through the proxy is read where the connection would be.
func TestInterceptConnect(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/a", "GET example.com:80/a")
	l.serve("example.com", tells)
	upstream := httptest.NewServer(tells)
	defer upstream.Close()
	l.host("example.com", 80, upstream.Listener.Addr().String())
	open := func(at string) net.Conn {
		t.Helper()
		conn, err := l.dial(proxyAddr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", at, at)
		if r, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect}); err != nil || r.StatusCode != 200 {
			t.Fatalf("CONNECT %s: %+v, %v", at, r, err)
		}
		return conn
	}
	for path, want := range map[string]int{"/a": 200, "/b": 403} {
		secure := tls.Client(open("example.com:443"), &tls.Config{ServerName: "example.com", RootCAs: l.session, MinVersion: tls.VersionTLS12})
		if r, body := request(t, secure, "GET "+path+" HTTP/1.1\r\nHost: example.com\r\n\r\n"); r.StatusCode != want {
			t.Errorf("%s inside a tunnel to port 443: %s %q; want %d", path, r.Status, body, want)
		}
		if r, body := request(t, open("example.com:80"), "GET "+path+" HTTP/1.1\r\nHost: example.com\r\n\r\n"); r.StatusCode != want {
			t.Errorf("%s inside a tunnel to port 80: %s %q; want %d", path, r.Status, body, want)
		}
	}
}

// A rule that wants requests read cuts the connections that pass unread.
func TestInterceptFromNowOn(t *testing.T) {
	l := newSecureLab(t, nil, "example.com:9000")
	l.host("example.com", 9000, echo(t))
	conn := l.connect("example.com", 9000)
	ping(t, conn)
	l.gateway.SetRules(policy(t, []string{"example.com:9000"}, "POST example.com:9000"))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a connection that was not read: %v; want a reset", err)
	}
}

// What is forwarded is what was judged, whatever the spelling.
func TestInterceptForwardsWhatWasJudged(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/a/*", "GET example.com/%7Eu*")
	var mu sync.Mutex
	var seen []string
	l.serve("example.com", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.RequestURI)
	}))
	rules := policy(t, []string{"GET example.com/a/*", "GET example.com/%7Eu*"})
	conn := l.secure("example.com", 443, "example.com")
	for _, target := range []string{
		"/a/%41", "/%61/b", "/a/b%3fc", "/a/b%c3%a4", "/a/[1]", "/a/b'c", "/a/!$&()*+,=:@", "/a/?x=/../y&z=%2e%2e", "/a/b?", "/a/%7e", "/~u", "/%7eu", "/a/b??c?d", "/a/{x}",
		"/a/%25", "/a/x|y", "/a/b?q=a;b=c&d=%zz&e=[1]",
	} {
		verdict := rules.Request("example.com", 443, http.MethodGet, target)
		r, body := request(t, conn, "GET "+target+" HTTP/1.1\r\nHost: example.com\r\n\r\n")
		mu.Lock()
		got := strings.Join(seen, " ")
		seen = nil
		mu.Unlock()
		if r.StatusCode == 200 != verdict.Allowed || got != verdict.Target {
			t.Errorf("%s: %s %q, forwarded %q; judged %v as %q", target, r.Status, body, got, verdict.Allowed, verdict.Target)
		}
		if r.Close {
			conn = l.secure("example.com", 443, "example.com")
		}
	}
}

func TestInterceptConcurrently(t *testing.T) {
	l := newSecureLab(t, nil, "GET *.example.com/a/*")
	const hosts = 4
	for i := range hosts {
		name := fmt.Sprintf("h%d.example.com", i)
		l.serve(name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, name, r.Host, r.URL.Path) }))
	}
	var wg sync.WaitGroup
	for i := range 8 {
		client := l.client(i%2 == 0)
		wg.Go(func() {
			for n := range 20 {
				name, path := fmt.Sprintf("h%d.example.com", (i+n)%hosts), fmt.Sprintf("/a/%d-%d", i, n)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+name+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				r, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(r.Body)
				_ = r.Body.Close()
				if want := name + name + path; err != nil || string(body) != want {
					t.Errorf("%q, %v; want %q", body, err, want)
				}
			}
		})
	}
	wg.Wait()
}
