package faultproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// stream handles a call that upgrades its connection, and applies the fault to what the
// engine sends. If the engine does not upgrade the connection, its answer passes unchanged.
func (p *Proxy) stream(w http.ResponseWriter, r *http.Request, f Fault) {
	engine, err := p.dial(r.Context(), "", "")
	if err != nil {
		hangUp(w)
		return
	}
	defer engine.Close()
	// The connection to the engine ends with the proxy, even if a peer still waits.
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-p.closing:
			_ = engine.Close()
		case <-ended:
		}
	}()
	if err := r.Write(engine); err != nil {
		hangUp(w)
		return
	}
	fromEngine := bufio.NewReader(engine)
	resp, err := http.ReadResponse(fromEngine, r)
	if err != nil {
		hangUp(w)
		return
	}
	if f.kind.answers() {
		p.spoil(w, r, f)
		return
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		p.pass(w, resp, f)
		return
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if err := resp.Write(client); err != nil {
		return
	}
	var (
		both  sync.WaitGroup
		quiet = make(chan struct{}) // closed when nothing may pass any more
	)
	both.Go(func() {
		_, _ = io.Copy(stopping{w: engine, quiet: quiet}, buffered)
		halfClose(engine) // the client has ended its direction, or the stream is over
	})
	if p.answer(client, fromEngine, f, quiet) {
		_ = client.SetReadDeadline(past)
	}
	both.Wait()
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// answer passes on what the engine sends, until it ends or the fault ends it. It reports
// whether the other direction is over too.
func (p *Proxy) answer(client net.Conn, engine io.Reader, f Fault, quiet chan struct{}) bool {
	if f.kind >= cutStream {
		_, _ = io.CopyN(client, engine, f.n)
	}
	switch f.kind {
	case cutStream:
		_ = client.Close()
	case endStream:
		halfClose(client)
		_, _ = io.Copy(io.Discard, engine)
	case stall:
		close(quiet)
		_, _ = io.Copy(io.Discard, engine)
		return false // the client has to notice by itself
	case drip:
		_, _ = io.Copy(&dripping{w: client, every: time.Second, stop: p.closing}, engine)
		halfClose(client)
	default:
		_, _ = io.Copy(client, engine)
		halfClose(client)
	}
	return true
}

// stopping drops what is written once quiet is closed.
type stopping struct {
	w     io.Writer
	quiet <-chan struct{}
}

func (s stopping) Write(b []byte) (int, error) {
	select {
	case <-s.quiet:
		return len(b), nil
	default:
		return s.w.Write(b)
	}
}

// dripping writes one byte at a time.
type dripping struct {
	w     io.Writer
	every time.Duration
	stop  <-chan struct{}
}

func (d *dripping) Write(b []byte) (int, error) {
	for i := range b {
		select {
		case <-d.stop:
			return i, net.ErrClosed
		case <-time.After(d.every):
		}
		if _, err := d.w.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

func halfClose(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
}
