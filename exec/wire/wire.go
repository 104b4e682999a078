// Package wire is what the host and a runner say to each other: typed frames
// over a byte stream, host to runner on the runner's standard input and runner
// to host on its standard output.
//
// A frame is a type byte, the payload's length as four bytes big-endian, and
// the payload. Data frames carry raw bytes; control frames carry the messages
// of message.go in a fixed binary form, because environment values and scripts
// are bytes, not text. Everything read here may come from a hostile peer: every
// length is checked before it is believed, and memory is bounded by MaxPayload
// and MaxRequest.
//
// The package is shared by the host and by the program inside the container.
// It imports the standard library only.
package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is the version of this protocol. Host and runner must agree exactly:
// both are built from one tree, and a session is never older than its host's
// runner image.
const Version = 4

// OpenFiles is the soft limit of open files that commands begin with (ulimit -n).
const OpenFiles = 4096

// Magic begins every Hello, so that a stream that is not a runner's is noticed
// at its first frame.
const Magic = "sandboxbash-runner"

const (
	// HeaderSize is the size of a frame's header in bytes.
	HeaderSize = 5
	// MaxPayload bounds a frame's payload in bytes. It is twice the default
	// capacity of a Linux pipe; a longer message is refused, longer data is cut
	// into several frames.
	MaxPayload = 128 << 10
	// MaxScript bounds a script in bytes.
	MaxScript = 10 << 20
	// MaxRequest bounds an encoded Request, which travels in several frames:
	// the script and as much again as execve accepts of arguments and
	// environment, rounded up.
	MaxRequest = MaxScript + 6<<20
)

// Exit codes of a session's PID 1 that ends for a reason of its own. No engine
// makes them up for one that was killed, or whose end it has missed.
const (
	ExitLeaseOver = 75  // EX_TEMPFAIL, sysexits(3): nobody has asked anything of it for so long
	ExitStopped   = 143 // 128+SIGTERM: somebody has told it to end
)

// Type says what a frame is.
type Type byte

// Frames from the host to the runner.
const (
	TypeOpen     Type = 'o' // Open: the first frame
	TypePart     Type = 'q' // a part of an encoded Request; more follow
	TypeRequest  Type = 'Q' // the last part of an encoded Request
	TypeStdin    Type = 'i' // bytes for the command's standard input
	TypeStdinEnd Type = 'e' // the end of the command's standard input
	TypeKill     Type = 'k' // Kill: end the command
	TypeDetach   Type = 'd' // Detach: go on without the host
	TypePing     Type = 'p' // the host is alive; answered by a Pong
)

// Frames from the runner to the host.
const (
	TypeHello    Type = 'H' // Hello: the first frame
	TypeStdout   Type = '1' // bytes of standard output, or of both when merged
	TypeStderr   Type = '2' // bytes of standard error
	TypeTaken    Type = 'T' // Taken: standard input that the command asks for
	TypeExit     Type = 'X' // Exit: the command has ended
	TypeFailed   Type = 'F' // Failed: the command was not started
	TypeDetached Type = 'D' // Detached: the command is a job
	TypePong     Type = 'P'
)

// ErrFrame reports bytes that are not a frame or not the message expected. The
// stream is of no use after it.
var ErrFrame = errors.New("malformed frame")

// A Reader reads frames. It is for one goroutine.
type Reader struct {
	src io.Reader
	buf *bufio.Reader
}

// Ahead returns what has been read of the stream and not been returned yet, at
// most n bytes: to show what came instead of a frame.
func (r *Reader) Ahead(n int) []byte {
	ahead, _ := r.buf.Peek(min(n, r.buf.Buffered()))
	return ahead
}

// readAhead holds any one frame and as much again, so that a frame is one piece
// of memory and the source is read in large steps.
const readAhead = 2 * (MaxPayload + HeaderSize) // bytes

// NewReader returns a Reader on src. It reads ahead.
func NewReader(src io.Reader) *Reader {
	return &Reader{src: src, buf: bufio.NewReaderSize(src, readAhead)}
}

// Next returns the next frame. The payload is valid until the following call of
// Next. It returns io.EOF at the end of the stream between two frames,
// io.ErrUnexpectedEOF within one, and an error wrapping ErrFrame for a length
// above MaxPayload.
func (r *Reader) Next() (Type, []byte, error) {
	head, err := r.buf.Peek(HeaderSize)
	if err != nil {
		if len(head) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	kind, size := ParseHeader(head)
	if size > MaxPayload {
		return 0, nil, fmt.Errorf("%w: payload of %d bytes, limit %d", ErrFrame, size, MaxPayload)
	}
	frame, err := r.buf.Peek(HeaderSize + int(size))
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	// The bytes stay in the buffer until the next read: Peek's result is
	// valid until then, and Discard only moves the read position.
	if _, err := r.buf.Discard(len(frame)); err != nil {
		return 0, nil, err
	}
	return kind, frame[HeaderSize:], nil
}

// Detach leaves the memory of the last payload to whoever holds it: later calls
// of Next use a fresh buffer. It is for a payload whose taker has been given up
// on.
func (r *Reader) Detach() {
	ahead, _ := r.buf.Peek(r.buf.Buffered())
	r.src = io.MultiReader(bytes.NewReader(bytes.Clone(ahead)), r.src)
	r.buf = bufio.NewReaderSize(r.src, readAhead)
}

// ParseHeader reads the first HeaderSize bytes of a frame. The size is as the
// peer says it.
func ParseHeader(head []byte) (kind Type, size uint32) {
	return Type(head[0]), binary.BigEndian.Uint32(head[1:HeaderSize])
}

// AppendHeader appends the header of a frame to dst.
func AppendHeader(dst []byte, kind Type, size int) []byte {
	dst = append(dst, byte(kind))
	return binary.BigEndian.AppendUint32(dst, uint32(size))
}

// PutHeader writes the header of a frame into the first HeaderSize bytes of
// dst, for a payload that already stands behind it.
func PutHeader(dst []byte, kind Type, size int) {
	dst[0] = byte(kind)
	binary.BigEndian.PutUint32(dst[1:], uint32(size))
}

// AppendFrame appends a whole frame to dst. The payload must not be longer than
// MaxPayload.
func AppendFrame(dst []byte, kind Type, payload []byte) []byte {
	dst = AppendHeader(dst, kind, len(payload))
	return append(dst, payload...)
}
