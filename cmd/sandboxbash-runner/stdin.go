//go:build linux

package main

import (
	"bytes"
	"os"
	"sync"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// stdinPipe feeds a command's standard input. It accepts at most wire.StdinWindow bytes that
// the command has not read, so that a command that does not read never delays the host's
// other frames.
type stdinPipe struct {
	out *frameWriter
	seq uint64
	w   *os.File // nil without a standard input

	mu    sync.Mutex
	queue [][]byte // guarded by mu
	size  int      // guarded by mu; bytes in queue
	ended bool     // guarded by mu; nothing follows
	wake  chan struct{}
}

func newStdinPipe(out *frameWriter, seq uint64) *stdinPipe {
	return &stdinPipe{out: out, seq: seq, wake: make(chan struct{}, 1)}
}

// push queues bytes for the command. It drops what exceeds the window, which no host of
// ours sends.
func (p *stdinPipe) push(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.size+len(b) > wire.StdinWindow {
		return
	}
	p.queue = append(p.queue, bytes.Clone(b))
	p.size += len(b)
	p.signal()
}

// end says that nothing follows.
func (p *stdinPipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.signal()
}

func (p *stdinPipe) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// pump asks the host for standard input, and writes what is pushed until the end, or
// until no process reads any more. The command has started.
func (p *stdinPipe) pump() {
	defer p.close()
	p.ask(wire.StdinWindow)
	for range p.wake {
		for {
			p.mu.Lock()
			queue, ended := p.queue, p.ended
			p.queue, p.size = nil, 0
			p.mu.Unlock()
			for _, b := range queue {
				if _, err := p.w.Write(b); err != nil {
					return
				}
				p.ask(len(b))
			}
			if len(queue) == 0 {
				if ended {
					return
				}
				break
			}
		}
	}
}

func (p *stdinPipe) ask(n int) {
	taken := wire.Taken{Seq: p.seq, Bytes: uint64(n)}
	p.out.send(wire.TypeTaken, taken.Append(nil))
}

// close ends the command's standard input. It unblocks pump: when the command
// has ended no process reads the rest.
func (p *stdinPipe) close() {
	if p.w != nil {
		p.w.Close()
	}
}
