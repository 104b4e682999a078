package policy

import (
	"testing"
	"time"
)

// FuzzCheck looks for scripts that make a policy panic, or take long, or say two
// things at once.
func FuzzCheck(f *testing.F) {
	for _, r := range readRows[safetyRow](f, "safety.jsonl") {
		f.Add(r.Command)
	}
	for _, r := range readRows[verdictRow](f, "verdicts.jsonl") {
		f.Add(r.Command)
	}
	for _, script := range bombs(300) {
		f.Add(script)
	}
	none := newPolicy(f, Options{})
	all := newPolicy(f, Options{Checks: CheckNames(), Sets: SetNames()})
	guarded := newPolicy(f, Options{Checks: CheckNames(), Sets: SetNames(), Mode: Guarded})
	f.Fuzz(func(t *testing.T, script string) {
		start := time.Now()
		d := all.Check(Input{Script: script})
		if took := time.Since(start); took > 5*time.Second*slowdown {
			t.Errorf("Check took %v", took)
		}
		if d.Rule == opaqueFault {
			t.Errorf("fault: %s", d.Reason)
		}
		if d.Blocked != (d.Verdict == Deny || d.Verdict == TooComplex) || d.Blocked != (d.Message != "") {
			t.Errorf("standard: %+v", d)
		}
		g := guarded.Check(Input{Script: script})
		if g.Blocked != (g.Verdict != Allow) || g.Blocked != (g.Message != "") {
			t.Errorf("guarded: %+v", g)
		}
		if d.Verdict == Deny && g.Verdict != Deny {
			t.Errorf("standard %+v, guarded %+v", d, g)
		}
		if n := none.Check(Input{Script: script}); n.Verdict == Deny {
			t.Errorf("denied by no rule: %+v", n)
		}
		e := all.Explain(Input{Script: script})
		if e.Decision != d {
			t.Errorf("Explain decides %+v, Check %+v", e.Decision, d)
		}
		if d.Position.Offset > len(script) {
			t.Errorf("position %+v of %d bytes", d.Position, len(script))
		}
		// A segment is a part of the script.
		for _, s := range parse(script).segments() {
			if s.pos.Offset+len(s.text) > len(script) {
				t.Errorf("segment %+v", s)
			}
		}
	})
}
