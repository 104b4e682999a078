package docker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	// streamBuffer is how much of an exec's stream is read at once. It is above
	// the usual socket buffer (208 KiB), so that one read empties that.
	streamBuffer = 256 << 10

	// maxFrame bounds the length that a frame may announce. Docker's are 32 KiB
	// at most; a larger number than this is taken for garbage.
	maxFrame = 16 << 20

	// maxStderr is how much of the end of standard error is kept.
	maxStderr = 4 << 10

	headerSize = 8
)

// The kinds of frames, in the first byte of their header.
const (
	frameStdin  = 0 // never sent by an engine to us
	frameStdout = 1
	frameStderr = 2
	frameSystem = 3 // the engine's own words about the stream
)

// errFrame says that the stream is not what Docker sends, or that we lost its thread.
var errFrame = errors.New("bad frame in the engine's stream")

// demux splits the stream of an exec. It gives the frames of standard output
// to Read and WriteTo, and keeps the end of standard error. Without frames (a
// terminal's stream has none) it gives everything.
//
// A stream that ends inside a frame is io.ErrUnexpectedEOF. Once an error was
// returned, every further call returns it.
type demux struct {
	src    *bufio.Reader
	framed bool
	left   int // bytes of standard output still to come of this frame
	err    error
	header [headerSize]byte

	mu     sync.Mutex
	stderr tail // guarded by mu
}

func newDemux(src *bufio.Reader, framing framing) *demux {
	return &demux{src: src, framed: framing == frames}
}

// framing says whether a stream is in frames.
type framing int

const (
	frames framing = iota
	plain
)

// Read fills p with as much as has arrived, and waits only for the first byte.
func (d *demux) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, d.err
	}
	if err := d.advance(); err != nil {
		return 0, err
	}
	n := 0
	for {
		m, err := d.take(p[n:])
		n += m
		if err != nil || n == len(p) || !d.ready() {
			return d.result(n, err)
		}
		if err := d.advance(); err != nil {
			return d.result(n, err)
		}
	}
}

// result keeps an error for the next call if there are bytes to return first.
func (d *demux) result(n int, err error) (int, error) {
	if err != nil {
		d.err = err
	}
	if n > 0 {
		return n, nil
	}
	return 0, d.err
}

// take reads once from the current frame.
func (d *demux) take(p []byte) (int, error) {
	if d.framed {
		p = p[:min(len(p), d.left)]
	}
	n, err := d.src.Read(p)
	if d.framed {
		d.left -= n
		if err == io.EOF && d.left > 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// ready says whether a further step needs no waiting.
func (d *demux) ready() bool {
	if !d.framed || d.left > 0 {
		return d.src.Buffered() > 0
	}
	// Only a frame of standard output whose beginning is here.
	if d.src.Buffered() <= headerSize {
		return false
	}
	next, err := d.src.Peek(1)
	return err == nil && next[0] == frameStdout
}

// WriteTo gives everything to w, from the buffer that it was read into.
func (d *demux) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		if err := d.advance(); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return total, err
		}
		if d.src.Buffered() == 0 {
			if _, err := d.src.Peek(1); err != nil {
				if _, err = d.result(0, d.cut(err)); errors.Is(err, io.EOF) {
					err = nil
				}
				return total, err
			}
		}
		n := d.src.Buffered()
		if d.framed {
			n = min(n, d.left)
		}
		chunk, err := d.src.Peek(n)
		if err != nil {
			return total, err
		}
		m, err := w.Write(chunk)
		total += int64(m)
		_, _ = d.src.Discard(m)
		if d.framed {
			d.left -= m
		}
		if err == nil && m < n {
			err = io.ErrShortWrite
		}
		if err != nil {
			return total, err // w's, which says nothing about the stream
		}
	}
}

// cut is the end of the stream as seen inside a frame.
func (d *demux) cut(err error) error {
	if errors.Is(err, io.EOF) && d.framed {
		return io.ErrUnexpectedEOF
	}
	return err
}

// advance goes to the next byte of standard output, past everything else.
func (d *demux) advance() error {
	for d.err == nil && d.framed && d.left == 0 {
		d.err = d.next()
	}
	return d.err
}

// next reads a header, and the whole frame if it is not of standard output.
func (d *demux) next() error {
	if _, err := io.ReadFull(d.src, d.header[:]); err != nil {
		return err // io.EOF only between frames
	}
	size := binary.BigEndian.Uint32(d.header[4:])
	if d.header[1] != 0 || d.header[2] != 0 || d.header[3] != 0 {
		return fmt.Errorf("%w: header %x", errFrame, d.header)
	}
	if size > maxFrame {
		return fmt.Errorf("%w: %d bytes announced, %d is the most", errFrame, size, maxFrame)
	}
	switch d.header[0] {
	case frameStdout:
		d.left = int(size)
		return nil
	case frameStderr:
		return d.drain(int(size))
	case frameSystem:
		return d.complaint(int(size))
	}
	return fmt.Errorf("%w: stream %d", errFrame, d.header[0])
}

// drain keeps the end of a frame of standard error.
func (d *demux) drain(size int) error {
	for size > 0 {
		if _, err := d.src.Peek(1); err != nil {
			return d.cut(err)
		}
		chunk, err := d.src.Peek(min(size, d.src.Buffered()))
		if err != nil {
			return d.cut(err)
		}
		d.mu.Lock()
		d.stderr.add(chunk)
		d.mu.Unlock()
		size -= len(chunk)
		_, _ = d.src.Discard(len(chunk))
	}
	return nil
}

// complaint is the error that the engine sent instead of going on.
func (d *demux) complaint(size int) error {
	text := make([]byte, min(size, maxStderr))
	if _, err := io.ReadFull(d.src, text); err != nil {
		return d.cut(err)
	}
	return fmt.Errorf("the engine ended the stream: %q", text)
}

// Stderr returns the end of standard error so far.
func (d *demux) Stderr() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.stderr.kept)
}

// tail keeps the last maxStderr bytes.
type tail struct{ kept []byte }

func (t *tail) add(p []byte) {
	if len(p) >= maxStderr {
		t.kept = append(t.kept[:0], p[len(p)-maxStderr:]...)
		return
	}
	if over := len(t.kept) + len(p) - maxStderr; over > 0 {
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	t.kept = append(t.kept, p...)
}
