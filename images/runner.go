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

// RunnerDigests returns the SHA-256 of each embedded runner in hex, as `make
// runner` prints it, by architecture in GOARCH form.
func RunnerDigests() (map[string]string, error) {
	digests := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		b, err := embeddedRunner(arch)
		if err != nil {
			return nil, err
		}
		binary, err := b.unpack()
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(binary)
		digests[arch] = hex.EncodeToString(sum[:])
	}
	return digests, nil
}

func (b runnerBinary) unpack() ([]byte, error) {
	zr, err := gzip.NewReader(bytes.NewReader(b.gz))
	if err != nil {
		return nil, fmt.Errorf("embedded runner for linux/%s: %w", b.arch, err)
	}
	binary, err := io.ReadAll(zr)
	if err != nil {
		return nil, fmt.Errorf("embedded runner for linux/%s: %w", b.arch, err)
	}
	return binary, nil
}

// id is twelve hex digits of the digest of the compressed runner, which is
// built reproducibly: a run need not unpack it to know its name.
func (b runnerBinary) id() string {
	sum := sha256.Sum256(b.gz)
	return hex.EncodeToString(sum[:6])
}

func (b runnerBinary) content() content {
	return content{volume: runnerPrefix + b.id(), dir: RunnerDir, role: roleRunner}
}

func (b runnerBinary) image() (smallImage, error) {
	binary, err := b.unpack()
	if err != nil {
		return smallImage{}, err
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
	return r.filledVolume(ctx, b.content(), func(ctx context.Context) (engine.ImageID, error) { return r.runnerImage(ctx, b) })
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
	c := b.content()
	_, err = r.volumes.do(ctx, c.volume+" again", nil, func(ctx context.Context, _ func(engine.Progress)) (string, error) {
		id, err := r.runnerImage(ctx, b)
		if err != nil {
			return "", err
		}
		return "", r.fill(ctx, c, id)
	})
	return err
}

// runnerImage makes the image that the runner's volume is filled from.
func (r *Resolver) runnerImage(ctx context.Context, b runnerBinary) (engine.ImageID, error) {
	img, err := b.image()
	if err != nil {
		return "", err
	}
	return img.ensure(ctx, r.engine)
}
