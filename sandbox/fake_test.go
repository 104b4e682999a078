package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/exec/wire"
)

// fakeDocker is an engine in memory. Its containers run fake runners.
type fakeDocker struct {
	t *testing.T

	mu         sync.Mutex
	containers map[engine.ContainerID]engine.ContainerState // guarded by mu
	volumes    map[string]engine.Volume                     // guarded by mu
	runners    map[engine.ContainerID][]*fakeRunner         // guarded by mu
	calls      []string                                     // guarded by mu; those that change something, and Usage
	made       int                                          // guarded by mu

	info  engine.Info
	usage func() (engine.Usage, error) // nil: far from any limit
	// warnings are what CreateContainer answers with.
	warnings []string
	// fail maps a call, as in "start", to what it fails with; called without mu.
	fail func(call string) error
	// hang holds calls that return only when their context ends.
	hang map[string]bool
	// on answers a request that is no verb of the runner.
	on func(f *fakeRunner, req wire.Request)
	// onKill answers a Kill.
	onKill func(f *fakeRunner, kill wire.Kill)
	// report changes the posture report.
	report func(string) string
	// archive is what the verb pull answers with, unless pull says otherwise.
	archive []byte
	pull    func(path string) []byte
	// jobs answers the verb jobs, whose query is in the runner's stdin.
	jobs func(f *fakeRunner)
}

func newFakeDocker(t *testing.T) *fakeDocker {
	t.Helper()
	return &fakeDocker{
		t: t, containers: map[engine.ContainerID]engine.ContainerState{}, volumes: map[string]engine.Volume{},
		runners: map[engine.ContainerID][]*fakeRunner{}, hang: map[string]bool{}, info: engine.Info{CPUs: 4, Address: "fake"},
	}
}

// begin notes a call and says how it is to fail, if at all.
func (d *fakeDocker) begin(ctx context.Context, call string) error {
	d.mu.Lock()
	d.calls = append(d.calls, call)
	d.mu.Unlock()
	word, _, _ := strings.Cut(call, " ")
	if d.hang[word] {
		<-ctx.Done()
		return ctx.Err()
	}
	if d.fail != nil {
		return d.fail(word)
	}
	return nil
}

// took returns the calls so far and forgets them.
func (d *fakeDocker) took() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	return calls
}

// left lists what is there.
func (d *fakeDocker) left() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, c := range d.containers {
		all = append(all, "container "+c.Name+" "+c.Status)
	}
	for name := range d.volumes {
		all = append(all, "volume "+name)
	}
	slices.Sort(all)
	return all
}

func (d *fakeDocker) Info(context.Context) (engine.Info, error) { return d.info, nil }

func (d *fakeDocker) CreateContainer(ctx context.Context, c engine.Container) (engine.ContainerID, []string, error) {
	if err := d.begin(ctx, "create"); err != nil {
		return "", nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made++
	id := engine.ContainerID(fmt.Sprintf("c%d", d.made))
	state := engine.ContainerState{
		ID: id, Name: c.Name, Image: c.Image, Labels: c.Labels, Entrypoint: c.Spec.Process.Args, Status: "created", Created: time.Now(),
	}
	for _, m := range c.Spec.Mounts {
		state.Mounts = append(state.Mounts, engine.Mount{
			Type: m.Type, Source: m.Source, Target: m.Destination, ReadOnly: slices.Contains(m.Options, "ro"),
		})
	}
	d.containers[id] = state
	return id, d.warnings, nil
}

// change applies a change to a container.
func (d *fakeDocker) change(id engine.ContainerID, do func(*engine.ContainerState)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	state, ok := d.containers[id]
	if !ok {
		return &engine.Error{Op: "fake", Kind: engine.ErrNotFound, Err: errors.New("no such container")}
	}
	do(&state)
	d.containers[id] = state
	return nil
}

func (d *fakeDocker) StartContainer(ctx context.Context, id engine.ContainerID) error {
	if err := d.begin(ctx, "start"); err != nil {
		return err
	}
	return d.change(id, func(c *engine.ContainerState) { c.Status, c.Started = "running", time.Now() })
}

func (d *fakeDocker) RemoveContainer(ctx context.Context, id engine.ContainerID) error {
	if err := d.begin(ctx, "remove"); err != nil {
		return err
	}
	d.mu.Lock()
	for other, c := range d.containers {
		if c.Name == string(id) {
			id = other
		}
	}
	d.mu.Unlock()
	d.hangUp(id)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.containers, id)
	return nil
}

// hangUp ends the streams of a container's runners.
func (d *fakeDocker) hangUp(id engine.ContainerID) {
	d.mu.Lock()
	all := d.runners[id]
	delete(d.runners, id)
	d.mu.Unlock()
	for _, r := range all {
		r.conn.Close()
	}
}

// die is the end of a container by somebody else's hand.
func (d *fakeDocker) die(id engine.ContainerID, code int, do func(*engine.ContainerState)) {
	_ = d.change(id, func(c *engine.ContainerState) {
		c.Status, c.ExitCode, c.Finished = "exited", code, time.Now()
		if do != nil {
			do(c)
		}
	})
	d.hangUp(id)
}

func (d *fakeDocker) Container(ctx context.Context, nameOrID string) (engine.ContainerState, error) {
	if err := d.begin(ctx, "inspect"); err != nil {
		return engine.ContainerState{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.containers {
		if c.Name == nameOrID || string(c.ID) == nameOrID {
			return c, nil
		}
	}
	return engine.ContainerState{}, &engine.Error{Op: "inspect", Kind: engine.ErrNotFound, Err: errors.New("no such container")}
}

func (d *fakeDocker) Containers(ctx context.Context, labels map[string]string) ([]engine.ContainerState, error) {
	if err := d.begin(ctx, "list"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []engine.ContainerState
	for _, c := range d.containers {
		if has(c.Labels, labels) {
			found = append(found, c)
		}
	}
	return found, nil
}

func has(all, want map[string]string) bool {
	for k, v := range want {
		if all[k] != v {
			return false
		}
	}
	return true
}

func (d *fakeDocker) Usage(ctx context.Context, _ engine.ContainerID) (engine.Usage, error) {
	if err := d.begin(ctx, "usage"); err != nil || d.usage == nil {
		return engine.Usage{Pids: 20, PidsLimit: 512}, err
	}
	return d.usage()
}

func (d *fakeDocker) SignalContainer(ctx context.Context, id engine.ContainerID, signal string) error {
	if err := d.begin(ctx, "signal "+signal); err != nil {
		return err
	}
	if signal == "KILL" {
		d.die(id, 137, nil)
	}
	return nil
}

func (d *fakeDocker) WaitContainer(ctx context.Context, _ engine.ContainerID) error {
	return d.begin(ctx, "wait")
}

func (d *fakeDocker) CreateVolume(ctx context.Context, v engine.Volume) error {
	if err := d.begin(ctx, "volume"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volumes[v.Name] = v
	return nil
}

func (d *fakeDocker) Volumes(_ context.Context, labels map[string]string) ([]engine.Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(d.volumes)), func(v engine.Volume) bool { return !has(v.Labels, labels) }), nil
}

func (d *fakeDocker) RemoveVolume(ctx context.Context, name string) error {
	if err := d.begin(ctx, "unvolume"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.volumes[name]; !ok {
		return &engine.Error{Op: "remove volume", Kind: engine.ErrNotFound, Err: errors.New("no such volume")}
	}
	delete(d.volumes, name)
	return nil
}

// OpenExec starts a fake runner.
func (d *fakeDocker) OpenExec(ctx context.Context, id engine.ContainerID, e engine.Exec) (engine.Stream, error) {
	if err := d.begin(ctx, "exec"); err != nil {
		return nil, err
	}
	if e.User != "0:0" || !slices.Equal(e.Args, []string{"/.sandboxbash/runner", "serve"}) || e.TTY {
		d.t.Errorf("OpenExec(%+v); want the constant runner serve as 0:0", e)
	}
	host, conn := net.Pipe()
	f := &fakeRunner{docker: d, container: id, conn: conn, in: wire.NewReader(conn), out: make(chan []byte, 100), done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.containers[id].Status != "running" {
		return nil, &engine.Error{Op: "exec", Kind: engine.ErrNotRunning, Err: errors.New("container is not running")}
	}
	d.runners[id] = append(d.runners[id], f)
	go f.write()
	go f.serve()
	return fakeStream{host}, nil
}

// fakeImages has one image and fills volumes by noting it.
type fakeImages struct {
	mu       sync.Mutex
	refilled int // guarded by mu
	missing  error
	refill   error
	note     string
	programs string // volume
}

func (i *fakeImages) Resolve(_ context.Context, ref string, _ func(engine.Progress)) (engine.Image, error) {
	if i.missing != nil {
		return engine.Image{}, i.missing
	}
	return engine.Image{ID: "sha256:" + engine.ImageID(strings.Repeat("a", 64)), Refs: []string{ref}, OS: "linux", Arch: "amd64"}, nil
}

func (i *fakeImages) ResolveDefault(ctx context.Context, progress func(engine.Progress)) (engine.Image, string, error) {
	img, err := i.Resolve(ctx, "default", progress)
	return img, i.note, err
}

func (i *fakeImages) Runner(context.Context, string) (string, error) {
	return "sandboxbash-runner-0a", nil
}

func (i *fakeImages) Programs(context.Context, engine.Image) (string, error) {
	return i.programs, nil
}

func (i *fakeImages) Refill(context.Context, string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refilled++
	return i.refill
}

func (i *fakeImages) FillWorkspace(context.Context, string, uint32, uint32) error { return nil }

// start starts a session on a fake engine.
func start(t *testing.T, d *fakeDocker, spec Spec) (*Engine, *Session) {
	t.Helper()
	e := New(d, &fakeImages{}, Options{})
	s, err := e.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("Start() = %v", err)
	}
	d.took()
	return e, s
}
