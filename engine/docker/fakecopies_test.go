package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/enginetest"
)

// uncalled panics: a test that asks for more than its fake has fails.
type uncalled interface {
	containers
	volumes
	images
}

// unfaked has the methods of uncalled one level deeper than those of a fake, which come first.
type unfaked struct{ uncalled }

// stocked is an engine with images and volumes, some of which containers use.
type stocked struct {
	unfaked
	*enginetest.ImageStore
	volumes map[string]Volume
}

func (s *stocked) Volumes(_ context.Context, labels map[string]string) (all []Volume, err error) {
	for _, v := range s.volumes {
		if has(v.Labels, labels) {
			all = append(all, v)
		}
	}
	return all, nil
}

func (s *stocked) Volume(_ context.Context, name string) (Volume, error) {
	if v, ok := s.volumes[name]; ok {
		return v, nil
	}
	return Volume{}, enginetest.NotFound(name)
}

func (s *stocked) CreateVolume(_ context.Context, v Volume) error {
	s.volumes[v.Name] = v
	return nil
}

func (s *stocked) RemoveVolume(_ context.Context, name string) error {
	_, there := s.volumes[name]
	return s.Remove(name, there, func() { delete(s.volumes, name) })
}

func (s *stocked) volumesLeft() []string { return slices.Sorted(maps.Keys(s.volumes)) }

func (s *stocked) filled(name, role string, age time.Duration) {
	for _, n := range []string{name, name + markSuffix} {
		s.volumes[n] = Volume{Name: n, Labels: roleLabels(role), Created: time.Now().Add(-age)}
	}
}

func newStocked() *stocked {
	return &stocked{ImageStore: &enginetest.ImageStore{Facts: engine.Info{Arch: "amd64", OS: "linux"}}, volumes: map[string]Volume{}}
}

// filling is an engine that records what fills a volume, in order.
type filling struct {
	*stocked
	calls      []string
	containers map[string]ContainerState
	taken      int   // how often the filler's name is still taken
	hidden     bool  // while it is taken, the container does not show
	makeErr    error // of CreateContainer
	exitCode   int   // of a container that runs
	onTaken    func()
}

func (f *filling) say(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *filling) CreateVolume(ctx context.Context, v Volume) error {
	f.say("create %s", v.Name)
	return f.stocked.CreateVolume(ctx, v)
}

func (f *filling) RemoveVolume(ctx context.Context, name string) error {
	f.say("remove %s", name)
	return f.stocked.RemoveVolume(ctx, name)
}

func (f *filling) CreateContainer(_ context.Context, c Container) (ContainerID, []string, error) {
	f.say("container %s", c.Name)
	if f.makeErr != nil {
		return "", nil, f.makeErr
	}
	state := ContainerState{ID: ContainerID(c.Name), Name: c.Name, Labels: c.Labels, Status: "created"}
	for _, m := range c.Spec.Mounts {
		state.Mounts = append(state.Mounts, Mount{Type: m.Type, Source: m.Source, Target: m.Destination})
	}
	if f.taken > 0 {
		f.taken--
		if f.onTaken != nil {
			f.onTaken()
		}
		if !f.hidden {
			f.containers[c.Name] = state
		}
		return "", nil, &engine.Error{Op: "create " + c.Name, Kind: engine.ErrConflict, Err: errors.New("the name is taken")}
	}
	f.containers[c.Name] = state
	return state.ID, nil, nil
}

func (f *filling) RemoveContainer(_ context.Context, id ContainerID) error {
	f.say("remove container %s", id)
	if _, ok := f.containers[string(id)]; !ok {
		return enginetest.NotFound(string(id))
	}
	delete(f.containers, string(id))
	return nil
}

func (f *filling) Container(_ context.Context, name string) (ContainerState, error) {
	if c, ok := f.containers[name]; ok {
		return c, nil
	}
	return ContainerState{}, enginetest.NotFound(name)
}

func (f *filling) StartContainer(_ context.Context, id ContainerID) error {
	f.say("start %s", id)
	return nil
}

func (f *filling) WaitContainer(_ context.Context, id ContainerID) error {
	c := f.containers[string(id)]
	c.Status, c.ExitCode = "exited", f.exitCode
	f.containers[string(id)] = c
	return nil
}

func newFilling() *filling {
	return &filling{stocked: newStocked(), containers: map[string]ContainerState{}}
}

// over returns a copier over an engine. The runner is the same for each architecture.
func over(eng uncalled) *copier {
	return &copier{containers: eng, volumes: eng, images: eng, runner: func(string) (engine.Content, error) {
		return engine.Content{ID: "0a", Write: func(w io.Writer) error {
			_, err := w.Write([]byte("runner"))
			return err
		}}, nil
	}}
}
