package faultproxy

import (
	"net"
	"sync"
)

// partition cuts off all connections while it is shut; its zero value is open.
type partition struct {
	mu   sync.Mutex
	open chan struct{} // guarded by mu; closed by lift; nil: it is open
}

func (g *partition) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

func (g *partition) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// wait waits until the partition is open or stop is closed.
func (g *partition) wait(stop <-chan struct{}) {
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

// partitionedListener accepts connections that pass through the proxy's partition.
type partitionedListener struct {
	net.Listener
	proxy *Proxy
}

func (l partitionedListener) Accept() (net.Conn, error) {
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
	c.proxy.partition.wait(c.closed)
	return n, err
}

func (c *gated) Write(b []byte) (int, error) {
	c.proxy.partition.wait(c.closed)
	return c.Conn.Write(b)
}

// CloseWrite ends the direction to the client.
func (c *gated) CloseWrite() error {
	c.proxy.partition.wait(c.closed)
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
