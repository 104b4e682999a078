// Package dockertest is for tests alone: it finds the engine that they run on, and runs the
// docker command line.
package dockertest

import (
	"os"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine/docker"
)

// Connect returns a client of the engine that the environment names, as the docker
// command would find it, closed with the test. Where none answers, the test is
// skipped, but fails in CI; SANDBOXBASH_TEST_ENGINE=none skips it always.
func Connect(tb testing.TB) *docker.Client {
	tb.Helper()
	if os.Getenv("SANDBOXBASH_TEST_ENGINE") == "none" {
		tb.Skip("needs an engine, and SANDBOXBASH_TEST_ENGINE=none")
	}
	home, _ := os.UserHomeDir()
	client, err := docker.Connect(tb.Context(), docker.Options{Getenv: os.Getenv, Home: home})
	if err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatalf("no engine answers, and CI=true: %v", err)
		}
		tb.Skipf("no engine answers: %v", err)
	}
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Error(err)
		}
	})
	return client
}
