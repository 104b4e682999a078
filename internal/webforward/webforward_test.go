package webforward_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandboxbash/sandboxbash/internal/webforward"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// forwarded is a Server before a server of the test's.
type forwarded struct {
	*webforward.Server

	url    string // with the token
	addr   string
	served chan struct{}
}

// start serves requests for what listens at an address.
func start(t *testing.T, to string) *forwarded {
	t.Helper()
	var d net.Dialer
	f := &forwarded{served: make(chan struct{})}
	f.Server = webforward.New(webforward.Options{
		Dial: func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", to) },
		Host: "port 80 of the session",
		Explain: func(err error) string {
			if errors.Is(err, syscall.ECONNREFUSED) {
				return "nothing listens in the session"
			}
			return ""
		},
		Worked: func() {},
	})
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.served)
		f.Serve(listener)
	}()
	f.url, f.addr = f.URL(listener.Addr()), listener.Addr().String()
	t.Cleanup(f.stop)
	return f
}

func (f *forwarded) stop() {
	f.Close()
	<-f.served
}

// behind starts a server of the test's and a Server before it.
func behind(t *testing.T, handler http.HandlerFunc) *forwarded {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return start(t, server.Listener.Addr().String())
}

// browser keeps cookies and shows redirects.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// signedIn has opened the address with the token.
func signedIn(t *testing.T, f *forwarded) *http.Client {
	t.Helper()
	client := browser(t)
	if res, body := do(t, client, request(t, http.MethodGet, f.url, nil)); res.StatusCode != http.StatusSeeOther {
		t.Fatalf("with the token: %s %s", res.Status, body)
	}
	return client
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func do(t *testing.T, client *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// seen are the requests that a server has got, as they came.
type seen struct {
	mu  sync.Mutex
	all bytes.Buffer // guarded by mu
}

func (s *seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = r.Write(&s.all)
	fmt.Fprint(w, "the page")
}

func (s *seen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

func TestToken(t *testing.T) {
	t.Parallel()
	var got seen
	f := behind(t, got.ServeHTTP)
	base, token, _ := strings.Cut(f.url, "?")
	client := browser(t)
	if res, body := do(t, client, request(t, http.MethodGet, base, nil)); res.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "open the address with the token") || strings.Count(body, "\n") != 1 {
		t.Errorf("without the token: %s %q; want 401 and a line", res.Status, body)
	}
	if res, _ := do(t, client, request(t, http.MethodGet, f.url+"x", nil)); res.StatusCode != http.StatusUnauthorized || len(res.Cookies()) > 0 {
		t.Errorf("with another token: %s; want 401 and no cookie", res.Status)
	}
	if got.text() != "" {
		t.Errorf("the server has seen %q; want nothing", got.text())
	}
	res, _ := do(t, client, request(t, http.MethodGet, base+"a%20b?x=1&"+token+"&y=%32", nil))
	if at := res.Header.Get("Location"); res.StatusCode != http.StatusSeeOther || at != base+"a%20b?x=1&y=%32" {
		t.Fatalf("with the token: %s to %q; want a redirect to the same without it", res.Status, at)
	}
	cookies := res.Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].Path != "/" {
		t.Fatalf("cookies %+v; want one, HttpOnly and strict", cookies)
	}
	value := strings.TrimPrefix(token, "sandboxbash-token=")
	if strings.Contains(cookies[0].Value, value) {
		t.Error("the cookie is the token")
	}
	r := request(t, http.MethodGet, base+"page?q=1&"+token, nil)
	r.Method = http.MethodPost // goes on with the token
	r.Header.Set("Cookie", "mine=1; sandboxbash-forward-1=another; theirs=2")
	r.Header.Set("Referer", f.url)
	r.Header.Set("X-Forwarded-For", "192.0.2.1")
	r.Header.Set("Connection", "X-Hop")
	r.Header.Set("X-Hop", "this hop's")
	if res, body := do(t, client, r); res.StatusCode != http.StatusOK || body != "the page" {
		t.Errorf("with the cookie: %s %q", res.Status, body)
	}
	text := got.text()
	for _, want := range []string{"POST /page?q=1 HTTP/1.1\r\n", "Host: " + f.addr + "\r\n", "Cookie: mine=1; theirs=2\r\n", "X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Host: " + f.addr + "\r\n", "X-Forwarded-Proto: http\r\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the server has seen %q; want %q in it", text, want)
		}
	}
	for _, not := range []string{value, cookies[0].Value, "sandboxbash-", "Hop"} {
		if strings.Contains(text, not) {
			t.Errorf("the server has seen %q; want no %q in it", text, not)
		}
	}
}

// The token in another spelling or another place does not count, and is not passed on either.
func TestTokenSpelled(t *testing.T) {
	t.Parallel()
	var got seen
	f := behind(t, got.ServeHTTP)
	client := signedIn(t, f)
	base, param, _ := strings.Cut(f.url, "?")
	_, value, _ := strings.Cut(param, "=")
	for _, query := range []string{"sandboxbash%2Dtoken=" + value + "x", "other=" + value, "a=1%26sandboxbash-token=" + value, fmt.Sprintf("b=%%%02x%s", value[0], value[1:])} {
		if res, body := do(t, client, request(t, http.MethodPost, base+"?"+query, nil)); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", query, res.Status, body)
		}
	}
	if strings.Contains(got.text(), value) || strings.Contains(got.text(), value[1:]) {
		t.Errorf("the server has seen the token: %q", got.text())
	}
	// A path that begins with two slashes does not lead to another host.
	res, _ := do(t, client, request(t, http.MethodGet, base+"/evil.example/?"+param, nil))
	if at := res.Header.Get("Location"); at != base+"/evil.example/" {
		t.Errorf("redirected to %q; want %q", at, base+"/evil.example/")
	}
}

func TestForeign(t *testing.T) {
	t.Parallel()
	var got seen
	f := behind(t, got.ServeHTTP)
	cookie := signedIn(t, f).Jar.Cookies(request(t, http.MethodGet, f.url, nil).URL)[0].String()
	client := browser(t)
	_, port, _ := net.SplitHostPort(f.addr)
	for _, tt := range []struct {
		name   string
		method string
		host   string
		header map[string]string
		want   int
	}{
		{"as it is", "GET", "", nil, 200},
		{"localhost", "GET", "localhost:" + port, nil, 200},
		{"in capitals", "GET", "LocalHost:" + port, nil, 200},
		{"rebound", "GET", "evil.example:" + port, nil, 421},
		{"rebound, no port", "GET", "evil.example", nil, 421},
		{"a name below localhost", "GET", "evil.localhost:" + port, nil, 421},
		{"another port", "GET", "127.0.0.1:1", nil, 421},
		{"no port", "GET", "127.0.0.1", nil, 421},
		{"another address", "GET", "[::1]:" + port, nil, 421},
		{"all addresses", "GET", "0.0.0.0:" + port, nil, 421},
		{"another spelling of an address", "GET", "2130706433:" + port, nil, 421},
		{"own origin", "POST", "", map[string]string{"Origin": "http://" + f.addr}, 200},
		{"another port's page", "POST", "", map[string]string{"Origin": "http://127.0.0.1:1"}, 403},
		{"another site's page", "POST", "", map[string]string{"Origin": "https://evil.example"}, 403},
		{"https", "POST", "", map[string]string{"Origin": "https://" + f.addr}, 403},
		{"no origin of its own", "POST", "", map[string]string{"Origin": "null"}, 403},
		{"an image on another page", "GET", "", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403},
		{"a frame on another page", "GET", "", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		{"a form on another page", "POST", "", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403},
		{"a link on another page", "GET", "", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		{"its own page", "POST", "", map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200},
		{"typed in", "GET", "", map[string]string{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		{"service worker", "GET", "", map[string]string{"Service-Worker": "script"}, 403},
		{"TRACE", "TRACE", "", nil, 405},
		{"OPTIONS", "OPTIONS", "", nil, 200},
	} {
		before := len(got.text())
		r := request(t, tt.method, "http://"+f.addr+"/", nil)
		r.Host = tt.host
		r.Header.Set("Cookie", cookie) // browsers keep one for each host
		for k, v := range tt.header {
			r.Header.Set(k, v)
		}
		res, body := do(t, client, r)
		if passed := len(got.text()) > before; res.StatusCode != tt.want || passed != (tt.want == 200) {
			t.Errorf("%s: %s %q, passed on: %t; want %d", tt.name, res.Status, body, passed, tt.want)
		}
	}
	// A link of a page of another site has no strict cookie after a redirect: a page leads on instead.
	r := request(t, http.MethodGet, f.url, nil)
	for k, v := range map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"} {
		r.Header.Set(k, v)
	}
	if res, body := do(t, browser(t), r); res.StatusCode != http.StatusOK || len(res.Cookies()) != 1 || !strings.Contains(body, `url=http://`+f.addr+`/"`) {
		t.Errorf("a link with the token: %s %q; want a page that leads on", res.Status, body)
	}
}

// The server can neither change our cookies nor have the browser forget them.
func TestCookiesOfServer(t *testing.T) {
	t.Parallel()
	f := behind(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Set-Cookie", "sandboxbash-forward-80=x; Path=/")
		w.Header().Add("Set-Cookie", "own=1")
		w.Header().Set("Clear-Site-Data", `"cookies"`)
	})
	res, _ := do(t, signedIn(t, f), request(t, http.MethodGet, "http://"+f.addr+"/", nil))
	if got := res.Cookies(); len(got) != 1 || got[0].Name != "own" || res.Header.Get("Clear-Site-Data") != "" {
		t.Errorf("the answer has %v", res.Header)
	}
}

func TestLargeBodies(t *testing.T) {
	t.Parallel()
	const size = 40 << 20
	f := behind(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	sent, got := sha256.New(), sha256.New()
	body := io.TeeReader(io.LimitReader(pattern{}, size), sent)
	r := request(t, http.MethodPut, "http://"+f.addr+"/", body)
	client := signedIn(t, f)
	r.ContentLength = size
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(got, res.Body); n != size || err != nil || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d bytes came back, %v; want the %d that were sent", n, err, size)
	}
}

type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i * 7)
	}
	return len(p), nil
}

// Each event arrives before the next one is sent.
func TestEvents(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	f := behind(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	res, err := signedIn(t, f).Do(request(t, http.MethodGet, "http://"+f.addr+"/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 3 {
		if line, err := lines.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) || err != nil {
			t.Fatalf("event %d: %q, %v", i, line, err)
		}
		_, _ = lines.ReadString('\n')
		next <- struct{}{}
	}
}

// upgrade opens a WebSocket, of which only the start is one.
func upgrade(t *testing.T, f *forwarded, header string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, query, _ := strings.Cut(f.url, "?")
	fmt.Fprintf(conn, "GET /?%s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n", query, f.addr, header)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, in, res
}

func echoUpgraded(w http.ResponseWriter, _ *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(conn, buffered)
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	f := behind(t, echoUpgraded)
	conn, in, res := upgrade(t, f, "Origin: http://"+f.addr+"\r\n")
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %s", res.Status)
	}
	for _, text := range []string{"one\n", "two\n"} {
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if got, err := in.ReadString('\n'); got != text || err != nil {
			t.Errorf("echo of %q is %q, %v", text, got, err)
		}
	}
	if _, _, res := upgrade(t, f, "Origin: https://evil.example\r\n"); res.StatusCode != http.StatusForbidden {
		t.Errorf("from another origin: %s; want 403", res.Status)
	}
}

// Close ends WebSockets, also of a client that reads nothing.
func TestClose(t *testing.T) {
	t.Parallel()
	f := behind(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, io.LimitReader(pattern{}, 1<<30))
	})
	conn, in, _ := upgrade(t, f, "")
	if _, err := io.CopyN(io.Discard, in, 1<<20); err != nil {
		t.Fatal(err)
	}
	f.stop()
	if _, err := io.Copy(io.Discard, in); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after Close: %v; want a reset", err)
	}
	_ = conn.Close()
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	f := start(t, "127.0.0.1:1") // no port that the kernel gives to another test
	if res, body := do(t, signedIn(t, f), request(t, http.MethodGet, "http://"+f.addr+"/", nil)); res.StatusCode != http.StatusBadGateway || body != "sandboxbash: nothing listens in the session\n" {
		t.Errorf("nothing listens: %s %q", res.Status, body)
	}
}

// What is not HTTP is said to be so, and an answer that breaks off is an error for every client.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	arrived := make(chan struct{}) // a value when the client has the half of an answer
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				_ = conn.Close()
				continue
			}
			switch r.URL.Path {
			case "/ssh":
				_, _ = io.WriteString(conn, "SSH-2.0-server\r\n")
			case "/cut":
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			case "/reset":
				_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\n\r\nhalf")
				<-arrived // else the reset overtakes it
				_ = conn.(*net.TCPConn).SetLinger(0)
			}
			_ = conn.Close()
		}
	}()
	f := start(t, listener.Addr().String())
	client := signedIn(t, f)
	if res, body := do(t, client, request(t, http.MethodGet, "http://"+f.addr+"/ssh", nil)); res.StatusCode != http.StatusBadGateway || !strings.HasPrefix(body, "sandboxbash: port 80 of the session does not answer as an HTTP server does: ") {
		t.Errorf("no HTTP: %s %q", res.Status, body)
	}
	cookie := client.Jar.Cookies(request(t, http.MethodGet, "http://"+f.addr+"/", nil).URL)[0].String()
	for _, path := range []string{"/cut", "/reset"} {
		for _, version := range []string{"1.0", "1.1"} {
			var d net.Dialer
			conn, err := d.DialContext(t.Context(), "tcp", f.addr)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprintf(conn, "GET %s HTTP/%s\r\nHost: %s\r\nCookie: %s\r\nConnection: close\r\n\r\n", path, version, f.addr, cookie)
			var got []byte
			for one := make([]byte, 1); path == "/reset" && !bytes.HasSuffix(got, []byte("half")); got = append(got, one...) {
				if _, err := io.ReadFull(conn, one); err != nil {
					t.Fatalf("%s over HTTP/%s: %q, %v; want half of an answer", path, version, got, err)
				}
			}
			if path == "/reset" {
				arrived <- struct{}{}
			}
			rest, err := io.ReadAll(conn)
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s over HTTP/%s: %q, %v; want a reset", path, version, append(got, rest...), err)
			}
			_ = conn.Close()
		}
	}
}
