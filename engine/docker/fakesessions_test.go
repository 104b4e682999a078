package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/enginetest"
)

// fakeDocker is what Engine asks of a Client, in memory. Nothing runs in its containers.
type fakeDocker struct {
	mu         sync.Mutex
	containers map[ContainerID]ContainerState // guarded by mu
	volumes    map[string]Volume              // guarded by mu
	calls      []string                       // guarded by mu; those that change something
	made       int                            // guarded by mu

	info   engine.Info
	podman bool
	// warnings are what CreateContainer answers with.
	warnings []string
	limited  engine.Usage // what LimitContainer was asked for last
	// fail says what a call, as in "start", fails with; called without mu.
	fail func(call string) error
}

func newFakeDocker() *fakeDocker {
	return &fakeDocker{
		containers: map[ContainerID]ContainerState{}, volumes: map[string]Volume{}, info: engine.Info{Arch: "amd64"},
	}
}

// begin notes a call and says how it is to fail, if at all.
func (d *fakeDocker) begin(call string) error {
	d.mu.Lock()
	d.calls = append(d.calls, call)
	d.mu.Unlock()
	word, _, _ := strings.Cut(call, " ")
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
		all = append(all, "container "+c.Name+" "+string(c.Status))
	}
	for name := range d.volumes {
		all = append(all, "volume "+name)
	}
	slices.Sort(all)
	return all
}

func (d *fakeDocker) Info(context.Context) (engine.Info, error) { return d.info, nil }

func (d *fakeDocker) CreateContainer(_ context.Context, c Container) (ContainerID, []string, error) {
	if err := d.begin("create"); err != nil {
		return "", nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made++
	id := ContainerID(fmt.Sprintf("c%d", d.made))
	state := ContainerState{
		ID: id, Name: c.Name, Image: c.Image, Labels: c.Labels, Entrypoint: c.Spec.Process.Args, Status: "created", Created: time.Now(),
	}
	for _, m := range c.Spec.Mounts {
		state.Mounts = append(state.Mounts, Mount{
			Type: m.Type, Source: m.Source, Target: m.Destination, ReadOnly: slices.Contains(m.Options, "ro"),
		})
	}
	d.containers[id] = state
	return id, d.warnings, nil
}

// change applies a change to a container.
func (d *fakeDocker) change(id ContainerID, do func(*ContainerState)) error {
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

func (d *fakeDocker) StartContainer(_ context.Context, id ContainerID) error {
	if err := d.begin("start"); err != nil {
		return err
	}
	return d.change(id, func(c *ContainerState) { c.Status, c.Started = "running", time.Now() })
}

func (d *fakeDocker) RemoveContainer(_ context.Context, id ContainerID) error {
	if err := d.begin("remove"); err != nil {
		return err
	}
	d.mu.Lock()
	for other, c := range d.containers {
		if c.Name == string(id) {
			id = other
		}
	}
	d.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.containers, id)
	return nil
}

func (d *fakeDocker) Container(_ context.Context, nameOrID string) (ContainerState, error) {
	if err := d.begin("inspect"); err != nil {
		return ContainerState{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.containers {
		if c.Name == nameOrID || string(c.ID) == nameOrID {
			return c, nil
		}
	}
	return ContainerState{}, &engine.Error{Op: "inspect", Kind: engine.ErrNotFound, Err: errors.New("no such container")}
}

func (d *fakeDocker) Containers(_ context.Context, labels map[string]string) ([]ContainerState, error) {
	if err := d.begin("list"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []ContainerState
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

func (d *fakeDocker) ContainerUsage(context.Context, ContainerID) (engine.Usage, error) {
	return engine.Usage{Pids: 20, PidsLimit: 512}, d.begin("usage")
}

func (d *fakeDocker) LimitContainer(_ context.Context, _ ContainerID, u engine.Usage) error {
	d.limited = u
	return d.begin("limit")
}

func (d *fakeDocker) OpenExec(context.Context, ContainerID, engine.Exec) (engine.Stream, error) {
	return nil, d.begin("exec")
}

func (d *fakeDocker) plainTmpfs(context.Context) (bool, error) { return d.podman, nil }

func (d *fakeDocker) SignalContainer(_ context.Context, id ContainerID, signal string) error {
	if err := d.begin("signal " + signal); err != nil {
		return err
	}
	if signal == "KILL" {
		return d.change(id, func(c *ContainerState) { c.Status, c.ExitCode, c.Finished = "exited", 137, time.Now() })
	}
	return nil
}

func (d *fakeDocker) PauseContainer(_ context.Context, id ContainerID) error {
	return errors.Join(d.begin("pause"), d.change(id, func(c *ContainerState) { c.Status = engine.StatusPaused }))
}

func (d *fakeDocker) UnpauseContainer(_ context.Context, id ContainerID) error {
	return errors.Join(d.begin("unpause"), d.change(id, func(c *ContainerState) { c.Status = engine.StatusRunning }))
}

func (d *fakeDocker) WaitContainer(_ context.Context, _ ContainerID) error {
	return d.begin("wait")
}

func (d *fakeDocker) CreateVolume(_ context.Context, v Volume) error {
	if err := d.begin("volume"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.volumes[v.Name]; !there {
		d.volumes[v.Name] = v
	}
	return nil
}

func (d *fakeDocker) Volume(_ context.Context, name string) (Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v, ok := d.volumes[name]; ok {
		return v, nil
	}
	return Volume{}, enginetest.NotFound(name)
}

func (d *fakeDocker) Volumes(_ context.Context, labels map[string]string) ([]Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(d.volumes)), func(v Volume) bool { return !has(v.Labels, labels) }), nil
}

func (d *fakeDocker) RemoveVolume(_ context.Context, name string) error {
	if err := d.begin("unvolume"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.containers {
		if slices.ContainsFunc(c.Mounts, func(m Mount) bool { return m.Source == name }) {
			return &engine.Error{Op: "remove volume", Kind: engine.ErrConflict, Err: errors.New("volume is in use")}
		}
	}
	if _, ok := d.volumes[name]; !ok {
		return &engine.Error{Op: "remove volume", Kind: engine.ErrNotFound, Err: errors.New("no such volume")}
	}
	delete(d.volumes, name)
	return nil
}

// fakeCopies has volumes that are full, unless it says otherwise.
type fakeCopies struct {
	mu       sync.Mutex
	refilled int // guarded by mu
	refill   error
	programs string // volume
	accounts string // volume
	nameless error  // why there is none
}

func (s *fakeCopies) Runner(context.Context, string) (string, error) {
	return "sandboxbash-runner-0a", nil
}

func (s *fakeCopies) Programs(context.Context, engine.Image) (string, error) { return s.programs, nil }

func (s *fakeCopies) Accounts(context.Context, engine.Image, engine.Account) (volume, note string, err error) {
	return s.accounts, "", s.nameless
}

func (s *fakeCopies) RefillAccounts(ctx context.Context, _ engine.Image, _ engine.Account) error {
	return s.Refill(ctx, "")
}

func (s *fakeCopies) Refill(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refilled++
	return s.refill
}

func (s *fakeCopies) Helper(context.Context, string) (engine.Image, error) {
	return engine.Image{ID: helperID, OS: "linux", Arch: "amd64"}, nil
}

func (*fakeCopies) FillWorkspace(context.Context, string, uint32, uint32) error { return nil }

func (*fakeCopies) ClearWorkspace(context.Context, string) error { return nil }

func (*fakeCopies) ReleaseWorkspace(context.Context, string) error { return nil }

func (*fakeCopies) Prune(context.Context) ([]string, error) { return nil, nil }
