//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

func TestParseLastPid(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want uint64
	}{
		{"0.20 0.18 0.12 1/80 11206\n", 11206},
		{"0.00 0.00 0.00 0/0 0\n", 0}, // gVisor
		{"", 0},
		{"0.20 0.18 0.12 1/80", 0},
		{"a b -1", 0},
	}
	for _, tt := range tests {
		if got := parseLastPid([]byte(tt.text)); got != tt.want {
			t.Errorf("parseLastPid(%q) = %d; want %d", tt.text, got, tt.want)
		}
	}
}

func TestPidsSince(t *testing.T) {
	t.Parallel()
	p := &pidCounter{max: 32768}
	tests := []struct{ last, now, want uint64 }{
		{400, 400, 0},
		{400, 403, 3},
		{32767, 300, 1}, // one id is left, then they begin again
		{32767, 310, 11},
		{32000, 1300, 1768},
	}
	for _, tt := range tests {
		if got := p.since(tt.last, tt.now); got != tt.want {
			t.Errorf("since(%d, %d) = %d; want %d", tt.last, tt.now, got, tt.want)
		}
	}
}

// TestBirths counts processes that this test starts, beside which others may.
func TestBirths(t *testing.T) {
	t.Parallel()
	p := openPidCounter()
	if p.f == nil {
		t.Fatal("this kernel has no /proc/loadavg")
	}
	b := p.count()
	const n = 5
	for range n {
		if err := exec.CommandContext(t.Context(), "true").Run(); err != nil {
			t.Fatal(err)
		}
	}
	b.look() // as its timer would
	if got := b.end(); got < n {
		t.Errorf("%d births counted; want at least %d", got, n)
	}
}

// TestBirthsRound has the ids begin again between two looks.
func TestBirthsRound(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "loadavg")
	set := func(last int) {
		if err := os.WriteFile(name, []byte("0.0 0.0 0.0 1/1 "+strconv.Itoa(last)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set(32000)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := (&pidCounter{f: f, max: 32768}).count()
	set(20000)
	b.look()
	set(32100)
	b.look()
	set(300)
	if got, want := b.end(), uint64(768+19700+12100+668); got != want {
		t.Errorf("end() = %d; want %d", got, want)
	}
}
