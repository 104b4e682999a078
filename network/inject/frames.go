package inject

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// FrameError says why a WebSocket was closed: what the server has sent cannot be read as frames (RFC 6455), so
// secrets cannot be masked in it.
type FrameError struct{ Problem string }

func (e *FrameError) Error() string { return "secrets cannot be masked in a WebSocket: " + e.Problem }

// maskedFrames is the body of an answer that switches to WebSocket: what is read are the server's frames with
// the secrets masked, what is written goes to the server as it is.
//
// A message is masked as one text, whatever frames it comes in. Each frame of up to frameBuffer bytes becomes
// one frame, a longer one becomes several. What may be the start of a value is held back until the next
// frame of the message, and at the message's end treated as at the end of a body. The payload of a
// control frame is a text of its own.
//
// It fails closed: if a frame cannot be parsed, the session gets a close frame that says so and then the
// error, and nothing of that frame. If the server breaks off within a message, what is held is dropped.
type maskedFrames struct {
	io.ReadWriteCloser

	set *Set
	in  *bufio.Reader

	message *text  // nil between messages; what it has is not in a frame so far
	opcode  byte   // of the message's next frame: its kind, then opContinuation
	last    bool   // the frame that is read is the message's last
	left    uint64 // bytes of its payload that are not read

	buf []byte // a part of a payload, as the server has sent it
	out []byte // frames that are not read so far
	err error  // after out
}

// Opcodes and bits of frames, RFC 6455, section 5.2.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa

	bitFin      = 0x80
	bitsRSV     = 0x70
	bitMask     = 0x80
	opcodeBits  = 0x0f
	controlBit  = 0x08
	length16    = 126 // the length is in the next 2 bytes
	length64    = 127 // in the next 8
	maxControl  = 125 // bytes of a control frame's payload
	closeStatus = 2   // bytes of the status in front of a close frame's text

	minStatus, maxStatus = 1000, 4999 // section 7.4.2
	statusProtocolError  = 1002
)

const (
	frameBuffer  = 64 << 10 // bytes of a payload that are read at once; a longer frame becomes several
	headerBuffer = 4 << 10  // bytes
)

func newMaskedFrames(set *Set, server io.ReadWriteCloser) *maskedFrames {
	return &maskedFrames{ReadWriteCloser: server, set: set, in: bufio.NewReaderSize(server, headerBuffer)}
}

// CloseWrite ends what is written to the server.
func (m *maskedFrames) CloseWrite() error {
	if half, ok := m.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Read returns frames that are whole, or the rest of one.
func (m *maskedFrames) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(m.out) == 0 && m.err == nil {
		m.err = m.step()
		if broken, ok := errors.AsType[*FrameError](m.err); ok {
			m.frame(bitFin|opClose, closePayload(statusProtocolError, "sandboxbash: "+broken.Error()))
		}
	}
	if len(m.out) == 0 {
		return 0, m.err
	}
	n := copy(p, m.out)
	m.out = slices.Delete(m.out, 0, n)
	return n, nil
}

// step reads a frame, or a part of a long one.
func (m *maskedFrames) step() error {
	if m.left > 0 {
		return m.data()
	}
	first, err := m.in.ReadByte()
	if err != nil {
		if err == io.EOF && m.message != nil { //nolint:errorlint // ReadByte returns it as it is
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	length, err := m.length()
	if err != nil {
		return unexpected(err)
	}
	opcode := first & opcodeBits
	switch {
	case first&bitsRSV != 0:
		return &FrameError{"the server uses an extension, which was not agreed on"}
	case opcode&controlBit != 0:
		return m.control(first, opcode, length)
	case opcode > opBinary:
		return &FrameError{fmt.Sprintf("the server has sent a frame of the unknown kind %d", opcode)}
	case (opcode == opContinuation) != (m.message != nil):
		return &FrameError{"the server has sent frames of a message in a wrong order"}
	}
	if m.message == nil {
		m.message, m.opcode = newText(m.set.masks), opcode
	}
	m.last, m.left = first&bitFin != 0, length
	return m.data()
}

// length reads the length of a payload, which must be in its shortest form and not masked.
func (m *maskedFrames) length() (uint64, error) {
	second, err := m.in.ReadByte()
	if err != nil {
		return 0, err
	}
	if second&bitMask != 0 {
		return 0, &FrameError{"the server has sent a masked frame"}
	}
	var long [8]byte
	n, least := 2, uint64(length16)
	switch {
	case second < length16:
		return uint64(second), nil
	case second == length64:
		n, least = 8, 1<<16
	}
	if _, err := io.ReadFull(m.in, long[8-n:]); err != nil {
		return 0, err
	}
	length := binary.BigEndian.Uint64(long[:])
	if length < least || length > 1<<63-1 {
		return 0, &FrameError{"the server has sent a frame with a malformed length"}
	}
	return length, nil
}

// data masks the next part of a frame's payload, and passes on what is decided.
func (m *maskedFrames) data() error {
	part := int(min(m.left, frameBuffer))
	if cap(m.buf) < part {
		m.buf = make([]byte, part)
	}
	if _, err := io.ReadFull(m.in, m.buf[:part]); err != nil {
		return unexpected(err)
	}
	m.left -= uint64(part)
	m.message.write(m.buf[:part])
	switch {
	case m.left == 0 && m.last:
		m.message.end()
		m.frame(bitFin|m.opcode, m.message.out)
		m.message = nil
	case len(m.message.out) > 0:
		m.frame(m.opcode, m.message.out)
		m.message.out, m.opcode = m.message.out[:0], opContinuation
	}
	return nil
}

// control passes on a control frame. After a close frame the server has no more to say.
func (m *maskedFrames) control(first, opcode byte, length uint64) error {
	switch {
	case opcode > opPong:
		return &FrameError{fmt.Sprintf("the server has sent a frame of the unknown kind %d", opcode)}
	case first&bitFin == 0 || length > maxControl || opcode == opClose && length > 0 && length < closeStatus:
		return &FrameError{"the server has sent a malformed control frame"}
	}
	var buf [maxControl]byte
	payload := buf[:length]
	if _, err := io.ReadFull(m.in, payload); err != nil {
		return unexpected(err)
	}
	if opcode == opClose && length > 0 {
		status := binary.BigEndian.Uint16(payload)
		if status < minStatus || status > maxStatus { // then no value starts in it: it has a control character
			return &FrameError{"the server has sent a malformed control frame"}
		}
		m.frame(first, closePayload(status, m.maskWhole(payload[closeStatus:])))
		return io.EOF
	}
	text := m.maskWhole(payload)
	m.frame(first, []byte(text[:min(len(text), maxControl)]))
	if opcode == opClose {
		return io.EOF
	}
	return nil
}

// maskWhole masks a text that stands alone, also where it ends with the start of a value.
func (m *maskedFrames) maskWhole(payload []byte) string {
	t := newText(m.set.masks)
	t.write(payload)
	t.end()
	return string(t.out)
}

// frame appends a frame to what the session reads.
func (m *maskedFrames) frame(first byte, payload []byte) {
	m.out = append(m.out, first)
	switch n := len(payload); {
	case n < length16:
		m.out = append(m.out, byte(n))
	case n < 1<<16:
		m.out = binary.BigEndian.AppendUint16(append(m.out, length16), uint16(n))
	default:
		m.out = binary.BigEndian.AppendUint64(append(m.out, length64), uint64(n))
	}
	m.out = append(m.out, payload...)
}

// closePayload is a status and as much of a text as a control frame holds.
func closePayload(status uint16, text string) []byte {
	if len(text) > maxControl-closeStatus {
		text = text[:maxControl-closeStatus]
		for len(text) > 0 && !utf8.ValidString(text) { // it must be UTF-8, also where it is cut
			text = text[:len(text)-1]
		}
	}
	return append(binary.BigEndian.AppendUint16(nil, status), text...)
}

// unexpected is the error for an end within a frame.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
