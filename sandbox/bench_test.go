package sandbox_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// benchEngine is an Engine on the real engine. What is measured has no meaning
// without one.
func benchEngine(b *testing.B, o sandbox.Options) *sandbox.Engine {
	b.Helper()
	c := dockertest.Connect(b)
	r, err := images.New(c, images.Options{})
	if err != nil {
		b.Fatal(err)
	}
	e := newEngine(c, r, o)
	b.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})
	return e
}

var benchSpec = sandbox.Spec{Image: images.HostRef, Lease: time.Minute}

func benchSession(b *testing.B, e *sandbox.Engine) *sandbox.Session {
	b.Helper()
	s, err := e.Start(b.Context(), benchSpec)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})
	return s
}

func benchRun(b *testing.B, s *sandbox.Session, script string, want int64) {
	b.Helper()
	res, err := s.Run(b.Context(), sandbox.Command{Script: script, Timeout: time.Minute})
	if err != nil || res.Code != 0 || res.Stdout != want {
		b.Fatalf("Run(%q) = %+v, %v; want %d bytes", script, res.Status, err, want)
	}
}

// BenchmarkSessionRun is one command of a warm session; BenchmarkLocalBash is what
// it is to be held against. `make bench` compares them in turns.
func BenchmarkSessionRun(b *testing.B) {
	s := benchSession(b, benchEngine(b, sandbox.Options{Ahead: 1}))
	b.ReportAllocs()
	for b.Loop() {
		benchRun(b, s, "echo hi", 3)
	}
}

func BenchmarkLocalBash(b *testing.B) {
	for b.Loop() {
		if out, err := exec.CommandContext(b.Context(), "bash", "-c", "echo hi").Output(); err != nil || string(out) != "hi\n" {
			b.Fatalf("bash -c 'echo hi' = %q, %v; want %q", out, err, "hi\n")
		}
	}
}

// BenchmarkSessionOutput is much output through the whole way and the default sink.
func BenchmarkSessionOutput(b *testing.B) {
	s := benchSession(b, benchEngine(b, sandbox.Options{Ahead: 1}))
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		benchRun(b, s, "yes 'some text of a usual length, as a line' | head -c 64M", size)
	}
}

// BenchmarkSessionStart is a session from nothing to its first result, and away
// again.
func BenchmarkSessionStart(b *testing.B) {
	e := benchEngine(b, sandbox.Options{})
	for b.Loop() {
		s, err := e.Start(b.Context(), benchSpec)
		if err != nil {
			b.Fatal(err)
		}
		benchRun(b, s, "echo hi", 3)
		if err := s.Stop(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
