package journal

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// outputOf joins what the journal has of a stream, and counts what is left out.
func outputOf(list []Record, stream Stream) (kept []byte, skipped int64) {
	for _, r := range list {
		if r.Kind == Output && r.Stream == stream {
			skipped += r.Skipped
			kept = append(kept, r.Data...)
		}
	}
	return kept, skipped
}

// Up to its limit output is kept whole. Of more there are samples and the end, and every byte is kept or counted.
func TestFlood(t *testing.T) {
	t.Parallel()
	for _, total := range []int{0, 1, 1000, 64 << 10, 64<<10 + 1, 80 << 10, 1 << 20, 8 << 20} {
		for _, piece := range []int{100, 4 << 10, 128 << 10} {
			if total/piece > 20_000 {
				continue
			}
			dir := t.TempDir()
			w := NewWriter(dir, Options{Output: 64 << 10, Failed: func(err error) { t.Error(err) }})
			id := newID(t)
			w.Put(session, Record{Kind: Start, ID: id}, nil)
			line := []byte("0123456789abcde\n")
			all1 := bytes.Repeat(line, total/16+1)[:total]
			for rest := all1; len(rest) > 0; {
				n := min(piece, len(rest))
				w.Output(session, id, Stdout, rest[:n])
				rest = rest[n:]
			}
			w.Put(session, Record{Kind: End, ID: id}, nil)
			w.Close()
			list := all(t, reader(t, dir))
			kept, skipped := outputOf(list, Stdout)
			if len(kept)+int(skipped) != total {
				t.Errorf("%d bytes in pieces of %d: %d kept and %d skipped", total, piece, len(kept), skipped)
			}
			if total <= 64<<10 && (skipped != 0 || !bytes.Equal(kept, all1)) {
				t.Errorf("%d bytes in pieces of %d: %d skipped; want all", total, piece, skipped)
			}
			if most := 64<<10 + tailSize + 100*sampleSize; len(kept) > most {
				t.Errorf("%d bytes in pieces of %d: %d kept; want %d at most", total, piece, len(kept), most)
			}
			end := all1[max(0, total-tailSize):]
			if total > 64<<10+tailSize && !bytes.HasSuffix(kept, end[len(end)/2:]) {
				t.Errorf("%d bytes in pieces of %d: the end is missing", total, piece)
			}
			if list[len(list)-1].Kind != End {
				t.Errorf("the last record is %s; want the end", list[len(list)-1].Kind)
			}
		}
	}
}

// The streams of a command share its limit, and what is left out is counted by stream.
func TestFloodStreams(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := NewWriter(dir, Options{Output: 1 << 10})
	w.Output(session, "a", Stdout, bytes.Repeat([]byte("o"), 1<<10))
	w.Output(session, "a", Stderr, []byte("the error"))
	w.Output(session, "b", Stdout, []byte("another command"))
	w.Put(session, Record{Kind: End, ID: "a"}, nil)
	w.Close()
	list := all(t, reader(t, dir))
	if kept, skipped := outputOf(list, Stderr); string(kept) != "the error" || skipped != 0 {
		t.Errorf("standard error: %q and %d skipped; want it all, as the end", kept, skipped)
	}
	if !strings.HasSuffix(kinds(list), "end") {
		t.Errorf("records: %s", kinds(list))
	}
}

// Samples of a flood come while it lasts, and a silence after it shows its last lines.
func TestSamples(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewWriter(t.TempDir(), Options{Output: 1})
		w.mu.Lock()
		w.running = true // this test is its goroutine
		w.mu.Unlock()
		w.Output(session, "a", Stdout, bytes.Repeat([]byte("line\n"), 10_000))
		w.sample(time.Now())
		if n := len(w.queue); n != 1 || w.queue[0].r.Skipped+int64(len(w.queue[0].r.Data)) != 50_000 || !bytes.HasPrefix(w.queue[0].r.Data, []byte("line\n")) {
			t.Fatalf("%d records, the first %+v; want a sample that begins with a line", n, w.queue)
		}
		w.Output(session, "a", Stdout, []byte("soon\n"))
		w.sample(time.Now())
		if len(w.queue) != 1 {
			t.Fatalf("%d records; want no sample so soon", len(w.queue))
		}
		if !w.sampling() {
			t.Error("sampling() = false; want true while output waits")
		}
		time.Sleep(sampleTime)
		w.sample(time.Now())
		if len(w.queue) != 2 || string(w.queue[1].r.Data) != "soon\n" || w.queue[1].r.Skipped != 0 {
			t.Fatalf("records %+v; want what has come since", w.queue)
		}
		if w.sampling() {
			t.Error("sampling() = true; want false when nothing waits")
		}
	})
}

// A queue that is full drops, never waits, and the journal says how much is missing.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := NewWriter(dir, Options{Queue: 16 << 10, Output: 1 << 30})
	w.mu.Lock()
	w.running = true // nothing writes
	w.mu.Unlock()
	const starts, pieces = 100, 1000
	for range pieces {
		w.Output(session, "a", Stdout, bytes.Repeat([]byte("x"), 1<<10))
	}
	for range starts {
		w.Put(session, Record{Kind: Start, ID: "x"}, nil)
	}
	if w.bytes > 24<<10 {
		t.Errorf("%d bytes wait; want less", w.bytes)
	}
	w.flush()
	w.Put(session, Record{Kind: End, ID: "a"}, nil)
	w.flush()
	var state State
	got := 0
	list := all(t, reader(t, dir))
	for _, r := range list {
		state.Add(r)
		if r.Kind == Start {
			got++
		}
	}
	if got == 0 || int(state.Missing)+got != starts {
		t.Errorf("%d starts and %d missing; want %d in all", got, state.Missing, starts)
	}
	if kept, skipped := outputOf(list, Stdout); len(kept)+int(skipped) != pieces<<10 {
		t.Errorf("%d bytes kept and %d skipped; want %d in all", len(kept), skipped, pieces<<10)
	}
}
