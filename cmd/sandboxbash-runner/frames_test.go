//go:build linux

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// written is a writer that notes each call, and fails from a call on.
type written struct {
	calls  []string
	failAt int // the first call that fails, from 1; 0: none does
	short  int // bytes that the failing call takes nevertheless
}

func (w *written) Write(p []byte) (int, error) {
	w.calls = append(w.calls, string(p))
	if w.failAt > 0 && len(w.calls) >= w.failAt {
		return w.short, errors.New("the host is gone")
	}
	return len(p), nil
}

// A frame that is held goes out before the next one, in the same call if that is small.
func TestFrameWriterHolds(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("L"), smallChunk+1)
	edge := bytes.Repeat([]byte("E"), smallChunk)
	for _, row := range []struct {
		name  string
		steps func(w *frameWriter)
		want  []string
	}{
		{"nothing held", func(w *frameWriter) { w.write([]byte("a")) }, []string{"a"}},
		{"held alone", func(w *frameWriter) { w.hold([]byte("a")) }, nil},
		{"held, then small", func(w *frameWriter) { w.hold([]byte("a")); w.write([]byte("b")) }, []string{"ab"}},
		{"two held", func(w *frameWriter) { w.hold([]byte("a")); w.hold([]byte("b")); w.write([]byte("c")) }, []string{"abc"}},
		{"held, then the largest small one", func(w *frameWriter) { w.hold([]byte("a")); w.write(edge) }, []string{"a" + string(edge)}},
		{"held, then large", func(w *frameWriter) { w.hold([]byte("a")); w.write(large) }, []string{"a", string(large)}},
		{"held once", func(w *frameWriter) { w.hold([]byte("a")); w.write([]byte("b")); w.write([]byte("c")) }, []string{"ab", "c"}},
		{"held again", func(w *frameWriter) {
			w.hold([]byte("a"))
			w.write(large)
			w.hold([]byte("b"))
			w.write([]byte("c"))
		}, []string{"a", string(large), "bc"}},
	} {
		var out written
		row.steps(newFrameWriter(&out))
		if !slices.Equal(out.calls, row.want) {
			t.Errorf("%s: %d calls %.40q; want %d calls %.40q", row.name, len(out.calls), out.calls, len(row.want), row.want)
		}
	}
}

// What is held is a copy: the pump reads the next output into the same memory.
func TestFrameWriterHoldsCopy(t *testing.T) {
	t.Parallel()
	var out written
	w := newFrameWriter(&out)
	frame := []byte("first")
	w.hold(frame)
	copy(frame, "XXXXX")
	w.write([]byte("."))
	if want := []string{"first."}; !slices.Equal(out.calls, want) {
		t.Errorf("calls %q; want %q", out.calls, want)
	}
}

// After a frame that was not written whole, the host could not tell where the next one
// starts: nothing may follow.
func TestFrameWriterTorn(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		failAt int
		steps  func(w *frameWriter)
		calls  int
	}{
		{"the first", 1, func(w *frameWriter) { w.write([]byte("a")); w.write([]byte("b")) }, 1},
		{"a later one", 2, func(w *frameWriter) { w.write([]byte("a")); w.write([]byte("b")); w.write([]byte("c")) }, 2},
		{"what was held", 1, func(w *frameWriter) { w.hold([]byte("a")); w.write(make([]byte, smallChunk+1)) }, 1},
		{"held later", 1, func(w *frameWriter) { w.write([]byte("a")); w.hold([]byte("b")); w.write([]byte("c")) }, 1},
		{"a control frame", 1, func(w *frameWriter) { w.send(wire.TypePong, nil); w.send(wire.TypeExit, nil) }, 1},
	} {
		out := written{failAt: row.failAt}
		row.steps(newFrameWriter(&out))
		if len(out.calls) != row.calls {
			t.Errorf("%s: %d calls %.40q; want %d", row.name, len(out.calls), out.calls, row.calls)
		}
	}
}

// Frames of several goroutines never mix.
func TestFrameWriterConcurrent(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe() // takes every call in pieces
	out := newFrameWriter(w)
	const writers, frames = 8, 50
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for n := range frames {
				payload := bytes.Repeat([]byte{byte(i)}, 1+n*97)
				if n%3 == 0 {
					out.hold(wire.AppendFrame(nil, wire.TypeStdout, payload))
				} else {
					out.send(wire.TypeStdout, payload)
				}
			}
		})
	}
	go func() {
		all.Wait()
		out.send(wire.TypeExit, nil) // takes what is held along
		_ = w.Close()                // a pipe's never fails
	}()
	in := wire.NewReader(r)
	got := make([]int, writers)
	for {
		kind, payload, err := in.Next()
		if err != nil {
			t.Fatalf("after %v frames: %v", got, err)
		}
		if kind == wire.TypeExit {
			break
		}
		if kind != wire.TypeStdout || len(payload) == 0 || bytes.Count(payload, payload[:1]) != len(payload) {
			t.Fatalf("a frame of type %q and %d bytes is not of one writer", kind, len(payload))
		}
		got[payload[0]]++
	}
	for i, n := range got {
		if n != frames {
			t.Errorf("%d frames of writer %d arrived; want %d", n, i, frames)
		}
	}
}

// A bound on the time of writes also holds for one that is blocked already, and goes away.
func TestFrameWriterLimit(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	out := newFrameWriter(w)
	blocked := make(chan struct{})
	go func() {
		defer close(blocked)
		out.write(make([]byte, 4*pipeSize)) // no pipe takes that
	}()
	select {
	case <-blocked:
		t.Fatal("a write that no reader takes returned")
	case <-time.After(20 * time.Millisecond):
	}
	out.limit(time.Millisecond)
	select {
	case <-blocked:
	case <-time.After(20 * time.Second):
		t.Fatal("the write goes on after its time")
	}
	if !out.torn {
		t.Error("a frame that was cut is not noticed: more would follow")
	}

	r2, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r2.Close()
	again := newFrameWriter(w2)
	again.limit(time.Nanosecond)
	again.limit(0)
	again.write([]byte("late"))
	w2.Close()
	if b, err := io.ReadAll(r2); string(b) != "late" || err != nil {
		t.Errorf("without the bound %q, %v arrived; want late", b, err)
	}
	newFrameWriter(io.Discard).limit(time.Second) // has no time to bound, and does not fail
}

// The parts of a request are put together up to the bound, and the memory is given up.
func TestRequestParts(t *testing.T) {
	t.Parallel()
	whole := wire.Request{Seq: 7, Shell: "sh", Script: bytes.Repeat([]byte("x"), 1000)}.Append(nil)
	for _, size := range []int{1, 7, len(whole) - 1, len(whole)} {
		var p requestParts
		rest := whole
		for len(rest) > size {
			if req, err := p.add(wire.TypePart, rest[:size]); req != nil || err != nil {
				t.Fatalf("add(a part of %d bytes) = %v, %v; want nil, nil", size, req, err)
			}
			rest = rest[size:]
		}
		req, err := p.add(wire.TypeRequest, rest)
		if err != nil || req.Seq != 7 || len(req.Script) != 1000 || p != nil {
			t.Errorf("parts of %d bytes: %+v, %v, %d bytes kept; want the request, and nothing kept", size, req, err, len(p))
		}
		if req, err = p.add(wire.TypeRequest, whole); err != nil || req.Seq != 7 {
			t.Errorf("the next request: %+v, %v; want it whole", req, err)
		}
	}
	full := requestParts(make([]byte, wire.MaxRequest))
	if _, err := full.add(wire.TypePart, nil); err != nil {
		t.Errorf("add(nothing) at the bound = %v; want nil", err)
	}
	for _, kind := range []wire.Type{wire.TypePart, wire.TypeRequest} {
		if _, err := full.add(kind, []byte("x")); !errors.Is(err, wire.ErrFrame) {
			t.Errorf("add(%q) above the bound = %v; want %v", kind, err, wire.ErrFrame)
		}
	}
	var none requestParts
	if _, err := none.add(wire.TypeRequest, nil); !errors.Is(err, wire.ErrFrame) {
		t.Errorf("add(an empty request) = %v; want %v", err, wire.ErrFrame)
	}
}
