//go:build unix && !linux

package keeper

import "testing"

func mountTiny(t *testing.T, _ string) { t.Skip("needs a Linux mount") }
