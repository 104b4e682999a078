package policy

import (
	"testing"
)

// verdictRow is a row of testdata/verdicts.jsonl: our own cases for the ways to
// hide a command.
//
//	row      the number of the class in the list of ways, 0 for what hides nothing
//	command  the script
//	want     deny: refused with all checks and sets on; opaque: not refused by a
//	         rule, and said not to be known; allow: neither
//	mode     standard if absent
type verdictRow struct {
	Row     int     `json:"row"`
	Command string  `json:"command"`
	Want    Verdict `json:"want"`
	Mode    Mode    `json:"mode"`
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	all := Options{Checks: CheckNames(), Sets: SetNames()}
	policies := map[Mode]*Policy{"": newPolicy(t, all)}
	all.Mode = Guarded
	policies[Guarded] = newPolicy(t, all)
	rows := readRows[verdictRow](t, "verdicts.jsonl")
	seen := map[int]int{}
	for _, r := range rows {
		seen[r.Row]++
		got := policies[r.Mode].Check(Input{Script: r.Command})
		if got.Verdict != r.Want {
			t.Errorf("row %d: Check(%.80q) = %s by %s (%s); want %s", r.Row, r.Command, got.Verdict, got.Rule, got.Reason, r.Want)
		}
		if blocked := got.Verdict == Deny || got.Verdict == Opaque && r.Mode == Guarded; got.Blocked != blocked || blocked != (got.Message != "") {
			t.Errorf("row %d: Check(%.80q): blocked %v, message %q", r.Row, r.Command, got.Blocked, got.Message)
		}
	}
	for _, n := range []int{0, 1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 21, 22, 23, 25, 26, 28, 29, 30, 31, 33, 34, 36, 37, 38, 40, 41, 43, 44} {
		if seen[n] == 0 {
			t.Errorf("no row of class %d", n)
		}
	}
}
