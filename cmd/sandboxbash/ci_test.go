package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Which runner reads the log is known by its variable, or said.
func TestRunnersOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		choice, environ string
		want            sink.Runners
	}{
		{"auto", "", 0},
		{"auto", "CI=true", 0},
		{"auto", "GITHUB_ACTIONS=true", sink.GitHub},
		{"auto", "GITLAB_CI=true", sink.GitLab},
		{"auto", "TF_BUILD=True", sink.Azure},
		{"auto", "TEAMCITY_VERSION=2026.1", sink.TeamCity},
		{"auto", "GITLAB_CI=true TF_BUILD=True", sink.GitLab | sink.Azure},
		{"auto", "GITHUB_ACTIONS=", 0},
		{"github", "GITLAB_CI=true", sink.GitHub},
		{"none", "GITHUB_ACTIONS=true", 0},
	} {
		a := newApp(strings.Fields(test.environ), nil, io.Discard, io.Discard)
		if got := a.runnersOf(test.choice); got != test.want {
			t.Errorf("runnersOf(%q) with %q = %b; want %b", test.choice, test.environ, got, test.want)
		}
	}
	setting, _ := config.Lookup("ci")
	for _, choice := range setting.Choices {
		known := choice == ciAuto || choice == "none"
		for _, r := range ciRunners {
			known = known || r.name == choice
		}
		if !known {
			t.Errorf("the choice %q is no runner's", choice)
		}
	}
}

// What is said before the configuration is known is guarded too, and its order
// kept; a file gets what is written.
func TestGuard(t *testing.T) {
	t.Parallel()
	status, _, stderr := call(t, []string{"GITHUB_ACTIONS=true"}, "no\n::add-path::/x")
	if status != statusUsage || strings.Contains(stderr, "\n::") || strings.Contains(stderr, " ::") {
		t.Errorf("status %d, and the log %q has a command", status, stderr)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for runners, want := range map[sink.Runners]bool{sink.GitHub: false, sink.Azure: false, sink.GitLab: true} {
		a := newApp(nil, nil, file, io.Discard)
		a.guard(runners)
		if _, got := a.stdout.(*sink.Defused); got != want {
			t.Errorf("a file is guarded with runners %b: %v; want %v", runners, got, want)
		}
	}
}
