package e2e

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

type proxyKey struct{}

// proxy stands between a script and the engine. It passes every byte on as it
// is, and notes what is asked: the calls, and the names of what is made. So a
// script's leak check looks for the script's own things, whatever else goes on
// in the engine.
type proxy struct {
	socket   string
	listener net.Listener
	network  string
	address  string
	wg       sync.WaitGroup

	mu    sync.Mutex
	calls []string            // guarded by mu; "METHOD PATH" in order
	names []string            // guarded by mu
	conns map[net.Conn]string // guarded by mu; open connections
}

func newProxy() (*proxy, error) {
	p := &proxy{conns: map[net.Conn]string{}}
	u, err := url.Parse(cmp.Or(os.Getenv("DOCKER_HOST"), "unix:///var/run/docker.sock"))
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "unix":
		p.network, p.address = "unix", u.Path
	case "tcp":
		p.network, p.address = "tcp", u.Host
	default:
		return nil, fmt.Errorf("DOCKER_HOST=%s: these tests need unix:// or tcp://", u)
	}
	dir, err := os.MkdirTemp("", "sbx") // short: a socket's path has at most 107 bytes
	if err != nil {
		return nil, err
	}
	p.socket = filepath.Join(dir, "docker.sock")
	if p.listener, err = net.Listen("unix", p.socket); err != nil {
		return nil, err
	}
	p.wg.Go(p.serve)
	return p, nil
}

// close ends all connections and waits for their ends.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	_ = os.RemoveAll(filepath.Dir(p.socket))
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.wg.Go(func() { p.handle(client) })
	}
}

// handle passes bytes on in both directions, and each end of a direction too.
func (p *proxy) handle(client net.Conn) {
	server, err := net.Dial(p.network, p.address)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = "client", "server"
	p.mu.Unlock()
	defer func() {
		_ = client.Close()
		_ = server.Close()
		p.mu.Lock()
		delete(p.conns, client)
		delete(p.conns, server)
		p.mu.Unlock()
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.MultiWriter(server, &requests{proxy: p}), client)
		halfClose(server)
	}()
	_, _ = io.Copy(client, server)
	halfClose(client)
	_ = client.SetReadDeadline(past) // the engine has ended this connection
	<-done
}

func halfClose(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
}

// created returns the names of all that was made, asked for or not there.
func (p *proxy) created() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.names)
}

// asked returns the calls so far, one a line.
func (p *proxy) asked() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.calls, "\n")
}

// headLimit is how much of a request is looked at: its line, its headers, and so
// much of a body that a volume's name is in it.
const headLimit = 8 << 10

var (
	requestLine   = regexp.MustCompile(`(GET|HEAD|POST|PUT|DELETE) (/\S*) HTTP/1\.[01]\r\n`)
	containerName = regexp.MustCompile(`/containers/create\?(?:\S*&)?name=([^ &]+)`)
	otherName     = regexp.MustCompile(`/(?:volumes|networks)/create HTTP/1\.1\r\n(?s:.*?)"Name":"([^"]+)"`)
)

// kept reports whether a volume is kept between sessions, for all of them.
func kept(name string) bool {
	return strings.HasPrefix(name, "sandboxbash-runner-") || strings.HasPrefix(name, "sandboxbash-programs-") || strings.HasPrefix(name, "sandboxbash-accounts-")
}

// requests notes what it reads of a connection's requests.
type requests struct {
	proxy *proxy
	tail  []byte // the end of what was seen, at most headLimit
}

func (r *requests) Write(b []byte) (int, error) {
	seen := append(r.tail, b...)
	fresh := len(r.tail)
	p := r.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes.Contains(seen, []byte(" HTTP/1.")) {
		for _, m := range requestLine.FindAllSubmatchIndex(seen, -1) {
			if m[1] > fresh { // else it was complete before
				p.calls = append(p.calls, string(seen[m[2]:m[3]])+" "+string(seen[m[4]:m[5]]))
			}
		}
		for _, pattern := range []*regexp.Regexp{containerName, otherName} {
			for _, m := range pattern.FindAllSubmatch(seen, -1) {
				if name := string(m[1]); !kept(name) && !slices.Contains(p.names, name) {
					p.names = append(p.names, name)
				}
			}
		}
	}
	r.tail = slices.Clone(seen[max(0, len(seen)-headLimit):])
	return len(b), nil
}
