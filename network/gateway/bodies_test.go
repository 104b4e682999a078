package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// serveHTTP starts a server of plain HTTP for example.com.
func (l *lab) serveHTTP(handler http.HandlerFunc) {
	l.t.Helper()
	upstream := httptest.NewServer(handler)
	l.t.Cleanup(upstream.Close)
	l.host("example.com", 80, upstream.Listener.Addr().String())
}

// TestBodyStops: a request whose body breaks off does not look whole to the host, whatever says its length.
func TestBodyStops(t *testing.T) {
	for name, text := range map[string]string{
		"a length":          "Content-Length: 10\r\n\r\nabc",
		"chunks":            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"half a chunk":      "Transfer-Encoding: chunked\r\n\r\na\r\nabc",
		"no end of trailer": "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, gateway.Limits{}, "example.com")
			type read struct {
				body string
				err  error
			}
			reads := make(chan read, 1)
			begun := make(chan bool, 1)
			l.serveHTTP(func(_ http.ResponseWriter, r *http.Request) {
				begun <- true
				body, err := io.ReadAll(r.Body)
				reads <- read{string(body), err}
			})
			conn := l.connect("example.com", 80)
			fmt.Fprintf(conn, "POST /up HTTP/1.1\r\nHost: example.com\r\n%s", text)
			<-begun
			_ = conn.Close()
			if got := <-reads; got.err == nil {
				t.Errorf("the host read %q and no error; want that the body is cut", got.body)
			}
			if r := l.recorded(func(r gateway.Record) bool { return r.Path == "/up" }); !r.Allowed || r.Sent != 3 {
				t.Errorf("recorded as %+v; want 3 bytes sent", r)
			}
		})
	}
}

// TestEarlyAnswer: an answer that comes while the body is still on its way reaches the session.
func TestEarlyAnswer(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	l.serveHTTP(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		http.Error(w, "too large for me", http.StatusRequestEntityTooLarge)
	})
	conn := l.connect("example.com", 80)
	r, body := request(t, conn, "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1000000\r\n\r\nabc")
	if r.StatusCode != http.StatusRequestEntityTooLarge || body != "too large for me\n" {
		t.Errorf("the answer is %s %q; want the host's", r.Status, body)
	}
}

// TestSlowBody: bytes of a body arrive at the host when they are sent, and those of an answer in the session.
func TestSlowBody(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	l.serveHTTP(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "heard "+line)
			_ = control.Flush()
		}
	})
	conn := l.connect("example.com", 80)
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	answer := bufio.NewReader(r.Body)
	for _, next := range []string{"two", "six", ""} {
		line, err := answer.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "heard ") {
			t.Fatalf("%q, %v; want what was heard", line, err)
		}
		if next != "" {
			fmt.Fprintf(conn, "4\r\n%s\n\r\n", next)
		}
	}
	fmt.Fprint(conn, "0\r\n\r\n")
	if rest, err := io.ReadAll(answer); err != nil || len(rest) > 0 {
		t.Errorf("at the end: %q, %v", rest, err)
	}
}

// TestAnswerStops: an answer that breaks off does not look whole to the session, and is recorded.
func TestAnswerStops(t *testing.T) {
	for name, text := range map[string]string{
		"a length":       "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		"chunks":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"no chunk":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
		"half a header":  "HTTP/1.1 200 OK\r\nContent-Le",
		"another thing":  "220 mail.example ESMTP\r\n",
		"nothing":        "",
		"a long header":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 300<<10) + "\r\n\r\n",
		"two lengths":    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		"an odd upgrade": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nabc",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, gateway.Limits{}, "example.com")
			l.host("example.com", 80, rawAnswer(t, text))
			conn := l.connect("example.com", 80)
			fmt.Fprint(conn, "GET /down HTTP/1.1\r\nHost: example.com\r\n\r\n")
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				body, readErr := io.ReadAll(r.Body)
				_ = r.Body.Close()
				if r.StatusCode != http.StatusBadGateway && readErr == nil {
					t.Errorf("the answer is %s %q, and looks whole", r.Status, body)
				}
				if strings.Contains(string(body), "127.0.0.1") {
					t.Errorf("%q names an address of this machine", body)
				}
			}
			l.recorded(func(r gateway.Record) bool { return r.Path == "/down" && r.Allowed })
		})
	}
}

// rawAnswer is a server that reads a request and sends bytes, whatever they are.
func rawAnswer(t *testing.T, text string) string {
	t.Helper()
	return server(t, func(conn *net.TCPConn) {
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_, _ = io.WriteString(conn, text)
		_ = conn.CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	})
}

// TestSmuggledInHeaders: a request whose end, host or header lines can be read in two ways carries no
// second request to a host, and none to a host that it does not name.
func TestSmuggledInHeaders(t *testing.T) {
	const hidden = "GET /hidden HTTP/1.1\r\nHost: evil.com\r\n\r\n"
	for _, c := range []struct{ name, request string }{
		{"a space before the colon", "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length : 0\r\n\r\n" + hidden},
		{"a length with a sign", "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: +0\r\n\r\n" + hidden},
		{"a length in other digits", "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0x0\r\n\r\n" + hidden},
		{"lengths in a list", "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0, 44\r\n\r\n" + hidden},
		{"an encoding that is almost chunked", "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden},
		{"chunked, and another encoding", "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden},
		{"chunked twice", "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden},
		{"a folded line", "POST / HTTP/1.1\r\nHost: example.com\r\nX: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + hidden},
		{"a line end of one byte", "POST / HTTP/1.1\r\nHost: example.com\r\nX: y\rTransfer-Encoding: chunked\r\n\r\n" + hidden},
		{"NUL in a header", "POST / HTTP/1.1\r\nHost: example.com\r\nX: \x00\r\n\r\n" + hidden},
		{"NUL in the host", "GET / HTTP/1.1\r\nHost: example.com\x00.evil.com\r\n\r\n" + hidden},
		{"a chunk's size with a sign", "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + hidden},
		{"a chunk's size too large", "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n" + hidden},
		{"HTTP/1.0 with chunks", "POST / HTTP/1.0\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden},
		{"a user before the host", "GET http://example.com@evil.com/hidden HTTP/1.1\r\nHost: example.com\r\n\r\n"},
		{"a body for GET", "GET / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 44\r\n\r\n" + hidden},
		{"the next request, for another host", "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n" + hidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, gateway.Limits{}, "example.com")
			var mu sync.Mutex
			var seen []string
			l.serveHTTP(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, r.Method+" "+r.Host+r.RequestURI)
			})
			conn := l.connect("example.com", 80)
			_, _ = io.WriteString(conn, c.request)
			_ = conn.CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			if answers, err := io.ReadAll(conn); errors.Is(err, io.ErrNoProgress) || len(answers) == 0 {
				t.Errorf("it is answered with %q, %v; want a response", answers, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, s := range seen {
				if strings.Contains(s, "hidden") || strings.Contains(s, "evil") {
					t.Errorf("the host was asked %q", s)
				}
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, at := range l.dialled {
				if at != "example.com:80" {
					t.Errorf("%s was dialled", at)
				}
			}
		})
	}
}
