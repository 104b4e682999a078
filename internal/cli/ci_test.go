package cli_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sink"
)

// What is said before the configuration is known is guarded too, and its order
// kept; a file gets what is written.
func TestGuard(t *testing.T) {
	t.Parallel()
	status, _, stderr := clitest.Call(t, []string{"GITHUB_ACTIONS=true"}, "no\n::add-path::/x")
	if status != exit.Usage || strings.Contains(stderr, "\n::") || strings.Contains(stderr, " ::") {
		t.Errorf("status %d, and the log %q has a command", status, stderr)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for runners, want := range map[sink.Runners]bool{sink.GitHub: false, sink.Azure: false, sink.GitLab: true} {
		a := core.New("", nil, nil, file, io.Discard)
		a.Streams.Guard(runners)
		if _, got := stdio.PastMasks(a.Streams.Stdout).(*sink.Defused); got != want {
			t.Errorf("a file is guarded with runners %b: %v; want %v", runners, got, want)
		}
	}
}
