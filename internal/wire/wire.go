// Package wire describes all that the host and a runner say to each other: the verbs of
// the runner's processes and their arguments (verb.go), the frames between the host and
// a runner that serves (this file, message.go, job.go), the turns on a terminal
// (terminal.go), and the answers of the other verbs (answer.go, posture.go, process.go,
// jobquery.go). Each message, argument list and answer is described once, for both
// directions.
//
// A frame is a type byte, the payload's length as four bytes big-endian, and the
// payload. The host writes frames to the runner's standard input, and the runner to its
// standard output. Data frames carry raw bytes; control frames carry messages in a fixed
// binary form, because environment values and scripts are bytes, not text. Whatever is
// read here may come from a hostile peer: every length is checked before it is used, and
// memory is bounded by MaxPayload and MaxRequest.
//
// # Turns
//
// The runner speaks first. After Hello and Open both sides may send at any time, within
// these rules; a frame that breaks one ends the stream.
//
//	runner  TypeHello                 once, before anything else
//	host    TypeOpen                  once, the answer; the runner is idle now
//	host    TypePart…, TypeRequest    only while the runner is idle; it is busy now
//	runner  TypeFailed                the command was not started; idle again, or
//	runner  TypeTaken                 with Request.Stdin: it has started, and takes input
//	host    TypeStdin…, TypeStdinEnd  within the window that TypeTaken opens
//	runner  TypeStdout…, TypeStderr…  in the order of the command's writes
//	host    TypeKill, TypeDetach      name the command by Seq; ignored once it has ended
//	runner  TypeDetached              the answer to TypeDetach, or to Job.Background
//	runner  TypeExit                  behind all output; idle again
//	host    TypePing                  at any time; answered by TypePong
//
// After an Exit whose Left is not 0, and after a Detached with an ID, the runner takes no
// further request: it has children to keep, or to pass on, and leaves. When its standard
// input ends, or no frame has come for the length of the lease (while idle: of IdleLease,
// if that is longer), a runner kills its
// command and exits; a command that is a job by then goes on.
//
// # Versions
//
// A session keeps the runner that it was started with, so a host must speak the protocol
// of the version before. What a version adds stands behind the fields of the version
// before, see codec.since; unknown fields behind the last are ignored, and so are frames
// of an unknown type for which Optional is true. testdata/v5 has each message as the
// program of that version wrote it.
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
	"time"
)

// Version is the version of this protocol, and OldestVersion the one before: a host
// works with runners of both, because sessions outlive an upgrade of the host. The
// runner says its version first, in Hello; the host answers with the same.
const (
	Version       = 5
	OldestVersion = 4
)

// IdleLease is how long an idle runner lives without a frame from the host. The
// session's own lease is kept by another runner, or by PID 1.
const IdleLease = 10 * time.Minute

// OpenFiles is the soft limit of open files that commands start with (ulimit -n).
const OpenFiles = 4096

// Magic begins every Hello, so that a stream that does not come from a runner is
// noticed at its first frame.
const Magic = "sandboxbash-runner"

const (
	// HeaderSize is the size of a frame's header in bytes.
	HeaderSize = 5
	// MaxPayload bounds a frame's payload in bytes. It is twice the default
	// capacity of a Linux pipe; a longer message is refused, longer data is cut
	// into several frames.
	MaxPayload = 128 << 10
	// MaxArgument is the longest single argument of execve(2) in bytes, with its final
	// NUL: the kernel's MAX_ARG_STRLEN, 32 pages of 4 KiB.
	MaxArgument = 128 << 10
	// MaxScript bounds a script in bytes.
	MaxScript = 10 << 20
	// MaxRequest bounds an encoded Request, which travels in several frames:
	// the script and as much again as execve accepts of arguments and
	// environment, rounded up.
	MaxRequest = MaxScript + 6<<20
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

// optional is the first of the types that may be left out: a peer that does not know
// one of those skips its frame.
const optional Type = 0x80

// Optional reports whether a peer that does not know the type skips its frames. A
// frame of any other unknown type is an error.
func (t Type) Optional() bool { return t >= optional }

// ErrFrame reports bytes that are not a frame or not the message expected. The stream
// cannot be used after it.
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

// Detach gives up the memory of the last payload: later calls of Next use a fresh
// buffer, so that a goroutine that still holds the payload can go on reading it.
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
