package dockertest

import (
	"context"
	"os/exec"
	"strings"
	"testing"
)

// Command runs the docker command line with arguments. It returns standard output and
// standard error together, without white space around them.
func Command(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// MustCommand is Command, except that an error ends the test.
func MustCommand(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := Command(tb.Context(), args...)
	if err != nil {
		tb.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Cleanup runs a docker command after the test, to remove what the test has made. An error
// is ignored: the test may have removed it.
func Cleanup(tb testing.TB, args ...string) {
	tb.Helper()
	tb.Cleanup(func() { _, _ = Command(context.WithoutCancel(tb.Context()), args...) })
}
