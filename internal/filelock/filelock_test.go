package filelock

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLock(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	a, b := open(), open()
	if Locked(a) {
		t.Error("Locked() of a file that has no lock = true")
	}
	if err := Lock(a); err != nil {
		t.Fatal(err)
	}
	if !Locked(b) {
		t.Error("Locked() = false; want true while another file has the lock")
	}
	if ok, err := TryLock(b); ok || err != nil {
		t.Errorf("TryLock() = %v, %v; want false while another file has the lock", ok, err)
	}
	if err := Unlock(a); err != nil {
		t.Fatal(err)
	}
	if ok, err := TryLock(b); !ok || err != nil {
		t.Errorf("TryLock() = %v, %v; want true after Unlock", ok, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if Locked(a) {
		t.Error("Locked() after the file with the lock was closed = true")
	}
}
