package sandbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// unhelpful starts no helpers while it says so.
type unhelpful struct {
	*docker.Engine
	now atomic.Bool
}

func (u *unhelpful) Attach(ctx context.Context, p engine.Helper) (engine.Handle, error) {
	if u.now.Load() {
		return engine.Handle{}, errors.New("no image")
	}
	return u.Engine.Attach(ctx, p)
}

// A workspace in memory outlives a reset of its container, or the result says that it
// was lost.
func TestResetHoldsMemory(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	r := resolver(t, client)
	backend := &unhelpful{Engine: docker.NewEngine(client, images.Runner)}
	e := sandbox.New(backend, r, sandbox.Options{})
	reset := func() (s *sandbox.Session, lost bool) {
		t.Helper()
		s = startIn(t, client, e, sandbox.Spec{Profile: sandbox.Dev, Limits: sandbox.Limits{Disk: 16 << 20}})
		script(t, s, "echo kept >f; head -c 4M /dev/zero >big")
		began := time.Now()
		res, err := s.Run(t.Context(), sandbox.Command{Script: "kill -9 $PPID; sleep 100", Timeout: 20 * time.Second})
		if !isError(err, exec.Unknown, exec.CauseRunnerLost) {
			t.Fatalf("Run() = %+v, %v; want outcome-unknown{runner-lost}", res.Status, err)
		}
		t.Logf("the reset took %v", time.Since(began))
		return s, res.WorkspaceLost
	}
	look := func(s *sandbox.Session, command, want string) (ran bool) {
		t.Helper()
		res, err := s.Run(t.Context(), sandbox.Command{Script: command, Timeout: 20 * time.Second})
		if isError(err, exec.Lost, sandbox.CauseKilled, sandbox.CauseRemoved) {
			t.Logf("the engine was too slow for the reset: %v", err)
			return false
		}
		if got := res.Output.Stdout.Text(); err != nil || got != want {
			t.Errorf("after the reset: %q, %v; want %q", got, err, want)
		}
		return true
	}
	const empty, whole = "0\n", "kept\n4194304\n16777216\n"
	for deadline, held := time.Now().Add(time.Minute), false; !held; {
		if time.Now().After(deadline) {
			t.Fatal("the workspace was never held: is the engine as slow as that?")
		}
		s, lost := reset()
		if lost {
			look(s, "ls -A | wc -l", empty)
			continue
		}
		held = look(s, "cat f; stat -c %s big; df -B1 --output=size . | tail -n 1 | tr -d ' '", whole)
	}
	backend.now.Store(true)
	s, lost := reset()
	if !lost {
		t.Error("WorkspaceLost = false where nothing could hold it")
	}
	look(s, "ls -A | wc -l", empty)
}
