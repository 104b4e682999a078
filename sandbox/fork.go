package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/network"
)

// ForkOptions say what forks are like. The zero value is one fork of the workspace as it is.
type ForkOptions struct {
	// Count is how many forks there are to be, at most MaxForks; 0: one.
	Count int
	// Name is that of the fork. Of several it is followed by -1, -2 and so on. Empty: names are made up.
	Name string
	// Pause has all processes of the session stand still while its workspace is read, so that forks are of one moment.
	Pause bool
	// Secrets are those that forks are started with. None is inherited.
	Secrets []Secret
	// Change may change the spec of each fork before it starts, such as its lease, and how its network is served. It must not
	// change its image, its user and its workspace. nil: nothing is changed.
	Change func(*Spec)
}

// MaxForks is the largest ForkOptions.Count.
const MaxForks = 64

// forksAtOnce is how many forks are made at the same time.
const forksAtOnce = 2

// Fork is a session that was made from another.
type Fork struct {
	*Session

	Copied Taken
}

// Taken says what was taken of a workspace.
type Taken struct {
	Entries int64 `json:"entries"` // files, directories and all others
	Bytes   int64 `json:"bytes"`   // of all files
	// Shared is how many of the bytes share their blocks with the original's until one of both is written to.
	Shared int64 `json:"shared"`
	// Changed names what has changed while it was read, or may have, and ChangedCount is how many there are. If there are
	// none, what was taken is the workspace as it was at one moment.
	Changed      []string `json:"changed,omitempty"`
	ChangedCount int64    `json:"changedCount"`
	// LeftOut names what is never taken, such as sockets.
	LeftOut      []string `json:"leftOut,omitempty"`
	LeftOutCount int64    `json:"leftOutCount"`
}

func takenOf(t wire.Tree) Taken {
	return Taken{
		Entries: t.Entries, Bytes: t.Bytes, Shared: t.Shared,
		Changed: t.Changed, ChangedCount: t.ChangedCount, LeftOut: t.LeftOut, LeftOutCount: t.LeftOutCount,
	}
}

// Notes are what the user should know of it. done is what was done, as in "copied".
func (t Taken) Notes(done string) (notes []string) {
	if t.ChangedCount > 0 {
		notes = append(notes, fmt.Sprintf("%s changed while the workspace was %s, or may have: it is not of one moment; with --pause it is",
			someOf(t.Changed, t.ChangedCount), done))
	}
	if t.LeftOutCount > 0 {
		notes = append(notes, "left out: "+someOf(t.LeftOut, t.LeftOutCount))
	}
	return notes
}

// someOf names a few of many.
func someOf(names []string, count int64) string {
	const most = 3
	var shown []string
	for _, name := range names[:min(len(names), most)] {
		shown = append(shown, printable(name))
	}
	text := strings.Join(shown, ", ")
	if more := count - int64(len(shown)); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Fork starts new sessions with a copy of this one's workspace: see Engine.Fork.
func (s *Session) Fork(ctx context.Context, o ForkOptions) ([]Fork, error) {
	return s.engine.Fork(ctx, s.ID(), o)
}

// Fork starts new sessions, each with a copy of a session's workspace, of the same image and settings and without
// processes. ref is as for Open; the session may run, be paused, or have ended and its workspace be kept. A fork has the
// network rules that the session has here, the same caches and mounts, and the record of what was copied, so that Diff and
// Apply work. It has no secrets but those of the options, and no placeholder of the session's. What commands have
// written outside of the workspace is not copied.
//
// The engine makes the copies: files share their blocks where its file system can, and no byte passes through this machine.
// A fork exists when it is whole. With an error, Fork returns those forks that were made; nothing is left of the others.
func (e *Engine) Fork(ctx context.Context, ref string, o ForkOptions) ([]Fork, error) {
	if o.Count == 0 {
		o.Count = 1
	}
	if o.Count < 1 || o.Count > MaxForks {
		return nil, badInput("count", "count %d: it can be 1 to %d", o.Count, MaxForks)
	}
	names := make([]string, o.Count)
	for i := range names {
		if names[i] = o.Name; o.Name != "" && o.Count > 1 {
			names[i] = fmt.Sprintf("%s-%d", o.Name, i+1)
		}
		if err := checkName(names[i]); err != nil {
			return nil, badInput("name", "%v", err)
		}
		if err := e.untaken(ctx, names[i], ""); err != nil {
			return nil, err
		}
	}
	from, err := e.readable(ctx, ref)
	if err != nil {
		return nil, err
	}
	spec, err := e.respec(from)
	if err != nil {
		return nil, err
	}
	spec.Secrets = o.Secrets
	pause := &pauses{engine: e, from: from, wanted: o.Pause && from.Status == engine.StatusRunning, left: o.Count}
	made, errs := make([]*Fork, o.Count), make([]error, o.Count)
	group := errgroup.Group{}
	group.SetLimit(forksAtOnce)
	for i, name := range names {
		group.Go(func() error {
			one := spec
			one.Name = name
			if o.Change != nil {
				o.Change(&one)
			}
			made[i], errs[i] = e.forkOne(ctx, one, from, pause)
			return nil
		})
	}
	_ = group.Wait() // see errs
	var forks []Fork
	for i, f := range made {
		if f != nil {
			forks = append(forks, *f)
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("fork of session %s: %w", from.ID, errs[i])
		}
	}
	return forks, errors.Join(append(errs, pause.err)...)
}

// forkOne makes one fork.
func (e *Engine) forkOne(ctx context.Context, spec Spec, from Info, pause *pauses) (*Fork, error) {
	var copied wire.Tree
	var once sync.Once
	defer once.Do(func() { pause.end(ctx) })
	own := *spec.filled
	own.do = func(ctx context.Context, t filling) error {
		defer once.Do(func() { pause.end(ctx) })
		if err := pause.begin(ctx); err != nil {
			return err
		}
		var err error
		if copied, err = t.helper.tree(ctx, nil, wire.VerbClone.Command(&wire.CloneArgs{From: fillFrom, To: fillTo, Lock: undoLock})); err != nil {
			return fmt.Errorf("copy the workspace: %w", err)
		}
		known, err := t.helper.recordsOf(ctx, from)
		if err != nil {
			return err
		}
		return t.keepRecords(ctx, known)
	}
	spec.filled = &own
	s, err := e.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &Fork{Session: s, Copied: takenOf(copied)}, nil
}

// pauses has a session stand still while its workspace is read for several forks.
type pauses struct {
	engine *Engine
	from   Info
	wanted bool

	mu     sync.Mutex
	left   int      // guarded by mu; forks that may still read it
	paused *Session // guarded by mu; nil: it is not paused by this
	err    error    // guarded by mu until all have ended; what the resume has returned
}

// begin pauses the session, unless that was done.
func (p *pauses) begin(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted || p.paused != nil {
		return nil
	}
	s, err := p.engine.Open(ctx, p.from.ID)
	if err != nil {
		return err
	}
	if s.isPaused(ctx) {
		p.wanted = false // the user or another program has paused it, and resumes it
		return nil
	}
	if err := s.Pause(ctx); err != nil {
		return err
	}
	p.paused = s
	return nil
}

// end is called once for each fork, when it reads no more. The last one resumes the session.
func (p *pauses) end(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left--; p.left > 0 || p.paused == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	p.err = p.paused.Resume(ctx)
	p.paused, p.wanted = nil, false
}

// readable finds a session whose workspace can be read by a helper: one that runs or is paused, or whose workspace is
// kept.
func (e *Engine) readable(ctx context.Context, ref string) (Info, error) {
	if e.workspaces == nil {
		return Info{}, fmt.Errorf("this engine cannot read the workspace of a session for another: %w", errors.ErrUnsupported)
	}
	state, err := e.find(ctx, ref)
	if err != nil {
		return Info{}, err
	}
	info, err := e.describe(state)
	if err != nil {
		return info, err
	}
	if info.Workspace.Kind == WorkspaceBind {
		return info, badInput("session", "session %s works in %s itself, and not in a copy: copy that directory, and start a session with the copy", info.ID, printable(info.Workspace.Dir))
	}
	if info.Kept == nil {
		if state.Status != engine.StatusRunning && state.Status != engine.StatusPaused {
			return info, fmt.Errorf("session %s: %w", info.ID, lost(state))
		}
		return info, nil
	}
	if state.Status == engine.StatusKept {
		return info, nil
	}
	if err := e.keepAll(ctx, []ended{{state, info}}); err != nil { // no reap has done so yet
		return info, err
	}
	kept, err := e.keptOne(ctx, info.ID)
	if err != nil {
		return info, err
	}
	if kept == nil { // it was empty, or another process has removed it
		return info, unknown(info.ID)
	}
	kept.key = info.key
	return *kept, nil
}

// respec returns the spec that a session was started with, as far as its label and this process say, for one with a copy of
// its workspace.
func (e *Engine) respec(from Info) (Spec, error) {
	l := from.labels
	w := from.Workspace
	spec := Spec{
		Image: l.ImageID, Profile: l.Profile, Workspace: w, User: &l.User, UserName: l.UserName, Network: l.Network, Limits: l.Limits,
		Runtime: l.Runtime, Env: l.Env, HomeInside: l.HomeInside, Mounts: l.Mounts, Lease: from.Lease, Keep: from.keep,
		filled: &filled{image: l.Image, from: &from},
	}
	if spec.Image == "" { // it was removed before it had started
		return spec, unknown(from.ID)
	}
	if l.Profile == Dev {
		spec.Limits.Home = 0 // it has none
	}
	if l.Rules == nil {
		return spec, nil
	}
	spec.Detached = l.Rules.Detached
	for _, list := range []struct {
		texts []string
		to    *[]network.Rule
	}{{l.Rules.Allow, &spec.Allow}, {l.Rules.Deny, &spec.Deny}} {
		for _, text := range list.texts {
			rule, err := network.ParseRule(text)
			if err != nil {
				return spec, fmt.Errorf("session %s: network rule %s: %w", from.ID, printable(text), err)
			}
			*list.to = append(*list.to, rule)
		}
	}
	e.mu.Lock()
	s := e.sessions[from.ID]
	e.mu.Unlock()
	if s != nil {
		if allow, deny, ok := s.rulesNow(); ok {
			spec.Allow, spec.Deny = allow, deny
		}
	}
	return spec, nil
}

// rulesNow returns the network rules that this process has for the session, if it serves its network.
func (s *Session) rulesNow() (allow, deny []network.Rule, ok bool) {
	s.engine.mu.Lock()
	x := s.network
	s.engine.mu.Unlock()
	if x == nil {
		return nil, nil, false
	}
	x.permits.mu.Lock()
	defer x.permits.mu.Unlock()
	return slices.Clone(x.permits.allow), slices.Clone(x.permits.deny), true
}
