package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// What came instead of a frame can be shown, and is still there afterwards.
func TestReaderAhead(t *testing.T) {
	t.Parallel()
	text := "OCI runtime exec failed: no such file"
	r := NewReader(strings.NewReader(text))
	if got := r.Ahead(100); len(got) != 0 {
		t.Errorf("Ahead() before the first Next = %q; want nothing, and no wait", got)
	}
	if _, _, err := r.Next(); !errors.Is(err, ErrFrame) {
		t.Errorf("Next() of text: %v; want ErrFrame", err)
	}
	for n, want := range map[int]string{0: "", 3: "OCI", 1000: text} {
		if got := r.Ahead(n); string(got) != want {
			t.Errorf("Ahead(%d) = %q; want %q", n, got, want)
		}
	}
}

// An error of the source is returned behind all frames that came before it, as it is.
func TestReaderBreaks(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	frame := AppendFrame(nil, TypeStdout, []byte("payload"))
	for n := range frame {
		r := NewReader(io.MultiReader(bytes.NewReader(frame), bytes.NewReader(frame[:n]), iotest.ErrReader(broken)))
		if _, payload, err := r.Next(); err != nil || string(payload) != "payload" {
			t.Fatalf("Next() = %q, %v; want the whole frame", payload, err)
		}
		if kind, payload, err := r.Next(); !errors.Is(err, broken) || payload != nil {
			t.Errorf("Next() of %d bytes and an error = %q, %q, %v; want the error", n, kind, payload, err)
		}
	}
}

// Detach may be called at any time, and any number of times.
func TestReaderDetachAnywhere(t *testing.T) {
	t.Parallel()
	var stream []byte
	var want []string
	for n := range 40 {
		text := strings.Repeat(string(rune('a'+n%26)), n*n*n)
		want = append(want, text)
		stream = AppendFrame(stream, TypeStdout, []byte(text))
	}
	r := NewReader(iotest.HalfReader(bytes.NewReader(stream)))
	r.Detach()
	var kept [][]byte
	for range want {
		_, payload, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, payload)
		r.Detach()
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("Next() at the end: %v; want EOF", err)
	}
	for n, text := range want {
		if string(kept[n]) != text {
			t.Errorf("payload %d became %.20q; want %.20q", n, kept[n], text)
		}
	}
}

func TestPutHeader(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 255, 256, MaxPayload} {
		got := bytes.Repeat([]byte{'#'}, HeaderSize+1)
		PutHeader(got, TypeStderr, size)
		want := append(AppendHeader(nil, TypeStderr, size), '#')
		if kind, n := ParseHeader(got); !bytes.Equal(got, want) || kind != TypeStderr || int(n) != size {
			t.Errorf("PutHeader(%d) = %x (%q, %d); want %x", size, got, kind, n, want)
		}
	}
}

// A terminal's pid arrives whole, in whatever pieces, and nothing behind it is read.
func TestTerminalPid(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{2, 10, 4194303, maxPID} {
		src := strings.NewReader(string(AppendTerminal(nil, pid)) + "frames")
		if got, err := ReadTerminal(iotest.OneByteReader(src)); err != nil || got != pid || src.Len() != len("frames") {
			t.Errorf("ReadTerminal() = %d, %v, with %d bytes left; want %d and the frames", got, err, src.Len(), pid)
		}
	}
	for _, text := range []string{"0\n", "-5\n", "12", "12 \n", "\n", "12\r\n", "+1\n", strings.Repeat("0", 50) + "1\n"} {
		if got, err := ReadTerminal(strings.NewReader(text)); err == nil && got < 2 {
			t.Errorf("ReadTerminal(%q) = %d; want an error: to signal it would end the session", text, got)
		}
	}
	if _, err := ReadTerminal(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("ReadTerminal() of a closed pipe: %v", err)
	}
}

// A record with a right seal and other content, as a later version may write it, is not taken
// for a job of this one; with further fields it is.
func TestSealedRecordsOfOthers(t *testing.T) {
	t.Parallel()
	if _, err := OpenJobStart(testKey, seal(testKey, sealStart, []byte{5, 'x'})); !errors.Is(err, ErrFrame) {
		t.Errorf("OpenJobStart(half a record) = %v; want ErrFrame", err)
	}
	later := seal(testKey, sealStart, append(encode(nil, &testStart), "and more"...))
	if got, err := OpenJobStart(testKey, later); err != nil || got != testStart {
		t.Errorf("OpenJobStart(of a later version) = %+v, %v; want %+v", got, err, testStart)
	}
	for name, b := range map[string][]byte{"an end": testEnd.Seal(testKey), "no seal": encode(nil, &testStart), "nothing": nil} {
		if got, err := OpenJobStart(testKey, b); !errors.Is(err, ErrSeal) || got != (JobStart{}) {
			t.Errorf("OpenJobStart(%s) = %+v, %v; want ErrSeal and nothing", name, got, err)
		}
	}
	for _, n := range []int{0, 1, 31} {
		if _, err := ReadJobEnd(make([]byte, n)); !errors.Is(err, ErrFrame) {
			t.Errorf("ReadJobEnd(%d bytes) = %v; want ErrFrame", n, err)
		}
	}
}

// Every id that is made is valid, and its output lies in the directory of jobs.
func TestJobPaths(t *testing.T) {
	t.Parallel()
	taken := map[string]bool{}
	for range 30 {
		id := NextJobID(func(id string) bool { return taken[id] })
		if taken[id] || !ValidJobID(id) || JobOutput(id) != "/run/jobs/"+id+".log" {
			t.Errorf("the next id is %q, its output %s", id, JobOutput(id))
		}
		taken[id] = true
	}
}

// The arguments of a verb come back as they went, whatever they hold.
func FuzzArgs(f *testing.F) {
	f.Add("/workspace", "a b", int64(time.Minute), uint32(1000))
	f.Add("", "-", int64(-1), uint32(0))
	f.Add("\n", "\xff", int64(1<<62), uint32(1<<32-2))
	f.Fuzz(func(t *testing.T, one, two string, wait int64, id uint32) {
		if id+1 == 0 {
			id = 0 // stands for no user
		}
		for _, args := range []arguments{
			&InitArgs{Lease: time.Duration(wait), User: id},
			&TransferArgs{UID: id, GID: id / 2, Path: one},
			&AccountsArgs{From: one, To: two, UID: id, GID: id / 2, Name: two, Home: one},
			&ClearArgs{Dir: one},
			&PostureArgs{Masked: []string{one, two}},
			&ReachArgs{Targets: []string{two, one}},
			&SurveyArgs{Limit: time.Duration(wait), Dirs: []string{one, two}},
		} {
			list := VerbPush.Command(args)
			got := emptyArgs(args)
			if err := ParseArgs(list[1:], got); err != nil || !reflect.DeepEqual(got, args) {
				t.Errorf("ParseArgs(%q) = %+v, %v; want %+v", list[1:], got, err, args)
			}
			if err := ParseArgs([]string{one, two}, emptyArgs(args)); err != nil && !strings.HasPrefix(err.Error(), "arguments: ") {
				t.Errorf("ParseArgs(%q, %q): %v; want it to say that it is about arguments", one, two, err)
			}
		}
	})
}

func emptyArgs(args arguments) arguments {
	again, _ := reflect.TypeAssert[arguments](reflect.New(reflect.TypeOf(args).Elem()))
	return again
}
