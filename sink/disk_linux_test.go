package sink

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a tmpfs of 4 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("mounting a tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestDiskFull(t *testing.T) {
	t.Parallel()
	store, err := NewStore(filepath.Join(smallDisk(t), "artifacts"), StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := failing(t, store, nil)
	if !o.Artifact.Stored || !strings.Contains(o.Artifact.Cause, "no space left") || o.Artifact.Bytes == 0 {
		t.Errorf("artifact %+v; want a stored one for which no space was left", o.Artifact)
	}
	infos, err := store.List("s1")
	if err != nil || len(infos) != 1 || infos[0].State != Incomplete || infos[0].Cause != o.Artifact.Cause {
		t.Errorf("List() = %+v, %v; want the cause known on the full disk", infos, err)
	}
	// The next command has no place for a mark, or even an id; it runs.
	failing(t, store, nil)
	if err := store.Remove("s1", "0"); err != nil {
		t.Fatal(err)
	}
	if a := keep(t, sessionOf(t, store, "s1"), "x"); !a.Complete {
		t.Errorf("with room again: %+v; want a complete artifact", a)
	}
}

func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	store, err := NewStore(filepath.Join(dir, "artifacts"), StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if o := failing(t, store, nil); o.Artifact.Stored || !strings.Contains(o.Artifact.Cause, "read-only") {
		t.Errorf("artifact %+v; want none, for a read-only file system", o.Artifact)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("the disk has %v, %v; want nothing", names, err)
	}
}

// A process that is being started has a copy of each file of ours until it runs
// its own program: an artifact's end must not wait for that.
func TestEndIsSeenWhileAProcessStarts(t *testing.T) {
	t.Parallel()
	store, err := NewStore(t.TempDir(), StoreOptions{ArtifactBytes: 3})
	if err != nil {
		t.Fatal(err)
	}
	w := newDiskWriter(sessionOf(t, store, "s1"), "0"+logSuffix)
	w.write([]byte("abc"))
	for opened := false; !opened; { // the mark is locked before the first bytes are taken
		w.mu.Lock()
		opened = len(w.fill) == 0
		w.mu.Unlock()
	}
	inherited, err := unix.Dup(int(w.partial.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	w.write([]byte("d"))
	a := w.finish("0", "")
	infos, err := store.List("s1")
	if err != nil || len(infos) != 1 || infos[0].State != Incomplete || infos[0].Cause != a.Cause || a.Cause == "" {
		t.Errorf("List() = %+v, %v; want it incomplete for %q", infos, err, a.Cause)
	}
}
