package doctorcmd_test

import (
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestDoctorWithoutAnEngine(t *testing.T) {
	t.Parallel()
	status, out, errs := clitest.Call(t, clitest.NoEngine(t), "doctor")
	if status != exit.Findings || errs != "" || !strings.HasPrefix(out, "ok    config: ") || !strings.Contains(out, "\nfail  engine: ") || !strings.Contains(out, " — start it") {
		t.Errorf("doctor = %d, %q, %q; want status %d, and the engine to fail", status, out, errs, exit.Findings)
	}
	status, out, errs = clitest.Call(t, clitest.NoEngine(t), "doctor", "--json")
	if status != exit.Findings || errs != "" || !strings.HasPrefix(out, `[{"level":"ok","topic":"config"`) || !strings.Contains(out, `{"level":"fail","topic":"engine"`) {
		t.Errorf("doctor --json = %d, %q, %q; want status %d, and the engine to fail", status, out, errs, exit.Findings)
	}
}

// doctor tells of rules that are left out, and of an interceptor without tools.
func TestPolicyFindings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		environ []string
		args    []string
		want    string
	}{
		{"nothing", nil, nil, "ok    policy: run has 0 safety checks, 0 further sets and 0 rules of the interceptor; what cannot be known is run"},
		{"a bad rule", nil, []string{"--config", clitest.RulesFile(t)}, "warn  policy: interceptor rule rule-2 is left out: its pattern is invalid"},
		{"strict", []string{"SANDBOXBASH_POLICY_STRICT=true"}, []string{"--config", clitest.RulesFile(t)}, "fail  policy: policy: interceptor rule rule-2"},
		{"no tools", []string{"SANDBOXBASH_POLICY_INTERCEPTOR=true"}, nil, "warn  policy: the interceptor is on, but none of its rules applies: policy.tools names none of read, search, find, edit, write"},
	} {
		_, out, errs := clitest.Call(t, append(clitest.NoEngine(t), test.environ...), append(test.args, "doctor")...)
		if !strings.Contains(out, test.want) {
			t.Errorf("%s: doctor prints %q, %q; want %q", test.name, out, errs, test.want)
		}
	}
}
