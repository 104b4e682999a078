//go:build unix

package holder_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
)

func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// echo answers each line with itself.
func echo(_ context.Context, in io.Reader, out io.Writer) error {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		fmt.Fprintln(out, lines.Text())
	}
	return nil
}

// A socket is found by its name from Publish to Close, by this user only.
func TestListener(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	if err := os.WriteFile(filepath.Join(dir, "a"+holder.NewSuffix), nil, 0o600); err != nil { // of one that was killed
		t.Fatal(err)
	}
	l, err := holder.Listen(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a"+holder.SocketSuffix)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) || l.Removed() {
		t.Errorf("before Publish: %v, Removed() = %t; want a socket under another name", err, l.Removed())
	}
	if err := l.Publish(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("after Publish: %v, %v; want a socket with mode 0600", info, err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		l.Accept(t.Context(), echo)
	}()
	conn := dial(t, path)
	fmt.Fprintln(conn, "hello")
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "hello\n" || err != nil {
		t.Errorf("the holder answers %q, %v", line, err)
	}
	if err := os.Remove(path); err != nil || !l.Removed() {
		t.Errorf("Removed() = %t after its removal, %v; want true", l.Removed(), err)
	}
	l.Close()
	l.Close() // does nothing
	select {
	case <-served:
		t.Error("Accept has returned before its client has gone")
	default:
	}
	_ = conn.Close()
	<-served
}

// Close leaves a socket that another holder has made under the same name since.
func TestListenerLeavesOthers(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	l, err := holder.Listen(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Publish(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	next, err := holder.Listen(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := next.Publish(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if next.Removed() {
		t.Error("a second Close has removed the socket of the next holder")
	}
}

// More clients than a holder takes are turned away, and a slot is free again once its client has gone.
func TestListenerIsFull(t *testing.T) {
	t.Parallel()
	dir := clitest.SocketDir(t)
	l, err := holder.Listen(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Publish(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{}, holder.MaxClients)
	served := make(chan struct{})
	go func() {
		defer close(served)
		l.Accept(t.Context(), func(ctx context.Context, in io.Reader, out io.Writer) error {
			defer func() { gone <- struct{}{} }()
			return echo(ctx, in, out)
		})
	}()
	path := filepath.Join(dir, "a"+holder.SocketSuffix)
	var conns []net.Conn
	for range holder.MaxClients {
		conn := dial(t, path)
		fmt.Fprintln(conn, "hello")
		if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	if n, err := dial(t, path).Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("one more client reads %d bytes, %v; want that it is turned away", n, err)
	}
	_ = conns[0].Close()
	<-gone
	for { // the slot is free a moment after the client's end
		conn := dial(t, path)
		fmt.Fprintln(conn, "hello")
		if line, _ := bufio.NewReader(conn).ReadString('\n'); line == "hello\n" {
			_ = conn.Close()
			break
		}
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	l.Close()
	<-served
}
