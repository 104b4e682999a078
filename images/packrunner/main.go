// Command packrunner builds the runner for every linux architecture that
// sessions run on, reproducibly, and compresses it for embedding. With -verify
// it compares instead of writing.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	out := flag.String("out", "images/runner", "directory of the compressed runners")
	verify := flag.Bool("verify", false, "compare with what is there, write nothing")
	flag.Parse()
	for _, arch := range []string{"amd64", "arm64"} {
		if err := pack(filepath.Join(*out, "runner-linux-"+arch+".gz"), arch, *verify); err != nil {
			fmt.Fprintln(os.Stderr, "packrunner:", err)
			os.Exit(1)
		}
	}
}

func pack(path, arch string, verify bool) error {
	binary, err := build(arch)
	if err != nil {
		return err
	}
	had, named, _ := unpack(path)
	digest := fmt.Sprintf("%x", sha256.Sum256(binary))
	if bytes.Equal(had, binary) && named == digest {
		fmt.Printf("%s: %x, as built\n", path, sha256.Sum256(binary))
		return nil
	}
	if verify {
		return fmt.Errorf("%s holds %x, but this tree builds %x: run `make runner` with the Go version of go.mod and commit it",
			path, sha256.Sum256(had), sha256.Sum256(binary))
	}
	var packed bytes.Buffer
	zw, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	zw.Comment = digest // so that `sandboxbash version` need not unpack it
	if _, err := zw.Write(binary); err != nil {
		return err
	}
	if err := zw.Close(); err != nil {
		return err
	}
	fmt.Printf("%s: %x, %d bytes, %d compressed\n", path, sha256.Sum256(binary), len(binary), packed.Len())
	return os.WriteFile(path, packed.Bytes(), 0o644)
}

// build builds one runner: no paths, no build id, no symbols, no cgo.
func build(arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "packrunner")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "runner")
	cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", file, "./cmd/sandboxbash-runner")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build for linux/%s: %w", arch, err)
	}
	return os.ReadFile(file)
}

// unpack returns a packed runner, and the digest that the file names.
func unpack(path string) (binary []byte, digest string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	zr, err := gzip.NewReader(f)
	if err != nil {
		return nil, "", err
	}
	binary, err = io.ReadAll(zr)
	return binary, zr.Comment, err
}
