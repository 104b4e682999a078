// Package clitest runs the whole program for the tests of its commands: in the test's
// process, or as a process of its own.
package clitest

import (
	"bytes"
	"context"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandboxbash/sandboxbash/internal/cli"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// AsMain is the variable that is set where a test binary is to be the program.
const AsMain = "SANDBOXBASH_TEST_MAIN"

// Main is TestMain of a package that runs the program. It fails if a goroutine is left.
func Main(m *testing.M) {
	// A holder is started without this variable, as all others: it must not run the tests.
	holds := len(os.Args) > 2 && os.Args[2] == "hold"
	if os.Getenv(AsMain) != "" || holds {
		os.Exit(cli.Main("", os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m,
		// A read of a terminal or pipe without a writer does not return, as ReadAll says.
		goleak.IgnoreAnyFunction("github.com/sandboxbash/sandboxbash/internal/cli/stdio.ReadAll.func1"))
}

// Process is the program as a process of its own. It needs Main.
func Process(t *testing.T, args ...string) *osexec.Cmd {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = []string{AsMain + "=1", "HOME=" + t.TempDir()}
	return cmd
}

// Call runs a command line with an empty input and nothing of this process's environment.
func Call(t *testing.T, environ []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return Feed(t, "", environ, args...)
}

// Feed is Call with an input.
func Feed(t *testing.T, input string, environ []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = cli.Run(t.Context(), "", args, environ, strings.NewReader(input), &out, &errs)
	return status, out.String(), errs.String()
}

// NoEngine is an environment that names an engine that is not there.
func NoEngine(t *testing.T) []string {
	t.Helper()
	return []string{"SANDBOXBASH_ENGINE=unix://" + filepath.Join(t.TempDir(), "no.sock"), "HOME=" + t.TempDir()}
}

// Interrupted is a context as the first signal leaves it.
func Interrupted(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(exit.ErrInterrupted)
	return ctx
}

// RulesFile is a configuration with one rule of each kind.
func RulesFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := `policy:
  tools: [commit]
  rules:
    - {id: commit, pattern: '^git commit', tool: commit, message: Use it.}
    - {pattern: '^ls(', tool: commit, message: never}
    - {pattern: '^cat', tool: read, message: Use it.}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// SocketDir is a directory whose path is short enough for a socket, as those of
// tests may not be.
func SocketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pty") //nolint:usetesting // that of the test may be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
