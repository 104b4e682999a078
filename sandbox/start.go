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
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/inject"
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
	if e.opts.Secrets.Scrub(spec.Directory) != spec.Directory {
		spec.Directory = "" // it was not asked for, and would become a label
	}
	if err := e.unmasked(spec.Secrets); err != nil {
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
		{"name", spec.Name},
		{"image", spec.Image},
		{"workspace", spec.Workspace.Dir},
		{"workspace", spec.Workspace.Target},
		{"runtime", spec.Runtime},
		{"user-name", spec.UserName},
		{"mounts", mountTexts(spec.Mounts)},
		{"network.allow", strings.Join(network.Texts(spec.Allow), "\n")},
		{"network.deny", strings.Join(network.Texts(spec.Deny), "\n")},
	} {
		if masked := e.opts.Secrets.Scrub(word.text); masked != word.text {
			return badInput(word.field, "%s: %s holds a secret, and the engine would show it: use one without", word.field, masked)
		}
	}
	return e.unfitEnv(spec.Env)
}

func mountTexts(all []Mount) string {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintln(&b, m)
	}
	return b.String()
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
	s, err := e.take(ctx, spec)
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

// take returns a session whose name no other has.
func (e *Engine) take(ctx context.Context, spec Spec) (*Session, error) {
	if err := e.untaken(ctx, spec.Name, ""); err != nil {
		return nil, err
	}
	s, err := e.warm.take(ctx, e, spec)
	if err == nil && spec.Name != "" {
		err = e.claim(ctx, s, spec.Name)
	}
	if err != nil {
		return nil, err
	}
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
	var envNotes []string
	if spec.ImageEnv {
		spec.Env, envNotes = withImageEnv(p.image.Env, spec.Env, e.opts.Secrets.Scrub)
	}
	var info Info
	shape := shapeOf(id, spec, p)
	shape.Labels = func(over engine.Overlays) map[string]string {
		now := time.Now()
		l := labelsOf(spec, p.image, over)
		l.Proxy = p.info.EmptyResolver && len(spec.Allow) > 0
		labels := sessionLabels(spec, l, now)
		info = Info{
			ID: id, Name: cmp.Or(l.Name, MadeUpName(id)), Directory: l.Directory, Status: engine.StatusRunning, Image: l.Image, ImageID: l.ImageID, Profile: l.Profile, User: l.User, Network: l.Network, Rules: l.Rules,
			Limits: l.Limits, Workspace: l.Workspace, Env: l.envNames(), Mounts: l.Mounts, UserName: l.userName(), Home: l.home(), Lease: spec.Lease, LeaseText: leaseText(spec.Lease), Created: now,
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
	s.notes = slices.Concat(p.notes, envNotes, spec.mountNotes(), spec.nameNotes(), spec.accountNotes(info.labels), notes, spec.networkNotes(), sizeNotes)
	s.standing = slices.Concat(p.notes, notes)
	if spec.Network == NetworkBridge {
		s.standing = append(s.standing, bridgeNote)
	}
	if err := s.ready(ctx, spec, p.info); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// ready settles the session and opens its network, at the same time.
func (s *Session) ready(ctx context.Context, spec Spec, info engine.Info) error {
	var secrets *inject.Set
	if !spec.Detached { // those of another process are known by the label
		var err error
		if secrets, s.placeholders, err = placeholdersOf(spec.Secrets); err != nil {
			return err
		}
	}
	x, err := newExceptions(s, spec, info, secrets)
	if err != nil {
		return err
	}
	s.engine.mu.Lock() // Release may be called from now on
	s.network = x
	s.engine.mu.Unlock()
	outer := ctx
	group, ctx := errgroup.WithContext(outer)
	group.Go(func() error { return s.makeReady(ctx, info) })
	if x != nil {
		group.Go(func() error { return x.open(ctx) })
	}
	if err := group.Wait(); err != nil || x == nil {
		return err
	}
	found, err := x.prove(outer, nil, true)
	s.notes = append(s.notes, found.notes()...)
	x.proven(err)
	return err
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
		if p.info, err = e.backend.Info(ctx); err != nil {
			return err
		}
		if err := e.cachesThere(spec); err != nil {
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
func (s *Spec) readsPrograms() bool { return s.Profile == Strict && !s.mountsIn(engine.ProgramsDir) }

// names reports whether the session's user can be given a name. uid 0 needs none: every
// image that has a passwd file names it.
func (s *Spec) names() bool { return s.Profile == Strict && !s.mountsIn(engine.AccountsDir) }

// nameNotes returns a note if the user is not given a name.
func (s *Spec) nameNotes() []string {
	if s.Profile != Strict || s.names() {
		return nil
	}
	what, at := "the workspace", s.Workspace.Target
	for _, m := range s.Mounts {
		if below(m.Target, engine.AccountsDir) {
			what, at = "a "+m.kind(), m.Target
		}
	}
	return []string{fmt.Sprintf("the session's user may have no name: %s lies at %s, where its entry would be", what, at)}
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
	if err := s.ownsBind(info); err != nil {
		return err
	}
	return s.holdsSocket(info)
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
	if !errors.Is(err, engine.ErrInvalid) {
		return err
	}
	if i := slices.IndexFunc(spec.Mounts, func(m Mount) bool { return m.Dir != "" }); i >= 0 && spec.Workspace.Kind != WorkspaceBind {
		return fmt.Errorf("%w\nthe engine must see %s at the same path; a remote or virtualised engine may not: put the files into the workspace", err, spec.Mounts[i].Dir)
	}
	if spec.Workspace.Kind != WorkspaceBind {
		return err
	}
	return fmt.Errorf("%w\nthe engine must see %s at the same path; a remote or virtualised engine may not: use copy:%[2]s", err, spec.Workspace.Dir)
}

// session returns the Session for a running session.
func (e *Engine) session(handle engine.Handle, info Info) *Session {
	s := &Session{engine: e, handle: handle, info: info, placeholders: info.heldPlaceholders(), restarted: newRestarted()}
	s.inward = newInward(s)
	s.ports.opened = time.Now()
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
