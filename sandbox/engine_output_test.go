package sandbox_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// integrityRuns is how often an artifact must equal its command's output: 100 of
// 100.
const integrityRuns = 100

// integritySizes are bytes, from 64 KiB to 128 MiB; the large ones come seldom.
func integritySize(run int) int64 {
	switch {
	case run == 50:
		return 128 << 20
	case run%25 == 24:
		return 16 << 20
	case run%5 == 4:
		return 1 << 20
	default:
		return 64<<10 + int64(run)*997
	}
}

// Every artifact holds its command's output to the last byte, whoever watches: a
// subscriber that reads 1 KiB/s, one that reads nothing, or nobody.
func TestArtifactIntegrity(t *testing.T) {
	t.Parallel()
	client := dockertest.Connect(t)
	resolver, err := images.New(client, images.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := sink.NewStore(t.TempDir(), sink.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := sandbox.New(client, resolver, sandbox.Options{Artifacts: store, Ahead: 1})
	s := startIn(t, client, e, sandbox.Spec{})
	for i := range integrityRuns {
		size := integritySize(i)
		sum := sha256.New()
		all := numbers()
		if _, err := io.CopyN(sum, all, size); err != nil {
			t.Fatal(err)
		}
		_ = all.Close() // always nil
		res, err := s.Run(t.Context(), sandbox.Command{
			// More than is wanted, cut to the byte, so that the end is in the middle of a line.
			Script:  fmt.Sprintf("seq 1 20000000 2>/dev/null | head -c %d", size),
			Timeout: 2 * time.Minute,
			Output:  sink.Options{Artifact: sink.Always},
			Watch:   watcher(t, i),
		})
		if err != nil || res.Reason != exec.Exited || res.Dropped != 0 {
			t.Fatalf("run %d: %+v, %v", i, res.Status, err)
		}
		a := res.Output.Artifact
		if want := hex.EncodeToString(sum.Sum(nil)); !a.Complete || a.Bytes != size || digest(t, a.Path) != want {
			t.Errorf("run %d: artifact %+v has %s; want %d bytes, %s", i, a, digest(t, a.Path), size, want)
		}
		if a.ID != strconv.Itoa(i) {
			t.Errorf("run %d: artifact id %s; want %d", i, a.ID, i)
		}
	}
}

// watcher returns what watches the output of a run.
func watcher(t *testing.T, run int) func(*sink.Sink) {
	t.Helper()
	switch run % 3 {
	case 0:
		return nil
	case 1:
		return func(out *sink.Sink) { out.Subscribe() } // and never reads
	}
	return func(out *sink.Sink) {
		updates := out.Subscribe().Updates()
		go func() { // ends with the sink
			for range updates {
				time.Sleep(50 * time.Millisecond) // a window of 50 KiB a second is fast; this is not
			}
		}()
	}
}

// numbers yields what seq 1 20000000 prints.
func numbers() *io.PipeReader {
	r, w := io.Pipe()
	go func() { // ends when nobody reads
		var b []byte
		for i := 1; ; i++ {
			b = append(strconv.AppendInt(b, int64(i), 10), '\n')
			if len(b) > 64<<10 {
				if _, err := w.Write(b); err != nil {
					return
				}
				b = b[:0]
			}
		}
	}()
	return r
}

func digest(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
