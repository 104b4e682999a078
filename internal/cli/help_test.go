package cli_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
)

// Help is read in terminals of 80 columns.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	everyCommand(func(c *cobra.Command) {
		args := append([]string{"help"}, strings.Fields(c.CommandPath())[1:]...)
		_, out, _ := clitest.Call(t, nil, args...)
		for line := range strings.SplitSeq(out, "\n") {
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("%v prints a line of %d columns: %q", args, n, line)
			}
		}
		if strings.Contains(c.Long, "  ") && !strings.Contains(out, "\n  ") {
			t.Errorf("%v prints no indented line", args)
		}
	})
}
