package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// good is a history in which everything is as it should be: two sessions, of which one
// is killed, and a command of every kind.
func good() []event {
	code := func(n int) *int { return &n }
	return []event{
		{At: 0, Type: invoke, Op: 1, Session: "a", Kind: "command", Code: 3, Life: 300, Timeout: 1000},
		{At: 10, Type: invoke, Op: 2, Session: "a", Kind: "call", Life: 60000, Cancel: 500},
		{At: 20, Type: invoke, Op: 3, Session: "a", Kind: "job", Code: 4, Timeout: 60000},
		{At: 400, Type: outcome, Op: 1, Outcome: "exited", ExitCode: code(3), Output: "nonce-000001\n"},
		{At: 600, Type: outcome, Op: 2, Outcome: "cancelled", Output: "nonce-000002\n"},
		{At: 700, Type: outcome, Op: 3, Outcome: accepted},
		{At: 800, Type: invoke, Op: 4, Session: "a", Kind: "command", Life: 60000, Timeout: 1000},
		{At: 1900, Type: outcome, Op: 4, Outcome: "timed-out", Output: "nonce-000004\n"},
		{At: 2000, Type: ended, Op: 3, Outcome: "exited", ExitCode: code(4), Output: "nonce-000003\n"},
		{At: 3000, Type: invoke, Op: 5, Session: "b", Kind: "command", Life: 1000, Timeout: 2000},
		{At: 3100, Type: invoke, Op: 6, Session: "b", Kind: "job", Timeout: 60000},
		{At: 3200, Type: outcome, Op: 6, Outcome: accepted},
		{At: 3300, Type: fault, Fault: faultKill, Session: "b", ID: 1},
		{At: 3400, Type: healed, Fault: faultKill, Session: "b", ID: 1},
		{At: 3500, Type: outcome, Op: 5, Outcome: "session-lost", Cause: "killed"},
		{At: 3600, Type: invoke, Op: 7, Session: "b", Kind: "command", Timeout: 2000},
		{At: 3700, Type: outcome, Op: 7, Outcome: "not-started", Cause: "engine"},
		{At: 20000, Type: fault, Fault: faultHost, Session: "a", ID: 2},
		{At: 20000, Type: invoke, Op: 8, Session: "a", Kind: "call", Life: 300},
		{At: 20100, Type: outcome, Op: 8, Outcome: lostClient},
		{At: 20100, Type: healed, Fault: faultHost, Session: "a", ID: 2},
		{At: 40000, Type: last, Session: "a", Works: true, Running: true},
		{At: 40000, Type: last, Session: "b", Outcome: "session-lost", Cause: "killed"},
		{At: 40000, Type: ended, Op: 6, Outcome: "session-lost", Cause: "killed"},
		{At: 41000, Type: fact, Op: 1, Ran: 1, Finished: 1},
		{At: 41000, Type: fact, Op: 2, Ran: 1},
		{At: 41000, Type: fact, Op: 3, Ran: 1, Finished: 1},
		{At: 41000, Type: fact, Op: 4, Ran: 1},
		{At: 41000, Type: fact, Op: 5, Ran: 1},
		{At: 41000, Type: fact, Op: 6, Ran: 1},
		{At: 41000, Type: fact, Op: 7},
		{At: 41000, Type: fact, Op: 8, Ran: 1},
	}
}

func TestCheckTakesWhatIsTrue(t *testing.T) {
	t.Parallel()
	if wrong := check(good()); len(wrong) > 0 {
		t.Errorf("check(a good history) = %q; want nothing wrong", wrong)
	}
}

// A restart of the engine may cost a session, and not a job.
func TestCheckTakesRestart(t *testing.T) {
	t.Parallel()
	all := good()
	for i, e := range all {
		switch {
		case e.Type == fault && e.ID == 1, e.Type == healed && e.ID == 1:
			all[i].Fault, all[i].Session = faultRestart, ""
		case e.Type == last && e.Session == "b":
			all[i].Outcome, all[i].Cause = "not-started", "unknown-session"
		case e.Type == outcome && e.Op == 5:
			all[i].Cause = "unknown-session"
		}
	}
	want := "op 6: the job is session-lost (killed), and nothing that may do that has happened"
	if wrong := check(all); len(wrong) != 1 || wrong[0] != want {
		t.Errorf("check(a restart in the place of a kill) = %q; want %q", wrong, want)
	}
}

// A kill that is not confirmed, because a fault was in its way, may cost a session.
func TestCheckTakesReset(t *testing.T) {
	t.Parallel()
	all := good()
	for i, e := range all {
		switch {
		case e.Type == fault && e.ID == 1, e.Type == healed && e.ID == 1:
			all[i].Fault, all[i].Session = faultHang, ""
		case e.Type == outcome && e.Op == 5:
			all[i].Outcome, all[i].Cause = "outcome-unknown", "kill-unconfirmed"
		}
	}
	if wrong := check(all); len(wrong) > 0 {
		t.Errorf("check(a reset) = %q; want nothing wrong", wrong)
	}
}

// TestCheckRefuses forges one thing in the good history at a time.
func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	// of changes the first event of a type and an operation or session.
	of := func(kind string, op int, session string, change func(*event)) func([]event) []event {
		return func(all []event) []event {
			i := slices.IndexFunc(all, func(e event) bool {
				return e.Type == kind && e.Op == op && (session == "" || e.Session == session)
			})
			change(&all[i])
			return all
		}
	}
	without := func(kind string, op int) func([]event) []event {
		return func(all []event) []event {
			return slices.DeleteFunc(all, func(e event) bool { return e.Type == kind && e.Op == op })
		}
	}
	for _, tt := range []struct {
		name  string
		forge func([]event) []event
		want  string // in one of the complaints
	}{
		{"an outcome is missing", without(outcome, 1), "0 outcomes"},
		{"two outcomes", func(all []event) []event { return append(all, event{At: 401, Type: outcome, Op: 1, Outcome: "exited"}) }, "2 outcomes"},
		{"no outcome that there is", of(outcome, 1, "", func(e *event) { e.Outcome = "none" }), "no outcome that there is"},
		{"another exit code", of(outcome, 1, "", func(e *event) { *e.ExitCode = 0 }), "exited with 0; want 3"},
		{"no exit code", of(outcome, 1, "", func(e *event) { e.ExitCode = nil }), "no code"},
		{"no output", of(outcome, 1, "", func(e *event) { e.Output = "" }), `output is ""`},
		{"another's output", of(outcome, 1, "", func(e *event) { e.Output = "nonce-000002\n" }), "output is"},
		{"output twice", of(outcome, 1, "", func(e *event) { e.Output += e.Output }), "output is"},
		{"exited, and did not run", of(fact, 1, "", func(e *event) { e.Ran, e.Finished = 0, 0 }), "has begun 0 times"},
		{"exited, and did not come to its end", of(fact, 1, "", func(e *event) { e.Finished = 0 }), "come to its end 0 times"},
		{"ran twice", of(fact, 1, "", func(e *event) { e.Ran, e.Finished = 2, 2 }), "has begun 2 times"},
		{"ran twice, and was cancelled", of(fact, 2, "", func(e *event) { e.Ran = 2 }), "has begun 2 times"},
		{"lives when it is said to have ended", of(outcome, 4, "", func(e *event) { e.Alive = 1 }), "1 of its processes live"},
		{"lives when all is over", of(fact, 2, "", func(e *event) { e.Alive = 1 }), "live when all is over"},
		{"late", of(outcome, 4, "", func(e *event) { e.At = 800 + 60000 + lateBy + 1 }), "it took"},
		{"timed out too early", of(outcome, 4, "", func(e *event) { e.At = 1000 }), "timed out after 200 ms"},
		{"timed out without a timeout", of(outcome, 2, "", func(e *event) { e.Outcome = "timed-out" }), "and it had 0"},
		{"timed out, and never began", of(fact, 4, "", func(e *event) { e.Ran = 0 }), "timed out, and has begun 0 times"},
		{"cancelled without a cancel", of(invoke, 2, "", func(e *event) { e.Cancel = 0 }), "no cancel was sent"},
		{"killed without a kill", of(outcome, 4, "", func(e *event) { e.Outcome = "signalled" }), "nothing has killed it"},
		{"out of memory, and came to its end", of(outcome, 1, "", func(e *event) { e.Outcome = "oom-killed" }), "come to its end 1 times"},
		{"not started, and ran", of(fact, 7, "", func(e *event) { e.Ran = 1 }), "reported not to have started"},
		{"not started for nothing", of(outcome, 4, "", func(e *event) { e.Outcome = "not-started" }), "nothing was in its way"},
		{"unknown for nothing", of(outcome, 4, "", func(e *event) { e.Outcome = "outcome-unknown" }), "nothing has happened"},
		{"lost for nothing", of(outcome, 4, "", func(e *event) { e.Outcome = "session-lost" }), "nothing has been done to it"},
		{"the fault hit another session", of(fault, 0, "b", func(e *event) { e.Session = "a" }), "nothing has been done to it"},
		{"the fault was not a reason", of(fault, 0, "b", func(e *event) { e.Fault = faultDisk }), "nothing has been done to it"},
		{"a client that was not killed", of(fault, 0, "a", func(e *event) { e.Fault = faultHang }), "no fault did that"},
		{"a job without an end", without(ended, 3), "has 0 ends"},
		{"a job with two ends", func(all []event) []event { return append(all, event{Type: ended, Op: 3, Outcome: "exited"}) }, "has 2 ends"},
		{"a job's output is lost", of(ended, 3, "", func(e *event) { e.Output = "" }), `output ""`},
		{"a job's code is another", of(ended, 3, "", func(e *event) { *e.ExitCode = 0 }), "exited with 0"},
		{"a job is lost for nothing", of(ended, 3, "", func(e *event) { e.Outcome = "lost" }), "nothing that may do that"},
		{"a job is lost to a restart", func(all []event) []event {
			return of(fault, 0, "b", func(e *event) { e.Fault, e.Session = faultRestart, "" })(all)
		}, "the job is session-lost"},
		{"an end of what is not a job", of(ended, 3, "", func(e *event) { e.Op = 1 }), "an end of a job"},
		{"no fact", without(fact, 1), "0 facts"},
		{"never asked", without(invoke, 1), "asked 0 times"},
		{"a session that does not work", of(last, 0, "a", func(e *event) { e.Works, e.Outcome = false, "outcome-unknown" }), "neither works nor"},
		{"a session that is lost and runs", of(last, 0, "b", func(e *event) { e.Running = true }), "its container runs"},
		{"a session that is lost for nothing", of(last, 0, "a", func(e *event) { e.Works, e.Running, e.Outcome = false, false, "session-lost" }), "nothing was done to it"},
		{"a session that is not known, for nothing", of(last, 0, "a", func(e *event) {
			e.Works, e.Running, e.Outcome, e.Cause = false, false, "not-started", "unknown-session"
		}), "nothing was done to it"},
		{"a session whose lease is over, for a kill", of(last, 0, "b", func(e *event) { e.Cause = "lease-over" }), "nothing was done to it"},
		{"a kill takes the container, for nothing", of(outcome, 4, "", func(e *event) { e.Killed = "reset" }), "nothing was in its way"},
		{"an unknown event", of(fact, 1, "", func(e *event) { e.Type = "gossip" }), "unknown type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wrong := check(tt.forge(good()))
			if !slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, tt.want) }) {
				t.Errorf("check(forged) = %q; want a complaint with %q", wrong, tt.want)
			}
		})
	}
}

// What is written is what is checked.
func TestHistory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history")
	h, err := newHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range good() {
		h.add(e)
	}
	over := h.hurt(faultPart, "")
	over()
	events, err := h.close()
	if err != nil {
		t.Fatal(err)
	}
	read, err := readHistory(path)
	if err != nil || len(read) != len(events) || len(read) != len(good())+2 {
		t.Fatalf("readHistory() = %d events, %v; want %d", len(read), err, len(events))
	}
	for i := range read {
		if read[i].Type != events[i].Type || read[i].At != events[i].At || read[i].Outcome != events[i].Outcome || read[i].ID != events[i].ID {
			t.Errorf("event %d = %+v; want %+v", i, read[i], events[i])
		}
	}
}
