package serve

import (
	"context"
	"errors"
	"testing"
)

// blockedTerminals opens a terminal when a value is received from go on; it fails if
// the value is an error.
type blockedTerminals struct {
	opening chan struct{}
	results chan error
}

func (b blockedTerminals) Open(context.Context, TerminalRequest) (Terminal, error) {
	b.opening <- struct{}{}
	if err := <-b.results; err != nil {
		return nil, err
	}
	return &fakeTerminal{done: make(chan struct{}), stop: func() bool { return true }}, nil
}

// Terminals that are being opened count: otherwise several that open at the same time
// pass the limit together.
func TestTerminalsLimit(t *testing.T) {
	t.Parallel()
	b := blockedTerminals{opening: make(chan struct{}), results: make(chan error)}
	s := &Session{ID: "s", Terminals: b}
	table := &terminals{end: " somehow"}
	ended := make(chan error)
	start := func() {
		go func() {
			_, err := table.open(t.Context(), t.Context(), s, TerminalRequest{Command: "vi"})
			ended <- err
		}()
	}
	for range maxTerminals {
		start()
		<-b.opening
	}
	_, err := table.open(t.Context(), t.Context(), s, TerminalRequest{Command: "vi"})
	if e, ok := errors.AsType[*Error](err); !ok || e.Data.Kind != KindOverloaded || e.Message != "there are 32 terminals: end one somehow" {
		t.Fatalf("open() while %d are being opened = %v; want %s", maxTerminals, err, KindOverloaded)
	}
	failed := errors.New("failed")
	b.results <- failed
	if err := <-ended; !errors.Is(err, failed) {
		t.Errorf("open() = %v; want %v", err, failed)
	}
	for range maxTerminals - 1 {
		b.results <- nil
		if err := <-ended; err != nil {
			t.Errorf("open() = %v; want nil", err)
		}
	}
	// The one that failed has given its place back, and one that is forgotten does.
	held, err := table.hold(s, &fakeTerminal{})
	if err != nil || len(table.list()) != maxTerminals || held.id != "pty_32" {
		t.Fatalf("hold() = %+v, %v, with %d terminals; want pty_32, the last of %d", held, err, len(table.list()), maxTerminals)
	}
	if _, err := table.hold(s, &fakeTerminal{}); err == nil {
		t.Error("hold() over the limit = nil; want an error")
	}
	table.remove(held)
	if _, err := table.hold(s, &fakeTerminal{}); err != nil {
		t.Errorf("hold() after one was removed = %v; want nil", err)
	}
}
