package sink

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestUpdatesAreCoalesced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Streams: Merged}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		sub, silent, dead := s.Subscribe(), s.Subscribe(), s.Subscribe()
		dead.Close()
		dead.Close()
		type seen struct {
			at     time.Duration
			update Update
		}
		var got []seen
		done := make(chan struct{})
		begin := time.Now()
		go func() {
			defer close(done)
			for u := range sub.Updates() {
				got = append(got, seen{time.Since(begin), u})
			}
		}()
		const writes, every = 1000, time.Millisecond
		for range writes {
			writeAll(t, s.Stdout(), "x")
			time.Sleep(every)
		}
		writeAll(t, s.Stdout(), "end")
		s.Close()
		<-done
		if most := int(writes*every/updateEvery) + 2; len(got) > most || len(got) < most/2 {
			t.Errorf("%d updates in a second; want at most %d and not much less", len(got), most)
		}
		for i := 1; i < len(got)-1; i++ {
			if d := got[i].at - got[i-1].at; d < updateEvery {
				t.Errorf("updates %d and %d are %v apart; want at least %v", i-1, i, d, updateEvery)
			}
			if !strings.HasPrefix(got[i].update.Stdout, got[i-1].update.Stdout) {
				t.Errorf("update %d takes something back", i)
			}
		}
		want := Update{Stdout: strings.Repeat("x", writes) + "end", Bytes: writes + 3}
		if last := got[len(got)-1].update; last != want {
			t.Errorf("the last update has %d bytes; want %d", len(last.Stdout), len(want.Stdout))
		}
		// Who never read has the last one waiting, and nothing else.
		if u, ok := <-silent.Updates(); !ok || u != want {
			t.Errorf("the silent subscriber got %d bytes; want %d", len(u.Stdout), len(want.Stdout))
		}
		if _, ok := <-silent.Updates(); ok {
			t.Error("the silent subscriber got more than the last update")
		}
		if u := <-s.Subscribe().Updates(); u != want {
			t.Errorf("a late subscriber got %d bytes; want %d", len(u.Stdout), len(want.Stdout))
		}
	})
}

func TestUpdatesShowTheLineInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{Text: Text{Return: RewindReturn}}, nil, mustSecrets(t, Secret{Name: "A", Value: "hunter2hunter2"}))
		if err != nil {
			t.Fatal(err)
		}
		sub := s.Subscribe()
		writeAll(t, s.Stdout(), "done\n10% hunter2hunter2 \r20% hun\x1b[mter2hunter2 ")
		writeAll(t, s.Stderr(), "warning\n")
		synctest.Wait()
		time.Sleep(updateEvery)
		synctest.Wait()
		u := <-sub.Updates()
		if u.Stdout != "done\n20% [REDACTED:A] " || u.Stderr != "warning\n" {
			t.Errorf("update %+v; want the line in progress", u)
		}
		s.Close()
	})
}

// A live writer that takes its time holds up its stream, and nothing else.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s, err := New(Options{LiveStdout: gatedWriter(gate)}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan struct{})
		go func() {
			defer close(written)
			writeAll(t, s.Stdout(), "slow")
		}()
		synctest.Wait()
		sub := s.Subscribe()
		writeAll(t, s.Stderr(), "quick")
		synctest.Wait()
		time.Sleep(updateEvery)
		synctest.Wait()
		if u := <-sub.Updates(); u.Stderr != "quick" || u.Stdout != "" {
			t.Errorf("update %+v; want stderr and not yet stdout", u)
		}
		select {
		case <-written:
			t.Error("the slow writer held up nothing")
		default:
		}
		close(gate)
		<-written
		if o := s.Close(); o.Stdout.Head != "slow" {
			t.Errorf("stdout %q; want slow", o.Stdout.Head)
		}
	})
}

type gatedWriter chan struct{}

func (w gatedWriter) Write(p []byte) (int, error) {
	<-w
	return len(p), nil
}
