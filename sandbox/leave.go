package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
)

// ended is a session that has ended and whose workspace is to be kept.
type ended struct {
	state engine.Session
	info  Info
}

// leaves reports whether a session has ended in a way that keeps its workspace.
func (e *Engine) leaves(state engine.Session, info Info, now time.Time) bool {
	return e.workspaces != nil && info.keeps() && !state.Started.IsZero() && !e.isOpen(info.ID) && dead(state, now)
}

// keepAll keeps the workspaces of sessions that have ended, and removes what else is
// left of them. An empty workspace is not kept. With an error the sessions are still there, for the next try.
func (e *Engine) keepAll(ctx context.Context, all []ended) error {
	var ids []string
	for _, one := range all {
		ids = append(ids, one.info.ID)
	}
	found, err := e.survey(ctx, ids)
	if err != nil {
		return err
	}
	var errs []error
	for _, one := range all {
		use, there := found[one.info.ID]
		start := time.Now()
		err := e.keepOne(ctx, one, use, there)
		e.noteSession(EventReap, one.info.ID, start, err)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (e *Engine) keepOne(ctx context.Context, one ended, use usage, there bool) error {
	if !there || use.empty() {
		err := e.remove(ctx, one.state.Handle)
		if errors.Is(err, engine.ErrConflict) { // another process looks at it too, and removes it then
			return nil
		}
		return err
	}
	if _, err := e.record(ctx, one.info, causeOf(one.state), use); err != nil {
		return err
	}
	return e.end(ctx, one.state.Handle)
}

// end removes all of a session but its workspace.
func (e *Engine) end(ctx context.Context, h engine.Handle) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	return e.backend.End(ctx, h)
}

// Baseline notes the workspace as it is now, so that Leave can tell whether it has
// changed. It is for the owner of a fresh session, before its first command.
func (s *Session) Baseline(ctx context.Context) {
	if !s.info.keeps() {
		return
	}
	if list, err := s.surveyed(ctx, s.info.labels.User, s.info.Workspace.Target); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.baseline = list[0].digest // "" is unknown, and equal to none
	}
}

// Leave ends the session as Stop does, for an owner that goes without having been asked
// to end it. If the session was started with a Spec.Keep, and its workspace is not empty
// and has changed since Baseline, or may have, the workspace is kept, and Leave describes
// it; else it returns nil.
func (s *Session) Leave(ctx context.Context) (*Info, error) {
	if !s.info.keeps() || s.engine.workspaces == nil {
		return nil, s.Stop(ctx)
	}
	start := time.Now()
	kept, err := s.leave(ctx)
	s.engine.noteSession(EventSessionStop, s.ID(), start, err)
	s.Release()
	if store := s.engine.opts.Artifacts; store != nil {
		err = errors.Join(err, store.Forget(s.ID()))
	}
	return kept, err
}

func (s *Session) leave(ctx context.Context) (*Info, error) {
	e := s.engine
	s.mu.Lock()
	before := s.baseline
	s.mu.Unlock()
	cause := CauseLeft
	if state, err := e.backend.Find(ctx, s.ID()); err == nil && state.Status != engine.StatusRunning {
		cause = causeOf(state)
	}
	// From here on nothing changes any more. What is cut off from here on is kept by a reap.
	if err := e.end(ctx, s.handle); err != nil {
		return nil, err
	}
	found, err := e.survey(ctx, []string{s.ID()})
	if err != nil {
		return nil, err
	}
	use, there := found[s.ID()]
	if !there || use.empty() || before != "" && use.digest == before {
		return nil, e.remove(ctx, engine.Handle{ID: s.ID()})
	}
	if there, err = e.record(ctx, s.info, cause, use); err != nil || !there {
		return nil, err
	}
	return e.keptOne(ctx, s.ID())
}

// causeOf says what has ended a session.
func causeOf(state engine.Session) exec.Cause {
	if state.Ref == "" {
		return CauseRemoved
	}
	return lost(state).Cause
}
