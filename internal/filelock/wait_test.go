package filelock

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// Lock waits until the lock is free: of many that take it in turn, each is alone.
func TestLockExcludes(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "lock")
	var inside, turns atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
				if err != nil {
					t.Error(err)
					return
				}
				if err := Lock(f); err != nil {
					t.Error(err)
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				turns.Add(1)
				inside.Add(-1)
				if err := f.Close(); err != nil { // the lock ends with it
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if turns.Load() != 8*20 {
		t.Errorf("%d turns were counted; want %d", turns.Load(), 8*20)
	}
}

// On a file that is closed every function says so, and none reports a lock.
func TestClosedFile(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if ok, err := TryLock(f); ok || err == nil {
		t.Errorf("TryLock() = %v, %v; want an error", ok, err)
	}
	if err := Lock(f); err == nil {
		t.Error("Lock() = nil; want an error")
	}
	if err := Unlock(f); err == nil {
		t.Error("Unlock() = nil; want an error")
	}
	if Locked(f) {
		t.Error("Locked() = true; want false: nothing is known of it")
	}
}
