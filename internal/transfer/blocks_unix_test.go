//go:build unix

package transfer

import (
	"os"
	"syscall"
	"testing"
)

// blocks is how many bytes of disk a file takes.
func blocks(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}
