package core

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// A transfer that was cut off may have copied a part; one that was refused has not.
func TestTransferMeasured(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err            error
		outcome, cause string
	}{
		{nil, "copied", ""},
		{errors.New("cut off"), "outcome-unknown", "engine"},
		{fmt.Errorf("x: %w", context.Canceled), "outcome-unknown", "cancelled"},
		{fmt.Errorf("x: %w", &sandbox.ConflictError{}), "not-started", "conflict"},
		{&sandbox.InputError{Field: "path"}, "not-started", "bad-path"},
		{&exec.Error{Outcome: exec.NotStarted, Cause: sandbox.CauseUnrecorded}, "not-started", "unrecorded"},
	} {
		got := measured(sandbox.Observation{Kind: sandbox.EventTransfer, Mode: sandbox.ModePush, Err: tt.err})
		if got.Outcome != tt.outcome || got.Cause != tt.cause || got.Mode != "push" || got.Code != nil {
			t.Errorf("measured(%v) = %+v; want %s, %s", tt.err, got, tt.outcome, tt.cause)
		}
	}
}
