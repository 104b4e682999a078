//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// An OOM kill ends one command, and none that ended long after it.
func TestOOMWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		open := func(name string) *os.File {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return f
		}
		counter := open("events")
		kills := func(n int) {
			if _, err := counter.WriteAt(fmt.Appendf(nil, "oom 9\noom_kill %d\n", n), 0); err != nil {
				t.Fatal(err)
			}
		}
		runner := func() *oomWatch { return (&oomCounter{f: counter, claimed: open("claims")}).watch() }
		claim := func(what string, w *oomWatch, want bool) {
			t.Helper()
			if got := w.claim(); got != want {
				t.Errorf("%s: claim() = %t; want %t", what, got, want)
			}
		}
		kills(3)
		a, b := runner(), runner()
		claim("none since the start", a, false)
		kills(4)
		claim("one", a, true)
		claim("the same for another command", b, false)
		kills(6)
		claim("the first of two", a, true)
		claim("the second of two", b, true)
		claim("a third", b, false)
		kills(7) // of a child whose command goes on
		for range 3 {
			time.Sleep(oomLag)
			b.sample()
		}
		claim("one long before", b, false)
		kills(8)
		b.sample()
		claim("one just now", b, true)
	})
}
