package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// delayed is a socket in front of an engine's that holds all bytes back for some time, as a long way does.
// What is under way is not bounded by it: a way has no window of its own.
type delayed struct {
	listener net.Listener
	engine   string // the path of its socket
	by       time.Duration
	wg       sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool // guarded by mu
}

func delay(engine string, by time.Duration) (*delayed, error) {
	dir, err := os.MkdirTemp("", "sbx") // short: a socket's path has at most 107 bytes
	if err != nil {
		return nil, err
	}
	d := &delayed{engine: engine, by: by, open: map[net.Conn]bool{}}
	d.listener, err = new(net.ListenConfig).Listen(context.Background(), "unix", filepath.Join(dir, "engine.sock"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	d.wg.Go(d.accept)
	return d, nil
}

func (d *delayed) host() string { return "unix://" + d.listener.Addr().String() }

func (d *delayed) close() {
	_ = d.listener.Close()
	d.mu.Lock()
	for c := range d.open {
		_ = c.Close()
	}
	d.open = nil
	d.mu.Unlock()
	d.wg.Wait()
	_ = os.RemoveAll(filepath.Dir(d.listener.Addr().String()))
}

func (d *delayed) accept() {
	for {
		near, err := d.listener.Accept()
		if err != nil {
			return
		}
		far, err := (&net.Dialer{}).DialContext(context.Background(), "unix", d.engine)
		if err != nil || !d.keep(near, far) {
			_ = near.Close()
			if far != nil {
				_ = far.Close()
			}
			continue
		}
		d.wg.Go(func() { d.carry(far, near) })
		d.wg.Go(func() { d.carry(near, far) })
	}
}

// keep remembers connections for close. It returns false after close.
func (d *delayed) keep(conns ...net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		return false
	}
	for _, c := range conns {
		d.open[c] = true
	}
	return true
}

// piece is bytes on their way, or the end.
type piece struct {
	b   []byte
	due time.Time
}

// maxPieces bounds what is under way: 64 MiB, which no window of ours fills.
const (
	pieceSize = 64 << 10
	maxPieces = 1024
)

func (d *delayed) carry(to, from net.Conn) {
	way := make(chan piece, maxPieces)
	d.wg.Go(func() {
		defer close(way)
		for {
			b := make([]byte, pieceSize)
			n, err := from.Read(b)
			if n > 0 {
				way <- piece{b[:n], time.Now().Add(d.by)}
			}
			if err != nil {
				return
			}
		}
	})
	for p := range way {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.b); err != nil {
			_ = from.Close() // the reader ends
		}
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	} else {
		_, _ = io.Copy(io.Discard, from)
	}
}
