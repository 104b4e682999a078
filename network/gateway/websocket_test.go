package gateway_test

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// A WebSocket to a host of a secret is opened with the value. What the server says is masked, what the client
// says is not changed.
func TestSecretWebSocket(t *testing.T) {
	t.Parallel()
	l := newSecretLab(t, []string{"api.example.com/v1/*"}, "api.example.com")
	l.serve("api.example.com", websocket.Server{Handler: func(ws *websocket.Conn) {
		header := ws.Request().Header
		_ = websocket.Message.Send(ws, fmt.Sprintf("hello %s %s", header.Get("Authorization"), header.Values("Sec-Websocket-Extensions")))
		for message := ""; websocket.Message.Receive(ws, &message) == nil; {
			if message == "bye" {
				return // with a close frame
			}
			_ = websocket.Message.Send(ws, message+" "+secretValue)
			_ = websocket.Message.Send(ws, []byte("\x00"+secretValue))
		}
	}})
	config, err := websocket.NewConfig("wss://api.example.com/v1/ws", "https://api.example.com")
	if err != nil {
		t.Fatal(err)
	}
	config.Header = http.Header{"Authorization": {"Bearer " + secretPlaceholder}, "Sec-Websocket-Extensions": {"permessage-deflate; client_max_window_bits"}}
	conn := l.secure("api.example.com", 443, "api.example.com")
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	ws, err := websocket.NewClient(config, conn)
	if err != nil {
		t.Fatal(err)
	}
	hear := func(want string) {
		t.Helper()
		message := ""
		if err := websocket.Message.Receive(ws, &message); err != nil || message != want {
			t.Errorf("the client hears %.100q, %v; want %.100q", message, err, want)
		}
	}
	hear("hello Bearer [REDACTED:TOKEN] []")
	for _, text := range []string{"one", strings.Repeat("long", 15<<10), secretPlaceholder} {
		if err := websocket.Message.Send(ws, text); err != nil {
			t.Fatal(err)
		}
		hear(text + " [REDACTED:TOKEN]")
		hear("\x00[REDACTED:TOKEN]")
	}
	if err := websocket.Message.Send(ws, "bye"); err != nil {
		t.Fatal(err)
	}
	message := ""
	if err := websocket.Message.Receive(ws, &message); !errors.Is(err, io.EOF) {
		t.Errorf("after the server has closed it, the client hears %.100q, %v; want the end", message, err)
	}
	_ = ws.Close()
	record := l.recorded(func(r gateway.Record) bool { return r.Status == http.StatusSwitchingProtocols })
	if record.Err != "" || len(record.Secrets) != 1 || record.Received < 60<<10 || strings.Contains(fmt.Sprint(record), "hunter2") {
		t.Errorf("record %+v; want the secret's name, and the bytes", record)
	}
}

// A server that sends what is not a frame, in the middle of a connection, is cut off: the session is told why,
// and so is the record.
func TestSecretWebSocketBroken(t *testing.T) {
	t.Parallel()
	l := newSecretLab(t, []string{"api.example.com"}, "api.example.com")
	closed := make(chan error, 1)
	l.serve("api.example.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		extensions := ""
		if r.URL.Path == "/deflate" {
			extensions = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
		}
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%sSec-WebSocket-Accept: %s\r\n\r\n", extensions, base64.StdEncoding.EncodeToString(sum[:]))
		_, _ = io.WriteString(conn, "\x81\x02ok\xc1\x11"+secretValue) // the second is compressed, if it is anything
		_, err = buf.ReadByte()
		closed <- err
	}))
	head := "Host: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: " + secretPlaceholder + "\r\n\r\n"
	conn := l.secure("api.example.com", 443, "api.example.com")
	if _, err := io.WriteString(conn, "GET /ws HTTP/1.1\r\n"+head); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if r, err := http.ReadResponse(in, nil); err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", r, err)
	}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	got, _ := io.ReadAll(in)
	const why = "secrets cannot be masked in a WebSocket: the server uses an extension, which was not agreed on"
	if want := "\x81\x02ok\x88" + string(rune(len(why)+15)) + "\x03\xeasandboxbash: " + why; string(got) != want {
		t.Errorf("the session reads %q; want %q", got, want)
	}
	if err := <-closed; err == nil {
		t.Error("the server's connection stays open")
	}
	if record := l.recorded(func(r gateway.Record) bool { return r.Status == http.StatusSwitchingProtocols }); record.Err != why {
		t.Errorf("record %+v; want why it was cut", record)
	}
	r, body := request(t, l.secure("api.example.com", 443, "api.example.com"), "GET /deflate HTTP/1.1\r\n"+head)
	if r.StatusCode != http.StatusBadGateway || !strings.Contains(body, "an extension of WebSocket") || strings.Contains(body, "hunter2") {
		t.Errorf("an extension that was not asked for: %s %q; want 502 and why", r.Status, body)
	}
}

// What is not WebSocket, or asks for it in a form of its own, is refused before the host is asked.
func TestSecretUpgradeRefused(t *testing.T) {
	t.Parallel()
	l := newSecretLab(t, []string{"api.example.com/v1/*"}, "api.example.com")
	var asked atomic.Int64
	l.serve("api.example.com", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	for name, lines := range map[string]string{
		"no key":         "GET /ws HTTP/1.1\r\nSec-WebSocket-Version: 13\r\n",
		"an old version": "GET /ws HTTP/1.1\r\nSec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
		"POST":           "POST /ws HTTP/1.1\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
	} {
		r, body := request(t, l.secure("api.example.com", 443, "api.example.com"), lines+"Host: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: "+secretPlaceholder+"\r\n\r\n")
		if r.StatusCode != http.StatusNotImplemented || !strings.Contains(body, "no other protocol than WebSocket") {
			t.Errorf("%s: %s %q; want 501 and why", name, r.Status, body)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the host was asked %d times", n)
	}
	l.recorded(func(r gateway.Record) bool { return strings.Contains(r.Err, "no other protocol") })
}

// The value may be in the query of the address, and the host's own origin goes out as it came.
func TestSecretWebSocketQuery(t *testing.T) {
	t.Parallel()
	l := newSecretLab(t, []string{"api.example.com"}, "api.example.com")
	seen := make(chan *http.Request, 1)
	l.serve("api.example.com", websocket.Server{Handler: func(ws *websocket.Conn) { seen <- ws.Request() }})
	config, err := websocket.NewConfig("wss://api.example.com/?key="+secretPlaceholder, "https://api.example.com")
	if err != nil {
		t.Fatal(err)
	}
	ws, err := websocket.NewClient(config, l.secure("api.example.com", 443, "api.example.com"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.Close() }()
	if r := <-seen; r.URL.RawQuery != "key="+url.QueryEscape(secretValue) || r.Header.Get("Origin") != "https://api.example.com" {
		t.Errorf("the host saw %s, %v", r.URL, r.Header)
	}
}
