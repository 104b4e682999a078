package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

func TestCommandCheck(t *testing.T) {
	t.Parallel()
	many := func(n int, s string) []string { return slices.Repeat([]string{s}, n) }
	for _, tt := range []struct {
		name  string
		c     Command
		field string // "" means that there is no error
		text  string // part of it
	}{
		{"plain", Command{Script: "true"}, "", ""},
		{"comment only", Command{Script: "# nothing"}, "", ""},
		{"all set", Command{Script: "x", Shell: "sh", Env: []string{"A=", "_B1=x=y"}, Dir: "a b\n", Args: []string{"", "x"}, Timeout: 1}, "", ""},
		{"empty", Command{}, "script", "empty"},
		{"blank", Command{Script: " \t\r\n"}, "script", "empty"},
		{"10 MiB", Command{Script: strings.Repeat("#", 10<<20)}, "", ""},
		{"over 10 MiB", Command{Script: strings.Repeat("#", 10<<20+1)}, "script", "10485761 bytes"},
		{"NUL in script", Command{Script: "echo\x00"}, "script", "offset 4"},
		{"shell", Command{Script: "x", Shell: "zsh"}, "shell", "bash or sh"},
		{"shell by path", Command{Script: "x", Shell: "/bin/sh"}, "shell", "bash or sh"},
		{"negative timeout", Command{Script: "x", Timeout: -1}, "timeout", "negative"},
		{"NUL in cwd", Command{Script: "x", Dir: "/a\x00b"}, "cwd", "NUL"},
		{"long cwd", Command{Script: "x", Dir: strings.Repeat("a", 4096)}, "cwd", "the limit is 4095"},
		{"longest cwd", Command{Script: "x", Dir: strings.Repeat("a", 4095)}, "", ""},
		{"NUL in argument", Command{Script: "x", Args: []string{"a", "b\x00"}}, "argument", "argument 2"},
		{"long argument", Command{Script: "x", Args: []string{strings.Repeat("a", 128<<10)}}, "argument", "argument 1 is 131072 bytes"},
		{"longest argument", Command{Script: "x", Args: []string{strings.Repeat("a", 128<<10-1)}}, "", ""},
		{"many arguments", Command{Script: "x", Args: many(210_000, "a")}, "argument", "together"},
		{"1 MiB of arguments", Command{Script: "x", Args: many(16, strings.Repeat("a", 64<<10))}, "", ""},
		{"2 MiB of arguments", Command{Script: "x", Args: many(32, strings.Repeat("a", 64<<10))}, "argument", "together"},
		{"no equals sign", Command{Script: "x", Env: []string{"A"}}, "env", "Invalid bash env name: A"},
		{"no name", Command{Script: "x", Env: []string{"=x"}}, "env", "Invalid bash env name: "},
		{"digit first", Command{Script: "x", Env: []string{"1A=x"}}, "env", "Invalid bash env name: 1A"},
		{"newline in name", Command{Script: "x", Env: []string{"A\nB=x"}}, "env", `"A\nB"`},
		{"newline behind name", Command{Script: "x", Env: []string{"A\n=x"}}, "env", `"A\n"`},
		{"NUL in name", Command{Script: "x", Env: []string{"A\x00=x"}}, "env", `"A\x00"`},
		{"shell function", Command{Script: "x", Env: []string{"BASH_FUNC_ls%%=() { :; }"}}, "env", "Invalid"},
		{"long name", Command{Script: "x", Env: []string{strings.Repeat("-", 1000) + "=x"}}, "env", "…"},
		{"NUL in value", Command{Script: "x", Env: []string{"KEY=hunter2\x00"}}, "env", "KEY"},
		{"long value", Command{Script: "x", Env: []string{"KEY=" + strings.Repeat("s", 128<<10)}}, "env", "KEY"},
	} {
		err := tt.c.Check()
		if tt.field == "" {
			if err != nil {
				t.Errorf("%s: check() = %v; want nil", tt.name, err)
			}
			continue
		}
		var bad *InputError
		if !errors.As(err, &bad) || bad.Field != tt.field || !strings.Contains(bad.Text, tt.text) {
			t.Errorf("%s: check() = %#v; want field %s with %q", tt.name, err, tt.field, tt.text)
			continue
		}
		if strings.Contains(bad.Text, "hunter2") || len(bad.Text) > 300 {
			t.Errorf("%s: check() = %q; want neither the value nor a long text", tt.name, bad.Text)
		}
	}
}

// What check refuses reaches no engine, and neither does what the policy does.
func TestRunRefusedBeforeAnything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		rules, _, err := policy.New(policy.Options{Checks: []string{"rm"}})
		if err != nil {
			t.Fatal(err)
		}
		ran := ""
		e := New(d, &fakeImages{}, Options{Policy: rules})
		s, err := e.Start(t.Context(), Spec{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
		d.on = func(f *fakeRunner, req wire.Request) {
			ran += string(req.Script)
			f.answer(nil)
		}
		d.Took()
		if _, err := s.Run(t.Context(), Command{Script: " "}); !isInput(err) {
			t.Errorf("Run(blank) = %v; want an InputError", err)
		}
		var denial *policy.Denial
		if _, err := s.Run(t.Context(), Command{Script: "rm -rf /"}); !errors.As(err, &denial) || denial.Rule != "rm" {
			t.Errorf("Run(rm -rf /) = %v; want a denial by rule rm", err)
		}
		if _, err := s.Run(t.Context(), Command{Script: "x", Output: sink.Options{Limit: -1}}); err == nil {
			t.Error("Run(output limit -1) = nil; want an error")
		}
		if calls := d.Took(); len(calls) > 0 || ran != "" {
			t.Errorf("the engine was asked for %q, %q ran; want nothing", calls, ran)
		}
		if res, err := s.Run(t.Context(), Command{Script: "good"}); err != nil || ran != "good" || res.Session != s.ID() || res.Policy.Verdict != policy.Allow {
			t.Errorf("Run(good) = %+v, %v, ran %q", res, err, ran)
		}
		ran = ""
		if res, err := s.Run(t.Context(), Command{Script: "$x"}); err != nil || ran != "$x" || res.Policy.Verdict != policy.Opaque {
			t.Errorf("Run($x) = %+v, %v, ran %q; want it run and its verdict opaque", res, err, ran)
		}
	})
}

func isInput(err error) bool {
	var bad *InputError
	return errors.As(err, &bad)
}

// The runner is asked for exactly this.
func TestCommandRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		_, s := start(t, d, Spec{User: &User{1234, 50}})
		defer s.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
		var got wire.Request
		d.on = func(f *fakeRunner, req wire.Request) {
			got = req
			f.answer(nil)
		}
		for _, tt := range []struct {
			c    Command
			want wire.Request
		}{
			{Command{Script: "a"}, wire.Request{Shell: "bash", Dir: "/workspace"}},
			{Command{Script: "a", Dir: "sub/../x", Shell: "sh"}, wire.Request{Shell: "sh", Dir: "/workspace/x"}},
			{Command{Script: "a", Dir: "../../etc"}, wire.Request{Shell: "bash", Dir: "/etc"}},
			{Command{Script: "a", Dir: "/proc/self/fd/7", Exclusive: true}, wire.Request{Shell: "bash", Dir: "/proc/self/fd/7", Exclusive: true}},
			{Command{Script: "a", Args: []string{"x", ""}, Output: sink.Options{Streams: sink.Merged}}, wire.Request{Shell: "bash", Dir: "/workspace", Args: []string{"x", ""}, Merged: true}},
		} {
			if _, err := s.Run(t.Context(), tt.c); err != nil {
				t.Errorf("Run(%+v) = %v", tt.c, err)
			}
			if got.Shell != tt.want.Shell || got.Dir != tt.want.Dir || !slices.Equal(got.Args, tt.want.Args) ||
				got.Merged != tt.want.Merged || got.Exclusive != tt.want.Exclusive || got.UID != 1234 || got.GID != 50 || got.Stdin || got.Path != "" {
				t.Errorf("Run(%+v): requested %+v; want %+v", tt.c, got, tt.want)
			}
			want := []string{"PATH=" + standardPath, "HOME=/home/agent", "USER=agent", "LOGNAME=agent", "SHELL=/bin/sh", "TMPDIR=/tmp", "LANG=C.UTF-8"}
			if !slices.Equal(got.Env, want) {
				t.Errorf("environment %q; want %q", got.Env, want)
			}
		}
		if _, err := s.Run(t.Context(), Command{Script: "a", Env: []string{"LANG=C", "X=1"}}); err != nil || !slices.Contains(got.Env, "LANG=C") || !slices.Contains(got.Env, "X=1") || slices.Contains(got.Env, "LANG=C.UTF-8") {
			t.Errorf("Run(LANG=C, X=1) = %v: environment %q", err, got.Env)
		}
	})
}

// A command that writes beyond its limit is killed for that.
func TestRunOutputLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		_, s := start(t, d, Spec{})
		defer s.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
		d.on = func(f *fakeRunner, _ wire.Request) { f.send(wire.TypeStdout, make([]byte, 100)) }
		d.onKill = func(f *fakeRunner, _ wire.Kill) {
			f.send(wire.TypeExit, wire.Exit{Seq: f.current.Seq, Signal: 15, Rung: wire.RungTerm, Stdout: 100}.Append(nil))
		}
		res, err := s.Run(t.Context(), Command{Script: "yes", Output: sink.Options{Limit: 10}})
		if err != nil || res.Reason != exec.OutputLimit || res.Killed != "term" || !res.Output.LimitExceeded {
			t.Errorf("Run(limit 10) = %+v, %v; want output-limit by term", res, err)
		}
	})
}

// A kill of which something is left goes to the next rung.
func TestRunTimeoutUnproved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		_, s := start(t, d, Spec{})
		defer s.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
		d.on = func(*fakeRunner, wire.Request) {}
		d.onKill = func(f *fakeRunner, _ wire.Kill) {
			f.send(wire.TypeExit, wire.Exit{Seq: f.current.Seq, Signal: 9, Rung: wire.RungKill, Left: 1}.Append(nil))
		}
		res, err := s.Run(t.Context(), Command{Script: "sleep", Timeout: 2 * time.Second})
		if r := res.Receipt(); err != nil || res.Reason != exec.TimedOut || res.Killed != killedReset || !r.Proved {
			t.Errorf("Run() = %+v, %+v, %v; want timed-out by a reset, proved", res, r, err)
		}
	})
}

// The timeout's own rungs are named in the result.
func TestRunTimeout(t *testing.T) {
	t.Parallel()
	for rung, killed := range map[wire.Rung]string{wire.RungTerm: "term", wire.RungKill: "kill"} {
		synctest.Test(t, func(t *testing.T) {
			d := newFakeEngine(t)
			_, s := start(t, d, Spec{})
			defer s.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
			d.on = func(*fakeRunner, wire.Request) {}
			d.onKill = func(f *fakeRunner, kill wire.Kill) {
				if kill.Grace != exec.DefaultGrace {
					t.Errorf("grace %v; want %v", kill.Grace, exec.DefaultGrace)
				}
				f.send(wire.TypeExit, wire.Exit{Seq: f.current.Seq, Signal: 9, Rung: rung}.Append(nil))
			}
			res, err := s.Run(t.Context(), Command{Script: "sleep", Timeout: 2 * time.Second})
			if err != nil || res.Reason != exec.TimedOut || res.Killed != killed || res.Elapsed != 2*time.Second {
				t.Errorf("Run() = %+v, %v; want timed-out by %s after 2s", res, err, killed)
			}
		})
	}
}
