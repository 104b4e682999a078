package docker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// frame is what an engine sends for one write.
func frame(kind byte, payload string) string {
	var head [headerSize]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[4:], uint32(len(payload)))
	return string(head[:]) + payload
}

func demuxOf(r io.Reader) *demux { return newDemux(bufio.NewReaderSize(r, 64), frames) }

// onlyReader hides WriteTo.
type onlyReader struct{ io.Reader }

// everyWay reads a stream in all the ways in which it may arrive and be asked for.
func everyWay(t *testing.T, stream string, check func(t *testing.T, out, stderr string, err error)) {
	t.Helper()
	for name, source := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "early error": iotest.DataErrReader,
	} {
		t.Run(name+"/Read", func(t *testing.T) {
			t.Parallel()
			d := demuxOf(source(strings.NewReader(stream)))
			out, err := io.ReadAll(onlyReader{d})
			check(t, string(out), d.Stderr(), err)
			if _, again := d.Read(make([]byte, 1)); err != nil && again != err { //nolint:errorlint // the same error
				t.Errorf("Read() after %v = %v; want it again", err, again)
			}
		})
		t.Run(name+"/WriteTo", func(t *testing.T) {
			t.Parallel()
			d := demuxOf(source(strings.NewReader(stream)))
			var out bytes.Buffer
			n, err := d.WriteTo(&out)
			if n != int64(out.Len()) {
				t.Errorf("WriteTo() = %d bytes; wrote %d", n, out.Len())
			}
			check(t, out.String(), d.Stderr(), err)
		})
	}
}

func TestDemux(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 1000)
	for _, tt := range []struct {
		name, stream, out, stderr string
		err                       error
	}{
		{name: "nothing"},
		{name: "one frame", stream: frame(1, "hello"), out: "hello"},
		{name: "empty frames", stream: frame(1, "") + frame(2, "") + frame(1, "a") + frame(1, ""), out: "a"},
		{name: "both", stream: frame(1, "a") + frame(2, "x") + frame(1, "b") + frame(2, "y"), out: "ab", stderr: "xy"},
		{name: "longer than the buffer", stream: frame(1, long) + frame(2, "x") + frame(1, long), out: long + long, stderr: "x"},
		{name: "much stderr", stream: frame(2, "begin") + frame(2, long) + frame(2, "end"), stderr: (long + "end")[len(long)+3-maxStderr:]},
		{name: "little by little", stream: strings.Repeat(frame(2, "123"), 2000), stderr: strings.Repeat("123", 2000)[6000-maxStderr:]},
		{name: "stdin", stream: frame(1, "a") + frame(0, "b"), out: "a", err: errFrame},
		{name: "unknown stream", stream: frame(1, "a") + frame(4, "b"), out: "a", err: errFrame},
		{name: "text", stream: frame(1, "a") + "no frame at all", out: "a", err: errFrame},
		{name: "too long", stream: "\x01\x00\x00\x00\x01\x00\x00\x01", err: errFrame},
		{name: "cut header", stream: frame(1, "a") + "\x01\x00\x00", out: "a", err: io.ErrUnexpectedEOF},
		{name: "cut stdout", stream: frame(1, "abc")[:10], out: "ab", err: io.ErrUnexpectedEOF},
		{name: "cut stderr", stream: frame(2, "abc")[:10], stderr: "ab", err: io.ErrUnexpectedEOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			everyWay(t, tt.stream, func(t *testing.T, out, stderr string, err error) {
				t.Helper()
				if out != tt.out || stderr != tt.stderr || !errors.Is(err, tt.err) {
					t.Errorf("demux(%.40q) = %.40q, stderr %.40q, %v; want %.40q, %.40q, %v", tt.stream, out, stderr, err, tt.out, tt.stderr, tt.err)
				}
			})
		})
	}
}

// Wherever the stream is cut, what came before is delivered and the end is
// clean only between frames.
func TestDemuxCut(t *testing.T) {
	t.Parallel()
	whole := frame(1, "one") + frame(2, "two") + frame(1, "") + frame(1, "three")
	clean := map[int]bool{0: true, 11: true, 22: true, 30: true, 43: true}
	stdout := "one" + "three"
	for cut := range len(whole) + 1 {
		d := demuxOf(strings.NewReader(whole[:cut]))
		out, err := io.ReadAll(onlyReader{d})
		if !strings.HasPrefix(stdout, string(out)) {
			t.Errorf("cut at %d: read %q; want the beginning of %q", cut, out, stdout)
		}
		if want := max(0, min(cut-8, 3)) + max(0, cut-38); len(out) != want {
			t.Errorf("cut at %d: read %d bytes; want %d", cut, len(out), want)
		}
		switch {
		case clean[cut] && err != nil:
			t.Errorf("cut at %d: %v; want a clean end", cut, err)
		case !clean[cut] && !errors.Is(err, io.ErrUnexpectedEOF):
			t.Errorf("cut at %d: %v; want %v", cut, err, io.ErrUnexpectedEOF)
		}
	}
}

func TestDemuxComplaint(t *testing.T) {
	t.Parallel()
	d := demuxOf(strings.NewReader(frame(1, "a") + frame(3, "no \x1b[31mspace\n")))
	out, err := io.ReadAll(onlyReader{d})
	if string(out) != "a" || err == nil || !strings.Contains(err.Error(), `"no \x1b[31mspace\n"`) {
		t.Errorf("demux(system error) = %q, %v; want the engine's words, quoted", out, err)
	}
}

func TestDemuxPlain(t *testing.T) {
	t.Parallel()
	want := frame(1, "a") + "anything\x00"
	d := newDemux(bufio.NewReader(strings.NewReader(want)), plain)
	var out bytes.Buffer
	if _, err := d.WriteTo(&out); err != nil || out.String() != want {
		t.Errorf("plain stream = %q, %v; want %q unchanged", out.String(), err, want)
	}
	if _, err := d.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("Read() after the end = %v; want io.EOF", err)
	}
}

// A writer's error is returned as it is, and what it did not take is not lost.
func TestDemuxWriteError(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	d := demuxOf(strings.NewReader(frame(1, "abcdef")))
	n, err := d.WriteTo(writerFunc(func([]byte) (int, error) { return 2, full }))
	if n != 2 || !errors.Is(err, full) {
		t.Errorf("WriteTo(full) = %d, %v; want 2, %v", n, err, full)
	}
	if rest, err := io.ReadAll(onlyReader{d}); string(rest) != "cdef" || err != nil {
		t.Errorf("the rest = %q, %v; want cdef", rest, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestDemuxReadAllocates(t *testing.T) {
	d := newDemux(bufio.NewReaderSize(&endless{unit: frame(1, strings.Repeat("x", 32<<10))}, streamBuffer), frames)
	p := make([]byte, 64<<10)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := d.Read(p); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Read allocates %v times; want never", n)
	}
}

// endless repeats a unit for ever.
type endless struct {
	unit string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m := copy(p[n:], e.unit[e.at:])
		n += m
		e.at = (e.at + m) % len(e.unit)
	}
	return n, nil
}

// FuzzDemux: any bytes end without a panic, Read and WriteTo agree, and never
// more comes out than went in.
func FuzzDemux(f *testing.F) {
	for _, seed := range []string{"", frame(1, "a") + frame(2, "b"), frame(1, "abc")[:9], frame(3, "x"), "\x01\x00\x00\x00\xff\xff\xff\xff", frame(1, strings.Repeat("x", 200))} {
		f.Add([]byte(seed), uint8(7))
	}
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		a := demuxOf(bytes.NewReader(stream))
		var read []byte
		var err error
		p := make([]byte, int(size)+1)
		for err == nil {
			var n int
			n, err = a.Read(p)
			if n == 0 && err == nil {
				t.Fatal("Read() = 0, nil")
			}
			read = append(read, p[:n]...)
		}
		b := demuxOf(bytes.NewReader(stream))
		var written bytes.Buffer
		_, werr := b.WriteTo(&written)
		if werr == nil {
			werr = io.EOF
		}
		if !bytes.Equal(read, written.Bytes()) || a.Stderr() != b.Stderr() || err.Error() != werr.Error() {
			t.Errorf("Read gives %q, %q, %v; WriteTo %q, %q, %v", read, a.Stderr(), err, written.Bytes(), b.Stderr(), werr)
		}
		if len(read)+len(a.Stderr()) > len(stream) || len(a.Stderr()) > maxStderr {
			t.Errorf("%d and %d bytes out of %d", len(read), len(a.Stderr()), len(stream))
		}
	})
}

func BenchmarkDemux(b *testing.B) {
	unit := frame(1, strings.Repeat("x", 32<<10))
	for _, bb := range []struct {
		name string
		run  func(d *demux) error
	}{
		{"Read", func(d *demux) error {
			_, err := io.CopyBuffer(writerFunc(func(p []byte) (int, error) { return len(p), nil }), onlyReader{d}, make([]byte, 128<<10))
			return err
		}},
		{"WriteTo", func(d *demux) error { _, err := io.Copy(io.Discard, d); return err }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			const size = 64 << 20
			n := int64(size/len(unit)) * int64(len(unit))
			b.SetBytes(n)
			b.ReportAllocs()
			for b.Loop() {
				d := newDemux(bufio.NewReaderSize(io.LimitReader(&endless{unit: unit}, n), streamBuffer), frames)
				if err := bb.run(d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
