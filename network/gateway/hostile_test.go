package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// A request whose end can be read in two ways is refused, or passed on in one way: a request behind it
// never reaches the host as a part of it or unjudged.
func TestRequestsInTwoReadings(t *testing.T) {
	const hidden = "GET /hidden HTTP/1.1\r\nHost: evil.com\r\n\r\n"
	for name, head := range map[string]string{
		"CL.TE":                         fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", len(hidden)+5),
		"TE.CL":                         "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"TE.TE":                         "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"a list of encodings":           "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
		"an unknown encoding":           "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"a space before the colon":      fmt.Sprintf("Transfer-Encoding : chunked\r\nContent-Length: %d\r\n\r\n0\r\n\r\n", len(hidden)+5),
		"a folded line":                 fmt.Sprintf("X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n0\r\n\r\n", len(hidden)+5),
		"a bare CR":                     "X: y\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"a NUL":                         "X: \x00\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a tab before chunked":          "Transfer-Encoding: \tchunked\r\n\r\n0\r\n\r\n",
		"a vertical tab before chunked": "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"a length with a sign":          "Content-Length: +5\r\n\r\n0\r\n\r\n",
		"a length in hex":               "Content-Length: 0x5\r\n\r\n0\r\n\r\n",
		"two lengths in one":            "Content-Length: 5, 50\r\n\r\n0\r\n\r\n",
		"a negative length":             "Content-Length: -1\r\n\r\n",
		"an underscore":                 "Content_Length: 500\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"a chunk of a huge size":        "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nabcde\r\n0\r\n\r\n",
		"a chunk without its line end":  "Transfer-Encoding: chunked\r\n\r\n3\r\nabcX0\r\n\r\n",
		"an extension with a line feed": "Transfer-Encoding: chunked\r\n\r\n0;a=\n\r\n\r\n",
		"a trailer of a length":         "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\nContent-Length: 50\r\n\r\n",
		"lines that end with LF alone":  "Content-Length: 5\nTransfer-Encoding: chunked\n\n0\r\n\r\n",
		"a body behind GET's length":    "Content-Length: 5\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, gateway.Limits{}, "example.com")
			var mu sync.Mutex
			var seen bytes.Buffer // all that the host was sent
			var requests []string // as it reads them
			l.host("example.com", 80, server(t, func(conn *net.TCPConn) {
				defer func() { _ = conn.Close() }()
				in := bufio.NewReader(io.TeeReader(conn, lockedWriter{&mu, &seen}))
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					mu.Lock()
					requests = append(requests, r.Host+r.RequestURI)
					mu.Unlock()
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						return
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}))
			conn := l.connect("example.com", 80)
			_, _ = io.WriteString(conn, "POST /first HTTP/1.1\r\nHost: example.com\r\n"+head+hidden)
			_ = conn.CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
			mu.Lock()
			defer mu.Unlock()
			head, _, _ := strings.Cut(strings.ToLower(seen.String()), "\r\n\r\n")
			lengths := strings.Count(head, "\ncontent-length") + strings.Count(head, "\ntransfer-encoding")
			if len(requests) > 1 || len(requests) == 1 && requests[0] != "example.com/first" || lengths > 1 || strings.Contains(strings.ReplaceAll(head, "\r\n", ""), "\r") {
				t.Errorf("the host reads %q in %q", requests, seen.String())
			}
		})
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// An answer whose end can be read in two ways is passed on in one, or not at all: what follows it is
// never the answer to the next request.
func TestAnswersInTwoReadings(t *testing.T) {
	const behind = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
	for name, answer := range map[string]string{
		"both lengths":             "HTTP/1.1 200 OK\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + behind,
		"two lengths":              "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 50\r\n\r\n" + behind,
		"more than the length":     "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + behind,
		"a body behind 204":        "HTTP/1.1 204 No Content\r\nContent-Length: 50\r\n\r\n" + behind,
		"a body behind 304":        "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n" + behind,
		"an unknown encoding":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n" + behind,
		"a space before the colon": "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\nok" + behind,
		"an informational one":     "HTTP/1.1 103 Early Hints\r\nContent-Length: 50\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + behind,
		"an upgrade not asked for": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + behind,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, gateway.Limits{}, "example.com")
			l.host("example.com", 80, server(t, func(conn *net.TCPConn) {
				defer func() { _ = conn.Close() }()
				for in := bufio.NewReader(conn); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					text := "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue"
					if r.URL.Path == "/first" {
						text = answer
					}
					_, _ = io.WriteString(conn, text)
				}
			}))
			first := l.connect("example.com", 80)
			_, _ = io.WriteString(first, "GET /first HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
			_, _ = io.Copy(io.Discard, first)
			for range 2 {
				if _, body := request(t, l.connect("example.com", 80), "GET /second HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"); body != "true" {
					t.Errorf("the next request's answer is %q; want its own", body)
				}
			}
		})
	}
}

// What is not TLS passes in a tunnel where nothing is read, and is reset where requests are.
func TestPlaintextInTunnel(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/a", "unread.com")
	l.host("example.com", 443, "127.0.0.1:1")
	l.host("unread.com", 443, echo(t))
	for name, want := range map[string]bool{"example.com": false, "unread.com": true} {
		conn, err := l.dial(proxyAddr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "CONNECT %[1]s:443 HTTP/1.1\r\nHost: %[1]s:443\r\n\r\nSSH-2.0-x\r\n", name)
		in := bufio.NewReader(conn)
		if r, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect}); err != nil || r.StatusCode != 200 {
			t.Fatalf("CONNECT: %+v, %v", r, err)
		}
		got, err := in.ReadString('\n')
		if passed := got == "SSH-2.0-x\r\n"; passed != want || !want && (err == nil || errors.Is(err, io.EOF)) {
			t.Errorf("in a tunnel to %s: %q, %v; want that it passes: %t, else a reset", name, got, err, want)
		}
	}
}

// Questions over TCP of every size are answered, or end their connection alone.
func TestQuestionSizes(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "example.com")
	l.host("example.com", 443, "")
	for _, size := range []int{0, 1, 11, 12, 13, 511, 512, 513, 4096, 1<<16 - 1} {
		conn, err := l.dial(netip.MustParseAddrPort("127.0.0.1:53"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		question := bytes.Repeat([]byte{1}, size)
		if size > 2 {
			question[2] = 0
		}
		_, _ = conn.Write(append([]byte{byte(size >> 8), byte(size)}, question...))
		_ = conn.CloseWrite()
		answer, err := io.ReadAll(conn)
		if err != nil || len(answer) > 2 && len(answer) != 2+int(answer[0])<<8+int(answer[1]) {
			t.Errorf("%d bytes: the answer %x, %v", size, answer, err)
		}
		_ = conn.Close()
		if got := l.address("example.com"); !got.IsValid() {
			t.Errorf("after %d bytes no name is known", size)
		}
	}
}

// One connection of HTTP/2 carries requests for one host, whatever certificate it has seen.
func TestHTTP2Names(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/a", "GET other.com/a")
	l.serve("example.com", tells)
	l.serve("other.com", tells)
	client := l.client(true)
	for _, tt := range []struct {
		host string
		want int
	}{{"example.com", 200}, {"other.com", 421}, {"example.com:443", 200}, {"example.com:8443", 421}, {"EXAMPLE.com.", 200}, {"evil.com", 421}, {"example.com", 200}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tt.host
		res, err := client.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", tt.host, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != tt.want || res.ProtoMajor != 2 {
			t.Errorf(":authority %s: %s over %s; want %d over HTTP/2", tt.host, res.Status, res.Proto, tt.want)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.dialled {
		if at != "example.com:443" {
			t.Errorf("%s was dialled", at)
		}
	}
}

// framer speaks HTTP/2 with the gateway, as a client that keeps to no rule.
func (l *secureLab) framer() (net.Conn, *http2.Framer) {
	l.t.Helper()
	conn := l.secure("example.com", 443, "example.com", "h2")
	l.t.Cleanup(func() { _ = conn.Close() })
	f := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		l.t.Fatal(err)
	}
	if err := f.WriteSettings(); err != nil {
		l.t.Fatal(err)
	}
	return conn, f
}

func headers(path string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "example.com"}, {":path", path}} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	return b.Bytes()
}

// Streams that are opened and reset at once (CVE-2023-44487) keep at most as many requests under way as
// a connection may have, and others are served next to them.
func TestHTTP2RapidReset(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/*")
	var running atomic.Int64
	var mu sync.Mutex
	var most int64 // guarded by mu
	release := make(chan struct{})
	l.serve("example.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			fmt.Fprint(w, "served")
			return
		}
		n := running.Add(1)
		defer running.Add(-1)
		mu.Lock()
		most = max(most, n)
		mu.Unlock()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer close(release)
	conn, f := l.framer()
	var answers sync.WaitGroup
	answers.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	sent := 0
	for id := uint32(1); sent < 20000; id += 2 {
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers("/held"), EndHeaders: true, EndStream: true}); err != nil {
			break
		}
		if err := f.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
			break
		}
		sent++
	}
	if r, body := request(t, l.secure("example.com", 443, "example.com"), "GET /other HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"); r.StatusCode != 200 || body != "served" {
		t.Errorf("another client meanwhile: %s %q", r.Status, body)
	}
	_ = conn.Close()
	answers.Wait()
	mu.Lock()
	defer mu.Unlock()
	if most > 100 {
		t.Errorf("the host had %d requests at once after %d resets; want 100 at most", most, sent)
	}
}

// A header that never ends (CVE-2023-45288) ends its connection after a bounded number of bytes.
func TestHTTP2Continuation(t *testing.T) {
	l := newSecureLab(t, nil, "GET example.com/*")
	l.serve("example.com", tells)
	conn, f := l.framer()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, conn)
	}()
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers("/a"), EndStream: true}); err != nil {
		t.Fatal(err)
	}
	var junk bytes.Buffer
	e := hpack.NewEncoder(&junk)
	for i := range 100 {
		_ = e.WriteField(hpack.HeaderField{Name: fmt.Sprintf("x-%d", i), Value: strings.Repeat("x", 100), Sensitive: true})
	}
	const most = 64 << 20
	sent := 0
	for sent < most {
		if err := f.WriteContinuation(1, false, junk.Bytes()); err != nil {
			break
		}
		sent += junk.Len()
	}
	if sent >= most {
		t.Errorf("%d bytes of one header were taken", sent)
	}
	<-ended
	if r, body := request(t, l.secure("example.com", 443, "example.com"), "GET /a HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"); r.StatusCode != 200 {
		t.Errorf("afterwards: %s %q", r.Status, body)
	}
}

// HTTP/2 does not offer WebSockets, whose frames would be in its own.
func TestSecretWebSocketHTTP2(t *testing.T) {
	l := newSecretLab(t, []string{"api.example.com/v1/*"}, "api.example.com")
	l.serve("api.example.com", http.NotFoundHandler())
	conn := l.secure("api.example.com", 443, "api.example.com", "h2")
	settings := make(chan bool, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		defer close(settings)
		f := http2.NewFramer(conn, conn)
		_, _ = io.WriteString(conn, http2.ClientPreface)
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if s, ok := frame.(*http2.SettingsFrame); ok && !s.IsAck() {
				v, has := s.Value(http2.SettingEnableConnectProtocol)
				settings <- has && v != 0
				return
			}
		}
	}()
	select {
	case offered := <-settings:
		if offered {
			t.Error("HTTP/2 offers WebSockets")
		}
	case <-ctx.Done():
		t.Error("no settings")
	}
	_ = conn.Close()
}
