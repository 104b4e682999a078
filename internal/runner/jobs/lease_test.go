//go:build linux

package jobs

import (
	"os"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

func TestLease(t *testing.T) {
	t.Parallel()
	const lease = time.Minute
	d := Dir(t.TempDir())
	note := func(do string, d2 time.Duration) {
		t.Helper()
		if err := d.NoteLease(wire.VerbLease.Command(&wire.LeaseArgs{Do: do, For: d2})[1:]); err != nil {
			t.Fatal(err)
		}
	}
	left := func(what string, least, most time.Duration) {
		t.Helper()
		if got := d.LeaseLeft(lease); got < least || got > most {
			t.Errorf("%s: LeaseLeft() = %v; want %v to %v", what, got, least, most)
		}
	}
	left("at first", 0, 0)
	note(wire.LeaseKeep, time.Hour)
	left("kept", 59*time.Minute, time.Hour)
	left("kept, asked again", 59*time.Minute, time.Hour)
	note(wire.LeaseKeep, 876000*time.Hour)
	left("kept for ever", 875000*time.Hour, 876000*time.Hour)
	note(wire.LeaseKeep, time.Nanosecond)
	left("kept until now", 0, 0)
	note(wire.LeaseKeep, time.Hour)
	note(wire.LeaseKeep, 0)
	left("not kept any more", 0, 0)
	note(wire.LeaseKeep, 0)

	note(wire.LeasePause, 0)
	left("after a pause", lease, lease)
	left("for the second time", 0, 0)
	note(wire.LeasePause, 0)
	note(wire.LeaseResume, 0)
	left("after a pause that was taken back", 0, 0)
	note(wire.LeaseResume, 0)
	if ids, err := d.ids(); len(ids) != 0 || err != nil {
		t.Errorf("ids() = %q, %v; want that a note is not a job", ids, err)
	}
}

// What is there instead of a note, as a command of profile dev may have put it there, keeps nothing.
func TestLeaseDamaged(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	for name, put := range map[string]func(path string) error{
		"no time":     func(path string) error { return os.WriteFile(path, []byte("for ever"), 0o600) },
		"a link":      func(path string) error { return os.Symlink("/dev/zero", path) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		if err := put(d.Path(keepNote)); err != nil {
			t.Fatal(err)
		}
		if got := d.LeaseLeft(time.Minute); got != 0 {
			t.Errorf("%s: LeaseLeft() = %v; want 0", name, got)
		}
		if err := os.RemoveAll(d.Path(keepNote)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{nil, {"keep"}, {"stay", "1s"}, {"keep", "1s", "more"}} {
		if err := d.NoteLease(args); err == nil {
			t.Errorf("NoteLease(%q) = nil; want an error", args)
		}
	}
}
