package images

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/ociarchive"
)

//go:embed runner
var embedded embed.FS

// runnerBinary is an embedded runner, compressed.
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

// runnerID names the runner for an architecture by twelve hex digits of a digest. It takes the
// digest that the header holds, so that the file is not read, and the file's own without one.
func runnerID(arch string) (string, error) {
	if digest, ok := namedDigest(arch); ok {
		return digest[:12], nil
	}
	b, err := embeddedRunner(arch)
	sum := sha256.Sum256(b.gz)
	return hex.EncodeToString(sum[:6]), err
}

// Runner returns the runner for a linux architecture in GOARCH form: the directory
// engine.RunnerDir with one program.
func Runner(arch string) (engine.Content, error) {
	id, err := runnerID(arch)
	if err != nil {
		return engine.Content{}, err
	}
	return engine.Content{ID: id, Write: func(w io.Writer) error {
		b, err := embeddedRunner(arch)
		if err != nil {
			return err
		}
		return b.write(w)
	}}, nil
}

// write writes the runner as a tar archive.
func (b runnerBinary) write(w io.Writer) error {
	binary, err := b.unpack()
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	dir := tar.Header{Typeflag: tar.TypeDir, Name: engine.RunnerDir[1:] + "/", Mode: 0o755, ModTime: ociarchive.Epoch, Format: tar.FormatPAX}
	return errors.Join(tw.WriteHeader(&dir), ociarchive.WriteFile(tw, engine.RunnerPath[1:], 0o755, binary), tw.Close())
}
