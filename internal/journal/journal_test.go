package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

const session = "0193e2b0-1111-7000-8000-000000000001"

// newID is an id as commands have it.
func newID(t *testing.T) string {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	return id.String()
}

// all reads what there is.
func all(t *testing.T, r *Reader) (list []Record) {
	t.Helper()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rec)
	}
}

func reader(t *testing.T, dir string) *Reader {
	t.Helper()
	r, err := Open(dir).Reader(session)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func kinds(list []Record) string {
	var words []string
	for _, r := range list {
		words = append(words, string(r.Kind))
	}
	return strings.Join(words, " ")
}

// What is put is read again, in order, as it was.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	w := NewWriter(dir, Options{Writer: func() string { return "host/1/2" }, Failed: func(err error) { t.Error(err) }})
	id, code := newID(t), 3
	w.Describe(session, func() Session { return Session{Name: "web", Image: "debian"} })
	w.Put(session, Record{Kind: Start, ID: id, Mode: "command"}, func(r *Record) { r.Command, r.Size = "echo hi", 7 })
	w.Output(session, id, Stdout, []byte("hi\x1e\n"))
	w.Output(session, id, Stderr, []byte("bad\xff"))
	w.Output(session, "odd id", Terminal, []byte("\x1b[1m"))
	w.Put(session, Record{Kind: End, ID: id, Reason: "exited", Code: &code}, nil)
	w.Close()
	w.Put(session, Record{Kind: SessionStop}, nil) // does nothing

	got := all(t, reader(t, dir))
	for i := range got {
		if got[i].Time.IsZero() || got[i].Session != session {
			t.Errorf("record %d: time %v, session %q", i, got[i].Time, got[i].Session)
		}
		got[i].Time, got[i].Session = time.Time{}, ""
	}
	want := []Record{
		{Kind: Start, ID: id, Mode: "command", Writer: "host/1/2", Command: "echo hi", Size: 7},
		{Kind: Output, ID: id, Stream: Stdout, Data: []byte("hi\x1e\n")},
		{Kind: Output, ID: id, Stream: Stderr, Data: []byte("bad\xff")},
		{Kind: Output, ID: "odd id", Stream: Terminal, Data: []byte("\x1b[1m")},
		{Kind: End, ID: id, Reason: "exited", Code: &code},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	s, err := Open(dir).Session(session)
	if err != nil || s.Name != "web" || s.Image != "debian" || s.ID != session || s.Bytes == 0 || s.Modified.IsZero() {
		t.Errorf("Session() = %+v, %v", s, err)
	}
	list, err := Open(dir).Sessions()
	if err != nil || len(list) != 1 || list[0].ID != session {
		t.Errorf("Sessions() = %+v, %v; want the one", list, err)
	}
}

// Every file and directory is this user's alone.
func TestModes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "journal")
	w := NewWriter(dir, Options{})
	w.Describe(session, func() Session { return Session{Name: "x"} })
	w.Put(session, Record{Kind: SessionStart}, nil)
	w.Close()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNoJournal(t *testing.T) {
	t.Parallel()
	d := Open(filepath.Join(t.TempDir(), "none"))
	if list, err := d.Sessions(); list != nil || err != nil {
		t.Errorf("Sessions() = %v, %v; want none", list, err)
	}
	for _, id := range []string{session, "", "..", "a/b", strings.Repeat("x", 200)} {
		if _, err := d.Reader(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Reader(%q) = %v; want that it does not exist", id, err)
		}
		if _, err := d.Session(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Session(%q) = %v; want that it does not exist", id, err)
		}
	}
	w := NewWriter(d.Path(), Options{})
	w.Put("../x", Record{Kind: Start}, nil)
	w.Output("..", "x", Stdout, []byte("x"))
	w.Close()
	if _, err := os.Lstat(d.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a session that cannot be a name has made files: %v", err)
	}
}

// Several writers append to one journal, and no record is lost or broken. A follower sees all.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const writers, each = 8, 200
	done := make(chan struct{})
	go func() {
		defer close(done)
		var ws []*Writer
		for range writers { // as many processes do: none knows of another
			ws = append(ws, NewWriter(dir, Options{SegmentBytes: 8 << 10, SessionBytes: 64 << 20}))
		}
		for i := range each {
			for n, w := range ws {
				w.Put(session, Record{Kind: Start, ID: fmt.Sprintf("%d-%d", n, i)}, nil)
			}
			if i%20 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		for _, w := range ws {
			w.Close()
		}
	}()
	seen := map[string]int{}
	next := make([]int, writers)
	var r *Reader
	for over := false; ; {
		select {
		case <-done:
			over = true
		default:
		}
		if r == nil {
			var err error
			if r, err = Open(dir).Reader(session); err != nil {
				continue
			}
		}
		for _, rec := range all(t, r) {
			if rec.Kind != Start {
				t.Fatalf("a record %+v", rec)
			}
			seen[rec.ID]++
			var n, i int
			if _, err := fmt.Sscanf(rec.ID, "%d-%d", &n, &i); err != nil || i != next[n] {
				t.Fatalf("record %s; want number %d of its writer", rec.ID, next[n])
			}
			next[n]++
		}
		if over {
			break
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if len(seen) != writers*each {
		t.Errorf("%d records; want %d", len(seen), writers*each)
	}
	numbers, err := filepath.Glob(filepath.Join(dir, session, "*.journal"))
	if err != nil || len(numbers) < 3 {
		t.Errorf("segments %v, %v; want several", numbers, err)
	}
}

// A frame that a killed writer has left is removed by the next writer, which says so, and readers see no part of it.
func TestTornFrame(t *testing.T) {
	t.Parallel()
	whole, err := appendRecord(nil, &Record{Kind: Denied, Command: "torn", Time: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < len(whole); cut += 7 {
		dir := t.TempDir()
		put := func(kind Kind) {
			w := NewWriter(dir, Options{Failed: func(err error) { t.Error(err) }})
			w.Put(session, Record{Kind: kind}, nil)
			w.Close()
		}
		put(SessionStart)
		name := filepath.Join(dir, session, segmentFile(1))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		// One that was written without a note of it, and a part of the next.
		if _, err := f.Write(append(bytes.Clone(whole), whole[:cut]...)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		r := reader(t, dir)
		if got := kinds(all(t, r)); got != "session-start denied" {
			t.Fatalf("cut %d: before the next writer: %s", cut, got)
		}
		put(SessionStop)
		got := all(t, r) // the same reader goes on
		if kinds(got) != "torn session-stop" || got[0].Bytes != int64(cut) {
			t.Fatalf("cut %d: after the next writer: %s, %+v", cut, kinds(got), got)
		}
		if got := kinds(all(t, reader(t, dir))); got != "session-start denied torn session-stop" {
			t.Fatalf("cut %d: read again: %s", cut, got)
		}
	}
}

// What the disk has damaged is skipped to the end of its segment, and said.
func TestDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := NewWriter(dir, Options{SegmentBytes: 1, SessionBytes: 1 << 20}) // a segment for each batch
	for _, kind := range []Kind{SessionStart, Denied, SessionStop} {
		w.Put(session, Record{Kind: kind}, nil)
		w.Put(session, Record{Kind: Checkpoint}, nil)
		waitEmpty(t, w)
	}
	w.Close()
	name := filepath.Join(dir, session, segmentFile(2))
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[12] ^= 0x40
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	got := all(t, reader(t, dir))
	if kinds(got) != "session-start checkpoint torn session-stop checkpoint" || got[2].Bytes != int64(len(b)) {
		t.Errorf("records: %s, %+v", kinds(got), got)
	}
}

// waitEmpty waits until a writer has nothing to write.
func waitEmpty(t *testing.T, w *Writer) {
	t.Helper()
	for range 5000 {
		w.mu.Lock()
		n := len(w.queue)
		w.mu.Unlock()
		if n == 0 {
			time.Sleep(2 * batchTime) // the batch that was taken is written
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the queue is never written")
}

// The oldest segments go at the size limit; a Reader says so, whether it begins then or was reading.
func TestRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{SessionBytes: 80 << 10, SegmentBytes: 10 << 10, Failed: func(err error) { t.Error(err) }}
	a := &appender{session: session, opts: &o}
	o = o.withDefaults()
	put := func(n int) {
		frame, err := appendRecord(nil, &Record{Kind: Start, ID: fmt.Sprint(n), Command: strings.Repeat("x", 4<<10)})
		if err == nil {
			err = a.append(dir, nil, frame)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	slow := reader(t, dir)
	if got := kinds(all(t, slow)); got != "start" {
		t.Fatal(got)
	}
	for n := 1; n < 100; n++ {
		put(n)
	}
	a.close()
	s, err := Open(dir).Session(session)
	if err != nil || s.Bytes > o.SessionBytes+8<<10 || s.Bytes < o.SessionBytes/2 {
		t.Errorf("the journal has %d bytes, %v; want near %d", s.Bytes, err, o.SessionBytes)
	}
	for name, r := range map[string]*Reader{"new": reader(t, dir), "slow": slow} {
		got := all(t, r)
		i := slices.IndexFunc(got, func(r Record) bool { return r.Kind == Cut })
		if i < 0 || name == "new" && i != 0 || got[len(got)-1].ID != "99" {
			t.Errorf("%s reader: a cut at %d, last %+v", name, i, got[len(got)-1].ID)
		}
	}
	tail, err := Open(dir).Tail(session, 25<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close() //nolint:errcheck // it was only read
	if got := all(t, tail); len(got) < 6 || len(got) > 12 || got[0].Kind != Start || got[len(got)-1].ID != "99" {
		t.Errorf("Tail() returns %d records: %s", len(got), kinds(got))
	}
}

// The directory may be removed while a writer has it open: it makes it again.
func TestRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := NewWriter(dir, Options{Failed: func(err error) { t.Error(err) }})
	w.Put(session, Record{Kind: SessionStart}, nil)
	waitEmpty(t, w)
	if err := os.RemoveAll(filepath.Join(dir, session)); err != nil {
		t.Fatal(err)
	}
	w.Put(session, Record{Kind: SessionStop}, nil)
	w.Close()
	if got := kinds(all(t, reader(t, dir))); got != "session-stop" {
		t.Errorf("records: %s; want the later one", got)
	}
}

// FuzzFrame: any bytes are a frame, the start of one, or damaged, and what is parsed is written as it was.
func FuzzFrame(f *testing.F) {
	for _, r := range []Record{
		{Kind: Start, ID: "a", Command: "echo"},
		{Kind: Output, ID: session, Stream: Stdout, Data: []byte("x"), Time: time.UnixMicro(5)},
		{Kind: Output, ID: "text", Stream: Terminal, Skipped: 7, Time: time.UnixMicro(1 << 50)},
	} {
		b, err := appendRecord(nil, &r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, body, size, err := splitFrame(b)
		if err != nil {
			if errors.Is(err, errPart) == errors.Is(err, errDamaged) {
				t.Errorf("splitFrame(%q) = %v", b, err)
			}
			return
		}
		if size > len(b) || !bytes.HasSuffix(b[:size], body) {
			t.Errorf("splitFrame(%q) = %q, %d", b, body, size)
		}
		r, ok := parseBody(kind, body)
		if !ok || kind != typeOutput {
			return
		}
		again, ok := parseBody(typeOutput, outputBody(&r))
		if diff := cmp.Diff(r, again); !ok || diff != "" {
			t.Errorf("parseOutput(%q), written again: %v\n%s", body, ok, diff)
		}
	})
}
