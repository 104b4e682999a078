package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A reader is a container that reads the workspaces of sessions that have ended. Only
// programs of ours run in it. Like a session it has an id, a lease and labels, so that a
// reader whose owner has gone ends itself and is reaped.

// labelReader marks readers. Lists leave them out, and they cannot be found by id.
const labelReader = "sandboxbash.reader"

// readerSpec says what a reader mounts and which capabilities it has.
type readerSpec struct {
	over   []engine.Attachment
	labels labelSpec
	caps   []string // besides those of every session
}

// startReader starts a reader.
func (e *Engine) startReader(ctx context.Context, r readerSpec) (engine.Handle, error) {
	id, err := newID()
	if err != nil {
		return engine.Handle{}, fmt.Errorf("reader: %w", err)
	}
	spec := Spec{
		Profile: r.labels.Profile, User: &r.labels.User, Network: NetworkNone, Lease: DefaultLease, Limits: readerLimits(r.labels.Limits),
		Workspace: Workspace{Kind: WorkspaceBind}, // none of its own
	}
	labels := sessionLabels(spec, r.labels, time.Now())
	labels[labelReader] = "true"
	c := confinement(spec, readerMounts())
	c.Spec.Root.Readonly = true
	c.Spec.Process.Capabilities.Bounding = append(capabilities(r.labels.Profile), r.caps...)
	h, err := e.workspaces.Attach(ctx, engine.Helper{ID: id, Confinement: c, Over: r.over, Labels: labels})
	if gone, ok := errors.AsType[*engine.GoneError](err); ok {
		return h, errors.Join(unknown(gone.Session), err)
	}
	if err != nil {
		return h, fmt.Errorf("reader: %w", err)
	}
	return h, nil
}

// readerLimits returns the session's limits, so that everything that could be pulled from
// the session can be pulled from its reader. Unknown limits get their defaults.
func readerLimits(l Limits) Limits {
	return Limits{Memory: max(l.Memory, defaultMemory), CPUs: 1, Pids: strictPids}
}

func readerMounts() []specs.Mount {
	return []specs.Mount{
		{Type: "tmpfs", Destination: "/tmp", Options: []string{"rw", "nosuid", "nodev", "noexec", "size=1m", "mode=1777"}},
		{Type: "tmpfs", Destination: "/run", Options: []string{"rw", "nosuid", "nodev", "noexec", "size=16m", "mode=755"}},
	}
}

// reader returns a Session that reads the workspace that info describes.
func (e *Engine) reader(h engine.Handle, info Info) *Session {
	s := &Session{engine: e, handle: h, info: info, reading: true}
	s.kept = sync.OnceValues(s.artifacts)
	s.pool = exec.NewPool(exec.Options{
		Open: s.openRunner, Lease: DefaultLease, Paused: s.isPaused, Openings: e.opening, Again: s.mayOpen,
	})
	return s
}

// closeReader ends a reader.
func (s *Session) closeReader(ctx context.Context) error {
	err := s.engine.remove(ctx, s.handle)
	s.Release()
	return err
}

// OpenFiles opens a session for Pull and Diff only. The session may be running, or it may
// have ended and its workspace be kept. A kept workspace is mounted read-only in a
// container in which no program of the session's image or workspace runs. The caller must
// call done: it releases a running session, and removes that container.
func (e *Engine) OpenFiles(ctx context.Context, ref string) (s *Session, done func(context.Context) error, err error) {
	state, err := e.find(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	info, err := e.describe(state)
	if err != nil {
		return nil, nil, err
	}
	if info.Kept == nil {
		s, err := e.Open(ctx, info.ID)
		return s, func(context.Context) error { return nil }, err
	}
	if state.Status != engine.StatusKept { // it will be kept, but no reap has done so yet
		if err := e.keepAll(ctx, []ended{{state, info}}); err != nil {
			return nil, nil, err
		}
		kept, err := e.keptOne(ctx, info.ID)
		if err != nil {
			return nil, nil, err
		}
		if kept == nil { // it was empty, or another process has removed it
			return nil, nil, unknown(info.ID)
		}
		info = *kept
	}
	h, err := e.startReader(ctx, readerSpec{
		over:   []engine.Attachment{{Session: info.ID, Target: info.Workspace.Target, Records: wire.JobsDir}},
		labels: info.labels,
	})
	if err != nil {
		return nil, nil, err
	}
	s = e.reader(h, info)
	return s, s.closeReader, nil
}

// surveyTime bounds the survey of one workspace.
const surveyTime = 5 * time.Second

// survey surveys the workspaces of sessions that have ended, all in one reader. The result
// leaves out workspaces that have gone.
func (e *Engine) survey(ctx context.Context, ids []string) (map[string]usage, error) {
	ids = slices.Clone(ids)
	for len(ids) > 0 {
		out, err := e.surveyOnce(ctx, ids)
		gone, ok := errors.AsType[*engine.GoneError](err)
		if !ok {
			return out, err
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == gone.Session })
	}
	return nil, nil
}

func (e *Engine) surveyOnce(ctx context.Context, ids []string) (out map[string]usage, err error) {
	r := readerSpec{caps: []string{"CAP_DAC_OVERRIDE"}, labels: labelSpec{Profile: Strict, Path: standardPath}}
	var workspaces, records []string
	for i, id := range ids {
		n := strconv.Itoa(i)
		workspaces, records = append(workspaces, "/w"+n), append(records, "/j"+n)
		r.over = append(r.over, engine.Attachment{Session: id, Target: workspaces[i], Records: records[i]})
	}
	h, err := e.startReader(ctx, r)
	if err != nil {
		return nil, err
	}
	s := e.reader(h, Info{ID: h.ID, labels: r.labels})
	defer func() { err = errors.Join(err, s.closeReader(ctx)) }()
	list, err := s.surveyed(ctx, User{}, append(workspaces, records...)...)
	if err != nil {
		return nil, fmt.Errorf("survey kept workspaces: %w", err)
	}
	out = map[string]usage{}
	for i, id := range ids {
		out[id] = list[i].with(list[len(ids)+i].bytes)
	}
	return out, nil
}

// surveyed runs the runner's survey over directories of a session.
func (s *Session) surveyed(ctx context.Context, user User, dirs ...string) ([]usage, error) {
	var text bytes.Buffer
	streams := helperStreams{out: &limited{w: &text, left: maxHelperOutput}, timeout: helperTime + time.Duration(len(dirs))*surveyTime}
	if err := s.helperAs(ctx, user, streams, wire.VerbSurvey.Command(&wire.SurveyArgs{Limit: surveyTime, Dirs: dirs})); err != nil {
		return nil, err
	}
	answers, err := wire.ParseSurveys(text.Bytes())
	if err != nil {
		return nil, fmt.Errorf("runner survey: %w", err)
	}
	var list []usage
	for _, a := range answers {
		list = append(list, usage{digest: a.Digest, entries: a.Entries, bytes: a.Bytes})
	}
	if len(list) != len(dirs) {
		return nil, fmt.Errorf("runner survey: %d lines for %d directories", len(list), len(dirs))
	}
	return list, nil
}
