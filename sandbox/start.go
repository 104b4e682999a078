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

// Start starts a session: a hardened container whose confinement has been
// checked from inside. It removes what earlier owners have left behind first.
// With an error nothing is left of it.
func (e *Engine) Start(ctx context.Context, spec Spec) (*Session, error) {
	spec, err := spec.Normalize()
	if err != nil {
		return nil, &InputError{Field: "session", Text: err.Error()}
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

// besideTime bounds the reap that a start waits for: as long as one call to an engine
// may take, however much there is to reap.
const besideTime = 30 * time.Second

func (e *Engine) start(ctx context.Context, spec Spec) (*Session, error) {
	reaped := make(chan struct{})
	go func() { // beside the start; what it cannot do the next one does
		defer close(reaped)
		ctx, cancel := context.WithTimeout(ctx, besideTime)
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

// prepare makes a session that is ready but for its workspace's contents.
func (e *Engine) prepare(ctx context.Context, spec Spec) (*Session, error) {
	id, err := newID()
	if err != nil {
		return nil, fmt.Errorf("session id: %w", err)
	}
	p, err := e.provide(ctx, id, &spec)
	if err != nil {
		return nil, errors.Join(err, e.discardVolumes(ctx, id))
	}
	l := labelSpec{
		Image: imageName(spec, p.image), ImageID: string(p.image.ID), Profile: spec.Profile, User: *spec.User,
		Network: spec.Network, Limits: spec.Limits, Workspace: spec.Workspace, Path: commandPath(p.image.Env), Programs: p.programs != "",
	}
	shape := containerShape(id, spec, p, l, time.Now())
	if p.plainTmpfs {
		if shape.Spec.Mounts, err = e.inVolumes(ctx, id, shape.Spec.Mounts); err != nil {
			return nil, errors.Join(err, e.discardVolumes(ctx, id))
		}
	}
	container, err := e.launch(ctx, id, shape, spec, p.image.Arch)
	if err != nil {
		return nil, errors.Join(err, e.discardVolumes(ctx, id))
	}
	info := Info{
		ID: id, Status: "running", Image: l.Image, ImageID: l.ImageID, Profile: l.Profile, User: l.User, Network: l.Network,
		Limits: l.Limits, Workspace: l.Workspace, Lease: spec.Lease, LeaseText: spec.Lease.String(), Created: time.Now(),
		Owner: self().String(), Container: string(container), labels: l, key: decodeKey(shape.Labels[labelKey]),
	}
	s := e.session(container, info)
	s.spare = true
	s.notes = append(p.notes, networkNotes(spec.Network)...)
	if err := s.settle(ctx, p.unenforced); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// imageName is what people call the image that a session was started from.
func imageName(spec Spec, img engine.Image) string {
	if spec.Image == "" && len(img.Refs) > 0 {
		return img.Refs[0]
	}
	return cmp.Or(spec.Image, string(img.ID))
}

func networkNotes(n Network) []string {
	if n != NetworkBridge {
		return nil
	}
	return []string{"network bridge: the engine's host, its local network and cloud metadata services are reachable from this session"}
}

// provision is what a container needs before it can be created.
type provision struct {
	image      engine.Image
	runner     string // volume
	programs   string // volume, or ""
	notes      []string
	unenforced []string
	plainTmpfs bool // of engine.Info
}

// provide gets the image, the volumes that sessions share and the workspace's,
// still empty, and what the engine can do, all at once.
func (e *Engine) provide(ctx context.Context, id string, spec *Spec) (provision, error) {
	var p provision
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		var err error
		if p.image, p.notes, err = e.resolve(ctx, spec.Image); err != nil {
			return err
		}
		if spec.readsPrograms() {
			group.Go(func() error {
				var err error
				p.programs, err = e.images.Programs(ctx, p.image)
				return err
			})
		}
		p.runner, err = e.images.Runner(ctx, p.image.Arch)
		return err
	})
	if spec.Workspace.Kind != WorkspaceBind {
		group.Go(func() error { return e.makeVolume(ctx, id, *spec) })
	}
	group.Go(func() error { return e.makeJobsVolume(ctx, id) })
	var info engine.Info
	group.Go(func() error {
		var err error
		info, err = e.info()
		return err
	})
	if err := group.Wait(); err != nil {
		return p, err
	}
	p.unenforced, p.plainTmpfs = info.Unenforced, info.PlainTmpfs
	return p, spec.fit(info)
}

// readsPrograms reports whether the session can have its programs from a volume
// that is read-only: nobody installs any, and nothing is mounted among them.
func (s *Spec) readsPrograms() bool {
	return s.Profile == Strict && s.Workspace.Target != programsDir && !strings.HasPrefix(s.Workspace.Target, programsDir+"/")
}

// resolve finds the image, and what the owner should know of it.
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

// fit adapts the limits to the engine's machine, and refuses what the engine
// would drop silently.
func (s *Spec) fit(info engine.Info) error {
	if s.Limits.CPUs == 0 {
		s.Limits.CPUs = float64(min(defaultCPUs, max(1, info.CPUs)))
	}
	if s.Profile != Strict {
		return nil
	}
	for _, name := range info.Unenforced {
		if name == "memory" || name == "pids" || name == "cpus" {
			return fmt.Errorf("the engine at %s does not enforce the %s limit, and profile strict needs it: "+
				"run `sandboxbash doctor` to see why, or use --profile dev knowingly", info.Address, name)
		}
	}
	return nil
}

func (e *Engine) makeVolume(ctx context.Context, id string, spec Spec) error {
	v := engine.Volume{Name: namePrefix + id, Labels: volumeLabels(id)}
	if spec.Limits.Disk > 0 {
		// The one hard limit that every engine has: a file system of that size.
		v.Options = map[string]string{
			"type": "tmpfs", "device": "tmpfs",
			"o": fmt.Sprintf("size=%d,uid=%d,gid=%d,mode=755,nosuid,nodev", spec.Limits.Disk, spec.User.UID, spec.User.GID),
		}
	}
	return e.docker.CreateVolume(ctx, v)
}

// fillVolume makes the session's user the owner of its volume.
func (e *Engine) fillVolume(ctx context.Context, id string, spec Spec) error {
	if spec.Workspace.Kind == WorkspaceBind || spec.Limits.Disk > 0 {
		return nil
	}
	return e.images.FillWorkspace(ctx, namePrefix+id, spec.User.UID, spec.User.GID)
}

// launch creates the container beside filling its workspace, and starts it. An
// empty runner volume, as a prune leaves it, is filled again once.
func (e *Engine) launch(ctx context.Context, id string, shape engine.Container, spec Spec, arch string) (engine.ContainerID, error) {
	var container engine.ContainerID
	group, grouped := errgroup.WithContext(ctx)
	group.Go(func() error { return e.fillVolume(grouped, id, spec) })
	group.Go(func() error {
		var err error
		container, err = e.create(grouped, shape, spec)
		return err
	})
	if err := group.Wait(); err != nil {
		return "", errors.Join(err, e.discardContainer(ctx, id))
	}
	err := e.docker.StartContainer(ctx, container)
	if err == nil {
		return container, nil
	}
	err = errors.Join(explainBind(err, spec), e.discardContainer(ctx, id))
	if ctx.Err() != nil {
		return "", err
	}
	if refillErr := e.images.Refill(ctx, arch); refillErr != nil {
		return "", errors.Join(err, refillErr)
	}
	if container, err = e.create(ctx, shape, spec); err == nil {
		err = e.docker.StartContainer(ctx, container)
	}
	if err != nil {
		return "", errors.Join(explainBind(err, spec), e.discardContainer(ctx, id))
	}
	return container, nil
}

// create creates the container. In profile strict what the engine will not give
// is refused.
func (e *Engine) create(ctx context.Context, shape engine.Container, spec Spec) (engine.ContainerID, error) {
	id, warnings, err := e.docker.CreateContainer(ctx, shape)
	if err == nil && len(warnings) > 0 && spec.Profile == Strict {
		err = fmt.Errorf("the engine would not give all that profile strict asks for: %s", strings.Join(warnings, "; "))
	}
	return id, explainBind(err, spec)
}

// discardContainer takes back what create has made, if anything. It goes by the
// name: an engine may have made a container and not have come to say so.
func (e *Engine) discardContainer(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	return e.docker.RemoveContainer(ctx, engine.ContainerID(namePrefix+id))
}

// explainBind adds what an engine's refusal of a bind usually means.
func explainBind(err error, spec Spec) error {
	if spec.Workspace.Kind != WorkspaceBind || !errors.Is(err, engine.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w\nthe engine must see %s at the same path; a remote or virtualised engine may not: use copy:%[2]s", err, spec.Workspace.Dir)
}

// session makes the handle of a running container.
func (e *Engine) session(container engine.ContainerID, info Info) *Session {
	s := &Session{engine: e, container: container, info: info}
	s.kept = sync.OnceValues(s.artifacts)
	s.pool = exec.NewPool(exec.Options{
		Open: s.openRunner, Lease: info.Lease, Ahead: e.opts.Ahead, Paused: s.isPaused, Gate: e.opening,
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
