package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
)

// Every flag with a fixed set of values, and every one that names a session, an image or a workspace,
// has a completion. Without an engine that answers with nothing, without a word of an error, at once.
func TestFlagsComplete(t *testing.T) {
	t.Parallel()
	choices := map[string]config.Setting{}
	for s := range config.Flags() {
		choices[s.Flag] = s
	}
	environ := clitest.NoEngine(t)
	done := map[string]bool{}
	everyCommand(func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			want := map[string]string{"image": "host\ta snapshot", "workspace": "copy:\ta copy", "session": ":4\n"}[f.Name]
			if s := choices[f.Name]; s.Kind == config.Choice && f.Value.Type() != "bool" {
				want = s.Choices[len(s.Choices)-1] + "\n"
			}
			if want == "" || done[f.Name] && f.Name != "session" && f.Name != "image" {
				return
			}
			done[f.Name] = true
			args := append([]string{"__complete"}, strings.Fields(c.CommandPath())[1:]...)
			start := time.Now()
			status, out, errs := clitest.Call(t, environ, append(args, "--"+f.Name, "")...)
			if status != 0 || !strings.Contains(out, want) || strings.Contains(errs, "rror") || time.Since(start) > 20*time.Second { // completion itself gives up after 2 s
				t.Errorf("%s --%s completes as %d, %q, %q after %v; want %q", c.CommandPath(), f.Name, status, out, errs, time.Since(start), want)
			}
		})
	})
	if !done["ci"] || !done["log-format"] || !done["image"] {
		t.Errorf("completed are only %v", done)
	}
}

func TestWorkspaceCompletes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"src", "sub", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "sfile"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	slash := string(filepath.Separator)
	for word, want := range map[string]string{
		"":                            "copy:\ta copy of a directory\nbind:\ta directory of this machine itself\nvolume\tan empty directory\n:6\n",
		"b":                           "bind:\ta directory of this machine itself\n:6\n",
		"copy:" + dir + slash + "s":   "copy:" + dir + slash + "src" + slash + "\ncopy:" + dir + slash + "sub" + slash + "\n:6\n",
		"bind:" + dir + slash + "no/": ":6\n",
	} {
		status, out, _ := clitest.Call(t, clitest.NoEngine(t), "__complete", "run", "--workspace", word)
		if status != 0 || out != want {
			t.Errorf("--workspace %s completes as %d, %q; want %q", word, status, out, want)
		}
	}
}
