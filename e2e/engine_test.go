package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/engines"
)

// ownEngine is a private engine, which a test may stop, and a home for the program.
type ownEngine struct {
	*engines.Engine
	seat
}

// newOwnEngine starts one, which is closed with the test.
func newOwnEngine(t *testing.T, opts engines.Options) *ownEngine {
	t.Helper()
	needEngine(t)
	if opts.Dir == "" {
		dir, err := os.MkdirTemp("", "sbx") //nolint:usetesting // short: a socket's path has at most 107 bytes
		if err != nil {
			t.Fatal(err)
		}
		opts.Dir = dir
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	e, err := engines.Start(t.Context(), opts)
	if errors.Is(err, engines.ErrNotHere) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the directory goes
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return &ownEngine{Engine: e, seat: seat{host: e.Host(), home: t.TempDir()}}
}

// stop ends the daemon, which ends its containers, and waits.
func (e *ownEngine) stop(t *testing.T) {
	t.Helper()
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// start starts the daemon again and waits until it answers.
func (e *ownEngine) start(t *testing.T) {
	t.Helper()
	if err := e.Again(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Scenario 74, row L3: if the engine is restarted while a command runs, the command ends with
// an error in bounded time, never with a result. Nothing runs twice. The next session works,
// and only the workspace of the old one is left.
func TestEngineRestart(t *testing.T) { //nolint:tparallel // its parts are about the whole engine
	t.Parallel()
	e := newOwnEngine(t, engines.Options{})
	id := e.run(t, "session", "start", "--workspace", "volume")
	victim := e.command(t.Context(), "session", "exec", "--json=false", id, "echo x >>started; echo before; sleep 60")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	victim.Stderr = &stderr
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "before\n" || err != nil {
		t.Fatalf("the command printed %q, %v; want before", line, err)
	}

	e.stop(t)
	began := time.Now()
	var exit *exec.ExitError
	if err := victim.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 125 {
		t.Errorf("the command under the restart: %v; want exit status 125\n%s", err, &stderr)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the command ended %s after its engine; want at most 20s", took)
	}
	e.start(t)

	// The old session is dead and says so; it is not started again silently.
	lost := e.command(t.Context(), "session", "exec", id, "true")
	if err := lost.Run(); !errors.As(err, &exit) || exit.ExitCode() != 125 {
		t.Errorf("a command in the lost session: %v; want exit status 125", err)
	}
	next := e.run(t, "session", "start")
	if got := e.run(t, "session", "exec", next, "echo again"); got != "again" {
		t.Errorf("the next session printed %q; want again", got)
	}
	e.run(t, "session", "reap")
	var list []struct{ ID, Status string }
	if err := json.Unmarshal([]byte(e.run(t, "session", "ls", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].ID != id || list[0].Status != "kept" || list[1].ID != next {
		t.Errorf("sessions after the reap: %+v; want %s kept, and %s", list, id, next)
	}
	e.run(t, "session", "stop", id, next)
	t.Run("passwd", func(t *testing.T) { underPasswd(t, e) }) // here, for there is no other engine to swell
	left, err := e.Docker(t.Context(), "ps", "-aq")
	if err != nil || left != "" {
		t.Errorf("containers left: %q, %v; want none", left, err)
	}
}
