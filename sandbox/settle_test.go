package sandbox

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// verbs makes a fake engine note which verbs of the runner are run, and commands.
func verbs(d *fakeEngine) *[]string {
	var ran []string
	d.verb = func(verb string) { ran = append(ran, verb) }
	d.on = func(f *fakeRunner, req wire.Request) {
		if string(req.Script) == "echo" {
			ran = append(ran, "command")
			f.answer([]byte("hi\n"))
		}
	}
	return &ran
}

// A container that was started again is asked what confines it, and gets a home, before
// it gets a command.
func TestSettleAfterReset(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		report func(string) string // after the reset
		fails  int                 // how many execs fail behind the start
		killed string
		ran    []string // after the reset, with the next command
		next   exec.Cause
	}{
		{"at once", nil, 0, killedReset, []string{"posture", "home", "command"}, ""},
		{"later", nil, 1, killedReset, []string{"posture", "home", "command"}, ""},
		{"another confinement", func(r string) string { return strings.Replace(r, "Seccomp=2", "Seccomp=0", 1) }, 0, killedRemoved, []string{"posture"}, CauseRemoved},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFakeEngine(t)
				_, s := start(t, d, Spec{})
				defer s.Release()
				ran := verbs(d)
				began := false
				d.report = tt.report
				d.Fail = func(call string) error {
					began = began || call == "start"
					if call == "exec" && began && tt.fails > 0 {
						tt.fails--
						return errTest
					}
					return nil
				}
				res, err := s.Run(t.Context(), Command{Script: "x", Timeout: time.Second})
				if err != nil || res.Killed != tt.killed {
					t.Fatalf("Run() = %+v, %v; want killed %s", res, err, tt.killed)
				}
				_, err = s.Run(t.Context(), Command{Script: "echo"})
				if tt.next == "" && err != nil || tt.next != "" && !isError(err, exec.Lost, tt.next) {
					t.Errorf("the next Run() = %v; want %q", err, tt.next)
				}
				if !slices.Equal(*ran, tt.ran) {
					t.Errorf("ran %q; want %q", *ran, tt.ran)
				}
			})
		})
	}
}

// So is one that another process, or a person, has started again.
func TestSettleAfterRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		_, s := start(t, d, Spec{})
		defer s.Release()
		ran := verbs(d)
		open := func() error {
			other, err := New(d, &fakeImages{}, Options{}).Open(t.Context(), s.ID())
			if err != nil {
				return err
			}
			defer other.Release()
			_, err = other.Run(t.Context(), Command{Script: "echo"})
			return err
		}
		if err := open(); err != nil || !slices.Equal(*ran, []string{"command"}) {
			t.Errorf("a session as it was started: %v, ran %q; want the command alone", err, *ran)
		}
		*ran = nil
		time.Sleep(time.Hour) // of the bubble
		d.Change(s.ID(), func(c *engine.Session) { c.Started = time.Now() })
		if err := open(); err != nil || !slices.Equal(*ran, []string{"posture", "home", "command"}) {
			t.Errorf("a session that was started again: %v, ran %q; want it settled before", err, *ran)
		}
		d.report = func(r string) string { return strings.Replace(r, "Seccomp=2", "Seccomp=0", 1) }
		var wrong *PostureError
		if err := open(); !errors.As(err, &wrong) && !isError(err, exec.Lost, CauseRemoved) {
			t.Errorf("one that is not confined: %v; want it refused", err)
		}
	})
}
