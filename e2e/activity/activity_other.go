//go:build !linux

// Package activity counts what processes do while nothing is asked of them. It
// needs Linux.
package activity

import (
	"context"
	"errors"
	"time"
)

// Used is what processes have done in some time.
type Used struct {
	Time            time.Duration
	Wakes, Switches int64
	CPU             time.Duration
	Made            int64
}

// Watch fails.
func Watch(context.Context, time.Duration, int, ...int) (Used, error) {
	return Used{}, errors.ErrUnsupported
}
