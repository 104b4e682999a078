package sandbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Events has a command's start, its output with secrets masked, and its end; several observers see the same; while the
// command runs, it is in the registry.
func TestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeEngine(t)
		events, other := NewEvents(0), &witness{}
		e := New(d, &fakeImages{}, Options{Observers: []Observer{events, other}})
		s, err := e.Start(t.Context(), Spec{Name: "web"})
		if err != nil {
			t.Fatal(err)
		}
		running, goOn := make(chan struct{}), make(chan struct{})
		d.on = func(f *fakeRunner, _ wire.Request) {
			close(running)
			go func() {
				<-goOn
				f.answer([]byte("the output"))
			}()
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.Run(t.Context(), Command{Script: "x", Args: []string{"a"}})
		}()
		<-running
		all := e.Running()
		if len(all) != 1 || all[0].Session != s.ID() || all[0].Info == nil || all[0].Info.Name != "web" || all[0].Mode != ModeCommand {
			t.Fatalf("Running() = %+v; want the command", all)
		}
		if text, _ := all[0].Command(100); text != `x "a"` {
			t.Errorf("it runs %q", text)
		}
		close(goOn)
		<-done
		if all := e.Running(); len(all) != 0 {
			t.Errorf("Running() after the end = %+v; want nothing", all)
		}
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		events.Close()
		var kinds []string
		id, text := "", ""
		for {
			v, err := events.Next(t.Context())
			if errors.Is(err, ErrEventsClosed) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case v.Output != nil:
				text += string(v.Output)
				if v.ID != id || v.Session != s.ID() || v.Stream != Stdout || v.Mode != ModeCommand {
					t.Errorf("output %+v; want that of command %s", v, id)
				}
				continue
			case v.Begins:
				id = v.ID
				kinds = append(kinds, "begins")
			case v.ID != "" && v.ID != id:
				t.Errorf("%s of %q; want %q", v.Kind, v.ID, id)
			}
			kinds = append(kinds, string(v.Kind))
		}
		want := []string{"session-start", "begins", "command", "command", "session-stop"}
		if len(kinds) != len(want) || text != "the output" {
			t.Errorf("events %v with output %q; want %v", kinds, text, want)
		}
		if got := other.kinds(); got != "session-start command session-stop" {
			t.Errorf("the other observer has %s", got)
		}
	})
}

// What is not read is dropped and counted.
func TestEventsFull(t *testing.T) {
	t.Parallel()
	v := NewEvents(3 * eventSize)
	for range 10 {
		v.Note(Observation{Kind: EventDenied})
	}
	for range 3 {
		if e, err := v.Next(t.Context()); err != nil || e.Dropped != 0 {
			t.Errorf("Next() = %+v, %v", e, err)
		}
	}
	if err := v.Intend(t.Context(), Observation{}); err != nil {
		t.Error(err)
	}
	if e, err := v.Next(t.Context()); err != nil || e.Dropped != 7 || !e.Begins {
		t.Errorf("Next() = %+v, %v; want 7 dropped", e, err)
	}
	over := errors.New("over")
	ctx, gone := context.WithCancelCause(t.Context())
	gone(over)
	if _, err := v.Next(ctx); !errors.Is(err, over) {
		t.Errorf("Next() of a context that has ended = %v; want its cause", err)
	}
	v.Close()
	v.Close()
	v.Note(Observation{})
	if _, err := v.Next(t.Context()); !errors.Is(err, ErrEventsClosed) {
		t.Errorf("Next() after Close = %v", err)
	}
}

// A job is in the registry until its end is seen, or the session's.
func TestRegistry(t *testing.T) {
	t.Parallel()
	var r registry
	b := r.begin(Observation{Session: "s", ID: "1"})
	b.end(Observation{ID: "1", Job: "2", JobTag: "tag"})
	c := r.begin(Observation{Session: "s", ID: "3"})
	c.end(Observation{ID: "3", Job: "3", JobTag: "other"})
	e := &Engine{running: registry{all: r.all, jobs: r.jobs}}
	if all := e.Running(); len(all) != 2 || all[0].Mode != ModeJob || all[0].Job != "2" || all[1].ID != "3" {
		t.Errorf("Running() = %+v; want two jobs", all)
	}
	e.running.endJob("tag")
	if all := e.Running(); len(all) != 1 {
		t.Errorf("Running() = %+v; want one", all)
	}
	e.running.leave("another")
	e.running.leave("s")
	if all := e.Running(); len(all) != 0 {
		t.Errorf("Running() = %+v; want none", all)
	}
	if ProcessGone(ThisProcess()) || ProcessGone("") {
		t.Error("ProcessGone() = true of this process, or of none")
	}
}
