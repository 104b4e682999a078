package core

import (
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
		env := &Environment{vars: strings.Fields(test.environ)}
		if got := runnersOf(test.choice, env.Getenv); got != test.want {
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
			t.Errorf("the choice %q is not that of a runner", choice)
		}
	}
}
