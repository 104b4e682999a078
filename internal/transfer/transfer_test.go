package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

// header makes the bytes of one tar header with any size in it.
func header(tb testing.TB, name string, kind byte, size int64) []byte {
	tb.Helper()
	var buf bytes.Buffer
	if err := tar.NewWriter(&buf).WriteHeader(&tar.Header{Name: name, Typeflag: kind, Size: size, Mode: 0o644}); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// records makes an extended header, which says what it likes of the entry behind it.
func records(kv ...string) []byte {
	var body bytes.Buffer
	for i := 0; i < len(kv); i += 2 {
		line := " " + kv[i] + "=" + kv[i+1] + "\n"
		n := len(line)
		for len(fmt.Sprint(n))+len(line) != n {
			n = len(fmt.Sprint(n)) + len(line)
		}
		fmt.Fprintf(&body, "%d%s", n, line)
	}
	h := make([]byte, 512)
	copy(h, "pax")
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00", body.Len()))
	copy(h[136:], "00000000000\x00        ")
	h[156] = 'x'
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(append(h, body.Bytes()...), make([]byte, -body.Len()&511)...)
}

// repeat makes a stream of n parts and the end of an archive.
type repeat struct {
	n    int
	part func(i int) []byte
	rest []byte
	i    int
}

// zero is an endless stream.
type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (r *repeat) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		switch {
		case r.i == r.n:
			r.rest = make([]byte, 1024)
		case r.i > r.n:
			return 0, io.EOF
		default:
			r.rest = r.part(r.i)
		}
		r.i++
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Whatever a command writes in place of the stream, the transfer ends, takes little
// memory and disk, and makes nothing.
func TestHostileStreams(t *testing.T) {
	const huge = "9223372036854775807"
	one := func(parts ...[]byte) func() io.Reader {
		return func() io.Reader { return bytes.NewReader(bytes.Join(parts, nil)) }
	}
	many := func(n int, part func(i int) []byte) func() io.Reader {
		return func() io.Reader { return &repeat{n: n, part: part} }
	}
	file := append(header(t, "a", tar.TypeReg, 1), make([]byte, 512)...)
	long := strings.Repeat("v", 900_000)
	sparse := append(header(t, "GNUSparseFile.0/sparse", tar.TypeReg, 512), append([]byte("1\n"+huge+"\n0\n"), make([]byte, 512-len("1\n"+huge+"\n0\n"))...)...)
	dir, fifo := header(t, "d/", tar.TypeDir, 0), header(t, "d", tar.TypeFifo, 0)
	for _, tt := range []struct {
		name   string
		stream func() io.Reader
		err    string // part of it; "" is none
		memory uint64 // bytes
	}{
		{"big", one(file, records("size", huge), header(t, "huge", tar.TypeReg, 0), make([]byte, 1<<20)), "larger", 16 << 20},
		{"too big", one(records("size", fmt.Sprint(20<<30)), header(t, "huge", tar.TypeReg, 0)), "larger", 16 << 20},
		{"negative", one(records("size", "-1"), header(t, "x", tar.TypeReg, 0)), "invalid tar header", 16 << 20},
		{"sparse", one(file, records("GNU.sparse.major", "1", "GNU.sparse.minor", "0", "GNU.sparse.name", "sparse", "GNU.sparse.realsize", huge), sparse, make([]byte, 1024)), "sparse", 16 << 20},
		{"sparse, version 0.1", one(records("GNU.sparse.map", "0,0", "GNU.sparse.size", "1000000000000", "GNU.sparse.numblocks", "1"), header(t, "s", tar.TypeReg, 0), make([]byte, 1024)), "sparse", 16 << 20},
		{"records", many(300, func(i int) []byte {
			return append(records("SCHILY.xattr.user.x", long), header(t, fmt.Sprintf("d%d/", i), tar.TypeDir, 0)...)
		}), "", 64 << 20},
		{"paths in records", many(300, func(i int) []byte {
			return append(records("path", fmt.Sprintf("d%d", i), "comment", long), dir...)
		}), "", 64 << 20},
		{"names", many(300, func(i int) []byte { return append(records("path", fmt.Sprintf("n%d%s", i, long)), fifo...) }), "limit is 4096", 16 << 20},
		{"targets", many(300, func(i int) []byte {
			return append(records("linkpath", fmt.Sprintf("n%d%s", i, long)), header(t, "l", tar.TypeSymlink, 0)...)
		}), "limit is 4096", 16 << 20},
		{"names of some length", many(1<<20, func(i int) []byte {
			return append(records("path", fmt.Sprintf("%d/%s", i, strings.Repeat(strings.Repeat("n", 250)+"/", 15))), fifo...)
		}), "names of its files are more", 80 << 20},
		{"an entry that is none", one(records("comment", "x"), header(t, "d", tar.TypeCont, 0), make([]byte, 1024)), "", 16 << 20},
		{"escape", one(append(header(t, "../evil", tar.TypeReg, 3), make([]byte, 512)...)), "leads out", 16 << 20},
		{"cut off", one(header(t, "half", tar.TypeReg, 1<<20), make([]byte, 1000)), "unexpected EOF", 16 << 20},
		{"garbage", one(bytes.Repeat([]byte("garbage "), 1000)), "invalid tar header", 16 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			peak, err := peakOf(func() error {
				in, err := Open(filepath.Join(dir, "here"), Options{})
				if err != nil {
					return err
				}
				limits := DefaultLimits
				return errors.Join(Read(tt.stream(), limits, in.Take), in.Close())
			})
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("Read() = %v; want %q", err, tt.err)
			}
			t.Logf("%d KiB", peak>>10)
			if peak > tt.memory {
				t.Errorf("it took %d MiB; want at most %d", peak>>20, tt.memory>>20)
			}
			if left := tree(t, dir); len(left) != 1 {
				t.Errorf("left behind: %d files", len(left))
			}
		})
	}
}

// peakOf is how much the heap that is in use has grown at most while something ran: without
// what is no longer used, of which there is more the longer the collector has to wait.
func peakOf(do func() error) (uint64, error) {
	live := func() uint64 {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before := live()
	peak := before
	done := make(chan error, 1)
	go func() { done <- do() }()
	for wait := time.Millisecond; ; {
		select {
		case err := <-done:
			return peak - before, err
		case <-time.After(wait):
			begin := time.Now()
			peak = max(peak, live())
			wait = 4 * time.Since(begin) // most of the time is for what is measured
		}
	}
}

// A tree of as many entries as there may be takes some tens of megabytes.
func TestManyEntries(t *testing.T) { //nolint:paralleltest // it measures memory
	h := header(t, "d0000000/", tar.TypeDir, 0)
	stream := func(n int) io.Reader {
		return &repeat{n: n, part: func(i int) []byte {
			copy(h[1:], fmt.Sprintf("%07d", i))
			sum := 8 * int(' ')
			for at, b := range h {
				if at < 148 || at >= 156 {
					sum += int(b)
				}
			}
			copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
			return bytes.Clone(h)
		}}
	}
	var in *Inbox
	taken := 0
	peak, err := peakOf(func() error {
		var err error
		if in, err = Open(t.TempDir(), Options{}); err != nil {
			return err
		}
		return Read(stream(DefaultLimits.Entries+1), DefaultLimits, func(e Entry, r io.Reader) error {
			taken++
			return in.Take(e, r)
		})
	})
	if err == nil || !strings.Contains(err.Error(), "more than") || taken != DefaultLimits.Entries {
		t.Errorf("Read(endless files) = %v after %d; want a refusal after %d", err, taken, DefaultLimits.Entries)
	}
	t.Logf("%d MiB for %d entries", peak>>20, taken)
	if peak > 110<<20 {
		t.Errorf("it took %d MiB", peak>>20)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
}

// The stream itself ends somewhere, whatever it is made of.
func TestReadBounded(t *testing.T) {
	t.Parallel()
	limits := DefaultLimits
	limits.Bytes = 1 << 10
	r := &bounded{r: zero{}, left: limits.Bytes}
	if n, err := io.Copy(io.Discard, r); n != limits.Bytes || !errors.Is(err, errTooLong) {
		t.Errorf("bounded read %d, %v; want %d and an error", n, err, limits.Bytes)
	}
	stop := errors.New("stop")
	err := Read(bytes.NewReader(pack(t, regular("a\x1b[2J", "x"))), DefaultLimits, func(Entry, io.Reader) error { return stop })
	if !errors.Is(err, stop) || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("Read() = %q; want the error, and the name made safe", err)
	}
}

func FuzzInbox(f *testing.F) {
	f.Add(pack(f, regular("a", "x"), symlink("l", "a"), regular("d/e", "y")))
	f.Add(pack(f, symlink("a", ".."), regular("b", "x")))
	f.Add(pack(f, regular("../evil", "x")))
	f.Add(pack(f, symlink("a", "b"), symlink("b/x", "../.."), regular(".git/config", "x")))
	f.Add(pack(f, entry{tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../x"}, ""}))
	f.Add(pack(f, directory("s", 0), regular("s/x", "")))
	f.Fuzz(func(t *testing.T, archive []byte) {
		if len(archive) > 64<<10 {
			return
		}
		outer := t.TempDir()
		dir := filepath.Join(outer, "a", "dir")
		if err := os.WriteFile(filepath.Join(outer, "precious"), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = unpack(bytes.NewReader(archive), dir, Options{})
		for name, what := range tree(t, outer) {
			path := filepath.Join(outer, name)
			switch {
			case name == "precious":
				if what != "-rw------- mine" {
					t.Errorf("precious is now %q", what)
				}
			case strings.HasPrefix(path, dir+"/"):
				if target, ok := strings.CutPrefix(what, "-> "); ok && !filepath.IsLocal(filepath.Join(filepath.Dir(strings.TrimPrefix(path, dir+"/")), target)) {
					t.Errorf("%s leads out, to %s", name, target)
				}
				if strings.ContainsAny(strings.Fields(what)[0][:1], "pSDLug") {
					t.Errorf("%s is a %s", name, what)
				}
			case name == ".", name == "a", path == dir:
			default:
				t.Errorf("%s was made outside", name)
			}
		}
	})
}
