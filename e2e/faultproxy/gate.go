package faultproxy

import (
	"net"
	"sync"
)

// gate holds up all connections while it is shut. The zero gate is open.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // guarded by mu; closed by lift; nil: the gate is open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// wait returns when the gate is open, or when stop is closed.
func (g *gate) wait(stop <-chan struct{}) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return
	}
	select {
	case <-open:
	case <-stop:
	}
}

// gatedListener takes connections that pass the proxy's gate.
type gatedListener struct {
	net.Listener
	proxy *Proxy
}

func (l gatedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &gated{Conn: conn, proxy: l.proxy, closed: make(chan struct{})}
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.proxy.open[c] = struct{}{}
	return c, nil
}

// gated is a client's connection.
type gated struct {
	net.Conn
	proxy  *Proxy
	once   sync.Once
	closed chan struct{}
}

func (c *gated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.proxy.gate.wait(c.closed)
	return n, err
}

func (c *gated) Write(b []byte) (int, error) {
	c.proxy.gate.wait(c.closed)
	return c.Conn.Write(b)
}

// CloseWrite ends the direction to the client.
func (c *gated) CloseWrite() error {
	c.proxy.gate.wait(c.closed)
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

func (c *gated) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.proxy.mu.Lock()
	delete(c.proxy.open, c)
	c.proxy.mu.Unlock()
	return c.Conn.Close()
}
