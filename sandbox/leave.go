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

// leaves reports whether the session has ended and its workspace is to be kept.
func (e *Engine) leaves(state engine.Session, info Info, now time.Time) bool {
	return e.workspaces != nil && info.keeps() && !state.Started.IsZero() && !e.isOpen(info.ID) && dead(state, now)
}

// keepAll keeps the workspaces of sessions that have ended, except empty ones, and removes
// the rest of the sessions. If it returns an error the sessions are still there, and can be
// tried again.
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
		if errors.Is(err, engine.ErrConflict) { // another process surveys it too, and will remove it
			return nil
		}
		return err
	}
	if _, err := e.record(ctx, one.info, causeOf(one.state), use); err != nil {
		return err
	}
	return e.end(ctx, one.state.Handle)
}

// end removes a session except its workspace.
func (e *Engine) end(ctx context.Context, h engine.Handle) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	return e.backend.End(ctx, h)
}

// Baseline records the state of the workspace, so that Leave can tell whether it has
// changed. Call it for a new session, before the first command.
func (s *Session) Baseline(ctx context.Context) {
	if !s.info.keeps() {
		return
	}
	if list, err := s.surveyed(ctx, s.info.labels.User, s.info.Workspace.Target); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.baseline = list[0].digest // "" if it is unknown; Leave then takes it for changed
	}
}

// Leave ends the session as Stop does, but may keep the workspace. It is for an owner that
// goes away without having been asked to end the session. Leave keeps the workspace if the
// session was started with a Spec.Keep and if the workspace is not empty and may have
// changed since Baseline. It then returns a description of it, and otherwise nil.
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
	// From here on the workspace does not change. If this call is cut off, a reap keeps it.
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

// causeOf returns what ended a session.
func causeOf(state engine.Session) exec.Cause {
	if state.Ref == "" {
		return CauseRemoved
	}
	return lost(state).Cause
}
