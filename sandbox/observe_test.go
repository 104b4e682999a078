package sandbox

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sink"
)

// witness records the calls of an observer.
type witness struct {
	refuse error

	mu      sync.Mutex
	intents []Observation // guarded by mu
	notes   []Observation // guarded by mu
}

func (w *witness) Intend(_ context.Context, e Observation) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.intents = append(w.intents, e)
	return w.refuse
}

func (w *witness) Note(e Observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, e)
}

func (w *witness) kinds() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, e := range w.notes {
		all = append(all, string(e.Kind))
	}
	return strings.Join(all, " ")
}

const canary = "c4nary-0123456789"

func TestObservationText(t *testing.T) {
	t.Parallel()
	secrets, _, err := sink.NewSecrets([]sink.Secret{{Name: "CANARY", Value: canary}})
	if err != nil {
		t.Fatal(err)
	}
	c := Command{Script: "echo " + canary, Args: []string{"a b", canary}, Dir: "/" + canary}
	e := Denial("s", c, policy.Decision{Rule: "r"}, secrets)
	text, size := e.Command(1000)
	if want := `echo [REDACTED:CANARY] "a b" "[REDACTED:CANARY]"`; text != want || size == 0 {
		t.Errorf("Command() = %q, %d; want %q", text, size, want)
	}
	if strings.Contains(e.Dir, canary) || e.Policy.Rule != "r" || e.Kind != EventDenied {
		t.Errorf("Denial() = %+v; want no secret and the decision", e)
	}
	for most := range 30 { // wherever it is cut
		if text, _ := e.Command(most); strings.Contains(text, canary[:6]) || len(text) > most {
			t.Errorf("Command(%d) = %q; want no part of the secret", most, text)
		}
	}
}

// Each command that may run has one intent and one note with the same id, however it ends.
// Each session has one note of its start and one of its end.
func TestObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		rules, _, err := policy.New(policy.Options{Checks: []string{"rm"}})
		if err != nil {
			t.Fatal(err)
		}
		secrets, _, err := sink.NewSecrets([]sink.Secret{{Name: "CANARY", Value: canary}})
		if err != nil {
			t.Fatal(err)
		}
		w := &witness{}
		e := New(d, &fakeImages{}, Options{Policy: rules, Observer: w, Secrets: secrets})
		s, err := e.Start(t.Context(), Spec{})
		if err != nil {
			t.Fatal(err)
		}
		d.on = func(f *fakeRunner, req wire.Request) {
			switch string(req.Script) {
			case "no dir":
				f.failed(wire.FailDirMissing)
			case "lost":
				f.conn.Close()
			default:
				f.answer(req.Script)
			}
		}
		for _, script := range []string{"good", canary, "no dir", "lost", "rm -rf /", " "} {
			_, _ = s.Run(t.Context(), Command{Script: script}) // what it returns is others' concern
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := w.kinds(), "session-start command command command command denied session-stop"; got != want {
			t.Errorf("notes %s; want %s", got, want)
		}
		if len(w.intents) != 4 {
			t.Fatalf("%d intents; want 4", len(w.intents))
		}
		for i, want := range []string{"", "", "not-started", "outcome-unknown"} {
			got := w.notes[i+1]
			if got.ID != w.intents[i].ID || got.ID == "" || got.Session != s.ID() {
				t.Errorf("note %d: id %q of session %q; want that of its intent, %q", i, got.ID, got.Session, w.intents[i].ID)
			}
			bad, _ := errors.AsType[*exec.Error](got.Err)
			switch {
			case want == "" && (got.Err != nil || got.Receipt == nil || got.Status.Reason != exec.Exited || got.Policy.Verdict == ""):
				t.Errorf("note %d: %+v; want a command that has exited, with receipt and decision", i, got)
			case want != "" && (bad == nil || string(bad.Outcome) != want || got.Receipt != nil):
				t.Errorf("note %d: %v, receipt %v; want %s and none", i, got.Err, got.Receipt, want)
			}
		}
		if got := w.notes[2].Masked; got != 1 {
			t.Errorf("%d secrets masked in the output; want 1", got)
		}
		if got := w.notes[5].Policy.Rule; got != "rm" {
			t.Errorf("denied by %q; want rm", got)
		}
	})
}

// A push and a pull have an intent and a note with the same id, with the paths.
func TestObserveTransfer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		secrets, _, err := sink.NewSecrets([]sink.Secret{{Name: "CANARY", Value: canary}})
		if err != nil {
			t.Fatal(err)
		}
		w := &witness{}
		s, err := New(newFakeEngine(t), &fakeImages{}, Options{Observer: w, Secrets: secrets}).Start(t.Context(), Spec{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
		if _, err := s.Push(t.Context(), "/missing/"+canary, "dir"); Judge(err).Cause != "bad-path" {
			t.Errorf("Push() = %v; want that the path is missing", err)
		}
		if _, err := s.Pull(t.Context(), "a\x00b", t.TempDir(), PullOptions{}); err == nil {
			t.Error("Pull() of a path with a NUL = nil; want an error")
		}
		if got, want := w.kinds(), "session-start transfer transfer"; got != want {
			t.Fatalf("notes %s; want %s", got, want)
		}
		for i, want := range []struct {
			mode Mode
			text string
		}{
			{ModePush, `"/missing/[REDACTED:CANARY]" "` + s.inside("dir") + `"`},
			{ModePull, `"` + s.inside("a") + `\x00b"`},
		} {
			before, after := w.intents[i], w.notes[i+1]
			text, _ := before.Command(1000)
			if before.Mode != want.mode || !strings.HasPrefix(text, want.text) || after.ID != before.ID || after.ID == "" || after.Err == nil || after.Session != s.ID() {
				t.Errorf("intent %+v of %q, note %+v; want a %s of %s that has failed", before, text, after, want.mode, want.text)
			}
		}
		w.refuse = errors.New("no space")
		_, err = s.Push(t.Context(), t.TempDir(), ".")
		if bad, ok := errors.AsType[*exec.Error](err); !ok || bad.Cause != CauseUnrecorded || bad.Outcome != exec.NotStarted {
			t.Errorf("Push() = %v; want that it was not recorded", err)
		}
	})
}

// What cannot be put on record does not run.
func TestUnrecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		w := &witness{refuse: errors.New("no space")}
		e := New(d, &fakeImages{}, Options{Observer: w})
		s, err := e.Start(t.Context(), Spec{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to tell
		ran := false
		d.on = func(f *fakeRunner, _ wire.Request) {
			ran = true
			f.answer(nil)
		}
		_, err = s.Run(t.Context(), Command{Script: "x"})
		bad, ok := errors.AsType[*exec.Error](err)
		if !ok || bad.Outcome != exec.NotStarted || bad.Cause != CauseUnrecorded || ran {
			t.Errorf("Run() = %v, ran: %v; want not-started{unrecorded}", err, ran)
		}
		_, err = s.Terminal(t.Context(), Command{Script: "x"}, TerminalOptions{})
		if bad, ok := errors.AsType[*exec.Error](err); !ok || bad.Cause != CauseUnrecorded {
			t.Errorf("Terminal() = %v; want not-started{unrecorded}", err)
		}
		if got, want := w.kinds(), "session-start command command"; got != want {
			t.Errorf("notes %s; want %s", got, want)
		}
	})
}

func TestStats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		e, s := start(t, d, Spec{})
		running, goOn := make(chan struct{}), make(chan struct{})
		d.on = func(f *fakeRunner, _ wire.Request) {
			close(running)
			go func() {
				<-goOn
				f.answer(nil)
			}()
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.Run(t.Context(), Command{Script: "x"})
		}()
		<-running
		if got := e.Stats(); got.Sessions != 1 || got.Busy != 1 || got.Idle != 0 {
			t.Errorf("Stats() while one runs = %+v; want a session with a busy runner", got)
		}
		close(goOn)
		<-done
		if got := e.Stats(); got.Sessions != 1 || got.Busy != 0 || got.Idle != 1 {
			t.Errorf("Stats() = %+v; want a session with an idle runner", got)
		}
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := e.Stats(); got != (Stats{}) {
			t.Errorf("Stats() after the end = %+v; want nothing", got)
		}
	})
}
