package main

import (
	"bytes"
	"context"
	"os"
	osexec "os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asMain is set where the test binary is to be the program.
const asMain = "SANDBOXBASH_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	goleak.VerifyTestMain(m,
		// A read of a terminal or pipe that nobody writes to stays, as readAll says.
		goleak.IgnoreAnyFunction("github.com/sandboxbash/sandboxbash/cmd/sandboxbash.readAll.func1"))
}

// interrupted is a context as the first signal leaves it.
func interrupted(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	return ctx
}

// program is this program as a process of its own.
func program(t *testing.T, args ...string) *osexec.Cmd {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = []string{asMain + "=1", "HOME=" + t.TempDir()}
	return cmd
}

// A signal ends what waits for ever, with the status of a cancel.
func TestSignals(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals to send")
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		cmd := program(t, "run", "-")
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
		if got := cmd.ProcessState.ExitCode(); got != statusCancelled || errs.String() != "sandboxbash: interrupted\n" {
			t.Errorf("after %v: exit status %d, %q; want %d", sig, got, errs.String(), statusCancelled)
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
	cmd := program(t, "version")
	cmd.Stdout = w
	out := &bytes.Buffer{}
	cmd.Stderr = out
	_ = cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != statusBrokenPipe || out.Len() > 0 {
		t.Errorf("version into a broken pipe: exit status %d, %q; want %d", got, out.String(), statusBrokenPipe)
	}
}

func TestRun(t *testing.T) {
	for _, test := range []struct {
		args   []string
		status int
		stdout string
	}{
		{[]string{"version"}, 0, "sandboxbash "},
		{[]string{"--help"}, 0, "Exit status"},
		{[]string{"frob"}, 2, ""},
	} {
		var out, errs bytes.Buffer
		if got := run(test.args, strings.NewReader(""), &out, &errs); got != test.status || !strings.Contains(out.String(), test.stdout) {
			t.Errorf("run(%q) = %d, %q, %q; want %d and %q", test.args, got, out.String(), errs.String(), test.status, test.stdout)
		}
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", time.Minute: "1m", 90 * time.Minute: "1h", 47 * time.Hour: "47h", 50 * time.Hour: "2d",
	} {
		if got := age(now.Add(-d), now); got != want {
			t.Errorf("age(%v ago) = %s; want %s", d, got, want)
		}
	}
}
