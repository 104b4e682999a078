package docker_test

import (
	"io"
	"strconv"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
)

// BenchmarkEngineFlood is the raw exec stream, end to end.
func BenchmarkEngineFlood(b *testing.B) {
	c := dockertest.Connect(b)
	id := create(b, c, shape(first(importHelper(b, c))))
	const size = 256 << 20
	b.SetBytes(size)
	for b.Loop() {
		s, err := c.OpenExec(b.Context(), id, engine.Exec{Args: []string{"/helper", "flood", strconv.Itoa(size)}, User: "0:0"})
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, s)
		if err != nil || n != size {
			b.Fatalf("got %d bytes, %v; want %d", n, err, size)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func first[A, B any](a A, _ B) A { return a }
