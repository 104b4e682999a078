//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A full file system in memory explains a failure only if the command could have written to it.
func TestWritableTmpfs(t *testing.T) {
	t.Parallel()
	mount := func(target, kind, options, super string) proc.Mount {
		return proc.Mount{Mount: wire.Mount{Target: target, Type: kind, Options: strings.Split(options, ",")}, Super: strings.Split(super, ",")}
	}
	for _, row := range []struct {
		mount proc.Mount
		want  bool
	}{
		{mount("/", "overlay", "ro,relatime", "rw,lowerdir=/x"), false},
		{mount("/workspace", "ext4", "rw", "rw"), false},
		{mount("/tmp", "tmpfs", "rw,nosuid", "rw,size=8192k"), true},
		{mount("/a b", "tmpfs", "nosuid,rw", "size=8192k,rw"), true},
		{mount("/data", "tmpfs", "ro,nosuid", "rw"), false},
		{mount("/data", "tmpfs", "rw,nosuid", "ro"), false},
		{mount("/sys/firmware", "tmpfs", "rw", "rw"), false},
		{mount("/proc/scsi", "tmpfs", "rw", "rw"), false},
		{mount("/process", "tmpfs", "rw", "rw"), true},
	} {
		if got := len(writableTmpfs([]proc.Mount{row.mount})) == 1; got != row.want {
			t.Errorf("writableTmpfs(%+v) lists it: %t; want %t", row.mount, got, row.want)
		}
	}
}

// A session's paths are looked at once each, and none that a job's record has no room for.
func TestWatched(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("x", maxWatched-1)
	s := &server{inMemory: []string{"/tmp", "/run"}}
	s.tmpfs.Do(func() {}) // as if the mounts had been read
	got := s.watched([]string{"/workspace", "/tmp", long, long + "x"})
	if want := []string{"/run", "/tmp", "/workspace", long}; !slices.Equal(got, want) {
		t.Errorf("watched() = %q; want %q", got, want)
	}
	if !slices.Equal(s.inMemory, []string{"/tmp", "/run"}) {
		t.Errorf("afterwards the server's own list is %q; want it unchanged", s.inMemory)
	}
}

func TestStatRoom(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/proc", "/sys", "/nowhere"} { // without a size, or without anything
		if n, ok := statRoom(path); ok {
			t.Errorf("statRoom(%s) = %+v; want room", path, n)
		}
	}
}
