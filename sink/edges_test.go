package sink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestFormatBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0B", 1: "1B", 1023: "1023B", 1024: "1.0KB", 1536: "1.5KB", 50 << 10: "50.0KB", 1 << 20: "1.0MB", 3 << 29: "1.5GB", 1 << 40: "1024.0GB",
	} {
		if got := FormatBytes(n); got != want {
			t.Errorf("FormatBytes(%d) = %s; want %s", n, got, want)
		}
	}
}

// What a window shows, with what it says that it has elided, is the whole text, for every
// size of the window and of the writes.
func TestWindowAccounts(t *testing.T) {
	t.Parallel()
	const text = "one\ntwo\nä漢👍\n\nlast line"
	for head := range len(text) + 3 {
		for tail := range len(text) + 3 {
			for _, n := range []int{1, 5, len(text)} {
				w := newWindow(HeadTail(head, tail))
				for part := range slices.Chunk([]byte(text), n) {
					w.write(part)
				}
				h, e, cut := w.view()
				if cut == nil {
					if h != text || e != "" {
						t.Fatalf("HeadTail(%d, %d) shows %q and %q without a truncation", head, tail, h, e)
					}
					continue
				}
				switch {
				case !strings.HasPrefix(text, h) || !strings.HasSuffix(text, e) || !utf8.ValidString(h) || !utf8.ValidString(e):
					t.Fatalf("HeadTail(%d, %d) shows %q and %q of %q", head, tail, h, e, text)
				case len(h) > head || len(e) > tail || len(h)+utf8.UTFMax <= head || len(e)+utf8.UTFMax <= tail:
					t.Fatalf("HeadTail(%d, %d) shows %d and %d bytes", head, tail, len(h), len(e))
				case cut.OutputBytes+cut.ElidedBytes != int64(len(text)) || cut.OutputBytes != int64(len(h)+len(e)):
					t.Fatalf("HeadTail(%d, %d) counts %+v", head, tail, cut)
				case strings.Count(text[len(h):len(text)-len(e)], "\n") != int(cut.ElidedLines):
					t.Fatalf("HeadTail(%d, %d) says that %d line ends are elided of %q", head, tail, cut.ElidedLines, text[len(h):len(text)-len(e)])
				}
			}
		}
	}
}

// A text that is read in parts is whole, as long as the window holds it.
func TestTextFromInParts(t *testing.T) {
	t.Parallel()
	const text = "first\nsecond ä漢\nthird\n"
	s, err := New(Options{Streams: Merged}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	var at int64
	for i := range len(text) {
		writeAll(t, s.Stdout(), text[i:i+1])
		part, begin := s.TextFrom(at)
		if begin != at {
			t.Fatalf("TextFrom(%d) begins at %d; nothing was lost", at, begin)
		}
		got.WriteString(part)
		at += int64(len(part))
	}
	s.Close()
	part, _ := s.TextFrom(at)
	if got.WriteString(part); got.String() != text {
		t.Errorf("in parts it is %q; want %q", got.String(), text)
	}
	for _, from := range []int64{-5, 0, int64(len(text)), int64(len(text)) + 5} {
		part, begin := s.TextFrom(from)
		if want := text[min(max(from, 0), int64(len(text))):]; part != want || begin != int64(len(text)-len(want)) {
			t.Errorf("TextFrom(%d) = %q at %d; want %q", from, part, begin, want)
		}
	}
}

// An escape sequence hides nothing but itself, wherever the stream is cut and whatever the
// sequence is.
func TestSequencesAtEachCut(t *testing.T) {
	t.Parallel()
	for _, sequence := range []string{
		"\x1b[1;31m", "\x1b[38:2::1:2:3m", "\x1b[?25l", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x1bPq#0\x1b\\", "\x1b_apc\x1b\\", "\x1b^pm\x1b\\", "\x1bXsos\x1b\\",
		"\x1b7", "\x1b(0", "\x1bc", "\u009b31m", "\u009d0;t\x07", "\x1b[1\x18", "\x1b]t\x1a", "\x1b[\x1b[m", "\r", "\x00", "\x7f", "\x1b\x1b[m",
	} {
		in := "a" + sequence + "ä"
		for cut := range len(in) {
			var b strings.Builder
			w := NewSafeText(&b, Text{}, nil)
			_, err := io.WriteString(w, in[:cut])
			if _, err2 := io.WriteString(w, in[cut:]); errors.Join(err, err2, w.Close()) != nil {
				t.Fatal(err, err2)
			}
			if b.String() != "aä" {
				t.Errorf("%q cut at %d shows %q; want aä", in, cut, b.String())
			}
		}
	}
}

// A sequence without an end hides a bounded part of the output, and no further line.
func TestSequencesWithoutEnd(t *testing.T) {
	t.Parallel()
	for _, begin := range []string{"\x1b[", "\x1b]", "\x1bP", "\x1b_", "\x1b^", "\x1bX"} {
		if got := cleaned(Text{}, begin+"1;2\nnext line\n", 3); !strings.HasSuffix(got, "next line\n") {
			t.Errorf("%q hides the next line: %q", begin, got)
		}
		long := cleaned(Text{}, begin+strings.Repeat("1", 3*maxSequence), 1000)
		if hidden := 3*maxSequence - len(long); hidden > maxSequence+1 {
			t.Errorf("%q hides %d bytes; want at most %d", begin, hidden, maxSequence)
		}
	}
}

// All bytes of a stream reach the live writer and the artifact as they were written, and
// none of a secret does.
func TestEveryBytePassed(t *testing.T) {
	t.Parallel()
	var all []byte
	for b := range 256 {
		all = append(all, byte(b), byte(255-b))
	}
	all = append(all, "\x1b[31mhunter2hunter2\x1b[m"...)
	want := strings.ReplaceAll(string(all), "hunter2hunter2", "[REDACTED:A]")
	for _, n := range []int{1, 3, 100, len(all)} {
		store := newTestStore(t, StoreOptions{})
		var live bytes.Buffer
		s, err := New(Options{Streams: Merged, Artifact: Always, LiveStdout: &live}, sessionOf(t, store, "s1"), mustSecrets(t, Secret{Name: "A", Value: "hunter2hunter2"}))
		if err != nil {
			t.Fatal(err)
		}
		for part := range slices.Chunk(all, n) {
			writeAll(t, s.Stdout(), string(part))
		}
		o := s.Close()
		if live.String() != want || o.Masked != 1 || !o.Stdout.Binary {
			t.Errorf("in writes of %d the live writer got %q; want %q", n, live.String(), want)
		}
		a, err := store.Open("s1", o.Artifact.ID)
		if err != nil {
			t.Fatal(err)
		}
		var stored bytes.Buffer
		if err := errors.Join(a.CopyBytes(&stored, 0, -1), a.Close()); err != nil || stored.String() != want {
			t.Errorf("in writes of %d the artifact has %q, %v; want %q", n, stored.String(), err, want)
		}
	}
}

// Ranges of an artifact at its edges.
func TestRangesOfArtifacts(t *testing.T) {
	t.Parallel()
	const text = "one\ntwo\r\n\nfour"
	store := newTestStore(t, StoreOptions{})
	kept := keep(t, sessionOf(t, store, "s1"), text)
	a, err := store.Open("s1", kept.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // read only
	for _, tt := range []struct {
		from, to     int64
		bytes, lines string
	}{
		{0, 0, "", text},
		{0, -1, text, text},
		{1, 3, "ne", "one\ntwo\r\n\n"},
		{2, 2, "", "two\r\n"},
		{3, 3, "", "\n"},
		{4, 4, "", "four"},
		{5, 4, "", ""},
		{14, 20, "", ""},
		{13, 99, "r", ""},
		{99, -1, "", ""},
	} {
		var b, l strings.Builder
		if err := a.CopyBytes(&b, tt.from, tt.to); err != nil || b.String() != tt.bytes {
			t.Errorf("CopyBytes(%d, %d) = %q, %v; want %q", tt.from, tt.to, b.String(), err, tt.bytes)
		}
		if err := a.CopyLines(&l, tt.from, tt.to); err != nil || l.String() != tt.lines {
			t.Errorf("CopyLines(%d, %d) = %q, %v; want %q", tt.from, tt.to, l.String(), err, tt.lines)
		}
	}
	for pattern, want := range map[string]string{"^": "1 one|2 two|3 |4 four", "o$": "2 two", "^$": "3 ", "r": "4 four", "x": "", "\n": ""} {
		var found []string
		if err := a.Grep(regexp.MustCompile(pattern), func(line int64, text []byte) error {
			found = append(found, fmt.Sprintf("%d %s", line, text))
			return nil
		}); err != nil || strings.Join(found, "|") != want {
			t.Errorf("Grep(%q) = %q, %v; want %q", pattern, found, err, want)
		}
	}
	mine := errors.New("enough")
	if err := a.Grep(regexp.MustCompile("o"), func(int64, []byte) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("Grep() = %v; want its caller's error", err)
	}
	calls := 0
	if err := a.Grep(regexp.MustCompile("o"), func(int64, []byte) error { calls++; return io.EOF }); err != nil || calls != 1 {
		t.Errorf("Grep() that is ended = %v after %d calls; want nil after one", err, calls)
	}
}

// A subscription ends with the last state, however it came about.
func TestSubscriptionsEnd(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Streams: Merged}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	early, left := s.Subscribe(), s.Subscribe()
	writeAll(t, s.Stdout(), "out\n")
	left.Close()
	left.Close()
	s.Close()
	late := s.Subscribe()
	for name, sub := range map[string]*Subscription{"early": early, "late": late} {
		var last Update
		n := 0
		for deadline := time.After(20 * time.Second); ; n++ {
			select {
			case u, ok := <-sub.Updates():
				if ok {
					last = u
					continue
				}
			case <-deadline:
				t.Fatalf("the %s subscription does not end", name)
			}
			break
		}
		if last.Stdout != "out\n" || last.Bytes != 4 || n == 0 {
			t.Errorf("the %s subscription ends with %+v after %d updates; want the whole output", name, last, n)
		}
		sub.Close()
	}
	for u := range left.Updates() { // it was closed
		if u.Bytes > 4 {
			t.Errorf("a closed subscription gets %+v", u)
		}
	}
}

// Names of variables become names in masks, and passwords are found in URLs.
func TestNamesAndPasswords(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"A_B-C.d9": "A_B-C.d9", "a b": "a_b", "ä]": "__", "": "", strings.Repeat("x", 200): strings.Repeat("x", 128)} {
		if got := maskName(name); got != want {
			t.Errorf("maskName(%q) = %q; want %q", name, got, want)
		}
	}
	for url, want := range map[string]string{
		"postgres://me:pass@host/db": "pass", "https://me@host": "", "https://host/a:b@c": "", "me:pass@host": "", "x://:only@": "only",
		"x://me:a@b@host": "a@b", "x://me:a:b@host": "a:b", "x://me:pass@host:5432": "pass", "://": "", "": "",
	} {
		if got := strings.Join(urlCredentials("X", url), " "); got != want {
			t.Errorf("urlCredentials(X, %q) = %q; want %q", url, got, want)
		}
	}
	for url, want := range map[string]string{
		"http://token@host": "token", "http://token:@host:1": "token", "token@host": "token", "me:pass@host": "pass", "http://me:pass@host": "pass",
		"http://me:p%20w@host": "p%20w p w", "http://me:p%zz@host": "p%zz", "http://host": "", "localhost,.example": "", "": "",
	} {
		for _, name := range []string{"HTTPS_PROXY", "http_proxy", "SANDBOXBASH_NETWORK_PROXY"} {
			if got := strings.Join(urlCredentials(name, url), " "); got != want {
				t.Errorf("urlCredentials(%s, %q) = %q; want %q", name, url, got, want)
			}
		}
	}
}

// The first error of a writer ends all writing to it, and is what every call returns.
func TestWritersThatFail(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	for name, open := range map[string]func(w io.Writer) (write, end func() error){
		"Masked": func(w io.Writer) (func() error, func() error) {
			m := NewMasked(w, nil)
			return func() error { _, err := m.Write([]byte("x\n")); return err }, m.Flush
		},
		"SafeText": func(w io.Writer) (func() error, func() error) {
			s := NewSafeText(w, Text{}, nil)
			return func() error { _, err := s.Write([]byte("x\n")); return err }, s.Close
		},
		"Defused": func(w io.Writer) (func() error, func() error) {
			d := NewDefused(w, AllRunners)
			return func() error { _, err := d.Write([]byte("x\n")); return err }, func() error { _, err := d.Write([]byte("y")); return err }
		},
	} {
		calls := 0
		write, end := open(writerFunc(func([]byte) (int, error) { calls++; return 0, full }))
		for range 2 {
			if err := write(); !errors.Is(err, full) {
				t.Errorf("%s: Write() = %v; want %v", name, err, full)
			}
		}
		if err := end(); !errors.Is(err, full) {
			t.Errorf("%s: its end = %v; want %v", name, err, full)
		}
		if calls > 1 && name != "Defused" {
			t.Errorf("%s wrote %d times to a writer that had failed", name, calls-1)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Every marker of every runner is defused, at each cut, and text that is none is unchanged.
func TestDefusedCuts(t *testing.T) {
	t.Parallel()
	for _, m := range markers {
		for _, text := range []string{m.text + "rest\n", strings.ToUpper(m.text) + "\n", "\t " + m.text + "\n", "x\n" + m.text, "x\r" + m.text + "\n"} {
			for cut := range len(text) {
				var b strings.Builder
				d := NewDefused(&b, m.runners)
				_, err := io.WriteString(d, text[:cut])
				_, err2 := io.WriteString(d, text[cut:])
				if err := errors.Join(err, err2, d.Close()); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(strings.ToLower(b.String()), m.text) || d.Count() != 1 {
					t.Errorf("%q cut at %d is %q with %d markers; want one defused", text, cut, b.String(), d.Count())
				}
			}
		}
	}
	for _, text := range []string{"a::b\n", "#[x]\n", "##\n", "# [\n", "section start:\n", "##teamcity\n", "plain\n", "ä漢\n"} {
		var b strings.Builder
		d := NewDefused(&b, AllRunners)
		if _, err := io.WriteString(d, text); errors.Join(err, d.Close()) != nil || b.String() != text || d.Count() != 0 {
			t.Errorf("%q becomes %q, %v; want it unchanged", text, b.String(), err)
		}
	}
}
