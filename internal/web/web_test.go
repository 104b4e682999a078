package web

import (
	"bufio"
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// maxPage is how large the page may be with all its parts.
const maxPage = 200_000 // bytes

func TestPageIsSmall(t *testing.T) {
	t.Parallel()
	total := int64(0)
	for name := range types {
		info, err := fs.Stat(page, "page/"+name)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	t.Logf("the page has %d bytes", total)
	if total > maxPage {
		t.Errorf("the page has %d bytes; want at most %d", total, maxPage)
	}
}

// The page has nothing from elsewhere, and makes no markup of texts.
func TestPageIsItsOwn(t *testing.T) {
	t.Parallel()
	for name := range types {
		b, err := fs.ReadFile(page, "page/"+name)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://", "onclick=", "style=\"", "javascript:"} {
			if name == "app.js" && bad == "innerHTML" && strings.Count(string(b), bad) == 1 {
				continue // its own comment
			}
			if strings.Contains(string(b), bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
	}
}

func TestRequestsAreJudged(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(o *Options) { o.Hosts = []string{"agents.example"} })
	bearer := []string{"Authorization", "Bearer " + token}
	for _, row := range []struct {
		name, method, path, host string
		headers                  []string
		want                     int
	}{
		{"the page", "GET", "/", "", nil, 200},
		{"its script", "GET", "/app.js", "", nil, 200},
		{"a file that is none of the page", "GET", "/web.go", "", nil, 404},
		{"a path that leads out", "GET", "/../web.go", "", nil, 404},
		{"a method that a file has not", "POST", "/", "", nil, 405},
		{"no token", "GET", "/api/changes?session=" + webID, "", nil, 401},
		{"another token", "GET", "/api/changes?session=" + webID, "", []string{"Authorization", "Bearer x"}, 401},
		{"another scheme", "GET", "/api/changes?session=" + webID, "", []string{"Authorization", "Basic " + token}, 401},
		{"the token in the query", "GET", "/api/changes?session=" + webID + "&token=" + token, "", nil, 401},
		{"the token", "GET", "/api/changes?session=" + webID, "", bearer, 200},
		{"a session without a copy", "GET", "/api/changes?session=" + apiID, "", bearer, 409},
		{"a path that is none", "GET", "/api/x", "", bearer, 404},
		{"another method", "POST", "/api/events", "", bearer, 405},
		{"another host", "GET", "/", "evil.example", nil, 421},
		{"another host, with the token", "GET", "/api/changes?session=" + webID, "evil.example:80", bearer, 421},
		{"a host that was named", "GET", "/api/changes?session=" + webID, "agents.example:8810", bearer, 200},
		{"localhost", "GET", "/", "localhost", nil, 200},
		{"another origin", "GET", "/api/changes?session=" + webID, "", slices.Concat(bearer, []string{"Origin", "http://evil.example"}), 403},
		{"an origin that is null", "GET", "/", "", []string{"Origin", "null"}, 403},
		{"its own origin over TLS, which it has not", "GET", "/", "", []string{"Origin", "https://localhost"}, 403},
		{"a page of another site", "GET", "/app.js", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"a link on another site", "GET", "/", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"a frame on another site", "GET", "/", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{"a service worker", "GET", "/app.js", "", []string{"Service-Worker", "script"}, 403},
		{"an order to a page that is read-only", "POST", "/api/do", "", bearer, 403},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			answer := s.request(t, row.method, row.path, row.host, row.headers, "")
			defer answer.Body.Close()
			if answer.StatusCode != row.want {
				t.Errorf("%s %s = %d; want %d", row.method, row.path, answer.StatusCode, row.want)
			}
			for name, part := range map[string]string{"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
				if !strings.Contains(answer.Header.Get(name), part) {
					t.Errorf("%s is %q", name, answer.Header.Get(name))
				}
			}
		})
	}
}

func (s *stage) request(t *testing.T, method, path, host string, headers []string, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestOrders(t *testing.T) {
	t.Parallel()
	did := &controller{}
	s := newStage(t, func(o *Options) { o.Control = did })
	for _, row := range []struct {
		name, kind, body string
		status           int
		want             string // in the answer
	}{
		{"another type", "text/plain", `{"do":"stop","session":"x"}`, 415, "application/json"},
		{"no JSON", "application/json", `{`, 400, "not understood"},
		{"a field that is none", "application/json", `{"do":"stop","force":true}`, 400, "not understood"},
		{"nothing to do", "application/json", `{"do":"dance"}`, 400, "nothing of this name"},
		{"a body that is too long", "application/json", `{"do":"` + strings.Repeat("x", maxBody) + `"}`, 400, "not understood"},
		{"an error", "application/json", `{"do":"allow","session":"x","rule":"bad rule"}`, 409, "a host has no space"},
		{"keys", "application/json", `{"do":"type","terminal":"pty_1","keys":["ctrl-c"]}`, 200, "{}"},
		{"a shell", "application/json", `{"do":"attach","session":"x"}`, 200, "pty_1"},
	} {
		answer := s.request(t, http.MethodPost, "/api/do", "", []string{"Authorization", "Bearer " + token, "Content-Type", row.kind}, row.body)
		b, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != row.status || !strings.Contains(string(b), row.want) {
			t.Errorf("%s: %d %s; want %d and %q", row.name, answer.StatusCode, b, row.status, row.want)
		}
	}
	if got, want := did.orders(), []string{"allow x bad rule", `type pty_1 "" [ctrl-c]`, "attach x"}; !slices.Equal(got, want) {
		t.Errorf("orders %q; want %q", got, want)
	}
}

// stream opens the events of a session.
func (s *stage) stream(t *testing.T, session string) (*bufio.Reader, net.Conn) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, "GET /api/events?session="+session+" HTTP/1.1\r\nHost: "+s.addr+"\r\nAuthorization: Bearer "+token+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReaderSize(conn, 1<<20), conn
}

// until reads lines until one has the text.
func until(t *testing.T, r *bufio.Reader, conn net.Conn, text string) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	for {
		line, err := r.ReadString('\n')
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			t.Fatalf("no %q: %v", text, err)
		}
	}
}

// Nine clients read while a tenth one has stopped: they get all that is new, and the tenth is cut off.
func TestAStoppedClientHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	s.begin(webID, "c", "yes")
	stopped, conn := s.stream(t, webID)
	until(t, stopped, conn, "hello")
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10) // and nothing more is read
	type client struct {
		r *bufio.Reader
		c net.Conn
	}
	var others []client
	for range 9 {
		r, c := s.stream(t, webID)
		others = append(others, client{r, c})
	}
	piece := []byte(strings.Repeat(strings.Repeat("y", 127)+"\n", 512)) // 64 KiB
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for i := 0; i < 400 && ctx.Err() == nil; i++ {
			s.w.Output(webID, "c", journalStdout, piece)
			time.Sleep(5 * time.Millisecond)
		}
		s.end(webID, "c", 7)
	}()
	began := time.Now()
	for _, o := range others {
		until(t, o.r, o.c, "exit 7")
	}
	if took := time.Since(began); took > writeTime {
		t.Logf("a loaded machine: the others had the end after %s", took)
	}
	s.out(apiID, "x", "still here\n")
	r, c := s.stream(t, apiID) // a new one is served as well
	until(t, r, c, "still here")
}

func TestTooManyPages(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	for range maxStreams {
		r, c := s.stream(t, "")
		until(t, r, c, "hello")
	}
	answer := s.request(t, http.MethodGet, "/api/events", "", []string{"Authorization", "Bearer " + token}, "")
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d; want 503", answer.StatusCode)
	}
}
