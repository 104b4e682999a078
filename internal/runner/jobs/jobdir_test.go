//go:build linux

package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

var key = []byte("a key of this test's own")

// put makes a job as its runner would, and returns the lock that keeps it alive.
func put(t *testing.T, d Dir, id, output string) *os.File {
	t.Helper()
	f, err := d.Create(JobSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(wire.JobStart{ID: id, Tag: id}.Seal(key)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Path(id+LogSuffix), []byte(output), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.Name(), d.Path(id+JobSuffix)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// end ends a job that put has made, some time ago.
func end(t *testing.T, d Dir, id string, f *os.File, ago time.Duration, kept uint64) {
	t.Helper()
	e := wire.JobEnd{ID: id, Tag: id, Clock: Clock() - ago, Written: kept, Kept: kept}
	if err := d.put(id+EndSuffix, e.Seal(key)); err != nil {
		t.Fatal(err)
	}
	// Closing is not enough: a process that another test is about to start may still
	// have the descriptor, and with it the lock that says that the job runs.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func states(t *testing.T, d Dir, keep wire.JobKeep) map[string]wire.JobState {
	t.Helper()
	var out bytes.Buffer
	if err := d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobList, Keep: keep}, &out); err != nil {
		t.Fatal(err)
	}
	all, err := wire.ParseJobStates(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]wire.JobState{}
	for _, s := range all {
		found[s.ID] = s
	}
	return found
}

var long = wire.JobKeep{Known: time.Hour, Unknown: time.Hour}

// The smallest id is taken that nothing uses any more, whatever is left of it.
func TestFree(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	for _, want := range []string{"bg_1", "bg_2", "bg_3"} {
		if got, err := d.Free(); got != want || err != nil {
			t.Fatalf("free() = %s, %v; want %s", got, err, want)
		}
		put(t, d, want, "")
	}
	if err := os.Remove(d.Path("bg_2" + JobSuffix)); err != nil {
		t.Fatal(err)
	}
	if got, _ := d.Free(); got != "bg_4" {
		t.Errorf("free() with a log of bg_2 = %s; want bg_4", got)
	}
	if err := d.Remove("bg_2"); err != nil {
		t.Fatal(err)
	}
	if got, _ := d.Free(); got != "bg_2" {
		t.Errorf("free() without bg_2 = %s; want bg_2", got)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	put(t, d, "bg_1", "running")
	end(t, d, "bg_2", put(t, d, "bg_2", "ended"), time.Minute, 5)
	// The end of bg_3 is not noted. For its lock see end.
	lost := put(t, d, "bg_3", "")
	if err := unix.Flock(int(lost.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	lost.Close()
	if err := d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobNote, ID: "bg_2", Known: true, Artifact: "7"}, nil); err != nil {
		t.Fatal(err)
	}
	all := states(t, d, long)
	if s := all["bg_1"]; !s.Alive || len(s.End) > 0 || s.Size != 7 || s.Known {
		t.Errorf("bg_1 is %+v; want it alive", s)
	}
	if s := all["bg_2"]; s.Alive || !s.Known || s.Artifact != "7" {
		t.Errorf("bg_2 is %+v; want it ended, known, with artifact 7", s)
	} else if e, err := wire.OpenJobEnd(key, s.End); err != nil || e.ID != "bg_2" {
		t.Errorf("bg_2 ended with %+v, %v", e, err)
	}
	if s := all["bg_3"]; s.Alive || len(s.End) > 0 || len(s.Start) == 0 {
		t.Errorf("bg_3 is %+v; want it lost", s)
	}
	if !d.exists("bg_3" + lostSuffix) {
		t.Error("no file says since when bg_3 is lost")
	}
}

// Jobs that have ended are forgotten when it is time, the known ones earlier. One
// that runs is never.
func TestTidy(t *testing.T) {
	t.Parallel()
	keep := wire.JobKeep{Known: 20 * time.Second, Unknown: time.Minute} // the machine may be young
	for _, row := range []struct {
		name  string
		ago   time.Duration // -1: it runs
		known time.Duration // 0: unknown
		want  bool
	}{
		{"runs", -1, 0, true},
		{"unknown, young", 10 * time.Second, 0, true},
		{"unknown, old", time.Minute, 0, false},
		{"known, young", time.Second, time.Second, true},
		{"known, old", 21 * time.Second, 21 * time.Second, false},
		{"known late", 40 * time.Second, time.Second, true},
	} {
		d := Dir(t.TempDir())
		f := put(t, d, "bg_1", "")
		if row.ago >= 0 {
			end(t, d, "bg_1", f, row.ago, 0)
		}
		if row.known > 0 {
			if err := d.put("bg_1"+knownSuffix, strconv.AppendInt(nil, int64(Clock()-row.known), 10)); err != nil {
				t.Fatal(err)
			}
		}
		if _, got := states(t, d, keep)["bg_1"]; got != row.want {
			t.Errorf("%s: it is there: %t; want %t", row.name, got, row.want)
		}
		if names, _ := d.names(); !row.want && slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "bg_") }) {
			t.Errorf("%s: %q is left", row.name, names)
		}
	}
}

func TestTidyLeavesHundred(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	for i := range maxEnded + 3 {
		id := fmt.Sprintf("bg_%d", i+1)
		end(t, d, id, put(t, d, id, ""), time.Duration(i)*100*time.Millisecond, 0)
	}
	all := states(t, d, long)
	if _, oldest := all[fmt.Sprintf("bg_%d", maxEnded+3)]; len(all) != maxEnded || oldest {
		t.Errorf("%d jobs are left, the oldest among them: %t; want %d without it", len(all), oldest, maxEnded)
	}
}

// What crashes leave is removed; what a runner is about to use is not.
func TestTidyCrashes(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	old := time.Now().Add(-2 * settleTime)
	held, err := d.Create(LogSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for _, name := range []string{ownPrefix + "7.end", "bg_4.log", "bg_5.end", "stranger"} {
		if err := os.WriteFile(d.Path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(d.Path(name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(held.Name(), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Path(ownPrefix+"8.end"), nil, 0o600); err != nil { // just made, not yet locked
		t.Fatal(err)
	}
	states(t, d, long)
	names, err := d.names()
	slices.Sort(names)
	want := []string{".lock", ownPrefix + "8.end", ownPrefix + strconv.Itoa(os.Getpid()) + LogSuffix, "stranger"}
	slices.Sort(want)
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("left are %q, %v; want %q", names, err, want)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	f := put(t, d, "bg_1", "x")
	if err := d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobRemove, ID: "bg_1"}, nil); err == nil {
		t.Error("a running job was removed")
	}
	end(t, d, "bg_1", f, 0, 1)
	if err := d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobRemove, ID: "bg_1"}, nil); err != nil {
		t.Errorf("remove: %v", err)
	}
	for _, id := range []string{"bg_1", "bg_2", "../x", ""} {
		if err := d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobRemove, ID: id}, nil); !errors.Is(err, errNoJob) {
			t.Errorf("remove %q: %v; want %v", id, err, errNoJob)
		}
	}
}

// The output ends where the command's does: what is appended behind it is not the
// command's.
func TestOutput(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	end(t, d, "bg_1", put(t, d, "bg_1", "0123456789\n\n[background process completed]\n"), 0, 10)
	for name, row := range map[string]struct {
		query wire.JobQuery
		want  string
	}{
		"all":           {wire.JobQuery{Verb: wire.JobRead}, "0123456789"},
		"from":          {wire.JobQuery{Verb: wire.JobRead, From: 4}, "456789"},
		"from behind":   {wire.JobQuery{Verb: wire.JobRead, From: 40}, ""},
		"tail":          {wire.JobQuery{Verb: wire.JobTail, From: 3}, "789"},
		"a longer tail": {wire.JobQuery{Verb: wire.JobTail, From: 1 << 40}, "0123456789"},
		"follow":        {wire.JobQuery{Verb: wire.JobFollow}, "0123456789"},
	} {
		var out bytes.Buffer
		row.query.ID = "bg_1"
		if err := d.Answer(t.Context(), row.query, &out); err != nil || out.String() != row.want {
			t.Errorf("%s: %q, %v; want %q", name, &out, err, row.want)
		}
	}
}

// A follower gets every byte as it comes, and ends with the job, also with one
// that is lost.
func TestFollow(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		d := Dir(t.TempDir())
		f := put(t, d, "bg_1", "one ")
		var out bytes.Buffer
		followed := make(chan error, 1)
		go func() { followed <- d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobFollow, ID: "bg_1"}, &out) }()
		log, err := os.OpenFile(d.Path("bg_1"+LogSuffix), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := "one "
		for i := range 200 {
			text := strconv.Itoa(i) + " "
			if _, err := log.WriteString(text); err != nil {
				t.Fatal(err)
			}
			want += text
		}
		if lost {
			f.Close()
		} else {
			end(t, d, "bg_1", f, 0, uint64(len(want)))
			if _, err := log.WriteString("\n\n[background process completed]\n"); err != nil {
				t.Fatal(err)
			}
		}
		log.Close()
		if err := <-followed; err != nil || out.String() != want {
			t.Errorf("lost %t: followed %q, %v; want %q", lost, &out, err, want)
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	f := put(t, d, "bg_1", "")
	waited := make(chan error, 1)
	go func() { waited <- d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobWait, ID: "bg_1"}, nil) }()
	select {
	case err := <-waited:
		t.Fatalf("wait returned %v while the job ran", err)
	case <-time.After(50 * time.Millisecond):
	}
	f.Close()
	if err := <-waited; err != nil {
		t.Errorf("wait: %v", err)
	}
}

// The end of its context ends each question that waits, and its turn goes to the next.
func TestAnswerCancelled(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	f := put(t, d, "bg_1", "")
	t.Cleanup(func() { f.Close() })
	holder := newTicks()
	go func() { _ = d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobWatch, Watch: "held"}, holder) }()
	<-holder.c
	for name, q := range map[string]wire.JobQuery{
		"wait":             {Verb: wire.JobWait, ID: "bg_1"},
		"follow":           {Verb: wire.JobFollow, ID: "bg_1"},
		"watch":            {Verb: wire.JobWatch, Watch: "w"},
		"watch, in a line": {Verb: wire.JobWatch, Watch: "held"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			answered := make(chan error, 1)
			go func() { answered <- d.Answer(ctx, q, io.Discard) }()
			select {
			case err := <-answered:
				t.Fatalf("Answer() = %v at once; want it to wait", err)
			case <-time.After(20 * time.Millisecond):
			}
			why := errors.New("enough")
			cancel(why)
			if err := <-answered; !errors.Is(err, why) {
				t.Errorf("Answer() = %v; want %v", err, why)
			}
		})
	}
}

// A watch tells that it has begun, and that something has happened; one at a time
// of a name.
func TestWatch(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	first, second := newTicks(), newTicks()
	watched := make(chan error, 1)
	go func() { watched <- d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobWatch, Watch: "w"}, first) }()
	<-first.c
	f := put(t, d, "bg_1", "")
	<-first.c
	go func() { _ = d.Answer(t.Context(), wire.JobQuery{Verb: wire.JobWatch, Watch: "w"}, second) }()
	select {
	case <-second.c:
		t.Fatal("two watches of one name at once")
	case <-time.After(50 * time.Millisecond):
	}
	first.closed.Store(true) // its next write fails
	end(t, d, "bg_1", f, 0, 0)
	if err := <-watched; err == nil {
		t.Error("the watch ended without an error; want that of its writer")
	}
	<-second.c
	second.closed.Store(true)
	put(t, d, "bg_2", "") // ends the second
}

// ticks is a writer that passes on that something was written, and fails once it
// is closed.
type ticks struct {
	c      chan struct{}
	closed atomic.Bool
}

func newTicks() *ticks { return &ticks{c: make(chan struct{}, 10)} }

func (t *ticks) Write(p []byte) (int, error) {
	if t.closed.Load() {
		return 0, os.ErrClosed
	}
	t.c <- struct{}{}
	return len(p), nil
}
