package cli

import (
	"bytes"
	"context"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// asMain is set where the test binary is to be the program.
const asMain = "SANDBOXBASH_TEST_MAIN"

// interrupted is a context as the first signal leaves it.
func interrupted(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(exit.ErrInterrupted)
	return ctx
}

// process is this program as a process of its own.
func process(t *testing.T, args ...string) *osexec.Cmd {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = []string{asMain + "=1", "HOME=" + t.TempDir()}
	return cmd
}

// call runs a command line with nothing of this process's environment.
func call(t *testing.T, environ []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = newProgram("", environ, strings.NewReader(""), &out, &errs).execute(t.Context(), args)
	return status, out.String(), errs.String()
}

// noEngine names an engine that is not there.
func noEngine(t *testing.T) []string {
	t.Helper()
	return []string{"SANDBOXBASH_ENGINE=unix://" + filepath.Join(t.TempDir(), "no.sock"), "HOME=" + t.TempDir()}
}
