package runcmd

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Finish exits with the result's status and says what it does not tell.
func TestFinish(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	p := core.New("", nil, nil, io.Discard, &errs)
	p.Cfg.Config = &config.Config{Timeout: time.Second}
	res := sandbox.Result{
		Status: exec.Status{Reason: exec.TimedOut, Dropped: 5}, Killed: "term", Room: true,
		Output: sink.Output{Artifact: sink.Artifact{ID: "3", Stored: true, Cause: "no space left on device"}},
	}
	err := New(p).Finish(t.Context(), res, nil)
	if status, ok := errors.AsType[exit.StatusError](err); !ok || status != exit.Timeout {
		t.Errorf("finish() = %v; want status %d", err, exit.Timeout)
	}
	want := "sandboxbash: timed out after 1s (killed: term)\n" +
		"sandboxbash: note: what earlier commands had left running was killed, so that this one could start\n" +
		"sandboxbash: note: artifact 3 is incomplete: no space left on device\n" +
		"sandboxbash: note: 5 bytes of output were not taken in time and are lost\n"
	if diff := cmp.Diff(want, errs.String()); diff != "" {
		t.Errorf("finish() says otherwise (-want +got):\n%s", diff)
	}
}
