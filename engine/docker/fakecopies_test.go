package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
)

// uncalled panics: a test that asks for more than its fake has fails.
type uncalled interface {
	containers
	volumes
	images
}

// stocked is an engine with images and volumes, some of which containers use.
type stocked struct {
	uncalled
	images  map[string]engine.Image // by reference
	volumes map[string]Volume
	used    []string // names
	driver  string   // of storage

	imageErr error  // of Image
	loaded   []byte // the last archive
}

func (s *stocked) Info(context.Context) (engine.Info, error) {
	return engine.Info{Arch: "amd64", OS: "linux", StorageDriver: s.driver}, nil
}

func (s *stocked) LoadImages(_ context.Context, archive io.Reader, _ func(engine.Progress)) (refs []string, err error) {
	s.loaded, err = io.ReadAll(archive)
	return nil, err
}

func (s *stocked) Images(context.Context) ([]engine.Image, error) {
	var all []engine.Image
	for _, img := range s.images {
		all = append(all, img)
	}
	return all, nil
}

func (s *stocked) Image(_ context.Context, ref string) (engine.Image, error) {
	if s.imageErr != nil {
		return engine.Image{}, s.imageErr
	}
	for name, img := range s.images {
		if name == ref || string(img.ID) == ref || strings.HasPrefix(string(img.ID), "sha256:"+ref) {
			return img, nil
		}
	}
	return engine.Image{}, notFound(ref)
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
	return Volume{}, notFound(name)
}

func (s *stocked) CreateVolume(_ context.Context, v Volume) error {
	s.volumes[v.Name] = v
	return nil
}

func (s *stocked) remove(name string, there bool, do func()) error {
	switch {
	case slices.Contains(s.used, name):
		return &engine.Error{Op: "remove " + name, Kind: engine.ErrConflict, Err: errors.New("it is in use")}
	case !there:
		return notFound(name)
	}
	do()
	return nil
}

func (s *stocked) RemoveVolume(_ context.Context, name string) error {
	_, there := s.volumes[name]
	return s.remove(name, there, func() { delete(s.volumes, name) })
}

func (s *stocked) RemoveImage(_ context.Context, ref string) error {
	_, there := s.images[ref]
	return s.remove(ref, there, func() { delete(s.images, ref) })
}

// left lists what there is.
func (s *stocked) left() []string {
	return slices.Sorted(maps.Keys(s.images))
}

func (s *stocked) volumesLeft() []string { return slices.Sorted(maps.Keys(s.volumes)) }

func (s *stocked) filled(name, role string, age time.Duration) {
	for _, n := range []string{name, name + markSuffix} {
		s.volumes[n] = Volume{Name: n, Labels: roleLabels(role), Created: time.Now().Add(-age)}
	}
}

func newStocked() *stocked {
	return &stocked{images: map[string]engine.Image{}, volumes: map[string]Volume{}}
}

func notFound(ref string) error {
	return &engine.Error{Op: "inspect " + ref, Kind: engine.ErrNotFound, Err: errors.New("no such thing")}
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
		return notFound(string(id))
	}
	delete(f.containers, string(id))
	return nil
}

func (f *filling) Container(_ context.Context, name string) (ContainerState, error) {
	if c, ok := f.containers[name]; ok {
		return c, nil
	}
	return ContainerState{}, notFound(name)
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
