package docker

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/docker/cli/cli/connhelper"
)

// sshError is what happened to a connection to an engine behind ssh.
type sshError struct {
	command string // shows the user whether ssh and docker work there
	err     error
}

func (e *sshError) Error() string { return e.err.Error() }

func (e *sshError) Unwrap() error { return e.err }

// sshDialer makes connections to an engine behind ssh. Each is an ssh process of its own, as those of the docker command
// are, and ends with this process.
type sshDialer struct {
	helper *connhelper.ConnectionHelper

	mu   sync.Mutex
	last error // guarded by mu; what ssh has said of the newest connection that broke
}

func (d *sshDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.helper.Dialer(ctx, network, address)
	if err != nil {
		return nil, d.note(err)
	}
	return &sshConn{Conn: conn, dialer: d}, nil
}

func (d *sshDialer) note(err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.last = err
	}
	return err
}

// explain adds to err, which a request to the engine at address has met, what ssh has said and what to try by hand.
func (d *sshDialer) explain(address string, err error) error {
	u, wrong := url.Parse(address)
	if wrong != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil { // the Docker client leaves it out of some of its errors
		err = errors.New(strings.TrimSpace(d.last.Error()))
	}
	command := []string{"ssh"}
	if u.Port() != "" {
		command = append(command, "-p", u.Port())
	}
	host := u.Hostname()
	if u.User != nil {
		host = u.User.Username() + "@" + host
	}
	command = append(command, host, "docker")
	if strings.Trim(u.Path, "/") != "" {
		command = append(command, "--host=unix://"+u.Path)
	}
	return &sshError{command: strings.Join(append(command, "version"), " "), err: err}
}

// sshConn is a connection through the pipes of an ssh process, which have no deadlines.
type sshConn struct {
	net.Conn
	dialer *sshDialer
}

func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.dialer.note(err)
}

func (c *sshConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.dialer.note(err)
}

// SetDeadline ends the connection if t has passed: that is all that this package asks of a deadline. Another t is
// without effect.
func (c *sshConn) SetDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(time.Now()) {
		return c.Close()
	}
	return nil
}

// CloseWrite ends the input of the exec at the other end.
func (c *sshConn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite()
}
