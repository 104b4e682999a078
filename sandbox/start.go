package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec"
)

func sortByCreated(list []Info) {
	slices.SortFunc(list, func(a, b Info) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}

func decodeLabel(text string) (labelSpec, error) {
	var l labelSpec
	err := json.Unmarshal([]byte(text), &l)
	return l, err
}

// Start starts a session: a hardened container whose confinement has been checked from
// inside. It also reaps what earlier owners have left behind. If Start returns an error,
// nothing is left of the session.
func (e *Engine) Start(ctx context.Context, spec Spec) (*Session, error) {
	spec, err := spec.Normalize()
	if err != nil {
		return nil, &InputError{Field: "session", Text: err.Error(), err: err}
	}
	if err := e.unfitForLabels(spec); err != nil {
		return nil, err
	}
	start := time.Now()
	s, err := e.start(ctx, spec)
	id := ""
	if err == nil {
		id = s.ID()
	}
	e.noteSession(EventSessionStart, id, start, err)
	return s, err
}

// unfitForLabels returns an error if a word of spec that would become a label or a mount
// holds a secret. Every client of the engine sees labels and mounts, and the engine logs
// them.
func (e *Engine) unfitForLabels(spec Spec) error {
	for _, word := range []struct{ field, text string }{
		{"image", spec.Image}, {"workspace", spec.Workspace.Dir}, {"workspace", spec.Workspace.Target}, {"runtime", spec.Runtime},
	} {
		if masked := e.opts.Secrets.Scrub(word.text); masked != word.text {
			return badInput(word.field, "%s: %s holds a secret, and the engine would show it: use one without", word.field, masked)
		}
	}
	return nil
}

// startReapTime bounds the reap that a start waits for. It is as long as one call to an
// engine may take, however much there is to reap.
const startReapTime = 30 * time.Second

func (e *Engine) start(ctx context.Context, spec Spec) (*Session, error) {
	reaped := make(chan struct{})
	go func() { // in parallel with the start; the next start does what it cannot do
		defer close(reaped)
		ctx, cancel := context.WithTimeout(ctx, startReapTime)
		defer cancel()
		_, _ = e.Reap(ctx)
	}()
	s, err := e.warm.take(ctx, e, spec)
	<-reaped
	if err != nil {
		return nil, err
	}
	if spec.Workspace.Kind == WorkspaceCopy {
		if s.left, err = s.copyIn(ctx, spec.Workspace); err != nil {
			return nil, errors.Join(err, s.Stop(ctx))
		}
	}
	s.spare = false
	return s, nil
}

// prepare creates a session that is ready except for the contents of its workspace. If the
// image was removed after it was resolved, prepare resolves it again.
func (e *Engine) prepare(ctx context.Context, spec Spec) (*Session, error) {
	s, err := e.prepareOnce(ctx, spec)
	if errors.Is(err, engine.ErrNotFound) && ctx.Err() == nil {
		s, err = e.prepareOnce(ctx, spec)
	}
	return s, err
}

func (e *Engine) prepareOnce(ctx context.Context, spec Spec) (*Session, error) {
	id, err := newID()
	if err != nil {
		return nil, fmt.Errorf("session id: %w", err)
	}
	sizeNotes := spec.sizeNotes()
	p, err := e.prerequisites(ctx, &spec)
	if err != nil {
		return nil, err
	}
	var info Info
	shape := shapeOf(id, spec, p)
	shape.Labels = func(over engine.Overlays) map[string]string {
		now := time.Now()
		l := labelsOf(spec, p.image, over)
		labels := sessionLabels(spec, l, now)
		info = Info{
			ID: id, Status: engine.StatusRunning, Image: l.Image, ImageID: l.ImageID, Profile: l.Profile, User: l.User, Network: l.Network,
			Limits: l.Limits, Workspace: l.Workspace, Lease: spec.Lease, LeaseText: spec.Lease.String(), Created: now,
			Owner: self().String(), labels: l, key: decodeKey(labels[labelKey]),
		}
		info.readKeep(labels)
		return labels
	}
	handle, notes, err := e.backend.Provision(ctx, shape)
	if err != nil {
		return nil, explainBind(err, spec)
	}
	info.Container = handle.Ref
	s := e.session(handle, info)
	s.spare = true
	s.notes = slices.Concat(p.notes, spec.nameNotes(), notes, spec.networkNotes(), sizeNotes)
	if err := s.ready(ctx, spec, p.info); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// ready settles the session and opens its network, at the same time.
func (s *Session) ready(ctx context.Context, spec Spec, info engine.Info) error {
	x := newExceptions(s, spec, info)
	s.engine.mu.Lock() // Release may be called from now on
	s.network = x
	s.engine.mu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.settle(ctx, info) })
	if x != nil {
		group.Go(func() error { return x.open(ctx) })
	}
	return group.Wait()
}

// imageName returns a name for people of the image that a session was started from.
func imageName(spec Spec, img engine.Image) string {
	if spec.Image == "" && len(img.Refs) > 0 {
		return img.Refs[0]
	}
	return cmp.Or(spec.Image, string(img.ID))
}

// sizeNotes returns notes about sizes that were asked for and have no effect.
func (s *Spec) sizeNotes() []string {
	if s.Profile != Dev || s.Limits.Home == 0 {
		return nil
	}
	return []string{"profile dev: the home is on the container's own root, and has no size of its own: the limit for it does not count"}
}

// prerequisites holds what must be known before a session can be provisioned.
type prerequisites struct {
	image engine.Image
	notes []string // of the image
	info  engine.Info
}

// prerequisites resolves the image and asks for the engine's description, in parallel.
func (e *Engine) prerequisites(ctx context.Context, spec *Spec) (prerequisites, error) {
	var p prerequisites
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		var err error
		p.image, p.notes, err = e.resolve(ctx, spec.Image)
		return err
	})
	group.Go(func() error {
		var err error
		if p.info, err = e.info(ctx); err != nil {
			return err
		}
		return spec.possible(p.info) // so that no image is pulled in vain
	})
	if err := group.Wait(); err != nil {
		return p, err
	}
	return p, spec.fit(p.info)
}

// readsPrograms reports whether the session can have a read-only copy of its programs:
// no command installs any, and nothing is mounted among them.
func (s *Spec) readsPrograms() bool { return s.Profile == Strict && !s.worksIn(engine.ProgramsDir) }

// names reports whether the session's user can be given a name. uid 0 needs none: every
// image that has a passwd file names it.
func (s *Spec) names() bool { return s.Profile == Strict && !s.worksIn(engine.AccountsDir) }

// nameNotes returns a note if the user is not given a name.
func (s *Spec) nameNotes() []string {
	if s.Profile != Strict || s.names() {
		return nil
	}
	return []string{fmt.Sprintf("the session's user may have no name: the workspace lies at %s, where its entry would be", s.Workspace.Target)}
}

// worksIn reports whether the workspace is in or below a directory.
func (s *Spec) worksIn(dir string) bool {
	return s.Workspace.Target == dir || strings.HasPrefix(s.Workspace.Target, dir+"/")
}

// resolve returns the image, and notes about it for the owner.
func (e *Engine) resolve(ctx context.Context, ref string) (engine.Image, []string, error) {
	if ref != "" {
		img, err := e.images.Resolve(ctx, ref, e.opts.Progress)
		return img, nil, err
	}
	img, note, err := e.images.ResolveDefault(ctx, e.opts.Progress)
	if note == "" {
		return img, nil, err
	}
	return img, []string{note}, err
}

// possible returns an error if the engine's machine lacks what the spec asks for.
func (s *Spec) possible(info engine.Info) error {
	if have := float64(info.CPUs); have > 0 && s.Limits.CPUs > have {
		return badInput("cpus", "cpus %v: the engine's machine has %v", s.Limits.CPUs, have)
	}
	// A name with a dot or a path is one that engines take without having registered it.
	if s.Runtime != "" && len(info.Runtimes) > 0 && !slices.Contains(info.Runtimes, s.Runtime) && !strings.ContainsAny(s.Runtime, "./") {
		return badInput("runtime", "runtime %q: the engine has %s", s.Runtime, strings.Join(info.Runtimes, ", "))
	}
	return nil
}

// fit adapts the limits to the engine's machine. It returns an error for limits that the
// engine would ignore silently.
func (s *Spec) fit(info engine.Info) error {
	if s.Limits.CPUs == 0 {
		s.Limits.CPUs = float64(min(defaultCPUs, max(1, info.CPUs)))
	}
	s.Limits = s.Limits.sized(s.Profile)
	if s.Profile != Strict {
		return nil
	}
	if len(info.Unheld) > 0 {
		return fmt.Errorf("the engine at %s cannot provide what profile strict needs: %s", info.Address, strings.Join(info.Unheld, ", "))
	}
	for _, name := range info.Unenforced {
		if name == "memory" || name == "pids" || name == "cpus" {
			return &hinted{hint: HintUnlimited, error: fmt.Errorf("the engine at %s does not enforce the %s limit, and profile strict needs it", info.Address, name)}
		}
	}
	return nil
}

// explainBind adds what an engine's refusal of a bind usually means.
func explainBind(err error, spec Spec) error {
	if spec.Workspace.Kind != WorkspaceBind || !errors.Is(err, engine.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w\nthe engine must see %s at the same path; a remote or virtualised engine may not: use copy:%[2]s", err, spec.Workspace.Dir)
}

// session returns the Session for a running session.
func (e *Engine) session(handle engine.Handle, info Info) *Session {
	s := &Session{engine: e, handle: handle, info: info, restarted: newRestarted()}
	s.kept = sync.OnceValues(s.artifacts)
	s.pool = exec.NewPool(exec.Options{
		Open: s.openRunner, Lease: info.Lease, Ahead: e.opts.Ahead, Paused: s.isPaused, Openings: e.opening,
		Again: s.mayOpen,
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := e.sessions[info.ID]; old != nil {
		s.pool.Close()
		return old
	}
	e.sessions[info.ID] = s
	return s
}
