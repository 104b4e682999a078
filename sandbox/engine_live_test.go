package sandbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// never is a writer that does not return before the test's end.
type never struct{ end chan struct{} }

func (w never) Write(p []byte) (int, error) {
	<-w.end
	return len(p), nil
}

// A live writer that takes nothing defeats neither the timeout nor the result:
// what the command wrote is there, to the last byte, and the writer is reported.
func TestLiveWriterThatBlocks(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	w := never{make(chan struct{})}
	defer close(w.end)
	began := time.Now()
	res, err := s.Run(t.Context(), sandbox.Command{
		Script: "echo begin; head -c 100000 /dev/zero | tr '\\0' x; sleep 60", Timeout: 3 * time.Second, // in which it writes, also on a busy machine
		Output: sink.Options{LiveStdout: w, Window: sink.Tail(1 << 20)},
	})
	if res.Reason != exec.TimedOut || err != nil {
		t.Fatalf("Run() = %+v, %v; want timed out", res.Status, err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("Run() took %s; want at most the timeout and 5s", took)
	}
	if got, want := res.Output.Stdout.Text(), "begin\n"+strings.Repeat("x", 100000); got != want || res.Dropped != 0 {
		t.Errorf("Run() kept %d bytes and dropped %d; want %d, 0", len(got), res.Dropped, len(want))
	}
	if !errors.Is(res.Output.Stdout.Live, sink.ErrGivenUp) {
		t.Errorf("the live writer: %v; want %v", res.Output.Stdout.Live, sink.ErrGivenUp)
	}
}
