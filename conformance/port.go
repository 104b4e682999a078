package main

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// port listens on all addresses of this host, and counts the connections.
type port struct {
	number    string
	addresses []string // of this host, IPv4
	listener  net.Listener
	done      chan struct{}

	mu    sync.Mutex
	count int // guarded by mu
}

func usesPort(s Scenario) bool {
	return slices.ContainsFunc(s.flat(), func(step Step) bool { return strings.Contains(step.Script, "{port}") })
}

func listen() (*port, error) {
	l, err := new(net.ListenConfig).Listen(context.WithoutCancel(context.Background()), "tcp4", ":0")
	if err != nil {
		return nil, err
	}
	p := &port{listener: l, done: make(chan struct{}), addresses: []string{"127.0.0.1"}}
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		p.number = strconv.Itoa(a.Port)
	}
	all, _ := net.InterfaceAddrs() // none where they cannot be listed: the loopback is one
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			p.addresses = append(p.addresses, ip.IP.String())
		}
	}
	go func() {
		defer close(p.done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
			p.mu.Lock()
			p.count++
			p.mu.Unlock()
		}
	}()
	return p, nil
}

func (p *port) reached() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *port) close() {
	_ = p.listener.Close() // the next statement waits for its end
	<-p.done
}
