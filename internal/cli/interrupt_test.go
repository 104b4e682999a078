package cli_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// A script that is too long is refused, and never cut.
func TestScriptLimit(t *testing.T) {
	t.Parallel()
	endless := io.MultiReader(strings.NewReader(strings.Repeat("#", wire.MaxScript)), strings.NewReader("##"))
	var errs bytes.Buffer
	status := cli.Run(t.Context(), "", []string{"run", "-"}, nil, endless, io.Discard, &errs)
	if status != exit.Usage || !strings.Contains(errs.String(), "10 MiB") {
		t.Errorf("execute(run -) = %d, %q; want %d and the limit", status, errs.String(), exit.Usage)
	}
	if err := (sandbox.Command{Script: strings.Repeat("#", wire.MaxScript)}).Check(); err != nil {
		t.Errorf("Check() of a script at the limit = %v; want nil", err)
	}
}

// Interrupted while it waits for a person to type the script.
func TestScriptInterrupted(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	defer w.Close() //nolint:errcheck // is always nil
	var errs bytes.Buffer
	status := cli.Run(clitest.Interrupted(t), "", []string{"run", "-"}, nil, r, io.Discard, &errs)
	if status != exit.Cancelled {
		t.Errorf("execute(run -) = %d, %q; want %d", status, errs.String(), exit.Cancelled)
	}
}
