package sandboxbash_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
)

func TestEngine(t *testing.T) {
	t.Parallel()
	dockertest.Connect(t) // skips where there is no engine
	engine, err := sandboxbash.Open(t.Context(), sandboxbash.Options{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := engine.Start(t.Context(), sandboxbash.Spec{Image: sandboxbash.HostImage})
	if err != nil {
		t.Fatal(err)
	}
	res, err := session.Run(t.Context(), sandboxbash.Command{Script: "echo started; sleep 60", Timeout: time.Second})
	if got := res.Output.Stdout.Text(); err != nil || res.Reason != sandboxbash.TimedOut || strings.TrimSpace(got) != "started" {
		t.Errorf("Run() = %v, %q, %v; want %v, %q, nil", res.Reason, got, err, sandboxbash.TimedOut, "started")
	}
	if err := session.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := engine.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOpenWithoutEngine(t *testing.T) {
	t.Parallel()
	const address = "unix:///nowhere/docker.sock"
	engine, err := sandboxbash.Open(t.Context(), sandboxbash.Options{Address: address})
	if engine != nil || err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("Open(%s) = %v, %v; want an error that names the address", address, engine, err)
	}
}
