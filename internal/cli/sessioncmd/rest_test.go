package sessioncmd_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// A paused session is listed as such, and every command in it says what to do.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{Lease: time.Hour})
	if status, out, errs := m.Call("session", "pause", id); status != 0 || out != id+"\n" || errs != "" {
		t.Fatalf("session pause = %d, %q, %q", status, out, errs)
	}
	if _, out, _ := m.Call("session", "ls"); !strings.Contains(out, " paused ") {
		t.Errorf("session ls shows %q; want that it is paused", out)
	}
	for _, args := range [][]string{{"exec", id, "true"}, {"ps", id}, {"ports", id}, {"keep", id}} {
		status, _, errs := m.Call(append([]string{"session"}, args...)...)
		if status != exit.Engine || !strings.Contains(errs, "it is paused") || !strings.Contains(errs, "`sandboxbash session resume`") {
			t.Errorf("session %q of a paused session = %d, %q; want that it says so", args, status, errs)
		}
	}
	if status, out, errs := m.Call("session", "resume", "-q", id); status != 0 || out+errs != "" {
		t.Errorf("session resume -q = %d, %q, %q", status, out, errs)
	}
	if status, _, errs := m.Call("session", "exec", id, "true"); status != 0 {
		t.Errorf("session exec after resume = %d, %q", status, errs)
	}
	if status, _, errs := m.Call("session", "unpause", id); status != 0 {
		t.Errorf("session unpause = %d, %q", status, errs)
	}
	for _, verb := range []string{"pause", "resume", "keep", "wait"} {
		if status, out, errs := m.Call("session", verb, clitest.ID(9)); status != exit.Usage || out != "" || !strings.Contains(errs, "unknown session") {
			t.Errorf("session %s of none = %d, %q, %q", verb, status, out, errs)
		}
	}
}

func TestKeepSession(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{Lease: time.Hour})
	var asked []string
	m.Answer = func(req wire.Request, _ []byte) (stdout, stderr []byte, end wire.Exit) {
		if req.Path != "" && req.Args[0] == string(wire.VerbLease) {
			asked = append(asked, strings.Join(req.Args, " "))
			if req.UID != 0 {
				t.Errorf("%q runs as uid %d; want 0", req.Args, req.UID)
			}
		}
		return nil, nil, wire.Exit{}
	}
	for _, test := range []struct {
		args []string
		left string
	}{
		{nil, "never"}, {[]string{"--for", "3h"}, "3h00m"}, {[]string{"--for", "2d"}, "48h00m"}, {[]string{"--for", "0"}, "1h00m"},
	} {
		if status, out, errs := m.Call(append([]string{"session", "keep", id}, test.args...)...); status != 0 || out != id+"\n" || errs != "" {
			t.Errorf("session keep %q = %d, %q, %q", test.args, status, out, errs)
		}
		_, out, _ := m.Call("session", "ls")
		if !strings.Contains(out, " "+test.left+" ") {
			t.Errorf("after session keep %q ls shows %q; want %s left", test.args, out, test.left)
		}
		_, out, _ = m.Call("session", "show", id)
		if kept := strings.Contains(out, "kept until"); kept == (test.left == "1h00m") {
			t.Errorf("after session keep %q show prints %q", test.args, out)
		}
	}
	if want := []string{"lease keep 876000h0m0s", "lease keep 3h0m0s", "lease keep 48h0m0s", "lease keep 0s"}; !slices.Equal(asked, want) {
		t.Errorf("the session was asked for %q; want %q", asked, want)
	}
	if status, _, errs := m.Call("session", "keep", "--for", "soon", id); status != exit.Usage || !strings.Contains(errs, "--for") {
		t.Errorf("session keep --for soon = %d, %q", status, errs)
	}
}

// wait says why a session has ended, also of one whose workspace is kept.
func TestWaitForSession(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	id := m.Session(1, sandbox.Spec{Lease: time.Hour})
	m.Change(id, func(s *engine.Session) {
		s.Status, s.ExitCode, s.Finished = engine.StatusExited, wire.ExitLeaseOver, time.Now()
	})
	status, out, errs := m.Call("session", "wait", id)
	if status != 0 || out != "lease-over\n" || !strings.Contains(errs, "idle for that long") {
		t.Errorf("session wait = %d, %q, %q", status, out, errs)
	}
	status, out, errs = m.Call("session", "wait", "--json", id)
	var end sandbox.End
	if err := json.Unmarshal([]byte(out), &end); err != nil || status != 0 || errs != "" || end.Cause != sandbox.CauseLeaseOver || end.Session != id {
		t.Errorf("session wait --json = %d, %q, %q: %v", status, out, errs, err)
	}
	second := m.Session(2, sandbox.Spec{Lease: time.Hour})
	m.Fail = func(call string) error {
		if call == "wait" { // before that, the session would not be found
			time.AfterFunc(20*time.Millisecond, func() { m.Lose(second, true) })
		}
		return nil
	}
	if status, out, _ := m.Call("session", "wait", "-q", second); status != 0 || out != "removed\n" {
		t.Errorf("session wait of one that is stopped = %d, %q", status, out)
	}
}
