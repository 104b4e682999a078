// Package enginetest has an engine in memory, for tests of what stands above package
// engine. Nothing runs in its sessions: what is opened in one is played by a function of
// the test, over a pipe.
package enginetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Engine is an engine in memory, with engine.Workspaces, engine.Limiter, engine.Pauser and engine.Waiter. Its fields are set before it is
// used, or between calls. Make it with New.
type Engine struct {
	Facts    engine.Info // what Info returns
	Overlays engine.Overlays
	Warnings []string // what Provision and Attach would drop: an error where they have to be exact
	Notes    []string // of Provision
	// Serve plays a process that was opened, at its end of a pipe, on a goroutine of its
	// own. It returns when the pipe is closed.
	Serve func(h engine.Handle, x engine.Exec, conn net.Conn)
	// Load is what Usage returns; nil: far from any limit.
	Load func() (engine.Usage, error)
	// Fail says what a call fails with, before it has done anything; nil: with nothing. A
	// call is named as its method, in lower case.
	Fail func(call string) error
	// Hang holds calls that return only when their context ends.
	Hang map[string]bool

	// Sizes is what Stored returns.
	Sizes []engine.Stored

	mu       sync.Mutex
	caches   []engine.Cache      // guarded by mu
	sessions map[string]*session // guarded by mu; by id
	calls    []string            // guarded by mu
	limits   []engine.Usage      // guarded by mu
	made     int                 // guarded by mu
}

// session is what there is of a session. That of a helper has no workspace.
type session struct {
	engine.Session // Ref is "" if it has ended and what ran was removed
	shape          engine.Shape
	workspace      bool
	kept           map[string]string // labels of Keep; nil: it is not kept
	over           []engine.Attachment
	open           []net.Conn
}

var (
	_ engine.Engine     = (*Engine)(nil)
	_ engine.Workspaces = (*Engine)(nil)
	_ engine.Limiter    = (*Engine)(nil)
	_ engine.Holder     = (*Engine)(nil)
	_ engine.Caches     = (*Engine)(nil)
	_ engine.Stock      = (*Engine)(nil)
	_ engine.Pauser     = (*Engine)(nil)
	_ engine.Waiter     = (*Engine)(nil)
)

// New returns an Engine without sessions.
func New() *Engine {
	return &Engine{Facts: engine.Info{CPUs: 4, Address: "memory"}, sessions: map[string]*session{}, Hang: map[string]bool{}}
}

// begin notes a call, and fails or hangs as the test wants.
func (e *Engine) begin(ctx context.Context, call string) error {
	e.mu.Lock()
	e.calls = append(e.calls, call)
	e.mu.Unlock()
	if e.Hang[call] {
		<-ctx.Done()
		return ctx.Err()
	}
	if e.Fail != nil {
		return e.Fail(call)
	}
	return nil
}

// Took returns the calls so far that change something, and Usage, and forgets them.
func (e *Engine) Took() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	calls := slices.DeleteFunc(e.calls, func(call string) bool { return call == "find" || call == "list" })
	e.calls = nil
	return calls
}

// Made is how many sessions and helpers there have been.
func (e *Engine) Made() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.made
}

// Sessions returns what there is, helpers and what is left of sessions included.
func (e *Engine) Sessions() []engine.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []engine.Session
	for _, s := range e.sessions {
		all = append(all, s.seen())
	}
	slices.SortFunc(all, func(a, b engine.Session) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Shape returns what a session was provisioned as.
func (e *Engine) Shape(id string) engine.Shape {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[id]; s != nil {
		return s.shape
	}
	return engine.Shape{}
}

// Over returns the workspaces that a helper sees.
func (e *Engine) Over(id string) []engine.Attachment {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[id]; s != nil {
		return s.over
	}
	return nil
}

// Put puts a session there, with its workspace, as another process would have left it.
func (e *Engine) Put(s engine.Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sessions[s.ID] = &session{Session: s, workspace: true}
}

// Change changes what the engine knows of a session, and reports whether there is one.
func (e *Engine) Change(id string, change func(*engine.Session)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[id]
	if s != nil {
		change(&s.Session)
	}
	return s != nil
}

// Exit ends what runs in a session, as something outside would.
func (e *Engine) Exit(id string, code int) {
	e.Change(id, func(s *engine.Session) { s.Status, s.ExitCode, s.Finished = engine.StatusExited, code, time.Now() })
	e.HangUp(id)
}

// Lose removes a session behind the back of its owner: all of it, or all but its workspace.
func (e *Engine) Lose(id string, workspace bool) {
	e.HangUp(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[id]; s != nil && !workspace {
		s.end()
		return
	}
	delete(e.sessions, id)
}

// HangUp closes the streams of a session.
func (e *Engine) HangUp(id string) {
	e.mu.Lock()
	var open []net.Conn
	if s := e.sessions[id]; s != nil {
		open, s.open = s.open, nil
	}
	e.mu.Unlock()
	for _, conn := range open {
		conn.Close()
	}
}

// seen is the session as Find and List return it.
func (s *session) seen() engine.Session {
	out := s.Session
	switch {
	case out.Ref != "":
	case s.kept != nil && s.workspace:
		out.Status, out.Labels = engine.StatusKept, s.kept
	case s.kept != nil:
		out.Status, out.Labels = engine.StatusStray, s.kept
	default:
		out.Status = engine.StatusLeft
	}
	return out
}

// end is the end of what runs. The labels of its workspace are the draft's.
func (s *session) end() {
	if s.Ref == "" {
		return
	}
	s.Ref = ""
	if s.shape.Made != nil {
		s.Labels = maps.Clone(s.shape.Made)
		maps.Copy(s.Labels, s.shape.Draft)
	}
}

func notFound(id string) error {
	return &engine.Error{Op: "find session " + id, Kind: engine.ErrNotFound, Err: errors.New("there is no such session")}
}

// Info returns Facts.
func (e *Engine) Info(context.Context) (engine.Info, error) { return e.Facts, nil }

// add puts a running session there.
func (e *Engine) add(id string, s *session) engine.Handle {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.made++
	s.Handle = engine.Handle{ID: id, Ref: fmt.Sprintf("c%d", e.made)}
	s.Status, s.Created, s.Started = engine.StatusRunning, time.Now(), time.Now()
	e.sessions[id] = s
	return s.Handle
}

// drops is the error of an engine that would drop a part of what has to be exact.
func (e *Engine) drops(c engine.Confinement) error {
	if c.Exact && len(e.Warnings) > 0 {
		return fmt.Errorf("the engine would drop: %q", e.Warnings)
	}
	return nil
}

// Provision makes a session.
func (e *Engine) Provision(ctx context.Context, s engine.Shape) (engine.Handle, []string, error) {
	if err := errors.Join(e.begin(ctx, "provision"), e.drops(s.Confinement), e.makeCaches(s)); err != nil {
		return engine.Handle{}, nil, err
	}
	made := &session{shape: s, workspace: s.Workspace.Bind == ""}
	made.Labels = s.Labels(e.Overlays)
	return e.add(s.ID, made), e.Notes, nil
}

// Find returns a session.
func (e *Engine) Find(ctx context.Context, id string) (engine.Session, error) {
	if err := e.begin(ctx, "find"); err != nil {
		return engine.Session{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[id]; s != nil {
		return s.seen(), nil
	}
	return engine.Session{}, notFound(id)
}

// List returns all sessions.
func (e *Engine) List(ctx context.Context) ([]engine.Session, error) {
	if err := e.begin(ctx, "list"); err != nil {
		return nil, err
	}
	return e.Sessions(), nil
}

// Open has Serve play a process.
func (e *Engine) Open(ctx context.Context, h engine.Handle, x engine.Exec) (engine.Stream, error) {
	if err := e.begin(ctx, "open"); err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[h.ID]
	if s == nil || s.Handle != h {
		return nil, notFound(h.ID)
	}
	if s.Status != engine.StatusRunning {
		return nil, &engine.Error{Op: "open", Kind: engine.ErrNotRunning, Err: errors.New("the session is " + string(s.Status))}
	}
	s.open = append(s.open, far)
	go e.Serve(h, x, far)
	return stream{near}, nil
}

// stream is the caller's end of a pipe. It has no terminal.
type stream struct{ net.Conn }

func (stream) CloseWrite() error                        { return nil }
func (stream) Stderr() string                           { return "" }
func (stream) Resize(context.Context, uint, uint) error { return nil }
func (stream) ExitCode(context.Context) (int, error)    { return 0, nil }

// Sweep does nothing.
func (e *Engine) Sweep(ctx context.Context, _ engine.Handle) error { return e.begin(ctx, "sweep") }

// Hold does nothing.
func (e *Engine) Hold(ctx context.Context, _ engine.Handle) error { return e.begin(ctx, "hold") }

// Pause closes the streams of a session: nothing answers on them.
func (e *Engine) Pause(ctx context.Context, h engine.Handle) error {
	return e.turn(ctx, "pause", h, engine.StatusPaused)
}

// Resume has a session run again.
func (e *Engine) Resume(ctx context.Context, h engine.Handle) error {
	return e.turn(ctx, "resume", h, engine.StatusRunning)
}

func (e *Engine) turn(ctx context.Context, call string, h engine.Handle, to engine.Status) error {
	if err := e.begin(ctx, call); err != nil {
		return err
	}
	if to == engine.StatusPaused {
		e.HangUp(h.ID)
	}
	err := notFound(h.ID)
	e.Change(h.ID, func(s *engine.Session) {
		if err = nil; s.Status != engine.StatusRunning && s.Status != engine.StatusPaused {
			err = &engine.Error{Op: call, Kind: engine.ErrNotRunning, Err: errors.New("the session is " + string(s.Status))}
			return
		}
		s.Status = to
	})
	return err
}

// Wait looks again and again whether a session runs.
func (e *Engine) Wait(ctx context.Context, h engine.Handle) error {
	if err := e.begin(ctx, "wait"); err != nil {
		return err
	}
	for {
		e.mu.Lock()
		s := e.sessions[h.ID]
		known := s != nil && s.Handle == h
		runs := known && (s.Status == engine.StatusRunning || s.Status == engine.StatusPaused)
		e.mu.Unlock()
		switch {
		case !known:
			return notFound(h.ID)
		case !runs:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// Reset closes the streams of a session and starts it again.
func (e *Engine) Reset(ctx context.Context, h engine.Handle) error {
	if err := e.begin(ctx, "reset"); err != nil {
		return err
	}
	e.HangUp(h.ID)
	if !e.Change(h.ID, func(s *engine.Session) { s.Status, s.Started = engine.StatusRunning, time.Now() }) {
		return notFound(h.ID)
	}
	return nil
}

// End leaves the workspace of a session.
func (e *Engine) End(ctx context.Context, h engine.Handle) error {
	if err := e.begin(ctx, "end"); err != nil {
		return err
	}
	e.HangUp(h.ID)
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[h.ID]
	if s == nil {
		return nil
	}
	if s.end(); !s.workspace {
		delete(e.sessions, h.ID)
	}
	return nil
}

// Remove removes a session.
func (e *Engine) Remove(ctx context.Context, h engine.Handle) error {
	if err := e.begin(ctx, "remove"); err != nil {
		return err
	}
	e.HangUp(h.ID)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sessions[h.ID] == nil {
		return notFound(h.ID)
	}
	for _, other := range e.sessions {
		if slices.ContainsFunc(other.over, func(a engine.Attachment) bool { return a.Session == h.ID }) {
			return &engine.Error{Op: "remove", Kind: engine.ErrConflict, Err: errors.New("its workspace is being read")}
		}
	}
	delete(e.sessions, h.ID)
	return nil
}

// Usage returns what Load does.
func (e *Engine) Usage(ctx context.Context, _ engine.Handle) (engine.Usage, error) {
	if err := e.begin(ctx, "usage"); err != nil || e.Load == nil {
		return engine.Usage{Pids: 20, PidsLimit: 512}, err
	}
	return e.Load()
}

// Limit notes the limits: see Limits.
func (e *Engine) Limit(ctx context.Context, _ engine.Handle, u engine.Usage) error {
	if err := e.begin(ctx, "limit"); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limits = append(e.limits, u)
	return nil
}

// Limits returns what Limit has set, oldest first.
func (e *Engine) Limits() []engine.Usage {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.limits)
}

// Keep keeps a workspace.
func (e *Engine) Keep(ctx context.Context, id string, labels map[string]string) error {
	if err := e.begin(ctx, "keep"); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[id]
	if s == nil || !s.workspace {
		return &engine.GoneError{Session: id}
	}
	s.kept = maps.Clone(labels)
	return nil
}

// Attach makes a helper.
func (e *Engine) Attach(ctx context.Context, p engine.Helper) (engine.Handle, error) {
	if err := errors.Join(e.begin(ctx, "attach"), e.drops(p.Confinement)); err != nil {
		return engine.Handle{}, err
	}
	e.mu.Lock()
	for _, a := range p.Over {
		if s := e.sessions[a.Session]; s == nil || !s.workspace {
			e.mu.Unlock()
			return engine.Handle{}, &engine.GoneError{Session: a.Session}
		}
	}
	e.mu.Unlock()
	made := &session{over: p.Over}
	made.Labels = p.Labels
	return e.add(p.ID, made), nil
}
