package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Row L7, scenario 73: another program ends, pauses or removes the container of a
// session under a command, or memory runs out in it. The outcomes of the command
// and of the next one are true.
func TestContainerFaults(t *testing.T) {
	t.Parallel()
	here := hereSeat(t)
	docker := func(args ...string) func(context.Context, *ledger) error {
		return func(ctx context.Context, l *ledger) error {
			_, err := l.seat.docker(ctx, append(args, "sandboxbash-"+l.session)...)
			return err
		}
	}
	const (
		long    = "sleep 300"
		unknown = "not-started{unknown-session}"
	)
	for _, tt := range []struct {
		name    string
		session []string // flags of its start
		body    string
		flags   []string // of the command
		do      func(context.Context, *ledger) error
		want    []string // outcomes that the command may have
		next    []string // and of the next
		after   func(context.Context, *ledger) error
		last    []string // and of the one that follows after; nil: none does
	}{
		// The next start of any session on this engine removes one that has ended.
		{name: "killed", body: long, do: docker("kill"), want: []string{"session-lost{killed}"}, next: []string{"session-lost{killed}", unknown}},
		{name: "stopped", body: long, do: docker("stop"), want: []string{"session-lost{stopped}"}, next: []string{"session-lost{stopped}", unknown}},
		{
			name: "told to end", body: long, do: docker("kill", "--signal", "TERM"),
			want: []string{"session-lost{stopped}"}, next: []string{"session-lost{stopped}", unknown},
		},
		{name: "removed", body: long, do: docker("rm", "-f"), want: []string{"session-lost{removed}"}, next: []string{unknown}},
		// It is there again, and the files of the workspace are.
		{name: "restarted", body: long, do: docker("restart"), want: []string{"outcome-unknown{runner-lost}", "session-lost{stopped}"}, next: []string{"exited"}},
		{
			name: "paused", body: long, flags: []string{"--timeout", "2s"}, do: docker("pause"),
			want: []string{"outcome-unknown{kill-unconfirmed}", "outcome-unknown{paused}", "timed-out", "session-lost{killed}"},
			next: []string{"not-started{paused}", "session-lost{killed}", "exited", unknown}, after: docker("unpause"),
			last: []string{"exited", "session-lost{killed}", unknown},
		},
		{
			name: "paused for a while", body: "sleep 2", do: func(ctx context.Context, l *ledger) error {
				err := docker("pause")(ctx, l)
				time.Sleep(3 * time.Second)
				return errors.Join(err, docker("unpause")(ctx, l))
			},
			want: []string{"exited"}, next: []string{"exited"},
		},
		{
			name: "out of memory", session: []string{"--memory", "64m"}, body: `exec perl -e '$x = "a" x (256 << 20)'`,
			want: []string{"oom-killed"}, next: []string{"exited"},
		},
		{
			name: "its runner killed", body: long, do: func(_ context.Context, l *ledger) error { return l.killParents() },
			want: []string{"outcome-unknown{runner-lost}"}, next: []string{"exited"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, here, tt.session...)
			e, cmd := l.start(t, tt.body, tt.flags...)
			if tt.do != nil {
				if err := tt.do(t.Context(), l); err != nil {
					t.Fatal(err)
				}
			}
			l.wait(e, cmd)
			d, err := l.check(e)
			// A start of another session removes what has ended, also before the command has asked how it did.
			reaped := slices.Contains(tt.next, unknown) && d.reason() == "session-lost{removed}" && docker("container", "inspect")(t.Context(), l) != nil
			if err != nil || !slices.Contains(tt.want, d.reason()) && !reaped {
				t.Errorf("the command: %s, %v; want one of %q\n%s", d.reason(), err, tt.want, e.said)
			}
			another := func(which string, want []string) {
				d, err := l.another(t.Context())
				if err != nil || !slices.Contains(want, d.reason()) {
					t.Errorf("the %s: %s, %v; want one of %q", which, d.reason(), err, want)
				}
				if d.reason() == unknown && docker("container", "inspect")(t.Context(), l) == nil {
					t.Errorf("the %s: %s; but its container is there", which, d.reason())
				}
			}
			another("next", tt.next)
			if tt.after == nil {
				return
			}
			_ = tt.after(t.Context(), l) // some engines have killed it
			another("last", tt.last)
		})
	}
}

// killParents kills the runners whose commands have begun last, on this machine.
func (l *ledger) killParents() error {
	l.mu.Lock()
	mark := markVariable + "=" + fmt.Sprintf("%s-%d", l.session, l.next)
	l.mu.Unlock()
	for _, p := range running(func(p process) bool { return !p.of("") && strings.Contains(string(p.Environ)+"\x00", mark+"\x00") }) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
		if err != nil {
			continue
		}
		// The name stands in parentheses; behind it are the state and the parent.
		var parent int
		var state string
		if _, err := fmt.Sscan(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), &state, &parent); err != nil {
			return err
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent))
		if strings.HasSuffix(string(line), "runner\x00serve\x00") {
			return kill(parent)
		}
	}
	return fmt.Errorf("no process with %s has a runner for a parent", mark)
}

// Row L2: this program is told to end while many commands run and wait. Each is
// reported as cancelled, or has ended by itself, within ten seconds.
func TestInterruptedAll(t *testing.T) {
	t.Parallel()
	const many = 20 // of which 8 run
	l := newLedger(t, hereSeat(t))
	first, firstCmd := l.start(t, "sleep 300")
	all, cmds := []*entry{first}, []*exec.Cmd{firstCmd}
	for range many - 1 {
		e, cmd := l.command(t.Context(), l.seat, "sleep 300")
		said := new(strings.Builder)
		cmd.Stdout = said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all, cmds = append(all, e), append(cmds, cmd)
	}
	// Until the session is full. Others are then anywhere before that.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		running := 0
		for _, e := range all {
			begun, _, err := l.done(e.mark)
			if err != nil {
				t.Fatal(err)
			}
			running += begun
		}
		if running == 8 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d commands run; want 8", running)
		}
	}
	began := time.Now()
	for i, cmd := range cmds {
		if err := cmd.Process.Signal([]os.Signal{syscall.SIGTERM, os.Interrupt}[i%2]); err != nil {
			t.Error(err)
		}
	}
	for i, cmd := range cmds {
		l.wait(all[i], cmd)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("all have ended after %s; want 10s", took)
	}
	for _, e := range all {
		if len(e.said) == 0 && e.status == -1 { // the signal came before it could listen
			continue
		}
		if d, err := l.check(e); err != nil || d.reason() != "cancelled" && d.reason() != "not-started{cancelled}" {
			t.Errorf("%s, %v; want it cancelled", d.reason(), err)
		}
	}
	if err := l.goesOn(t.Context()); err != nil {
		t.Error(err)
	}
}
