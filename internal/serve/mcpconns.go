package serve

import (
	"crypto/tls"
	"net"
	"slices"
	"sync"
)

// connKey is the key of the connection in a request's context.
type connKey struct{}

// bare returns the connection that a TLS connection runs over.
func bare(c net.Conn) net.Conn {
	if secure, ok := c.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return c
}

// limitedListener accepts every connection and keeps a limited number. When there are too
// many that have not shown the token yet, it closes the oldest of them for a new one, so
// that slow or silent clients do not delay others.
type limitedListener struct {
	net.Listener

	mu      sync.Mutex
	unknown []*limitedConn // guarded by mu; the oldest first
	trusted int            // guarded by mu
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	made := &limitedConn{Conn: c, of: l}
	if oldest := l.add(made); oldest != nil {
		_ = oldest.Close() // its client has not shown the token
	}
	return made, nil
}

// add counts a new connection, and returns the one to close for it, or nil.
func (l *limitedListener) add(c *limitedConn) (oldest *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unknown) >= maxUnknown {
		oldest = l.unknown[0]
	}
	l.unknown = append(l.unknown, c)
	return oldest
}

// limitedConn is a connection that is counted.
type limitedConn struct {
	net.Conn
	of      *limitedListener
	trusted bool // guarded by of.mu; it has shown the token
	closed  bool // guarded by of.mu
}

// trust notes that the connection has shown the token. It reports false if there
// are too many of those.
func (c *limitedConn) trust() bool {
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.trusted || c.closed:
		return true
	case l.trusted >= maxConns:
		return false
	}
	l.forget(c)
	c.trusted = true
	l.trusted++
	return true
}

// forget removes a connection from those without the token. It needs mu.
func (l *limitedListener) forget(c *limitedConn) {
	if i := slices.Index(l.unknown, c); i >= 0 {
		l.unknown = slices.Delete(l.unknown, i, i+1)
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	l := c.of
	l.mu.Lock()
	if !c.closed {
		c.closed = true
		if c.trusted {
			l.trusted--
		} else {
			l.forget(c)
		}
	}
	l.mu.Unlock()
	return c.Conn.Close()
}
