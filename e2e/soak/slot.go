package main

import (
	"context"
	"errors"
	"sync"
)

// slot holds a session. When the session is lost, another one replaces it.
type slot struct {
	n *nemesisRun

	starting chan struct{} // holds one: the goroutine that starts a session takes it

	mu      sync.Mutex
	now     *session // guarded by mu; nil before the first, and after a loss
	server  *server  // guarded by mu; a long-lived client of it
	pending []accept // guarded by mu; jobs whose end is not yet known
}

// accept is a job that was accepted.
type accept struct {
	op      int
	session string
	job     string
}

func (s *slot) current() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// name is the container's.
func (s *slot) name() string {
	if now := s.current(); now != nil {
		return "sandboxbash-" + now.id
	}
	return "none"
}

// session returns the session of the slot, or starts one.
func (s *slot) session(ctx context.Context) (*session, error) {
	s.starting <- struct{}{}
	defer func() { <-s.starting }()
	if now := s.current(); now != nil {
		return now, nil
	}
	made, err := s.n.l.startSession(ctx, "--idle", nemesisIdle.String(), "--memory", "256m")
	if made != nil && made.id != "" {
		s.n.keep(made) // even with an error, because the session may exist
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = made
	return made, nil
}

// lose empties the slot if it holds that session.
func (s *slot) lose(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil && s.now.id == id {
		s.now = nil
		s.server = nil // nemesisRun keeps it and ends it
	}
}

// client returns the long-lived client of the session, and starts it if there is none.
func (s *slot) client(ctx context.Context, now *session) (*server, error) {
	s.mu.Lock()
	c := s.server
	s.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := s.n.l.serve(ctx)
	if err != nil {
		return nil, err
	}
	s.n.keepServer(c)
	if err := c.call(ctx, "session/attach", map[string]any{"session": now.id}, nil); err != nil {
		return nil, errors.Join(err, c.close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = c
	return c, nil
}

// killServer ends the long-lived client with SIGKILL, like a crash.
func (s *slot) killServer() {
	s.mu.Lock()
	c := s.server
	s.server = nil
	s.mu.Unlock()
	if c != nil {
		c.kill()
	}
}
