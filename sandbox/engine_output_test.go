package sandbox_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// storing is an engine that keeps artifacts.
func storing(t *testing.T) (*docker.Client, *sandbox.Engine) {
	t.Helper()
	client := dockertest.Connect(t)
	resolver, err := images.New(client, images.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := sink.NewStore(t.TempDir(), sink.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return client, newEngine(client, resolver, sandbox.Options{Artifacts: store, Ahead: 1})
}

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

// Every artifact holds its command's output to the last byte, whether a subscriber reads
// 1 KiB/s, a subscriber reads nothing, or there is no subscriber.
func TestArtifactIntegrity(t *testing.T) {
	t.Parallel()
	client, e := storing(t)
	s := startIn(t, client, e, sandbox.Spec{})
	for i := range integrityRuns {
		size := integritySize(i)
		want := sumOfNumbers(t, size)
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
		if !a.Complete || a.Bytes != size || digest(t, a.Path) != want {
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

// consumers is how many watch one command in TestSlowConsumers.
const consumers = 100

// Row L11, scenario 81. A hundred subscribers of a command, half of which never read and
// half only now and then, slow down neither it nor another command. A live writer that takes
// nothing blocks its own command, but no other, and no longer than its timeout.
func TestSlowConsumers(t *testing.T) {
	t.Parallel()
	client, e := storing(t)
	s, other := startIn(t, client, e, sandbox.Spec{}), startIn(t, client, e, sandbox.Spec{})

	w := never{make(chan struct{})}
	t.Cleanup(func() { close(w.end) })
	begun := make(chan struct{})
	ended := make(chan sandbox.Result, 1)
	go func() {
		res, err := s.Run(t.Context(), sandbox.Command{
			Script: "exec yes", Timeout: 20 * time.Second, Output: sink.Options{LiveStdout: w},
			Watch: func(out *sink.Sink) {
				updates := out.Subscribe().Updates()
				go func() {
					<-updates // it has written, and w has not come back
					close(begun)
				}()
			},
		})
		if err != nil {
			t.Errorf("the one whose output is not read: %v", err)
		}
		ended <- res
	}()
	<-begun
	if got := run(t, other, sandbox.Command{Script: "echo here"}); got != "here\n" {
		t.Errorf("the other session: %q", got)
	}
	if got := run(t, s, sandbox.Command{Script: "echo parallel"}); got != "parallel\n" {
		t.Errorf("in parallel: %q", got)
	}
	select {
	case res := <-ended:
		t.Fatalf("the one whose output is not read has ended too early to hold up the others: %+v", res)
	default:
	}

	const size = 32 << 20
	want := sumOfNumbers(t, size)
	res, err := s.Run(t.Context(), sandbox.Command{
		Script:  fmt.Sprintf("seq 1 20000000 2>/dev/null | head -c %d", size),
		Timeout: 2 * time.Minute,
		Output:  sink.Options{Artifact: sink.Always},
		Watch: func(out *sink.Sink) {
			for i := range consumers / 2 {
				watcher(t, 3*i+1)(out)
				watcher(t, 3*i+2)(out)
			}
		},
	})
	if err != nil || res.Reason != exec.Exited || res.Dropped != 0 || res.Output.Stdout.Bytes != size {
		t.Fatalf("the one that is watched: %+v, %v", res, err)
	}
	if a := res.Output.Artifact; digest(t, a.Path) != want {
		t.Errorf("the artifact of it has %s; want %s", digest(t, a.Path), want)
	}
	select {
	case res := <-ended:
		if res.Reason != exec.TimedOut || !errors.Is(res.Output.Stdout.Live, sink.ErrGivenUp) {
			t.Errorf("the one whose output is not read: %+v", res)
		}
	case <-time.After(time.Minute):
		t.Error("the one whose output is not read does not end")
	}
}

// numbers yields what seq 1 20000000 prints.
func numbers() *io.PipeReader {
	r, w := io.Pipe()
	go func() { // ends when the reader is closed
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

// sumOfNumbers is the digest of the first bytes of them.
func sumOfNumbers(t *testing.T, size int64) string {
	t.Helper()
	sum := sha256.New()
	all := numbers()
	if _, err := io.CopyN(sum, all, size); err != nil {
		t.Fatal(err)
	}
	_ = all.Close() // always nil
	return hex.EncodeToString(sum.Sum(nil))
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
