package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
)

//go:embed runner
var embedded embed.FS

const (
	// RunnerDir is where sessions mount the runner's volume.
	RunnerDir = "/.sandboxbash"
	// RunnerPath is the runner inside a session.
	RunnerPath = RunnerDir + "/runner"
)

const (
	fillPatience = 30 * time.Second      // for somebody else's filling, which takes less than one
	fillPoll     = 50 * time.Millisecond // between two looks at it
	cleanupTime  = 15 * time.Second      // for taking away what a call has made
)

// runnerBinary is a runner as embedded: compressed. Its name is its digest.
type runnerBinary struct {
	arch string
	gz   []byte
}

// embeddedRunner returns the runner for a linux architecture in GOARCH form.
func embeddedRunner(arch string) (runnerBinary, error) {
	if arch != "amd64" && arch != "arm64" {
		return runnerBinary{}, fmt.Errorf("no runner for linux/%s: images must be linux/amd64 or linux/arm64", arch)
	}
	gz, err := embedded.ReadFile("runner/runner-linux-" + arch + ".gz")
	if err != nil {
		return runnerBinary{}, fmt.Errorf("this sandboxbash was built without the runner for linux/%s: run `make runner`, then build it again", arch)
	}
	return runnerBinary{arch: arch, gz: gz}, nil
}

// id is twelve hex digits of the digest of the compressed runner, which is
// built reproducibly: a run need not unpack it to know its name.
func (b runnerBinary) id() string {
	sum := sha256.Sum256(b.gz)
	return hex.EncodeToString(sum[:6])
}

func (b runnerBinary) volume() string { return "sandboxbash-runner-" + b.id() }

// mark is the name of an empty volume that exists only while the runner's is
// filled: labels of a volume cannot change, and a volume is there before its
// content is.
func (b runnerBinary) mark() string { return b.volume() + "-filled" }

func (b runnerBinary) image() (smallImage, error) {
	zr, err := gzip.NewReader(bytes.NewReader(b.gz))
	if err != nil {
		return smallImage{}, fmt.Errorf("embedded runner for linux/%s: %w", b.arch, err)
	}
	binary, err := io.ReadAll(zr)
	if err != nil {
		return smallImage{}, fmt.Errorf("embedded runner for linux/%s: %w", b.arch, err)
	}
	layer, err := layerOf(func(tw *tar.Writer) error {
		return errors.Join(
			writeDir(tw, dirEntry{name: RunnerDir[1:]}),
			writeFile(tw, RunnerPath[1:], 0o755, binary),
		)
	})
	return smallImage{ref: runnerRepo + ":" + b.id(), arch: b.arch, labels: roleLabels(roleRunner), layer: layer}, err
}

func roleLabels(role string) map[string]string { return map[string]string{labelRole: role} }

// Runner returns the name of the volume that holds the runner for a linux
// architecture in GOARCH form, and makes it where it is missing. Sessions mount
// it at RunnerDir, read-only and without copying from their image. It is made
// once an engine, however many ask, in this process or in others.
func (r *Resolver) Runner(ctx context.Context, arch string) (volume string, err error) {
	b, err := r.runners(arch)
	if err != nil {
		return "", err
	}
	return r.volumes.do(ctx, b.volume(), nil, func(ctx context.Context, _ func(engine.Progress)) (string, error) {
		ready, err := r.filled(ctx, b)
		if err != nil || ready {
			return b.volume(), err
		}
		return b.volume(), r.fill(ctx, b)
	})
}

// Refill fills the runner's volume again. Callers use it when a session's
// container does not start because the runner is missing: somebody has removed
// or emptied the volume behind our back. A volume that sessions use is filled in
// place, and only if it is empty; any other is made anew.
func (r *Resolver) Refill(ctx context.Context, arch string) error {
	b, err := r.runners(arch)
	if err != nil {
		return err
	}
	_, err = r.volumes.do(ctx, b.volume()+" again", nil, func(ctx context.Context, _ func(engine.Progress)) (string, error) {
		err := ignore(r.engine.RemoveVolume(ctx, b.mark()), engine.ErrNotFound)
		if err == nil {
			err = ignore(r.engine.RemoveVolume(ctx, b.volume()), engine.ErrNotFound, engine.ErrConflict)
		}
		if err != nil {
			return "", fmt.Errorf("runner volume: %w", err)
		}
		return "", r.fill(ctx, b)
	})
	return err
}

// filled reports whether the volume and its mark are there. The mark is taken
// away before a volume is made and put back after it was filled, so that order
// of looking matters: volume, then mark.
func (r *Resolver) filled(ctx context.Context, b runnerBinary) (bool, error) {
	for _, name := range []string{b.volume(), b.mark()} {
		_, err := r.engine.Volume(ctx, name)
		if errors.Is(err, engine.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("runner volume: %w", err)
		}
	}
	return true, nil
}

// fill makes the volume and its content. The filling container's name is the
// lock: an engine gives a name once. Whoever finds it taken waits, or finishes
// the work of a process that has died over it.
func (r *Resolver) fill(ctx context.Context, b runnerBinary) error {
	ctx, cancel := context.WithTimeoutCause(ctx, fillPatience, fmt.Errorf("runner volume %s was not filled within %v", b.volume(), fillPatience))
	defer cancel()
	img, err := b.image()
	if err != nil {
		return err
	}
	id, err := img.ensure(ctx, r.engine)
	if err != nil {
		return err
	}
	// The mark goes before the volume is made, and comes back after: see filled.
	if err := ignore(r.engine.RemoveVolume(ctx, b.mark()), engine.ErrNotFound); err != nil {
		return fmt.Errorf("runner volume: %w", err)
	}
	for {
		err := r.fillOnce(ctx, b, id)
		if !errors.Is(err, engine.ErrConflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(fillPoll):
		}
		if ready, err := r.filled(ctx, b); err != nil || ready {
			return err
		}
	}
}

// fillOnce returns an engine.ErrConflict while another container of the lock's
// name is being made.
func (r *Resolver) fillOnce(ctx context.Context, b runnerBinary, image engine.ImageID) (err error) {
	volume := engine.Volume{Name: b.volume(), Labels: roleLabels(roleRunner)}
	if err := r.engine.CreateVolume(ctx, volume); err != nil {
		return fmt.Errorf("runner volume: %w", err)
	}
	lock := engine.ContainerID(b.volume() + "-filler")
	_, _, err = r.engine.CreateContainer(ctx, filler(string(lock), image, specs.Mount{Source: b.volume(), Destination: RunnerDir}))
	if errors.Is(err, engine.ErrConflict) {
		// An engine shows a container once it is made, and then the volume is filled.
		state, stateErr := r.engine.Container(ctx, string(lock))
		if stateErr != nil || !fills(state, b.volume()) {
			return fmt.Errorf("runner volume: %w", err)
		}
	} else if err != nil {
		err = fmt.Errorf("runner volume: %w", err)
	}
	if err == nil || errors.Is(err, engine.ErrConflict) {
		err = r.engine.CreateVolume(ctx, engine.Volume{Name: b.mark(), Labels: roleLabels(roleRunner)})
	}
	return errors.Join(err, r.removeFiller(ctx, lock))
}

// fills reports whether a container is one that filled the volume.
func fills(c engine.ContainerState, volume string) bool {
	for _, m := range c.Mounts {
		if m.Type == "volume" && m.Source == volume && c.Labels[labelRole] == roleFiller {
			return true
		}
	}
	return false
}

// filler is a container that is never started. It exists so that the engine
// copies what the image has at the mount's destination into an empty volume.
func filler(name string, image engine.ImageID, mount specs.Mount) engine.Container {
	mount.Type = "volume"
	return engine.Container{
		Name:    name,
		Image:   image,
		Labels:  roleLabels(roleFiller),
		Network: "none",
		Spec: specs.Spec{
			Process: &specs.Process{Args: []string{RunnerPath}, Cwd: "/"},
			Root:    &specs.Root{},
			Mounts:  []specs.Mount{mount},
			Linux:   &specs.Linux{},
		},
	}
}

// removeFiller removes a filler by its name, whatever became of its maker's
// context, and is content if it is not there.
func (r *Resolver) removeFiller(ctx context.Context, name engine.ContainerID) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTime, fmt.Errorf("container %s was not removed within %v", name, cleanupTime))
	defer cancel()
	return ignore(r.engine.RemoveContainer(ctx, name), engine.ErrNotFound)
}

// ignore returns nil in place of an error that is one of the kinds.
func ignore(err error, kinds ...error) error {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return nil
		}
	}
	return err
}
