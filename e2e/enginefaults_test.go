package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/e2e/engines"
)

// engineFault is something that happens to an engine under its sessions.
type engineFault struct {
	name string
	do   func(ctx context.Context, e *ownEngine, l *ledger) error
	// lives is whether the container, and with it a job, outlives it.
	lives bool
	sleep int      // seconds, of the command that runs
	want  []string // what may be told of it
}

// How soon the end of a command is told whose engine has gone.
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

// Rows L4, L5: an engine with live-restore is restarted, killed, loses its
// containerd or a shim, while a command and a job run. The command's end is not
// known, and nothing of it lives on; the job loses neither its output nor its
// outcome; the session goes on, or is told to be lost.
func TestLiveRestore(t *testing.T) {
	e := newOwnEngine(t, engines.Options{LiveRestore: true})
	unknown := []string{"outcome-unknown"}
	for _, fault := range []engineFault{
		{"restarted", restart, true, 300, unknown},
		{"killed and started", killAndStart, true, 300, unknown},
		{"containerd killed", killContainerd, true, 5, []string{"outcome-unknown", "exited"}},
		{"shim killed", killShim, false, 300, []string{"outcome-unknown", "session-lost"}},
	} {
		t.Run(fault.name, func(t *testing.T) { underFault(t, e, fault) })
	}
}

// jobLines is what the job of these tests writes, in about eight seconds.
const jobLines = 160

func underFault(t *testing.T, e *ownEngine, fault engineFault) {
	t.Helper()
	// The lease is what bounds the life of a command that has lost its host.
	l := newLedger(t, e.seat, "--idle", "15s")
	job := e.run(t, "run", "--session", l.session, "--background", "--timeout", "2m",
		fmt.Sprintf(`for i in $(seq %d); do echo line $i; sleep 0.05; done; exit 7`, jobLines))
	job, _, _ = strings.Cut(job, " ")
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
	if !oneOf(reason, fault.want) {
		t.Errorf("the command under it: %s; want one of %q\n%s", d.reason(), fault.want, victim.said)
	}
	if err := l.goesOn(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("told %s after %s", d.reason(), time.Since(began).Round(100*time.Millisecond))
	out, err := e.try(t.Context(), "job", "wait", "--session", l.session, job)
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
	if got := e.run(t, "job", "output", "--session", l.session, job) + "\n"; got != want.String() {
		t.Errorf("the job's output has %d lines, %d bytes; want %d bytes", strings.Count(got, "\n"), len(got), want.Len())
	}
}

func oneOf(text string, all []string) bool {
	for _, one := range all {
		if text == one {
			return true
		}
	}
	return false
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
