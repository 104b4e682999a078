package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// Words that a script would drop are refused, with both ways of writing them.
func TestWordsBehindScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "script.sh")
	if err := os.WriteFile(file, []byte("make\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string // in the advice
	}{
		{[]string{"run", "make", "test"}, `'make test', or use the words in the script, as in 'make "$@"' test`},
		{[]string{"run", "--", "make", "test", "-j2"}, `'make test -j2', or use the words in the script, as in 'make "$@"' test -j2`},
		{[]string{"run", "--background", "--session", "x", "make", "test"}, `'make test'`},
		{[]string{"run", "--pty", "make", "test"}, `'make test'`},
		{[]string{"run", "echo '$1'", "a"}, `'make test'`}, // an example
		{[]string{"run", "--file", file, "test"}, `leave them out, or use them in the script, as "$1" or "$@"`},
		{[]string{"run", "-", "test"}, `leave them out`},
		{[]string{"session", "exec", "x", "make", "test"}, `'make test'`},
		{[]string{"session", "exec", "x", "--", "make", "test"}, `'make test'`},
		{[]string{"pty", "start", "x", "--", "make", "test"}, `'make test'`},
	} {
		status, out, errs := clitest.Call(t, clitest.NoEngine(t), test.args...)
		if status != exit.Usage || out != "" || !strings.Contains(errs, "uses no positional parameter") || !strings.Contains(errs, test.want) {
			t.Errorf("execute(%q) = %d, %q, %q; want %d and %q", test.args, status, out, errs, exit.Usage, test.want)
		}
	}
	for _, args := range [][]string{
		{"run", `make "$@"`, "test"}, {"session", "exec", "x", `echo "$10"`, "test"}, {"run", `shift; make`, "test"},
	} {
		if status, _, errs := clitest.Call(t, clitest.NoEngine(t), args...); status != exit.Engine {
			t.Errorf("execute(%q) = %d, %q; want that only an engine is missing", args, status, errs)
		}
	}
}

// A secret that cannot be masked is told of, by its name.
func TestShortSecretWarns(t *testing.T) {
	t.Parallel()
	_, _, errs := clitest.Call(t, clitest.NoEngine(t), "run", "--env", "API_KEY=abc12", "true")
	if !strings.Contains(errs, "warning: secret API_KEY") || strings.Contains(errs, "abc12") {
		t.Errorf("run says %q; want a warning about API_KEY without its value", errs)
	}
	_, out, errs := clitest.Call(t, clitest.NoEngine(t), "run", "--json", "--env", "API_KEY=abc12", "true")
	if errs != "" || !strings.Contains(out, `"notes":["warning: secret API_KEY`) {
		t.Errorf("run --json = %q, %q; want the warning among the notes", out, errs)
	}
}
