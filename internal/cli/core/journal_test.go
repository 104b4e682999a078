package core

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

const journalled = "0193e2b0-1111-7000-8000-000000000001"

// A journal has what the observers are called with, masked; terminals by opt-in alone.
func TestJournaler(t *testing.T) {
	t.Parallel()
	const canary = "c4nary-0123456789"
	secrets, _, err := sink.NewSecrets([]sink.Secret{{Name: "CANARY", Value: canary}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	j := &journaler{to: journal.NewWriter(dir, journal.Options{Writer: sandbox.ThisProcess, Failed: func(err error) { t.Error(err) }}), dir: journal.Open(dir)}
	denied := sandbox.Denial(journalled, sandbox.Command{Script: "rm " + canary}, policy.Decision{Verdict: policy.Deny, Rule: "rm"}, secrets)
	j.Note(denied)
	about := sandbox.Observation{
		Kind: sandbox.EventCommand, ID: "a", Session: journalled, Start: time.Now(), Mode: sandbox.ModeTerminal, Where: sandbox.InContainer,
		Info: &sandbox.Info{Name: "web", Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceVolume}}, Size: sandbox.TerminalSize{Cols: 90, Rows: 30},
	}
	if err := j.Intend(t.Context(), about); err != nil {
		t.Fatal(err)
	}
	j.Output(sandbox.OutputEvent{Session: journalled, ID: "a", Mode: sandbox.ModeTerminal, Stream: sandbox.Screen, Data: []byte("secret screen")})
	j.Output(sandbox.OutputEvent{Session: journalled, ID: "b", Stream: sandbox.Stderr, Data: []byte("an error")})
	about.End, about.Status = time.Now(), exec.Status{Reason: exec.Exited, Code: 3}
	j.Note(about)
	about.Err = errors.New("engine is away")
	j.Note(about)
	j.Note(sandbox.Observation{Kind: sandbox.EventCheckpoint, Session: journalled, Start: time.Now(), Checkpoint: &sandbox.CheckpointChange{Action: "made", ID: "1", Name: "before"}})
	j.close()

	// The policy refuses before the session is looked for: it is found by its name.
	j = &journaler{to: journal.NewWriter(dir, journal.Options{}), dir: journal.Open(dir)}
	for _, name := range []string{"web", "", "other"} {
		j.Note(sandbox.Denial(name, sandbox.Command{Script: "by name " + name}, policy.Decision{Verdict: policy.Deny}, secrets))
	}
	j.close()

	r, err := journal.Open(dir).Reader(journalled)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	var list []journal.Record
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rec)
		if strings.Contains(rec.Command+string(rec.Data), canary) || strings.Contains(string(rec.Data), "screen") {
			t.Errorf("record %+v has what it must not", rec)
		}
	}
	if len(list) != 7 {
		t.Fatalf("%d records: %+v; want 7", len(list), list)
	}
	for i, want := range []journal.Kind{journal.Denied, journal.Start, journal.Output, journal.End, journal.End, journal.Checkpoint, journal.Denied} {
		if list[i].Kind != want {
			t.Errorf("record %d is %s; want %s", i, list[i].Kind, want)
		}
	}
	if got := list[0]; got.Command != "rm [REDACTED:CANARY]" || got.Policy == nil || got.Policy.Rule != "rm" {
		t.Errorf("denied: %+v", got)
	}
	if got := list[1]; got.Cols != 90 || got.Mode != "terminal" || got.Writer != sandbox.ThisProcess() {
		t.Errorf("start: %+v", got)
	}
	if got := list[3]; got.Code == nil || *got.Code != 3 || got.Reason != "exited" {
		t.Errorf("end: %+v", got)
	}
	if got := list[4]; got.Error == nil || got.Error.Message == "" || got.Reason != "" {
		t.Errorf("end with an error: %+v", got)
	}
	if got := string(list[5].Checkpoint); got != `{"action":"made","id":"1","name":"before"}` {
		t.Errorf("checkpoint: %s", got)
	}
	if s, err := journal.Open(dir).Session(journalled); err != nil || s.Name != "web" || s.Workspace != "volume" {
		t.Errorf("session %+v, %v", s, err)
	}
}
