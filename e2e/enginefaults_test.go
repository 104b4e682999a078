package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/engines"
)

// engineFault is something that happens to an engine under its sessions.
type engineFault struct {
	name string
	do   func(ctx context.Context, e *ownEngine, l *ledger) error
	// lives says whether the container, and with it a job, survives the fault.
	lives bool
	sleep int      // seconds, of the command that runs
	want  []string // outcomes that may be reported for it
}

// How soon the end of a command must be reported if the engine has gone.
const toldWithin = 20 * time.Second

func restart(ctx context.Context, e *ownEngine, _ *ledger) error {
	return errors.Join(e.Stop(ctx), e.Again(ctx))
}

func killAndStart(ctx context.Context, e *ownEngine, _ *ledger) error {
	return errors.Join(e.Kill(), e.Again(ctx))
}

func killContainerd(_ context.Context, e *ownEngine, _ *ledger) error {
	pid, err := e.Containerd()
	if err != nil {
		return err
	}
	return kill(pid)
}

func killShim(ctx context.Context, e *ownEngine, l *ledger) error {
	id, err := e.Docker(ctx, "inspect", "--format", "{{.Id}}", "sandboxbash-"+l.session)
	if err != nil {
		return err
	}
	pid, ok := e.Shims()[id]
	if !ok {
		return fmt.Errorf("container %s has no shim", id)
	}
	return kill(pid)
}

func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

// Rows L4, L5, L13, scenario 74: an engine with live-restore is restarted or killed while a
// command and a job run. The command's end is unknown, and nothing of it survives. The job
// loses neither output nor outcome. The session goes on.
func TestLiveRestore(t *testing.T) { //nolint:tparallel // a fault is the whole engine's
	t.Parallel()
	unknown := []string{"outcome-unknown"}
	underFaults(t, engines.Options{LiveRestore: true}, []engineFault{
		{"restarted", restart, true, 300, unknown},
		{"killed and started", killAndStart, true, 300, unknown},
	})
}

// Rows L3, L5: the same without live-restore, and faults of an engine's helpers. What ends
// with its container is reported as lost.
func TestEngineFaults(t *testing.T) { //nolint:tparallel // a fault is the whole engine's
	t.Parallel()
	underFaults(t, engines.Options{}, []engineFault{
		{"containerd killed", killContainerd, true, 5, []string{"outcome-unknown", "exited"}},
		{"shim killed", killShim, false, 300, []string{"outcome-unknown", "session-lost"}},
		{"killed and started", killAndStart, false, 300, []string{"outcome-unknown", "session-lost"}},
	})
}

func underFaults(t *testing.T, opts engines.Options, faults []engineFault) {
	t.Helper()
	e := newOwnEngine(t, opts)
	e.run(t, "image", "host")
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) { underFault(t, e, fault) })
	}
	e.run(t, "session", "reap")
	if left, err := e.Docker(t.Context(), "ps", "-aq"); err != nil || left != "" {
		t.Errorf("containers left: %q, %v; want none", left, err)
	}
}

// faultIdle is the idle time of sessions under a fault: it bounds the life of a
// command that has lost its host. The job holds the session for longer.
const faultIdle = "8s"

// jobLines is what the job of these tests writes, in about ten seconds. Then it waits to be
// told to end: without it the session would end too, while the test waits for the engine.
const jobLines = 100

func underFault(t *testing.T, e *ownEngine, fault engineFault) {
	t.Helper()
	l := newLedger(t, e.seat, "--idle", faultIdle)
	job := e.run(t, "run", "--session", l.session, "--background", "--timeout", "2m",
		fmt.Sprintf(`for i in $(seq %d); do echo line $i; sleep 0.1; done; until [ -e .end ]; do sleep 0.1; done; exit 7`, jobLines))
	victim, cmd := l.start(t, fmt.Sprintf("sleep %d", fault.sleep))
	began := time.Now()
	if err := fault.do(t.Context(), e, l); err != nil {
		t.Fatalf("%v\n%s", err, e.Log())
	}
	l.wait(victim, cmd)
	d, err := l.check(victim)
	if err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > toldWithin+sweepPatience {
		t.Errorf("told, and nothing left, after %s; want at most %s", took, toldWithin+sweepPatience)
	}
	reason, _, _ := strings.Cut(d.reason(), "{")
	if !slices.Contains(fault.want, reason) {
		t.Errorf("the command under it: %s; want one of %q\n%s", d.reason(), fault.want, victim.said)
	}
	if err := l.goesOnSoon(t.Context()); err != nil {
		t.Error(err)
	}
	if fault.lives { // the job's end
		if err := os.WriteFile(filepath.Join(filepath.Dir(l.file), ".end"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	t.Logf("told %s after %s", d.reason(), time.Since(began).Round(100*time.Millisecond))
	out, err := e.trySoon(t.Context(), "job", "wait", "--json", "--session", l.session, job)
	if !fault.lives {
		if err == nil || status(errors.Unwrap(err)) == 7 {
			t.Errorf("job wait = %v; want the session to be lost\n%s", err, out)
		}
		return
	}
	if got := status(errors.Unwrap(err)); got != 7 {
		t.Errorf("job wait: %v; want exit status 7", err)
	}
	var want strings.Builder
	for i := range jobLines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if got := e.run(t, "job", "logs", "--session", l.session, job) + "\n"; got != want.String() {
		t.Errorf("the job's output has %d lines, %d bytes; want %d bytes", strings.Count(got, "\n"), len(got), want.Len())
	}
}

// soon is how long an engine that answers again may take until it can start processes in its
// containers.
const soon = 40 * time.Second

// notYet reports whether a command was not started because of the engine.
func (d told) notYet() bool {
	return d.Error != nil && d.Error.Outcome == "not-started" && (d.Error.Cause == "engine" || d.Error.Cause == "unreachable")
}

// trySoon runs a command that prints JSON, and runs it again while the engine cannot start it.
func (s seat) trySoon(ctx context.Context, args ...string) (string, error) {
	for deadline := time.Now().Add(soon); ; time.Sleep(time.Second) {
		out, err := s.try(ctx, args...)
		var d told
		if json.Unmarshal([]byte(out), &d) != nil || !d.notYet() || time.Now().After(deadline) {
			return out, err
		}
	}
}

// goesOnSoon is goesOn at an engine that may still be starting.
func (l *ledger) goesOnSoon(ctx context.Context) error {
	for deadline := time.Now().Add(soon); ; time.Sleep(time.Second) {
		d, err := l.another(ctx)
		if err == nil && d.notYet() && time.Now().Before(deadline) {
			continue
		}
		return errors.Join(err, d.goesOn())
	}
}

// start starts a command and waits until it has begun.
func (l *ledger) start(t *testing.T, body string, flags ...string) (*entry, *exec.Cmd) {
	t.Helper()
	e, cmd := l.command(t.Context(), l.seat, body, flags...)
	said := new(strings.Builder)
	cmd.Stdout = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if begun, _, err := l.done(e.mark); err != nil || begun > 0 {
			return e, cmd
		}
		if time.Now().After(deadline) {
			t.Fatalf("the command does not begin: %s%s", said, e.errors)
		}
	}
}

// wait waits for the end of a command that start has started.
func (l *ledger) wait(e *entry, cmd *exec.Cmd) {
	began := time.Now()
	_ = cmd.Wait()
	e.took, e.status = time.Since(began), cmd.ProcessState.ExitCode()
	if said, ok := cmd.Stdout.(*strings.Builder); ok {
		e.said = []byte(said.String())
	}
}
