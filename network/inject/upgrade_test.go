package inject

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const (
	handshakeKey    = "dGhlIHNhbXBsZSBub25jZQ==" // of RFC 6455, section 1.3, as its answer
	handshakeAccept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
)

// handshake is a request of a WebSocket client.
func handshake() *http.Request {
	return &http.Request{Method: "GET", URL: &url.URL{Scheme: "https", Path: "/v1"}, Header: http.Header{
		"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {handshakeKey},
		"Sec-Websocket-Extensions": {"permessage-deflate"}, "Sec-Websocket-Protocol": {"chat, " + placeholder}, "Authorization": {"Bearer " + placeholder},
	}}
}

func TestOutgoingUpgrade(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	r := handshake()
	used, err := set.Outgoing(r, "api.example.com", 443)
	if err != nil || len(used) != 1 {
		t.Errorf("Outgoing() = %v, %v; want TOKEN", used, err)
	}
	for name, want := range map[string]string{
		"Upgrade": "websocket", "Connection": "Upgrade", "Sec-Websocket-Key": handshakeKey, "Sec-Websocket-Version": "13", "Authorization": "Bearer " + value,
		"Sec-Websocket-Extensions": "", "Sec-Websocket-Protocol": "chat, " + placeholder,
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %s goes out; want %s", name, got, want)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(r *http.Request)
		host   string
		want   error
	}{
		{"in other letters", func(r *http.Request) { r.Header.Set("Upgrade", "WebSocket") }, "api.example.com", nil},
		{"h2c, which is removed", func(r *http.Request) { r.Header.Set("Upgrade", "h2c") }, "api.example.com", nil},
		{"two", func(r *http.Request) { r.Header.Add("Upgrade", "h2c") }, "api.example.com", ErrUpgrade},
		{"two in one", func(r *http.Request) { r.Header.Set("Upgrade", "websocket, h2c") }, "api.example.com", ErrUpgrade},
		{"another protocol", func(r *http.Request) { r.Header.Set("Upgrade", "tcp") }, "api.example.com", ErrUpgrade},
		{"POST", func(r *http.Request) { r.Method = "POST" }, "api.example.com", ErrUpgrade},
		{"a body", func(r *http.Request) { r.ContentLength = 3 }, "api.example.com", ErrUpgrade},
		{"a body of any length", func(r *http.Request) { r.ContentLength = -1 }, "api.example.com", ErrUpgrade},
		{"no key", func(r *http.Request) { r.Header.Del("Sec-WebSocket-Key") }, "api.example.com", ErrUpgrade},
		{"a short key", func(r *http.Request) { r.Header.Set("Sec-WebSocket-Key", "dGhl") }, "api.example.com", ErrUpgrade},
		{"two keys", func(r *http.Request) { r.Header.Add("Sec-WebSocket-Key", handshakeKey) }, "api.example.com", ErrUpgrade},
		{"an old version", func(r *http.Request) { r.Header.Set("Sec-WebSocket-Version", "8") }, "api.example.com", ErrUpgrade},
		{"a host of no secret", func(r *http.Request) { r.Header.Set("Upgrade", "tcp") }, "evil.example", nil},
	} {
		r := handshake()
		tt.change(r)
		if _, err := set.Outgoing(r, tt.host, 443); !errors.Is(err, tt.want) {
			t.Errorf("%s: Outgoing() = %v; want %v", tt.name, err, tt.want)
		}
		if got := r.Header.Get("Upgrade"); got == "h2c" {
			t.Errorf("%s: Upgrade: %s goes out", tt.name, got)
		}
	}
}

func TestIncomingUpgrade(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	for _, tt := range []struct {
		name   string
		change func(r *http.Response)
		want   string // of the error
	}{
		{"as it should be", func(*http.Response) {}, ""},
		{"another protocol", func(r *http.Response) { r.Header.Set("Upgrade", "h2c") }, "not asked for"},
		{"not asked for", func(r *http.Response) { r.Request.Header.Del("Upgrade") }, "not asked for"},
		{"of no request", func(r *http.Response) { r.Request = nil }, "not asked for"},
		{"another key", func(r *http.Response) { r.Header.Set("Sec-Websocket-Accept", handshakeKey) }, "does not accept"},
		{"no key", func(r *http.Response) { r.Header.Del("Sec-Websocket-Accept") }, "does not accept"},
		{"an extension", func(r *http.Response) { r.Header.Set("Sec-Websocket-Extensions", "permessage-deflate") }, "an extension"},
		{"nothing to write to", func(r *http.Response) { r.Body = io.NopCloser(r.Body) }, "cannot be written"},
	} {
		request := handshake()
		if _, err := set.Outgoing(request, "api.example.com", 443); err != nil {
			t.Fatal(err)
		}
		server := &socket{Reader: strings.NewReader(serverFrame(text1, value))}
		r := &http.Response{StatusCode: 101, Header: http.Header{
			"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Accept": {handshakeAccept}, "X-Echo": {value},
		}, Request: request, Body: server}
		tt.change(r)
		err := set.Incoming(r)
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: Incoming() = %v; want %q", tt.name, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		if want := serverFrame(text1, "[REDACTED:TOKEN]"); err != nil || string(got) != want || r.Header.Get("X-Echo") != "[REDACTED:TOKEN]" {
			t.Errorf("%s: %q, %v, header %v; want %q", tt.name, got, err, r.Header, want)
		}
		if _, err := io.WriteString(r.Body.(io.Writer), "out"); err != nil || server.sent.String() != "out" {
			t.Errorf("the server gets %q, %v", server.sent.String(), err)
		}
	}
}

// A client that has upgraded through a proxy reads masked frames, and what it sends reaches the server.
func TestUpgradeThroughProxy(t *testing.T) {
	t.Parallel()
	client, at := proxied(t, newSet(t), "api.example.com", false, func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "+handshakeAccept+"\r\n\r\n")
		line, _ := buf.ReadString('\n')
		_, _ = io.WriteString(conn, serverFrame(text1, line+r.Header.Get("Authorization"))+serverFrame(bye, ""))
	})
	r := handshake().WithContext(t.Context())
	r.URL, _ = url.Parse(at + "/v1")
	res, err := client.Do(r)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", res, err)
	}
	defer res.Body.Close()
	if _, err := io.WriteString(res.Body.(io.Writer), "hello\n"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(bufio.NewReader(res.Body))
	if want := serverFrame(text1, "hello\nBearer [REDACTED:TOKEN]") + serverFrame(bye, ""); !bytes.Equal(got, []byte(want)) {
		t.Errorf("the client reads %q, %v; want %q", got, err, want)
	}
}
