package sink

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		if err := helpWriting(dir); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func writeAll(tb testing.TB, w io.Writer, text string) {
	tb.Helper()
	if n, err := io.WriteString(w, text); n != len(text) || err != nil {
		tb.Fatalf("Write(%d bytes) = %d, %v; want all, nil", len(text), n, err)
	}
}

// run sends text to stdout and returns what is kept.
func run(tb testing.TB, opts Options, text string) Output {
	tb.Helper()
	s, err := New(opts, nil, nil)
	if err != nil {
		tb.Fatal(err)
	}
	writeAll(tb, s.Stdout(), text)
	return s.Close()
}

func newTestStore(tb testing.TB, opts StoreOptions) *Store {
	tb.Helper()
	store, err := NewStore(tb.TempDir(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	return store
}

func sessionOf(tb testing.TB, store *Store, name string) *Session {
	tb.Helper()
	s, err := store.Session(name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func newTestSession(tb testing.TB) *Session {
	tb.Helper()
	return sessionOf(tb, newTestStore(tb, StoreOptions{}), "s1")
}

func mustSecrets(tb testing.TB, list ...Secret) *Secrets {
	tb.Helper()
	s, warnings, err := NewSecrets(list)
	if err != nil || len(warnings) > 0 {
		tb.Fatalf("NewSecrets() = %v, %v; want no warning, nil", warnings, err)
	}
	return s
}

func TestSplitStreams(t *testing.T) {
	t.Parallel()
	var live, liveErr bytes.Buffer
	session := newTestSession(t)
	s, err := New(Options{Artifact: Always, LiveStdout: &live, LiveStderr: &liveErr}, session, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, s.Stdout(), "out\x1b[1m!\n")
	writeAll(t, s.Stderr(), "err\r\n")
	o := s.Close()
	if o.Stdout.Head != "out!\n" || o.Stderr.Head != "err\n" {
		t.Errorf("text %q and %q; want out!, err", o.Stdout.Head, o.Stderr.Head)
	}
	if live.String() != "out\x1b[1m!\n" || liveErr.String() != "err\r\n" {
		t.Errorf("live %q and %q; want the bytes", live.String(), liveErr.String())
	}
	if o.Stdout.Bytes != 9 || o.Stderr.Bytes != 5 || o.Truncated() {
		t.Errorf("%d and %d bytes, truncated %v; want 9, 5, false", o.Stdout.Bytes, o.Stderr.Bytes, o.Truncated())
	}
	data, err := os.ReadFile(o.Artifact.Path)
	if want := "out\x1b[1m!\nerr\r\n"; string(data) != want || err != nil || !o.Artifact.Complete {
		t.Errorf("artifact %q, %v, %+v; want %q", data, err, o.Artifact, want)
	}
	if again := s.Close(); again.Stdout.Head != o.Stdout.Head {
		t.Errorf("second Close() = %+v; want the same", again)
	}
}

func TestMergedStreams(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Streams: Merged}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, s.Stdout(), "a")
	writeAll(t, s.Stderr(), "b")
	writeAll(t, s.Stdout(), "c")
	if o := s.Close(); o.Stdout.Head != "abc" || o.Stderr.Head != "" {
		t.Errorf("text %q and %q; want abc and none", o.Stdout.Head, o.Stderr.Head)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"negative limit":         {Limit: -1},
		"negative window":        {Window: Window{Tail: -1}},
		"merged with two writer": {Streams: Merged, LiveStderr: io.Discard},
	} {
		if _, err := New(o, nil, nil); err == nil {
			t.Errorf("%s: New(%+v) = nil; want an error", name, o)
		}
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	calls := 0
	session := newTestSession(t)
	s, err := New(Options{Limit: 10, OnLimit: func() { calls++ }, Artifact: Always}, session, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, s.Stdout(), "1234567")
	writeAll(t, s.Stderr(), "890")
	if calls != 0 {
		t.Fatalf("OnLimit was called at the limit; want it called beyond")
	}
	writeAll(t, s.Stdout(), "x")
	writeAll(t, s.Stdout(), "y")
	o := s.Close()
	if o.Stdout.Head != "1234567" || o.Stderr.Head != "890" || o.Stdout.Bytes != 9 {
		t.Errorf("kept %q and %q of %d bytes; want 10 bytes in all", o.Stdout.Head, o.Stderr.Head, o.Stdout.Bytes)
	}
	if calls != 1 || !o.LimitExceeded {
		t.Errorf("OnLimit called %d times, exceeded %v; want once, true", calls, o.LimitExceeded)
	}
	if a := o.Artifact; a.Complete || !strings.Contains(a.Cause, "limit of 10 bytes") || a.Bytes != 10 {
		t.Errorf("artifact %+v; want an incomplete one of 10 bytes", a)
	}
}

type brokenWriter struct{ calls int }

var errBroken = errors.New("broken pipe")

func (w *brokenWriter) Write([]byte) (int, error) {
	w.calls++
	return 0, errBroken
}

func TestLiveWriterThatFails(t *testing.T) {
	t.Parallel()
	w := &brokenWriter{}
	var other bytes.Buffer
	s, err := New(Options{LiveStdout: w, LiveStderr: &other}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		writeAll(t, s.Stdout(), "x")
		writeAll(t, s.Stderr(), "y")
	}
	o := s.Close()
	if w.calls != 1 || !errors.Is(o.Stdout.Live, errBroken) || o.Stderr.Live != nil {
		t.Errorf("%d calls, %v, %v; want one, broken pipe, nil", w.calls, o.Stdout.Live, o.Stderr.Live)
	}
	if o.Stdout.Head != "xxx" || other.String() != "yyy" {
		t.Errorf("kept %q, other stream %q; want xxx and yyy", o.Stdout.Head, other.String())
	}
}

func TestBinary(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want bool
	}{
		{"plain\ttext\n", false}, {"\x1b[1mé日😀", false}, {"a\x00b", true}, {"a\xffb", true}, {"end \xe2\x82", true},
	} {
		if got := run(t, Options{}, tt.in).Stdout.Binary; got != tt.want {
			t.Errorf("Binary of %q = %v; want %v", tt.in, got, tt.want)
		}
	}
}

// Both streams at once, in odd cuts, with secrets and an artifact: the artifact
// has each stream's bytes in order.
func TestConcurrentStreams(t *testing.T) {
	t.Parallel()
	secrets := mustSecrets(t, Secret{Name: "KEY", Value: "hunter2hunter2"})
	session := newTestSession(t)
	s, err := New(Options{Window: Tail(1000)}, session, secrets)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i, w := range []io.Writer{s.Stdout(), s.Stderr()} {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			text := strings.Repeat([]string{"O", "E"}[i]+"hunter2hunter2", 20000)
			for len(text) > 0 {
				n := min(len(text), 1+random.IntN(3000))
				writeAll(t, w, text[:n])
				text = text[n:]
			}
		})
	}
	wg.Wait()
	o := s.Close()
	data, err := os.ReadFile(o.Artifact.Path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "[REDACTED:KEY]"); n != 40000 {
		t.Errorf("%d masks in the artifact; want 40000", n)
	}
	if strings.Contains(string(data), "hunter2") {
		t.Error("the artifact has parts of the secret")
	}
}

// The artifact is the command's output to the last byte, at every size around
// the ones where something changes.
func TestTailIntegrity(t *testing.T) {
	t.Parallel()
	session := newTestSession(t)
	secrets := twentySecrets(t)
	random := rand.New(rand.NewPCG(9, 9))
	for _, size := range []int{
		DefaultWindow + 1, 64 << 10, 128<<10 + 1, minRawHead, minRawHead + 1, diskBuffer - 1, diskBuffer, diskBuffer + 1, 3 << 20, 9<<20 + 7,
	} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		s, err := New(Options{Streams: Merged, Artifact: Always}, session, secrets)
		if err != nil {
			t.Fatal(err)
		}
		sub := s.Subscribe() // reads nothing
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(benchChunk))
			writeAll(t, s.Stdout(), string(rest[:n]))
			rest = rest[n:]
		}
		o := s.Close()
		sub.Close()
		got, err := os.ReadFile(o.Artifact.Path)
		if err != nil {
			t.Fatal(err)
		}
		if sha256.Sum256(got) != sha256.Sum256(data) || !o.Artifact.Complete || o.Artifact.Bytes != int64(size) {
			t.Errorf("artifact of %d bytes differs from the output of %d: %+v", len(got), size, o.Artifact)
		}
		if o.Stdout.Bytes != int64(size) {
			t.Errorf("Bytes = %d; want %d", o.Stdout.Bytes, size)
		}
	}
}

// One line of 100 MB, and an escape sequence of 50 MB that never ends, in
// memory that does not grow with them.
func TestBoundedMemory(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Streams: Merged, Text: Text{Return: RewindReturn}}, nil, mustSecrets(t, Secret{Name: "K", Value: "not-in-there"}))
	if err != nil {
		t.Fatal(err)
	}
	chunk := strings.Repeat("x", 1<<20)
	for range 100 {
		writeAll(t, s.Stdout(), chunk)
	}
	writeAll(t, s.Stdout(), "\nEND\n")
	sequence := "\x1b]0;" + strings.Repeat("x", maxSequence-2)
	for range 50 << 8 {
		writeAll(t, s.Stdout(), sequence)
	}
	kept := cap(s.stdout.window.tail.buf) + cap(s.stdout.clean.buf) + cap(s.stdout.clean.line.text)
	if kept > 8<<20 {
		t.Errorf("the sink keeps %d bytes; want at most 8 MiB", kept)
	}
	o := s.Close()
	if o.Stdout.TextBytes != 100<<20+5 || o.Stdout.Lines != 3 || !strings.HasSuffix(o.Stdout.Head+o.Stdout.Tail, "xx\nEND\n") {
		t.Errorf("%d bytes of text in %d lines; want %d in 3", o.Stdout.TextBytes, o.Stdout.Lines, 100<<20+5)
	}
}

// releasable is a writer that blocks until it is released.
type releasable struct {
	over chan struct{}
	once sync.Once
	got  bytes.Buffer
}

func (r *releasable) Release() { r.once.Do(func() { close(r.over) }) }

func (r *releasable) Write(p []byte) (int, error) {
	<-r.over
	return r.got.Write(p)
}

// A live writer that can be asked to block no more is, and loses nothing.
func TestReleasedWriterGetsAll(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := &releasable{over: make(chan struct{})}
	s, err := New(Options{LiveStdout: w, Release: release}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	go close(release) // before or while something is written
	writeAll(t, s.Stdout(), "one ")
	writeAll(t, s.Stdout(), "two")
	if o := s.Close(); o.Stdout.Live != nil || w.got.String() != "one two" {
		t.Errorf("live %q, %v; want all", w.got.String(), o.Stdout.Live)
	}
}
