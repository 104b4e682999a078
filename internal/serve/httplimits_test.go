package serve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestHTTPMemory sends bodies that are too long, many at once.
func TestHTTPMemory(t *testing.T) { //nolint:paralleltest // it looks at the memory of the process
	s := startHTTP(t, nil)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		s.ask(t, httpRequest{headers: []string{"Content-Length: 1000000000"}, body: strings.Repeat("[", maxBody+1)})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+16<<20 {
		t.Errorf("%d MiB are kept", (after.HeapAlloc-before.HeapAlloc)>>20)
	}
}

// TestHTTPSlow leaves connections open that send nothing, or little: they end, and
// other clients are served meanwhile.
func TestHTTPSlow(t *testing.T) {
	t.Parallel()
	s := startHTTP(t, nil)
	c := s.client(t)
	c.call(t, "bash", map[string]any{"command": "echo"})
	var slow []net.Conn
	for i := range maxConns / 2 {
		conn := s.dial(t)
		t.Cleanup(func() { conn.Close() })
		if i%2 == 0 {
			_, _ = io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: ")
		}
		slow = append(slow, conn)
	}
	if text, _ := c.call(t, "bash", map[string]any{"command": "echo heard"}); text != "heard" {
		t.Errorf("a client along with them: %q", text)
	}
	for i, conn := range slow {
		_ = conn.SetReadDeadline(time.Now().Add(headTime + patience))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is still open", i)
		}
	}
	_ = c.Close()
}

// TestHTTPUnknown has many clients that do not show the token: they say nothing, or
// a part of a request, or one without the token whose body does not come. None of
// them delays one that has it.
func TestHTTPUnknown(t *testing.T) {
	t.Parallel()
	s := startHTTP(t, nil)
	for i := range 2*maxConns + 100 {
		conn := s.dial(t)
		t.Cleanup(func() { conn.Close() })
		switch i % 3 {
		case 1:
			_, _ = io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: ")
		case 2:
			_, _ = io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
		}
		if i%100 == 50 || i == 2*maxConns+99 {
			if status, _, body := s.ask(t, httpRequest{body: helloMCP}); status != 200 {
				t.Fatalf("along with %d of them: status %d %q", i+1, status, body)
			}
		}
	}
}

// TestHTTPConnections opens more connections that show the token than there may be.
func TestHTTPConnections(t *testing.T) {
	t.Parallel()
	l := &limitedListener{Listener: &manyConns{}}
	var all []*limitedConn
	for range maxConns + maxUnknown + 1 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c.(*limitedConn))
		if len(all) <= maxConns && !all[len(all)-1].trust() {
			t.Fatalf("connection %d is one too many", len(all))
		}
	}
	if last := all[len(all)-1]; last.trust() || last.closed {
		t.Error("a connection too many is trusted, or closed before it got an answer")
	}
	if oldest := all[maxConns]; !oldest.closed {
		t.Error("the oldest unknown connection is not closed for a new one")
	}
	_ = all[0].Close()
	_ = all[0].Close() // counted once
	if last := all[len(all)-1]; !last.trust() {
		t.Error("there is no room where a connection was closed")
	}
	if another := all[len(all)-2]; another.trust() {
		t.Error("a connection that was closed twice made room twice")
	}
}

// manyConns accepts as many connections as are asked for.
type manyConns struct{ net.Listener }

func (m *manyConns) Accept() (net.Conn, error) {
	c, _ := net.Pipe()
	return c, nil
}

// TestHTTPTooManyClients begins more sessions of the protocol than there may be.
func TestHTTPTooManyClients(t *testing.T) {
	t.Parallel()
	s := startHTTP(t, nil)
	for i := range maxClients {
		if status, _, body := s.ask(t, httpRequest{body: helloMCP}); status != 200 {
			t.Fatalf("client %d: status %d %q", i, status, body)
		}
	}
	if status, _, _ := s.ask(t, httpRequest{body: helloMCP}); status != 503 {
		t.Errorf("one client too many: status %d", status)
	}
	if n := len(s.host.started); n != 0 {
		t.Errorf("%d sessions were started for clients that call nothing", n)
	}
}

// TestHTTPUnread has a client that reads nothing of a stream that says much. Its
// command ends when its session does.
func TestHTTPUnread(t *testing.T) {
	t.Parallel()
	s := startHTTP(t, nil)
	_, header, _ := s.ask(t, httpRequest{body: helloMCP})
	id := "Mcp-Session-Id: " + header.Get("Mcp-Session-Id")
	conn := s.dial(t)
	defer conn.Close()
	body := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"command":"spam"},"_meta":{"progressToken":1}}}`
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%s\r\nContent-Length: %d\r\n\r\n%s",
		testToken, id, len(body), body)
	s.host.session(t, 0).runs(t, 1)
	if status, _, text := s.ask(t, httpRequest{method: "DELETE", headers: []string{id}}); status != 204 {
		t.Errorf("the end of the session: status %d %q", status, text)
	}
	if state := s.host.session(t, 0).state(); state.running != 0 || !state.stopped {
		t.Errorf("the session: %+v", state)
	}
}
