package policy

import (
	"testing"
)

// safetyRow is a row of the corpus of the three checks of contract modes.
type safetyRow struct {
	ID      string `json:"id"`
	Tier    string `json:"tier"`
	Command string `json:"command"`
	Blocked bool   `json:"blocked"`
	Check   string `json:"check"`
	Message string `json:"message"`
	Note    string `json:"note"`
}

// deviations are the rows of tier may that do not hold, and why.
var deviations = map[string]string{
	"saf-155": "a constant that is assigned once is known",
	"saf-348": "what a trap holds runs",
}

func newPolicy(tb testing.TB, o Options) *Policy {
	tb.Helper()
	p, warnings, err := New(o)
	if err != nil || len(warnings) > 0 {
		tb.Fatal(err, warnings)
	}
	return p
}

func TestSafetyCorpus(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: CheckNames()})
	rows := readRows[safetyRow](t, "safety.jsonl")
	if len(rows) < 200 {
		t.Fatalf("the corpus has %d rows", len(rows))
	}
	for _, r := range rows {
		got := p.Check(Input{Script: r.Command})
		ok := got.Blocked == r.Blocked && (!r.Blocked || got.Rule == r.Check && got.Message == r.Message)
		_, deviates := deviations[r.ID]
		if ok == deviates {
			t.Errorf("%s (%s) Check(%q) = %+v; want blocked %v by %q", r.ID, r.Tier, r.Command, got, r.Blocked, r.Check)
		}
		if !r.Blocked && got.Verdict == Opaque {
			t.Logf("%s opaque: %q %s", r.ID, r.Command, got.Rule)
		}
	}
}
