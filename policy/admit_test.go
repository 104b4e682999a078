package policy

import (
	"errors"
	"strings"
	"testing"
)

// TestAdmit turns a decision to refuse into an error, and no other.
func TestAdmit(t *testing.T) {
	t.Parallel()
	rules := newPolicy(t, Options{Checks: CheckNames()})
	for _, tt := range []struct {
		name    string
		rules   Checker
		script  string
		verdict Verdict
		denied  bool
	}{
		{"no rules", nil, "rm -rf /", "", false},
		{"a nil policy", (*Policy)(nil), "rm -rf /", Allow, false},
		{"allowed", rules, "ls", Allow, false},
		{"opaque", rules, "$x", Opaque, false},
		{"opaque, guarded", newPolicy(t, Options{Mode: Guarded}), "$x", Opaque, true},
		{"denied", rules, "rm -rf /", Deny, true},
		{"too complex", rules, strings.Repeat("( ", maxDepth+1) + "a" + strings.Repeat(" )", maxDepth+1), TooComplex, true},
		{"too complex for no rule", newPolicy(t, Options{}), strings.Repeat(" ", maxScript+1), TooComplex, false},
	} {
		d, err := Admit(tt.rules, Input{Script: tt.script})
		denial, is := errors.AsType[*Denial](err)
		if d.Verdict != tt.verdict || (err != nil) != tt.denied || is != tt.denied || is && denial.Decision != d {
			t.Errorf("%s: Admit() = %+v, %v; want %q, denied %v", tt.name, d, err, tt.verdict, tt.denied)
		}
		if is && !strings.Contains(err.Error(), "("+d.Rule+"): "+d.Message) {
			t.Errorf("%s: the error is %q; want the rule %s and its message", tt.name, err, d.Rule)
		}
	}
}

// TestFault makes a check fail by a bug: a rule that panics. The script is opaque then, and
// what the walk had found does not count.
func TestFault(t *testing.T) {
	t.Parallel()
	for mode, blocked := range map[Mode]bool{Standard: false, Guarded: true} {
		p := newPolicy(t, Options{Checks: CheckNames(), Mode: mode})
		p.commands = map[string]*command{"x": {rules: []func(call){func(call) { panic("a bug") }}}}
		d := p.Check(Input{Script: "a; x"})
		if d.Verdict != Opaque || d.Rule != opaqueFault || d.Reason != "a bug" || d.Blocked != blocked || blocked != (d.Message != "") {
			t.Errorf("%s: Check() = %+v; want it opaque by %s, blocked %v", mode, d, opaqueFault, blocked)
		}
		if d := p.Check(Input{Script: "a; y"}); d.Verdict != Allow {
			t.Errorf("%s: Check() of another command = %+v; want it allowed", mode, d)
		}
	}
}
