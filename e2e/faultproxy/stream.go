package faultproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// stream passes a call on that asks for a connection of its own, and spoils what
// the engine sends over it. An answer that gives none passes as it is.
func (p *Proxy) stream(w http.ResponseWriter, r *http.Request, f Fault) {
	engine, err := p.dial(r.Context(), "", "")
	if err != nil {
		hangUp(w)
		return
	}
	defer engine.Close()
	// The engine's end ends with the proxy, even if a peer still waits for it.
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
		halfClose(engine) // the client has ended, or the stream is over
	})
	if p.answer(client, fromEngine, f, quiet) {
		_ = client.SetReadDeadline(past)
	}
	both.Wait()
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// answer passes on what the engine sends, until that is all or the fault says so.
// It reports whether the other direction is over too.
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
		return false // the client is to find out by itself
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
