//go:build !linux

package main

import (
	"errors"
	"time"
)

func setClock(time.Duration) error { return errors.New("the machine's clock is set on linux only") }
