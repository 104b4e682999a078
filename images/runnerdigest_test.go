package images

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// What the compressed runners say of themselves is true, and one that says nothing is
// unpacked.
func TestRunnerDigests(t *testing.T) {
	t.Parallel()
	said, err := RunnerDigests()
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		b, err := embeddedRunner(arch)
		if err != nil {
			t.Fatal(err)
		}
		binary, err := b.unpack()
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(binary)
		want := hex.EncodeToString(sum[:])
		zr, err := gzip.NewReader(bytes.NewReader(b.gz))
		if err != nil || zr.Comment != want || said[arch] != want {
			t.Errorf("the runner for %s is %s, says %q, and RunnerDigests() has %s, %v: run `make runner`", arch, want, zr.Comment, said[arch], err)
		}
		var plain bytes.Buffer
		zw := gzip.NewWriter(&plain)
		if _, err := zw.Write(binary); err != nil {
			t.Fatal(err)
		}
		if err := zw.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := (runnerBinary{arch: arch, gz: plain.Bytes()}).digest(); got != want || err != nil {
			t.Errorf("digest() of one without = %s, %v; want %s", got, err, want)
		}
	}
}
