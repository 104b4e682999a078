//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// outPipe carries one of a command's streams.
type outPipe struct {
	kind wire.Type
	r    *os.File
	sent atomic.Uint64
	// owed is how many bytes were in the pipe when the leader ended, less those read by
	// reads that started later. Bytes of a read that was under way may or may not have been
	// counted; they are not subtracted.
	owed     atomic.Int64
	finished atomic.Bool // owed is known
	ended    bool        // set by pump: no writer is left
	job      *job        // nil for a command that ends with its host
}

// pump sends what arrives, until the last writer has gone, or until drainTime after finish
// was called.
func (p *outPipe) pump(out *frameWriter, room *[]byte, leader <-chan struct{}) {
	if *room == nil {
		*room = make([]byte, wire.HeaderSize+wire.MaxPayload)
	}
	buf := *room
	grown := false
	for {
		counts := p.finished.Load()
		n, err := p.r.Read(buf[wire.HeaderSize:])
		if counts {
			p.owed.Add(-int64(n))
		}
		if n > 0 {
			p.deliver(out, buf, n, leader)
		}
		if !grown && n >= 64<<10 {
			// It fills a pipe of the default size, so make the pipe larger.
			grown = true
			p.control(func(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize) })
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			p.pumpOwed(out, buf)
			return
		default:
			p.ended = errors.Is(err, io.EOF)
			return
		}
	}
}

// Small output waits for a moment too short to notice. If the command ends in that time, its
// last output and its end are sent together. If more output comes, fewer frames are sent.
// See docs/adr/0009.
const (
	smallChunk = 4 << 10 // bytes
	chunkPause = 500 * time.Microsecond
)

// pause waits a short time for the leader's end, and reports whether it has ended.
func pause(leader <-chan struct{}) bool {
	timer := time.NewTimer(chunkPause)
	defer timer.Stop()
	select {
	case <-leader:
		return true
	case <-timer.C:
		return false
	}
}

// deliver sends the n bytes in buf, which has room for their header. For a command with a job
// it writes them to the job's file first, and sends them only until the hand-over. With a
// leader it holds small output that came just before the leader's end: the command's end
// sends another frame at the latest.
func (p *outPipe) deliver(out *frameWriter, buf []byte, n int, leader <-chan struct{}) {
	frame := buf[:wire.HeaderSize+n]
	if p.job != nil {
		p.job.spool.write(frame[wire.HeaderSize:])
		p.job.mu.Lock()
		defer p.job.mu.Unlock()
		if p.job.phase == handedOver {
			return
		}
	}
	wire.PutHeader(frame, p.kind, n)
	if leader != nil && n < smallChunk && pause(leader) {
		out.hold(frame)
	} else {
		out.write(frame)
	}
	p.sent.Add(uint64(n))
}

// pumpOwed sends what the command had written before its end, if a slow host has not taken
// it yet. It does not send what a surviving child writes after that.
func (p *outPipe) pumpOwed(out *frameWriter, buf []byte) {
	for p.owed.Load() > 0 {
		n, err := -1, error(nil)
		p.control(func(fd int) { n, err = unix.Read(fd, buf[wire.HeaderSize:]) })
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 {
			return
		}
		p.owed.Add(-int64(n))
		p.deliver(out, buf, n, nil)
	}
}

// finish is called at the leader's end. It is for a nil pipe too.
func (p *outPipe) finish() {
	if p == nil {
		return
	}
	p.control(func(fd int) {
		if n, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil {
			p.owed.Store(int64(n))
		}
	})
	p.finished.Store(true)
	_ = p.r.SetReadDeadline(time.Now().Add(drainTime))
}

func (p *outPipe) control(fn func(fd int)) {
	if conn, err := p.r.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { fn(int(fd)) })
	}
}

// close closes the pipe of a command that was not started. It is for a nil pipe
// too.
func (p *outPipe) close() {
	if p != nil {
		p.r.Close()
	}
}
