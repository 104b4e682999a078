//go:build linux

package jobs

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// watching begins a watch of d's jobs and passes on what it tells, its first word
// left out.
func watching(t *testing.T, d Dir) *ticks {
	t.Helper()
	told := newTicks()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobWatch, Watch: "w"}, told)
	}()
	<-told.c
	t.Cleanup(func() {
		told.closed.Store(true)
		put(t, d, "bg_99", "").Close() // ends the watch
		<-done
	})
	return told
}

func silent(t *testing.T, told *ticks, why string) {
	t.Helper()
	select {
	case <-told.c:
		t.Errorf("the watch told of %s", why)
	case <-time.After(2 * settle[len(settle)-1]):
	}
}

// A host's reaction to news is not news itself, or host and watch would keep each other
// busy for ever.
func TestWatchIsSilent(t *testing.T) {
	t.Parallel()
	for _, jobs := range []int{0, 1} {
		d := Dir(t.TempDir())
		if jobs > 0 {
			end(t, d, "bg_1", put(t, d, "bg_1", ""), 0, 0)
		}
		told := watching(t, d)
		for range 3 {
			states(t, d, wire.JobKeep{Known: time.Hour, Unknown: time.Hour})
		}
		silent(t, told, "a list")
		if jobs > 0 {
			if err := d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobNote, ID: "bg_1", Known: true, Artifact: "1"}, nil); err != nil {
				t.Fatal(err)
			}
			silent(t, told, "a note")
		}
		f, err := d.Create(LogSuffix) // of a command that may become a job
		if err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(f.Name())
		f.Close()
		silent(t, told, "a command")
	}
}

// A watch tells of every start, end, loss and removal, and of a job that has taken
// the place of another between two looks.
func TestWatchTells(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	told := watching(t, d)
	next := func(of string) {
		t.Helper()
		select {
		case <-told.c:
		case <-time.After(20 * time.Second):
			t.Fatalf("the watch did not tell of %s", of)
		}
		silent(t, told, "nothing, after "+of)
	}
	f := put(t, d, "bg_1", "")
	next("a start")
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil { // see end
		t.Fatal(err)
	}
	f.Close()
	next("a loss")
	f = put(t, d, "bg_2", "")
	next("a second start")
	end(t, d, "bg_2", f, 0, 0)
	for _, patience := range []time.Duration{20 * time.Second, 2 * time.Second} { // the end, and perhaps the lock's going
		select {
		case <-told.c:
		case <-time.After(patience):
		}
	}
	if err := d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobRemove, ID: "bg_2"}, nil); err != nil {
		t.Fatal(err)
	}
	next("a removal")
	before, err := d.summary()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Remove("bg_1"); err != nil {
		t.Fatal(err)
	}
	put(t, d, "bg_1", "").Close()
	if after, err := d.summary(); err != nil || after == before {
		t.Errorf("summary() = %q, %v with another job of the same id; want it to differ", after, err)
	}
}

func TestNewsWithoutNotifications(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := newNews(nil, unix.IN_MODIFY, dir+"/none")
	defer n.close()
	if n.f != nil {
		t.Fatal("a watch of nothing")
	}
	began := time.Now()
	if err := n.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < often/2 {
		t.Errorf("wait() returned after %s; want %s", d, often)
	}
	if err := os.WriteFile(dir+"/none", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.wait(t.Context()); err != nil || n.f == nil {
		t.Error("notifications are not asked for again")
	}
}
