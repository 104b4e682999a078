// Command release builds what a release consists of, from the tree it is run in:
//
//	sandboxbash_VERSION_OS_ARCH.tar.gz, .zip for windows   the program and its documents
//	sandboxbash_VERSION_OS_ARCH.cdx.json                   what it is made of, as CycloneDX
//	sandboxbash_VERSION_ARCH.deb                           with completion for three shells
//	sandboxbash_VERSION_image_ARCH.tar                     for docker load: the program alone
//	SHA256SUMS
//
// The same commit makes the same bytes: times are the commit's, and nothing of the
// machine is in them. It needs Go and git, no engine and no registry.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	var r release
	var platforms string
	flag.StringVar(&r.version, "version", "", "`VERSION` of the release, as in 1.2.3")
	flag.StringVar(&r.out, "out", "dist", "`DIR` for its files, which is emptied first")
	flag.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "OS/ARCH, separated by commas")
	flag.Parse()
	if err := r.run(strings.Split(platforms, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// A release is what all its files have in common.
type release struct {
	version string // without v
	out     string
	time    time.Time // of the commit
	work    string    // directory for what is not a part of it
}

// A build is the program for one platform.
type build struct {
	os, arch string
	binary   string // its path
}

func (b build) program() string {
	if b.os == "windows" {
		return "sandboxbash.exe"
	}
	return "sandboxbash"
}

// semver is semantic versioning without build metadata, which no Debian package
// and no image tag can have.
var semver = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func (r *release) run(platforms []string) error {
	r.version = strings.TrimPrefix(r.version, "v")
	if !semver.MatchString(r.version) {
		return fmt.Errorf("%q is not a version: give one as in 1.2.3 or 1.2.3-rc.1", r.version)
	}
	if changes, err := output("git", "status", "--porcelain"); err != nil || changes != "" {
		return errors.Join(err, fmt.Errorf("a release is what a commit holds, and the tree has changes: commit or remove them\n%s", changes))
	}
	seconds, err := output("git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.time = time.Unix(n, 0).UTC()
	if err := r.empty(); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "sandboxbash-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	for _, platform := range platforms {
		goos, arch, ok := strings.Cut(platform, "/")
		if !ok {
			return fmt.Errorf("%q is not an OS/ARCH", platform)
		}
		if err := r.platform(goos, arch); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	return r.checksums()
}

// empty makes the directory for the files, and removes those of another release.
func (r *release) empty() error {
	old, err := os.ReadDir(r.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range old {
		if f.Name() != "SHA256SUMS" && !strings.HasPrefix(f.Name(), "sandboxbash_") {
			return fmt.Errorf("%s is not a directory of a release: %s is in it", r.out, f.Name())
		}
	}
	return errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755))
}

// platform makes the files for one platform.
func (r *release) platform(goos, arch string) error {
	b := build{os: goos, arch: arch, binary: filepath.Join(r.work, goos+"-"+arch)}
	if err := r.compile(b); err != nil {
		return err
	}
	if err := r.archive(b); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if err := r.sbom(b); err != nil {
		return fmt.Errorf("bill of materials: %w", err)
	}
	if goos != "linux" {
		return nil
	}
	if err := r.debian(b); err != nil {
		return fmt.Errorf("debian package: %w", err)
	}
	if err := r.image(b); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// compile builds the program. The caller has chosen the compiler (GOTOOLCHAIN).
func (r *release) compile(b build) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w -X main.version="+r.version, "-o", b.binary, "./cmd/sandboxbash")
	cmd.Env = append(os.Environ(), "GOOS="+b.os, "GOARCH="+b.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// native is the program for this machine, which writes its own completion.
func (r *release) native() (string, error) {
	b := build{os: runtime.GOOS, arch: runtime.GOARCH, binary: filepath.Join(r.work, runtime.GOOS+"-"+runtime.GOARCH)}
	if _, err := os.Stat(b.binary); err == nil {
		return b.binary, nil
	}
	return b.binary, r.compile(b)
}

// name is that of a file of the release.
func (r *release) name(parts ...string) string {
	return filepath.Join(r.out, "sandboxbash_"+r.version+"_"+strings.Join(parts, "_"))
}

// checksums writes SHA256SUMS, as sha256sum --check reads it.
func (r *release) checksums() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		lines = append(lines, hex.EncodeToString(sum[:])+"  "+f.Name()+"\n")
		fmt.Printf("%10d  %s\n", len(content), f.Name())
	}
	slices.Sort(lines)
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}

func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}
