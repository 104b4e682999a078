package auditcmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/audit"
	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// TestAuditVerify has a good log, one that was cut off, and one that was changed.
func TestAuditVerify(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := audit.Open(dir, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []audit.Record{
		{Kind: audit.Intent, ID: "a", Session: "s", Mode: "command", Command: "echo \x1b[2J one"},
		{Kind: audit.Outcome, ID: "a", Session: "s", Mode: "command", Reason: "timed-out"},
		{Kind: audit.Intent, ID: "b", Session: "s", Mode: "command", Command: "echo two"},
	} {
		if err := l.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	env := []string{"SANDBOXBASH_AUDIT_DIR=" + dir}
	status, out, errs := clitest.Call(t, env, "audit", "show")
	if status != 0 || !strings.Contains(out, "timed-out") || !strings.Contains(out, "echo two") || strings.Contains(out, "\x1b") {
		t.Errorf("audit show = %d, %q, %q; want both commands, and no control character", status, out, errs)
	}
	name := filepath.Join(dir, "audit.jsonl")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	whole := string(text)
	tests := []struct {
		name, text string
		status     int
		want       string
	}{
		{"good", whole, 0, "good: 3 records in 1 files"},
		{"the end of a command is missing", whole, 0, "no outcome of command b"},
		{"cut off", whole[:len(whole)-9], 0, "audit.jsonl:3: the last line was cut off"},
		{"changed", strings.Replace(whole, "timed-out", "exited", 1), exit.Findings, "audit.jsonl:2: it was changed"},
		{"no log", whole + "x\n", exit.Findings, "audit.jsonl:4: it is not a record"},
	}
	for _, tt := range tests {
		if err := os.WriteFile(name, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		status, out, errs := clitest.Call(t, env, "audit", "verify")
		if status != tt.status || !strings.Contains(out, tt.want) {
			t.Errorf("%s: audit verify = %d, %q, %q; want %d, %q", tt.name, status, out, errs, tt.status, tt.want)
		}
	}
	if status, _, errs := clitest.Call(t, env, "audit", "verify", "--head", "12"); status != 2 || !strings.Contains(errs, "64 hexadecimal") {
		t.Errorf("audit verify --head 12 = %d, %q; want wrong use", status, errs)
	}
}
