package cli_test

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// A signal ends what waits for ever, with the status of a cancel.
func TestSignals(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals to send")
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		cmd := clitest.Process(t, "run", "-")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Once it takes more than a pipe holds it reads, and so has set up its signals.
		if _, err := stdin.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != exit.Cancelled || errs.String() != "sandboxbash: interrupted\n" {
			t.Errorf("after %v: exit status %d, %q; want %d", sig, got, errs.String(), exit.Cancelled)
		}
	}
}

// A reader that has gone ends the program as it does others in a pipe.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer w.Close()
	cmd := clitest.Process(t, "version")
	cmd.Stdout = w
	out := &bytes.Buffer{}
	cmd.Stderr = out
	_ = cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != exit.BrokenPipe || out.Len() > 0 {
		t.Errorf("version into a broken pipe: exit status %d, %q; want %d", got, out.String(), exit.BrokenPipe)
	}
}

func TestMainStatus(t *testing.T) {
	for _, test := range []struct {
		args   []string
		status int
		stdout string
	}{
		{[]string{"version"}, 0, "sandboxbash "},
		{[]string{"--help"}, 0, "Usage: sandboxbash COMMAND"},
		{[]string{"frob"}, 2, ""},
	} {
		var out, errs bytes.Buffer
		if got := cli.Main("", test.args, os.Environ(), strings.NewReader(""), &out, &errs); got != test.status || !strings.Contains(out.String(), test.stdout) {
			t.Errorf("Main(%q) = %d, %q, %q; want %d and %q", test.args, got, out.String(), errs.String(), test.status, test.stdout)
		}
	}
}
