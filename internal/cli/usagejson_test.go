package cli_test

import (
	"encoding/json"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// With --json wrong use is an object too, wherever the mistake is found.
func TestMisuseJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args  []string
		cause string
	}{
		{[]string{"run", "--json", "--nosuch", "true"}, "usage"},
		{[]string{"run", "--nosuch", "--json", "true"}, "usage"},
		{[]string{"run", "--json"}, "usage"},
		{[]string{"run", "--json", "--timeout", "1s", "--timeout", "2s", "true"}, "usage"},
		{[]string{"run", "--json", "--timeout", "x", "true"}, "bad-config"},
		{[]string{"run", "--json", "--engine", "foo", "true"}, "bad-engine"},
		{[]string{"--config", "/no/such/file", "run", "--json", "true"}, "usage"},
		{[]string{"session", "exec", "--json"}, "usage"},
		{[]string{"session", "exec", "--json", "", "true"}, "usage"},
		{[]string{"session", "show", "--json", "a", "b"}, "usage"},
		{[]string{"session", "show", "--json", "--nosuch", "x"}, "usage"},
		{[]string{"session", "start", "--json", "x"}, "usage"},
		{[]string{"session", "start", "--json", "--memory", "1k"}, "usage"},
		{[]string{"session", "start", "--json", "--engine", "foo"}, "bad-engine"},
		{[]string{"job", "wait", "--json", "a", "b"}, "usage"},
		{[]string{"artifact", "show", "--json", "1", "2"}, "usage"},
		{[]string{"image", "pull", "--json"}, "usage"},
		{[]string{"version", "--json", "x"}, "usage"},
	} {
		status, out, errs := clitest.Call(t, clitest.NoEngine(t), test.args...)
		var got struct {
			Error *core.ErrorJSON `json:"error"`
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || status != exit.Usage || got.Error == nil || got.Error.Cause != test.cause || got.Error.Message == "" || errs != "" {
			t.Errorf("execute(%q) = %d, %q, %q; want %d and an object with the cause %s", test.args, status, out, errs, exit.Usage, test.cause)
		}
	}
	// A script that has the word is not asked for JSON.
	if status, out, errs := clitest.Call(t, clitest.NoEngine(t), "run", "--nosuch", "--", "--json"); status != exit.Usage || out != "" || errs == "" {
		t.Errorf("execute(run --nosuch -- --json) = %d, %q, %q; want %d and no object", status, out, errs, exit.Usage)
	}
}
