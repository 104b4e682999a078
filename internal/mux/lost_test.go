package mux

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// The end of the connection between host and runner is not the end of a stream's data: what
// Join has given a program must not look whole.
func TestJoinLost(t *testing.T) {
	t.Parallel()
	h, r := pair(t, Options{}, Options{})
	host, runner := streams(t, h, r)
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var d net.Dialer
	program, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	joined := make(chan error, 1)
	go func() {
		_, _, err := Join(host, conn.(*net.TCPConn))
		joined <- err
	}()
	if _, err := io.WriteString(runner, "half"); err != nil {
		t.Fatal(err)
	}
	_ = program.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(program, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	_ = r.Close() // as when the runner is killed: the host reads EOF
	if n, err := program.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read() = %d, %v; want a reset", n, err)
	}
	if err := <-joined; !errors.Is(err, ErrLost) || errors.Is(err, io.EOF) {
		t.Errorf("Join() = %v; want ErrLost, and no EOF", err)
	}
	if err := h.Err(); !errors.Is(err, io.EOF) {
		t.Errorf("Err() = %v; want EOF", err)
	}
}
