package images

import (
	"archive/tar"
	"bufio"
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

// runnerBinary is an embedded runner, compressed. It is named after its digest.
type runnerBinary struct {
	arch string
	gz   []byte
}

func runnerFile(arch string) string { return "runner/runner-linux-" + arch + ".gz" }

// embeddedRunner returns the runner for a linux architecture in GOARCH form.
func embeddedRunner(arch string) (runnerBinary, error) {
	if arch != "amd64" && arch != "arm64" {
		return runnerBinary{}, fmt.Errorf("no runner for linux/%s: images must be linux/amd64 or linux/arm64", arch)
	}
	gz, err := embedded.ReadFile(runnerFile(arch))
	if err != nil {
		return runnerBinary{}, fmt.Errorf("this sandboxbash was built without the runner for linux/%s: run `make runner`, then build it again", arch)
	}
	return runnerBinary{arch: arch, gz: gz}, nil
}

// RunnerDigests returns the SHA-256 of each embedded runner in hex, as `make
// runner` prints it, by architecture in GOARCH form. `make runner` writes the digest into
// the compressed files, and `make verify-runner` checks it.
func RunnerDigests() (map[string]string, error) {
	digests := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		digest, ok := namedDigest(arch)
		if !ok {
			b, err := embeddedRunner(arch)
			if err != nil {
				return nil, err
			}
			if digest, err = b.digest(); err != nil {
				return nil, err
			}
		}
		digests[arch] = digest
	}
	return digests, nil
}

// namedDigest returns the digest that the header of the compressed file holds. It reads
// only the first bytes, so that the rest of this program's file is not paged in.
func namedDigest(arch string) (string, bool) {
	f, err := embedded.Open(runnerFile(arch))
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }() // read only
	zr, err := gzip.NewReader(bufio.NewReaderSize(f, 512))
	if err != nil || len(zr.Comment) != hex.EncodedLen(sha256.Size) {
		return "", false
	}
	return zr.Comment, true
}

// digest returns the digest of the decompressed runner.
func (b runnerBinary) digest() (string, error) {
	binary, err := b.unpack()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(binary)
	return hex.EncodeToString(sum[:]), nil
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

// id returns twelve hex digits of the digest of the compressed runner, which is built
// reproducibly: knowing the name does not take unpacking it.
func (b runnerBinary) id() string {
	sum := sha256.Sum256(b.gz)
	return hex.EncodeToString(sum[:6])
}

func (b runnerBinary) content() content {
	return content{volume: runnerPrefix + b.id(), dir: engine.RunnerDir, role: roleRunner}
}

func (b runnerBinary) image() (smallImage, error) {
	binary, err := b.unpack()
	if err != nil {
		return smallImage{}, err
	}
	layer, err := layerOf(func(tw *tar.Writer) error {
		return errors.Join(
			writeDir(tw, dirEntry{name: engine.RunnerDir[1:]}),
			writeFile(tw, engine.RunnerPath[1:], 0o755, binary),
		)
	})
	return smallImage{ref: runnerRepo + ":" + b.id(), arch: b.arch, labels: roleLabels(roleRunner), layer: layer}, err
}

func roleLabels(role string) map[string]string { return map[string]string{labelRole: role} }

// Runner returns the name of the volume that holds the runner for a linux architecture in
// GOARCH form. It makes the volume if it is missing, once per engine, however many callers
// in this process and others ask for it. Sessions mount the volume at engine.RunnerDir,
// read-only and without copying from their image.
func (r *Resolver) Runner(ctx context.Context, arch string) (volume string, err error) {
	b, err := r.runners(arch)
	if err != nil {
		return "", err
	}
	return r.filledVolume(ctx, b.content(), func(ctx context.Context) (engine.ImageID, error) { return r.runnerImage(ctx, b) })
}

// Refill fills the runner's volume again. Callers use it when a session's container does
// not start because the runner is missing: another program has removed or emptied the
// volume. A volume that sessions use is filled in place, and only if it is empty; any
// other is made anew.
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

// Helper returns the image that holds only the runner for an architecture in GOARCH form.
// It makes the image if it is missing. It is for containers in which only our own
// programs run.
func (r *Resolver) Helper(ctx context.Context, arch string) (engine.Image, error) {
	b, err := r.runners(arch)
	if err != nil {
		return engine.Image{}, err
	}
	id, err := r.runnerImage(ctx, b)
	return engine.Image{ID: id, OS: "linux", Arch: b.arch}, err
}

// runnerImage makes the image from which the runner's volume is filled.
func (r *Resolver) runnerImage(ctx context.Context, b runnerBinary) (engine.ImageID, error) {
	img, err := b.image()
	if err != nil {
		return "", err
	}
	return img.ensure(ctx, r.engine)
}
