package wire

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// Files under testdata/v5 are what a runner of version 5 writes and reads, as the
// program of that version wrote it. They never change: sessions outlive an upgrade of
// the host. A change that breaks this test needs a new Version, and new files.

// frozenFrame is a frame, or with kind 0 a message outside of frames.
type frozenFrame struct {
	file    string
	kind    Type
	m       message
	payload string // without a message
}

var frozenJob = Job{
	Background: true, Tag: "tag-1", Owner: "owner", Label: "make test", Timeout: time.Hour, Grace: 250 * time.Millisecond,
	Cap: 64 << 20, Most: 16, Keep: JobKeep{Known: time.Hour, Unknown: 24 * time.Hour}, Key: []byte("0123456789abcdef0123456789abcdef"),
}

var frozenFrames = []frozenFrame{
	{"open", TypeOpen, &Open{Version: 5, Lease: time.Minute}, ""},
	{"part", TypePart, nil, "the first bytes of a request"},
	{"request", TypeRequest, &Request{
		Seq: 7, Shell: "bash", Script: []byte("echo $1\xff\n"), Args: []string{"a", "", "\x01"}, Env: []string{"PATH=/bin", "A=b c"},
		Dir: "/workspace", UID: 1000, GID: 50, Merged: true, Stdin: true, Watch: []string{"/workspace", "/"},
	}, ""},
	{"request-program", TypeRequest, &Request{Seq: 8, Path: "/.sandboxbash/runner", Args: []string{"ps"}, Dir: "/", Exclusive: true, UID: 4294967294}, ""},
	{"request-job", TypeRequest, &Request{Seq: 9, Shell: "sh", Script: []byte("sleep 1"), Dir: "/", Job: &frozenJob}, ""},
	{"stdin", TypeStdin, nil, "bytes\x00\xff"},
	{"stdin-end", TypeStdinEnd, nil, ""},
	{"kill", TypeKill, &Kill{Seq: 7, Grace: 250 * time.Millisecond, Interrupt: true}, ""},
	{"detach", TypeDetach, &Detach{Seq: 300}, ""},
	{"ping", TypePing, nil, ""},

	{"hello", TypeHello, &Hello{Version: 5, PID: 4194303, Bash: true, Shell: true}, ""},
	{"hello-features", TypeHello, &Hello{Version: 5, PID: 2, Shell: true, Features: []string{"one", "two"}}, ""},
	{"stdout", TypeStdout, nil, "out\n"},
	{"stderr", TypeStderr, nil, "err\n"},
	{"taken", TypeTaken, &Taken{Seq: 7, Bytes: StdinWindow}, ""},
	{"exit", TypeExit, &Exit{
		Seq: 7, Code: 137, Signal: 9, Rung: RungKill, OOM: true, Left: 3, CPU: 1500 * time.Microsecond, MaxRSS: 1 << 33, Processes: 12,
		Stdout: 1 << 40, Stderr: 1, NoRoom: []NoRoom{{Path: "/tmp", Files: true, Size: 1000}, {Path: "/", Size: 1 << 30}},
	}, ""},
	{"failed", TypeFailed, &Failed{Seq: 7, Failure: FailDirDenied, Errno: 13, Detail: "no entry"}, ""},
	{"detached", TypeDetached, &Detached{Seq: 9, ID: "bg_12", PID: 77, Stdout: 5, Stderr: 1 << 20}, ""},
	{"detached-not", TypeDetached, &Detached{Seq: 9, Failure: FailJobs, Errno: 28, Detail: "disk"}, ""},
	{"pong", TypePong, nil, ""},
	{"pong-started", TypePong, nil, "s"},
	{"pong-waits", TypePong, nil, "w"},
	{"pong-busy", TypePong, nil, "b"},
	{"pong-unknown", TypePong, nil, "?"},

	{"job-query", 0, &JobQuery{
		Verb: JobKill, ID: "bg_1", From: 1 << 20, Runner: 33, Known: true, Artifact: "/state/1", Watch: "host-1",
		Keep: JobKeep{Known: time.Hour, Unknown: 24 * time.Hour},
	}, ""},
	{"job-state", 0, &JobState{ID: "bg_1", Start: []byte("sealed"), End: []byte("\x00\xff"), Alive: true, Known: true, Size: 1 << 33, Artifact: "/a"}, ""},
	{"job-start", 0, &JobStart{
		ID: "bg_1", Tag: "tag-1", Owner: "owner", Label: "make", PID: 77, Runner: 33,
		Started: time.Date(2026, 11, 22, 10, 0, 0, 123456789, time.UTC), Timeout: time.Hour,
	}, ""},
	{"job-end", 0, &JobEnd{
		ID: "bg_1", Tag: "tag-1", Ending: EndedTimeout, Code: 0, Signal: 15, Rung: RungTerm, OOM: true, Left: 2, CPU: time.Second,
		MaxRSS: 1 << 20, Processes: 4, Elapsed: time.Minute, Ended: time.Date(2026, 11, 22, 10, 1, 0, 1, time.UTC),
		Clock: 90 * time.Hour, Written: 1 << 30, Kept: 1 << 20, Full: true, NoRoom: []NoRoom{{Path: "/run/jobs", Size: 1 << 20}},
	}, ""},
}

func (f frozenFrame) encode() []byte {
	payload := []byte(f.payload)
	if f.m != nil {
		payload = encodeFor(5, nil, f.m)
	}
	if f.kind == 0 {
		return payload
	}
	return AppendFrame(nil, f.kind, payload)
}

var writeFrozen = flag.Bool("write-frozen", false, "write files of testdata/v5 that do not exist yet")

func TestFrozenFrames(t *testing.T) {
	t.Parallel()
	for _, f := range frozenFrames {
		path := filepath.Join("testdata", "v5", f.file)
		if _, err := os.Stat(path); err != nil && *writeFrozen {
			if err := os.WriteFile(path, f.encode(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.encode(); !bytes.Equal(got, b) {
			t.Errorf("%s: encoded as\n%x; the program of version 5 wrote\n%x", f.file, got, b)
		}
		if f.kind != 0 {
			kind, payload, err := NewReader(bytes.NewReader(b)).Next()
			if err != nil || kind != f.kind {
				t.Errorf("%s: Next() = %q, %v; want %q", f.file, kind, err, f.kind)
			}
			b = payload
		}
		if f.m == nil {
			if string(b) != f.payload {
				t.Errorf("%s: payload %q; want %q", f.file, b, f.payload)
			}
			continue
		}
		m, _ := reflect.TypeAssert[message](reflect.New(reflect.TypeOf(f.m).Elem()))
		if err := decode(b, m); err != nil || !reflect.DeepEqual(normal(m), normal(f.m)) {
			t.Errorf("%s: decoded as\n%+v, %v; want\n%+v", f.file, m, err, f.m)
		}
	}
}

// normal makes empty slices of a message nil.
func normal(m message) any {
	v := reflect.ValueOf(m).Elem()
	for _, field := range v.Fields() {
		if field.Kind() == reflect.Slice && field.Len() == 0 {
			field.SetZero()
		}
	}
	return m
}

// Answers in text, as the runner of version 5 wrote them in a session.
func TestFrozenAnswers(t *testing.T) {
	t.Parallel()
	read := func(file string) []byte {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("testdata", "v5", file))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	same := func(file string, got []byte, err error) {
		t.Helper()
		if want := read(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: read and written again it is\n%s\n(%v); want\n%s", file, got, err, want)
		}
	}
	processes, err := ParseProcesses(read("processes.txt"))
	same("processes.txt", AppendProcesses(nil, processes), err)
	wantProcess := Process{PID: 96, Parent: 1, Group: 93, State: 'S', StartTicks: 268782, Pages: 418, Command: "two\nwords \"q\" 1 300"}
	if len(processes) != 2 || processes[0] != wantProcess {
		t.Errorf("processes.txt: %+v; want first of two %+v", processes, wantProcess)
	}

	surveys, err := ParseSurveys(read("surveys.txt"))
	var lines []byte
	for _, s := range surveys {
		lines = AppendSurvey(lines, s)
	}
	same("surveys.txt", lines, err)
	if len(surveys) != 2 || surveys[0].Entries != 3 || surveys[0].Bytes != 6144 || surveys[1] != (Survey{}) {
		t.Errorf("surveys.txt: %+v", surveys)
	}

	terms := ParseTerms(read("terms.txt"))
	same("terms.txt", AppendTerms(nil, terms), nil)
	if want := []string{"xterm-256color", "xterm"}; !reflect.DeepEqual(terms, want) {
		t.Errorf("terms.txt: %q; want %q", terms, want)
	}

	sum, err := ParseSum(read("sum.txt"))
	same("sum.txt", sum.Append(nil), err)

	posture, err := ParsePosture(read("posture.txt"))
	same("posture.txt", posture.Append(nil), err)
	var mounts Posture
	for i, f := range posture {
		if f.Key != FactMount {
			continue
		}
		m, ok1 := f.Mount()
		place, ok2 := posture[i+1].Mount()
		if m.Device, m.Root = place.Device, place.Root; !ok1 || !ok2 || place.Target != m.Target {
			t.Fatalf("posture.txt: %+v and %+v are not a mount and its place", f, posture[i+1])
		}
		mounts.AddMount(m)
		if n := len(mounts); mounts[n-2] != f || mounts[n-1] != posture[i+1] {
			t.Errorf("posture.txt: %+v is written as %+v", f, mounts[n-2:])
		}
	}
	for _, f := range []Fact{
		{"Uid", "1000 1000 1000 1000"},
		{"NoNewPrivs", "1"},
		{FactCgroup, CgroupHidden},
		{FactHosts, HostsOwn},
		{FactInterfaces, "lo"},
		{FactOOMScore, "500"},
		{FactTry.Of("mount"), "EPERM"},
		{FactMasked.Of("/proc/acpi"), MaskedNothing},
		{FactSysctl.Of(UnprivilegedPorts), "0"},
		{FactResolver.Of("nameserver"), "127.0.0.1"},
		{FactRlimit.Of("core"), "0:0"},
	} {
		if !posture.Has(f.Key, f.Value) {
			t.Errorf("posture.txt does not say %+v", f)
		}
	}
}
