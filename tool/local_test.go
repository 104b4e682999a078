package tool

import (
	"bytes"
	"errors"
	"os"
	osexec "os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Kinds of made-up ends.
var (
	timeout = Outcome{Reason: exec.TimedOut, Elapsed: 1005 * time.Millisecond}
	success = Outcome{Reason: exec.Exited, Elapsed: 12 * time.Millisecond}
)

// ran is an outcome with an output, as contract agent keeps it.
func ran(t *testing.T, output string, o Outcome) Outcome {
	t.Helper()
	return kept(t, output, o, AgentOutput(DefaultSettings(), Foreground), nil)
}

func kept(t *testing.T, output string, o Outcome, opts sink.Options, session *sink.Session) Outcome {
	t.Helper()
	s, err := sink.New(opts, session, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stdout().Write([]byte(output)); err != nil {
		t.Fatal(err)
	}
	o.Output = s.Close()
	return o
}

// store is the artifacts of a session of the test's own.
func store(t *testing.T) *sink.Session {
	t.Helper()
	st, err := sink.NewStore(t.TempDir(), sink.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := st.Session("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// bash runs a plan's command on this machine: what is checked is how results are
// worded, for which a session would be no better. A plan that must not run never
// gets here.
func bash(t *testing.T, p Plan, dir string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := bashCommand(t, p, dir)
	cmd.Stdout = &out
	err = cmd.Run()
	return out.String(), err
}

func bashCommand(t *testing.T, p Plan, dir string) *osexec.Cmd {
	t.Helper()
	if _, refused := p.Refused(); refused {
		t.Fatalf("%q is refused: %+v %+v", p.Command, p.Denial, p.Err)
	}
	cmd := osexec.CommandContext(t.Context(), "bash", "--noprofile", "--norc", "-c", p.Command)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C"}, p.Env.List()...)
	return cmd
}

// runLocal runs a plan on this machine and keeps its output as the contract does.
func runLocal(t *testing.T, p Plan, dir string, session *sink.Session) Outcome {
	t.Helper()
	opts := AgentOutput(DefaultSettings(), p.Route)
	var plain *PlainStreams
	switch p.Contract {
	case Plain:
		plain = &PlainStreams{}
		opts = plain.Options()
	case Modes:
		opts = ModesOutput()
	case Agent:
	}
	s, err := sink.New(opts, session, nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd := bashCommand(t, p, dir)
	cmd.Stdout, cmd.Stderr = s.Stdout(), s.Stderr()
	begin := time.Now()
	err = cmd.Run()
	o := Outcome{Reason: exec.Exited, Elapsed: time.Since(begin), Output: s.Close(), Plain: plain}
	if exit, ok := errors.AsType[*osexec.ExitError](err); ok {
		o.Code = exit.ExitCode()
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			o.Reason, o.Code, o.Signal = exec.Signalled, 0, int(status.Signal())
		}
	} else if err != nil {
		t.Fatal(err)
	}
	return o
}
