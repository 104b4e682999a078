package main

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	target := &Target{Vars: map[string]string{"image": "debian", "tool": "a b"}}
	values := map[string]string{"session": "s1", "script": "echo 'a b' {timeout} $x"}
	tests := []struct {
		template string
		options  map[string][]string
		want     []string // nil: an error
	}{
		{"run {session} bash -c {script}", nil, []string{"run", "s1", "bash", "-c", "echo 'a b' {timeout} $x"}},
		{`'a  b' "c'd" e"f g"h ''`, nil, []string{"a  b", "c'd", "ef gh", ""}},
		{"{tool} --name=x-{session}", nil, []string{"a b", "--name=x-s1"}},
		{"x {timeout} y", map[string][]string{"timeout": {"-t", "2 s"}}, []string{"x", "-t", "2 s", "y"}},
		{"x {timeout} {env} y", nil, []string{"x", "y"}},
		{"docker ps --format '{{.Names}}'", nil, []string{"docker", "ps", "--format", "{{.Names}}"}},
		{"x {nothing}", nil, nil},
		{"x 'y", nil, nil},
	}
	for _, tt := range tests {
		got, err := target.expand(tt.template, values, tt.options)
		if !slices.Equal(got, tt.want) || (err != nil) != (tt.want == nil) {
			t.Errorf("expand(%q, %q) = %q, %v; want %q", tt.template, tt.options, got, err, tt.want)
		}
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		how  string
		a    answer
		want bool
	}{
		{"exit 124 137", answer{code: 137}, true},
		{"exit 124 137", answer{code: 1}, false},
		{"reason timed-out", answer{code: 124}, false},
		{"reason timed-out", answer{reason: "timed-out"}, true},
		{"stderr ^timed out", answer{stderr: []byte("timed out\n")}, true},
		{"stderr ^timed out", answer{stdout: []byte("timed out\n")}, false},
	}
	for _, tt := range tests {
		e, err := parseEnd(tt.how)
		if got := e.is(tt.a); err != nil || got != tt.want {
			t.Errorf("parseEnd(%q).is(%+v) = %v, %v; want %v", tt.how, tt.a, got, err, tt.want)
		}
	}
	for _, how := range []string{"", "exit", "exit x", "stdout y", "stderr ("} {
		if e, err := parseEnd(how); err == nil {
			t.Errorf("parseEnd(%q) = %+v; want an error", how, e)
		}
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	j := JSON{Code: ".result.code", Stdout: ".out", Stderr: ".err", Reason: ".result.why"}
	got := j.decode(answer{stdout: []byte(`{"out":"hi\n","result":{"code":7,"why":"late"}}`)})
	if got.code != 7 || string(got.stdout) != "hi\n" || len(got.stderr) != 0 || got.reason != "late" || got.size != 3 || got.problem != nil {
		t.Errorf("decode() = %+v", got)
	}
	if got := j.decode(answer{stdout: []byte("hi")}); got.problem == nil {
		t.Errorf("decode() of text = %+v; want a problem", got)
	}
}

func TestParseGroup(t *testing.T) {
	t.Parallel()
	const begin = "group: g\nscenarios:\n- id: \"1\"\n  title: t\n"
	tests := []struct {
		text string
		good bool
	}{
		{begin + "  steps: [{script: echo, want: {code: 0}}]\n", true},
		{begin + "  steps: [{script: echo, want: {code: [0, 1], within: 1s}}]\n", true},
		{begin + "  steps: [{script: echo}]\n", false},                                            // cannot fail
		{begin + "  steps: [{script: echo, stop: true, want: {code: 0}}]\n", false},               // two things
		{begin + "  steps: [{want: {code: 0}}]\n", false},                                         // nothing
		{begin + "  steps: [{script: echo, want: {kode: 0}}]\n", false},                           // unknown
		{begin + "  steps: [{script: echo, timeout: 2, want: {code: 0}}]\n", false},               // no unit
		{begin + "  steps: [{script: echo, want: {match: '('}}]\n", false},                        // no expression
		{begin + "  steps: [{together: [{together: [{stop: true}]}], want: {code: 0}}]\n", false}, // too deep
		{begin + "  steps: [{script: echo, want: {code: 0}}]\nnot-asked: [{id: \"2\"}]\n", false}, // no reason
		{"group: g\nscenarios: [{id: \"1\", steps: [{script: echo, want: {code: 0}}]}]\n", false}, // no title
		{"scenarios: [{id: \"1\", title: t, steps: [{script: echo, want: {code: 0}}]}]\n", false}, // no group
		{begin + "  steps: [{script: echo, want: {code: 0}, abort: -1s}]\n", false},               // negative
	}
	for _, tt := range tests {
		if g, err := parseGroup([]byte(tt.text)); (err == nil) != tt.good {
			t.Errorf("parseGroup(%q) = %+v, %v; want good %v", tt.text, g, err, tt.good)
		}
	}
}

// TestBound checks that a tool which hangs, or whose child holds its output, does not hold the kit.
func TestBound(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	a := do(t.Context(), call{argv: []string{"sh", "-c", "trap '' INT TERM; echo x; sleep 300; sleep 300"}, bound: 5 * time.Second})
	if !a.late || string(a.stdout) != "x\n" || time.Since(begin) > time.Minute {
		t.Errorf("do() = %+v after %v; want it late, with its output", a, time.Since(begin))
	}
	a = do(t.Context(), call{argv: []string{"sh", "-c", "sleep 90 & echo y; exit 4"}, bound: 2 * time.Minute})
	if a.late || a.code != 4 || string(a.stdout) != "y\n" || a.elapsed > time.Minute {
		t.Errorf("do() = %+v; want its end, even while its output is held", a)
	}
}

// TestRest checks that what a tool has written before its end is read, though a process holds the pipe.
func TestRest(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("a pipe is read to its end there")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	text := strings.Repeat("0123456789", 5000) // less than a pipe holds
	if _, err := w.WriteString(text); err != nil {
		t.Fatal(err)
	}
	got := newStream()
	readRest(r, got)
	if string(got.bytes()) != text {
		t.Errorf("readRest() has read %d bytes; want %d", got.size, len(text))
	}
}
