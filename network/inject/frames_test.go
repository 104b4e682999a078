package inject

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// serverFrame is a frame as a server sends it.
func serverFrame(first byte, payload string) string {
	n := len(payload)
	switch {
	case n < 126:
		return string([]byte{first, byte(n)}) + payload
	case n < 1<<16:
		return string([]byte{first, 126, byte(n >> 8), byte(n)}) + payload
	}
	return string(binary.BigEndian.AppendUint64([]byte{first, 127}, uint64(n))) + payload
}

// A gotFrame is a frame as a client reads it.
type gotFrame struct {
	first   byte
	payload string
}

// parseFrames is the reader of a strict client: the messages and control frames in a stream.
func parseFrames(stream string) (frames []gotFrame, messages []string, err error) {
	open := false
	for len(stream) > 0 {
		if len(stream) < 2 {
			return frames, messages, errors.New("a frame without a length")
		}
		first, n, head := stream[0], uint64(stream[1]), 2
		switch n {
		case 126:
			head = 4
			n = uint64(binary.BigEndian.Uint16([]byte(stream[2:4])))
		case 127:
			head = 10
			n = binary.BigEndian.Uint64([]byte(stream[2:10]))
		}
		if uint64(len(stream)-head) < n {
			return frames, messages, fmt.Errorf("a frame of %d bytes has %d", n, len(stream)-head)
		}
		payload := stream[head : head+int(n)]
		stream = stream[head+int(n):]
		frames = append(frames, gotFrame{first, payload})
		op := first & 15
		switch {
		case first&0x70 != 0, op > 2 && op < 8, op > 10:
			return frames, messages, fmt.Errorf("a frame starts with %#x", first)
		case op >= 8 && (n > 125 || first < 128):
			return frames, messages, fmt.Errorf("a control frame %#x of %d bytes", first, n)
		case op == 8:
			if n == 1 || n > 1 && !utf8.ValidString(payload[2:]) && first == 0x88 && strings.HasPrefix(payload[2:], "sandboxbash") {
				return frames, messages, fmt.Errorf("a close frame with %q", payload)
			}
			if stream != "" {
				return frames, messages, fmt.Errorf("%q behind a close frame", stream)
			}
		case op < 8:
			if open != (op == 0) {
				return frames, messages, fmt.Errorf("a frame %#x where a message is under way: %v", first, open)
			}
			if !open {
				messages = append(messages, "")
			}
			messages[len(messages)-1] += payload
			open = first < 128
		}
	}
	return frames, messages, nil
}

// socket is a connection to a server whose bytes come in chunks.
type socket struct {
	io.Reader
	sent   bytes.Buffer
	closed bool
}

func (s *socket) Write(p []byte) (int, error) { return s.sent.Write(p) }

func (s *socket) Close() error {
	s.closed = true
	return nil
}

// framesOf returns what the session reads of what a server has sent.
func framesOf(set *Set, server io.Reader) (string, error) {
	got, err := io.ReadAll(newMaskedFrames(set, &socket{Reader: server}))
	return string(got), err
}

const (
	text1   = 0x81 // a whole text
	binary1 = 0x82
	start   = 0x01 // the first frame of a text
	more    = 0x00
	end     = 0x80
	bye     = 0x88
	ping    = 0x89
	pong    = 0x8a
)

func TestFrames(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	long := strings.Repeat("0123456789abcdef", 20<<10) // 320 KiB
	type frames []gotFrame
	for _, tt := range []struct {
		name string
		in   string
		want frames
	}{
		{"nothing", "", nil},
		{"a text", serverFrame(text1, "hello"), frames{{text1, "hello"}}},
		{"two", serverFrame(text1, "hello") + serverFrame(binary1, "\x00\xff"), frames{{text1, "hello"}, {binary1, "\x00\xff"}}},
		{"an empty one", serverFrame(text1, ""), frames{{text1, ""}}},
		{"a value", serverFrame(text1, value), frames{{text1, "[REDACTED:TOKEN]"}}},
		{"a value in a binary one", serverFrame(binary1, "\x00"+value+"\xff"), frames{{binary1, "\x00[REDACTED:TOKEN]\xff"}}},
		{"its base64", serverFrame(text1, base64.StdEncoding.EncodeToString([]byte(value+"="))), frames{{text1, "[REDACTED:TOKEN]9"}}},
		{"another secret", serverFrame(text1, "x"+otherValue), frames{{text1, "x[REDACTED:OTHER]"}}},
		{"126 bytes", serverFrame(text1, long[:126]), frames{{text1, long[:126]}}},
		{"65536 bytes", serverFrame(text1, long[:65536]), frames{{text1, long[:65536]}}},
		{"a value makes it longer than 125", serverFrame(text1, long[:100]+otherValue), frames{{text1, long[:100] + "[REDACTED:OTHER]"}}},
		{
			"a value over fragments", serverFrame(start, "a "+value[:5]) + serverFrame(more, value[5:9]) + serverFrame(more, "") + serverFrame(end, value[9:]+" z"),
			frames{{start, "a "}, {end, "[REDACTED:TOKEN] z"}},
		},
		{
			"with a ping between", serverFrame(start, value[:5]) + serverFrame(ping, "x") + serverFrame(end, value[5:]),
			frames{{ping, "x"}, {text1, "[REDACTED:TOKEN]"}},
		},
		{"an empty fragment first", serverFrame(start, "") + serverFrame(end, "hello"), frames{{text1, "hello"}}},
		{"fragments that need no holding", serverFrame(start, "a.") + serverFrame(more, "b.") + serverFrame(end, ""), frames{{start, "a."}, {more, "b."}, {end, ""}}},
		{"the start of a value at the end", serverFrame(text1, "a "+value[:9]), frames{{text1, "a [REDACTED]"}}},
		{"a shorter start", serverFrame(text1, "a "+value[:7]) + serverFrame(text1, value[7:]), frames{{text1, "a " + value[:7]}, {text1, value[7:]}}},
		{"a ping with a value", serverFrame(ping, value), frames{{ping, "[REDACTED:TOKEN]"}}},
		{"a pong with the start of one", serverFrame(pong, value[:12]), frames{{pong, "[REDACTED]"}}},
		{"a ping that is too long when masked", serverFrame(ping, strings.Repeat(otherValue, 5)), frames{{ping, strings.Repeat("[REDACTED:OTHER]", 5)}}},
		{"closed", serverFrame(bye, "\x03\xe8bye "+value), frames{{bye, "\x03\xe8bye [REDACTED:TOKEN]"}}},
		{"closed with a status alone", serverFrame(bye, "\x03\xe8"), frames{{bye, "\x03\xe8"}}},
		{"closed without a status", serverFrame(bye, ""), frames{{bye, ""}}},
		{"more behind the close frame", serverFrame(bye, "\x03\xe8") + serverFrame(text1, "late"), frames{{bye, "\x03\xe8"}}},
	} {
		for _, n := range []int{1, 2, 7, 1 << 20} {
			got, err := framesOf(set, &reads{slices.Collect(slices.Chunk([]byte(tt.in), n)), io.EOF})
			all, _, parseErr := parseFrames(got)
			if err := errors.Join(err, parseErr); err != nil || !slices.Equal(all, tt.want) {
				t.Errorf("%s, %d bytes at once: frames %.200q, %v; want %.200q", tt.name, n, all, err, tt.want)
			}
		}
	}
}

// A frame that is longer than what is read at once becomes several, and a value on their border is masked.
func TestLongFrame(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	for _, before := range []int{0, frameBuffer - 20, frameBuffer - 10, frameBuffer, 3*frameBuffer - 1} {
		payload := strings.Repeat(".", before) + value + strings.Repeat("-", frameBuffer)
		got, err := framesOf(set, strings.NewReader(serverFrame(text1, payload)+serverFrame(text1, "next")))
		_, messages, parseErr := parseFrames(got)
		want := []string{strings.ReplaceAll(payload, value, "[REDACTED:TOKEN]"), "next"}
		if err := errors.Join(err, parseErr); err != nil || !slices.Equal(messages, want) {
			t.Errorf("%d bytes before the value: %d messages, %v; want the mask in the first", before, len(messages), err)
		}
	}
}

// What is not a frame closes the connection, and says why. Nothing of it gets through, nor what is behind it.
func TestBrokenFrames(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	for _, tt := range []struct{ name, in, want string }{
		{"an extension", serverFrame(0xc1, "x"), "an extension"},
		{"a reserved bit of a ping", serverFrame(0xa9, "x"), "an extension"},
		{"an unknown kind", serverFrame(0x83, "x"), "unknown kind 3"},
		{"an unknown control frame", serverFrame(0x8b, "x"), "unknown kind 11"},
		{"a masked frame", "\x81\x81\x00\x00\x00\x00x", "masked frame"},
		{"a length that is too long for what it is", "\x81\x7e\x00\x05hello", "malformed length"},
		{"one of 8 bytes", "\x81\x7f\x00\x00\x00\x00\x00\x00\x00\x05hello", "malformed length"},
		{"a negative length", "\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xffhello", "malformed length"},
		{"a fragment of nothing", serverFrame(end, "x"), "wrong order"},
		{"a message within another", serverFrame(start, "x") + serverFrame(text1, "y"), "wrong order"},
		{"a ping in fragments", serverFrame(0x09, "x"), "malformed control"},
		{"a long ping", serverFrame(ping, strings.Repeat("x", 126)), "malformed control"},
		{"a close frame with half a status", serverFrame(bye, "x"), "malformed control"},
		{"a close frame with a value in its status", serverFrame(bye, value), "malformed control"},
		{"a close frame with status 999", serverFrame(bye, "\x03\xe7"), "malformed control"},
		{"a close frame with status 5000", serverFrame(bye, "\x13\x88"), "malformed control"},
		{"HTTP", "HTTP/1.1 200 OK\r\n\r\n" + value, "an extension"},
	} {
		got, err := framesOf(set, strings.NewReader(serverFrame(text1, "before")+tt.in+serverFrame(text1, "behind")))
		frames, _, parseErr := parseFrames(got)
		broken, ok := errors.AsType[*FrameError](err)
		if parseErr != nil || !ok || !strings.Contains(broken.Problem, tt.want) {
			t.Errorf("%s: %q, %v, %v; want %q", tt.name, frames, err, parseErr, tt.want)
			continue
		}
		last := frames[len(frames)-1]
		if last.first != bye || !strings.HasPrefix(last.payload, "\x03\xeasandboxbash: secrets cannot be masked in a WebSocket: ") || strings.Contains(got, "behind") || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %q; want a close frame of status 1002, and nothing behind it", tt.name, frames)
		}
	}
}

// A server that breaks off within a message shows no part of a value, and the session no regular end.
func TestFramesBreakOff(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	broken := errors.New("broken")
	for _, in := range []string{serverFrame(start, "a "+value[:9]), serverFrame(text1, "a "+value)[:10], "\x81", "\x81\x7e\x00", serverFrame(ping, value)[:9]} {
		for end, want := range map[error]error{io.EOF: io.ErrUnexpectedEOF, broken: broken} {
			got, err := framesOf(set, &reads{[][]byte{[]byte(in)}, end})
			if !errors.Is(err, want) || strings.Contains(got, value[:1]) {
				t.Errorf("%q and then %v: %q, %v; want %v, and nothing of the value", in, end, got, err, want)
			}
		}
	}
}

// What the session writes goes to the server as it is.
func TestFramesOut(t *testing.T) {
	t.Parallel()
	s := &socket{Reader: strings.NewReader("")}
	m := newMaskedFrames(newSet(t), s)
	sent := "\x81\x85abcd" + placeholder + " no frame at all"
	if _, err := io.WriteString(m, sent); err != nil || s.sent.String() != sent {
		t.Errorf("the server gets %q, %v; want %q", s.sent.String(), err, sent)
	}
	if err := m.CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("CloseWrite() = %v; want that the connection cannot", err)
	}
	if err := m.Close(); err != nil || !s.closed {
		t.Errorf("Close() = %v, closed %v", err, s.closed)
	}
}

// A close frame's text is cut where a letter ends.
func TestClosePayload(t *testing.T) {
	t.Parallel()
	for n := range 5 {
		got := closePayload(1000, strings.Repeat("x", n)+strings.Repeat("漢", 100))
		if len(got) > 125 || len(got) < 120 || !utf8.Valid(got[2:]) {
			t.Errorf("%d bytes before: %d bytes, %q", n, len(got), got)
		}
	}
}

// Whatever a server sends, a strict client can read what the session gets, no value is in it, and memory is
// bounded. Messages before that are masked as a whole, wherever they are cut.
func FuzzFrames(f *testing.F) {
	set := newSet(f)
	f.Add("x ", " y", []byte{0}, "")
	f.Add("", "hun", []byte{3, 1}, serverFrame(ping, value))
	f.Add("é", "", []byte{7, 0, 200}, "\x81\x7e\x00\x05hello")
	f.Add("", "", []byte{255}, serverFrame(start, value)+serverFrame(end, value)+serverFrame(bye, "\x03\xe8"+value))
	f.Fuzz(func(t *testing.T, before, after string, cuts []byte, raw string) {
		if strings.ContainsAny(before+after, "[]") {
			t.Skip("it may be part of a mask")
		}
		text := before + value + after + value
		var in strings.Builder
		first, rest := byte(start), text
		for i := 0; len(cuts) > 0 && i < 100 && len(rest) > 0; i++ {
			n := min(len(rest), int(cuts[i%len(cuts)]))
			in.WriteString(serverFrame(first, rest[:n]))
			first, rest = more, rest[n:]
		}
		in.WriteString(serverFrame(first|0x80, rest))
		m := newMaskedFrames(set, &socket{Reader: strings.NewReader(in.String() + raw)})
		got, err := io.ReadAll(m)
		frames, messages, parseErr := parseFrames(string(got))
		if parseErr != nil {
			t.Fatalf("%v in %q, which ends with %v", parseErr, frames, err)
		}
		if want := set.Mask(text); len(messages) == 0 || messages[0] != want {
			t.Fatalf("cut by %v: %q; want %q", cuts, messages, want)
		}
		for _, one := range frames {
			if strings.Contains(one.payload, value) {
				t.Fatalf("a value gets through in %q", one.payload)
			}
		}
		for _, one := range messages {
			if strings.Contains(one, value) {
				t.Fatalf("a value gets through in %q", one)
			}
		}
		if cap(m.buf) > frameBuffer {
			t.Fatalf("the buffer has %d bytes", cap(m.buf))
		}
	})
}
