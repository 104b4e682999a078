package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMessagesRoundTrip(t *testing.T) {
	t.Parallel()
	hello := Hello{Version: Version, PID: 7, Bash: true, Features: []string{"a", "b"}}
	if got, err := ParseHello(hello.Append(nil)); cmp.Diff(hello, got) != "" || err != nil {
		t.Errorf("ParseHello(%+v) = %+v, %v; want the same, nil", hello, got, err)
	}
	open := Open{Version: Version, Lease: 15 * time.Second}
	if got, err := ParseOpen(open.Append(nil)); got != open || err != nil {
		t.Errorf("ParseOpen(%+v) = %+v, %v; want the same, nil", open, got, err)
	}
	req := Request{
		Seq: 1 << 40, Path: "/p", Shell: "bash", Script: []byte("echo \xff\n"), Args: []string{"", "a b"},
		Env: []string{"A=\x80"}, Dir: "/w", UID: 1000, GID: 1 << 31, Merged: true, Stdin: true, Exclusive: true,
	}
	if got, err := ParseRequest(req.Append(nil)); err != nil || cmp.Diff(req, got) != "" {
		t.Errorf("ParseRequest: %v, difference %s", err, cmp.Diff(req, got))
	}
	kill := Kill{Seq: 3, Grace: -time.Second, Interrupt: true}
	if got, err := ParseKill(kill.Append(nil)); got != kill || err != nil {
		t.Errorf("ParseKill(%+v) = %+v, %v; want the same, nil", kill, got, err)
	}
	taken := Taken{Seq: 3, Bytes: 9}
	if got, err := ParseTaken(taken.Append(nil)); got != taken || err != nil {
		t.Errorf("ParseTaken(%+v) = %+v, %v; want the same, nil", taken, got, err)
	}
	exit := Exit{Seq: 2, Code: 255, Signal: 9, Rung: RungStuck, OOM: true, Left: 3, CPU: time.Hour, MaxRSS: 1 << 50, Processes: 1 << 40, Stdout: 5, Stderr: 6}
	if got, err := ParseExit(exit.Append(nil)); !cmp.Equal(got, exit) || err != nil {
		t.Errorf("ParseExit(%+v) = %+v, %v; want the same, nil", exit, got, err)
	}
	failed := Failed{Seq: 2, Failure: FailBusy, Errno: 11, Detail: "d\x00"}
	if got, err := ParseFailed(failed.Append(nil)); got != failed || err != nil {
		t.Errorf("ParseFailed(%+v) = %+v, %v; want the same, nil", failed, got, err)
	}
}

// Every proper prefix of a message is refused. Fields behind the last known one are
// those of a later version, and ignored.
func TestMessagesCutAnywhere(t *testing.T) {
	t.Parallel()
	whole := Request{Seq: 300, Shell: "sh", Script: []byte("x"), Args: []string{"y"}, Env: []string{"A=b"}, Dir: "/"}.AppendFor(OldestVersion, nil)
	for n := range whole {
		if _, err := ParseRequest(whole[:n]); !errors.Is(err, ErrFrame) {
			t.Errorf("ParseRequest(%d of %d bytes): error %v; want ErrFrame", n, len(whole), err)
		}
	}
	if got, err := ParseRequest(append(whole, 0)); err != nil || got.Seq != 300 {
		t.Errorf("ParseRequest(a field too many): %+v, %v; want it ignored", got, err)
	}
}

// A runner of another version is not taken for a stream that is not a runner's.
func TestParseHelloOfOthers(t *testing.T) {
	t.Parallel()
	for _, version := range []uint64{OldestVersion - 1, Version + 1} {
		got, err := ParseHello(Hello{Version: version}.Append(nil))
		if got.Version != version || err != nil || !errors.Is(got.Known(), ErrFrame) {
			t.Errorf("ParseHello(version %d) = %+v, %v, known: %v; want the version, nil, ErrFrame", version, got, err, got.Known())
		}
	}
	old := append(encode(nil, &Hello{Version: OldestVersion, PID: 7, Bash: true})[:len(Magic)+1+1], 14, 1, 0) // as it was sent
	if got, err := ParseHello(old); got.PID != 7 || !got.Bash || got.Features != nil || err != nil || got.Known() != nil {
		t.Errorf("ParseHello(of the version before) = %+v, %v, known: %v; want its pid, no features, nil", got, err, got.Known())
	}
	if _, err := ParseHello([]byte("OCI runtime exec failed")); !errors.Is(err, ErrFrame) {
		t.Errorf("ParseHello(text): error %v; want ErrFrame", err)
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", MaxPayload)
	var stream []byte
	stream = AppendFrame(stream, TypeStdout, []byte("one"))
	stream = AppendFrame(stream, TypePong, nil)
	stream = AppendFrame(stream, TypeStderr, []byte(big))
	stream = AppendFrame(stream, TypeStdout, []byte("last"))
	for name, src := range map[string]io.Reader{
		"whole":       bytes.NewReader(stream),
		"byte a time": iotest.OneByteReader(bytes.NewReader(stream)),
		"with error":  iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		r := NewReader(src)
		for _, want := range []struct {
			kind    Type
			payload string
		}{{TypeStdout, "one"}, {TypePong, ""}, {TypeStderr, big}, {TypeStdout, "last"}} {
			kind, payload, err := r.Next()
			if kind != want.kind || string(payload) != want.payload || err != nil {
				t.Fatalf("%s: Next() = %q, %d bytes, %v; want %q, %d bytes, nil", name, kind, len(payload), err, want.kind, len(want.payload))
			}
		}
		if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: Next() at the end: error %v; want EOF", name, err)
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	t.Parallel()
	frame := AppendFrame(nil, TypeStdout, []byte("payload"))
	for n := 1; n < len(frame); n++ {
		if _, _, err := NewReader(bytes.NewReader(frame[:n])).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Next() of %d of %d bytes: error %v; want ErrUnexpectedEOF", n, len(frame), err)
		}
	}
	large := AppendHeader(nil, TypeStdout, MaxPayload+1)
	if _, _, err := NewReader(bytes.NewReader(large)).Next(); !errors.Is(err, ErrFrame) {
		t.Errorf("Next() of a payload of %d bytes: error %v; want ErrFrame", MaxPayload+1, err)
	}
}

// After Detach the old payload keeps its bytes, and no frame is lost.
func TestReaderDetach(t *testing.T) {
	t.Parallel()
	var stream []byte
	for _, text := range []string{"first", "second", "third"} {
		stream = AppendFrame(stream, TypeStdout, []byte(text))
	}
	stream = AppendFrame(stream, TypeStdout, bytes.Repeat([]byte{'z'}, MaxPayload))
	r := NewReader(bytes.NewReader(stream))
	_, first, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	r.Detach()
	for _, want := range []string{"second", "third", strings.Repeat("z", MaxPayload)} {
		if _, got, err := r.Next(); string(got) != want || err != nil {
			t.Fatalf("Next() = %.10q, %v; want %.10q, nil", got, err, want)
		}
	}
	if string(first) != "first" {
		t.Errorf("the payload before Detach became %q", first)
	}
}

// Whatever bytes come, reading ends, memory is bounded, and what is read is what
// the frames said.
func FuzzReader(f *testing.F) {
	f.Add(AppendFrame(nil, TypeExit, Exit{Seq: 1}.Append(nil)))
	f.Add(AppendHeader(nil, TypeStdout, MaxPayload+1))
	f.Add([]byte{'1', 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, rest := NewReader(bytes.NewReader(data)), data
		for {
			kind, payload, err := r.Next()
			if err != nil {
				return
			}
			frame := AppendFrame(nil, kind, payload)
			if !bytes.HasPrefix(rest, frame) {
				t.Fatalf("read %q, which is not the beginning of %q", frame, rest)
			}
			rest = rest[len(frame):]
		}
	})
}

// No bytes make a parser panic, and what it accepts it can say again.
func FuzzParse(f *testing.F) {
	f.Add(Request{Seq: 1, Script: []byte("echo"), Env: []string{"A=b"}}.Append(nil))
	f.Add(Hello{Version: Version}.Append(nil))
	f.Add(Exit{Code: 3, CPU: 5}.Append(nil))
	f.Add(Failed{Detail: "x"}.Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := ParseRequest(data); err == nil {
			if again, err := ParseRequest(m.Append(nil)); err != nil || cmp.Diff(m, again) != "" {
				t.Errorf("a request changed when said again: %v", err)
			}
		}
		if m, err := ParseExit(data); err == nil {
			if again, err := ParseExit(m.Append(nil)); err != nil || !cmp.Equal(m, again) {
				t.Errorf("an exit changed when said again: %v", err)
			}
		}
		if m, err := ParseFailed(data); err == nil {
			if again, err := ParseFailed(m.Append(nil)); err != nil || m != again {
				t.Errorf("a failure changed when said again: %v", err)
			}
		}
		_, _ = ParseHello(data)
		_, _ = ParseOpen(data)
		_, _ = ParseKill(data)
		_, _ = ParseTaken(data)
	})
}
