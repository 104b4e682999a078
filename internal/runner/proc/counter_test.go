//go:build linux

package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
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
	p := &Counter{max: 32768}
	tests := []struct{ last, now, want uint64 }{
		{400, 400, 0},
		{400, 403, 3},
		{32767, 300, 1}, // one id is left, then they start again
		{32767, 310, 11},
		{32000, 1300, 1768},
	}
	for _, tt := range tests {
		if got := p.since(tt.last, tt.now); got != tt.want {
			t.Errorf("since(%d, %d) = %d; want %d", tt.last, tt.now, got, tt.want)
		}
	}
}

// TestProcessCount counts processes that this test starts; others may start too.
func TestProcessCount(t *testing.T) {
	t.Parallel()
	p := OpenCounter()
	if p.f == nil {
		t.Fatal("this kernel has no /proc/loadavg")
	}
	b := p.Count()
	b.sample() // knows the machine's forks from here on, and is right however late the next one is
	const n = 5
	for range n {
		if err := exec.CommandContext(t.Context(), "true").Run(); err != nil {
			t.Fatal(err)
		}
	}
	b.sample() // as its timer would
	if got := b.End(); got < n {
		t.Errorf("%d processes counted; want at least %d", got, n)
	}
}

// The ids start again between two samples.
func TestCountRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // without the samples of its timer, and however busy the machine is
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
		b := (&Counter{f: f, max: 32768}).Count()
		set(20000)
		b.sample()
		set(32100)
		b.sample()
		set(300)
		if got, want := b.End(), uint64(768+19700+12100+668); got != want {
			t.Errorf("End() = %d; want %d", got, want)
		}
	})
}

// The number of forks on the whole machine tells whether a round of ids can have gone by
// unseen between two samples that are far apart.
func TestCountProof(t *testing.T) {
	t.Parallel()
	const round = 32768 - reservedPids
	tests := []struct {
		name       string
		forks      []uint64 // of the machine, at the first sample and at the end; 0: unknown
		last, want uint64
	}{
		{"a quiet machine", []uint64{1000, 1010}, 1010, 10},
		{"a busy machine", []uint64{1000, 1000 + round}, 1010, 10},
		{"a round may be missing", []uint64{1000, 1010 + round}, 1010, 0},
		{"fewer than the container's", []uint64{1000, 1009}, 1010, 0},
		{"nothing known", []uint64{0, 0}, 1010, 0},
		{"known once", []uint64{1000, 0}, 1010, 0},
	}
	for _, tt := range tests {
		dir := t.TempDir()
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		set := func(last, forks uint64) {
			write("loadavg", "0.0 0.0 0.0 1/1 "+strconv.FormatUint(last, 10)+"\n")
			text := "cpu 1 2 3\nbtime 5\n"
			if forks > 0 {
				text += "processes " + strconv.FormatUint(forks, 10) + "\nprocs_running 1\n"
			}
			write("stat", text)
		}
		set(1000, tt.forks[0])
		f, err := os.Open(filepath.Join(dir, "loadavg"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		b := (&Counter{f: f, max: 32768, stat: filepath.Join(dir, "stat")}).Count()
		b.sample()
		b.mu.Lock()
		b.timer.Stop()
		b.at = b.at.Add(-time.Hour)
		b.mu.Unlock()
		set(tt.last, tt.forks[1])
		if got := b.End(); got != tt.want {
			t.Errorf("%s: End() = %d; want %d", tt.name, got, tt.want)
		}
	}
}

// While nothing starts, samples become ever rarer.
func TestCountSchedule(t *testing.T) {
	t.Parallel()
	p := &Counter{max: 32768}
	b := &Count{counter: p, pause: p.every(), forks: 1000}
	for range 10 {
		b.schedule(1000)
	}
	if b.pause != slowest {
		t.Errorf("after quiet samples the pause is %s; want %s", b.pause, slowest)
	}
	b.schedule(1000 + 8*p.round())
	if want := slowest / 64; b.pause != want {
		t.Errorf("after eight rounds of the machine the pause is %s; want %s", b.pause, want)
	}
	b.schedule(0)
	if b.pause != p.every() {
		t.Errorf("without a count the pause is %s; want %s", b.pause, p.every())
	}
}

// Files that the kernel does not have, or writes in another way, count nothing.
func TestCounterUnknown(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "stat")
	for _, row := range []struct {
		text string
		want uint64
	}{
		{"cpu 1 2\nprocesses 77\nprocs_running 1\n", 77},
		{"cpu 1 2\nprocesses 77", 77},
		{"processes 77\n", 0}, // never the first line
		{"cpu 1 2\nprocesses x\n", 0},
		{"cpu 1 2\n", 0},
		{"", 0},
	} {
		if err := os.WriteFile(name, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (&Counter{stat: name}).forks(); got != row.want {
			t.Errorf("forks() of %q = %d; want %d", row.text, got, row.want)
		}
	}
	if got := (&Counter{stat: name + ".none"}).forks(); got != 0 {
		t.Errorf("forks() without the file = %d; want 0", got)
	}
	calls := 0
	c := (&Counter{}).Count()
	c.OnSample(func() { calls++ })
	c.sample() // as if a timer had been set
	if got := c.End(); got != 0 || calls != 0 {
		t.Errorf("without the kernel's count: End() = %d after %d samples; want 0, none", got, calls)
	}
	if got := c.End(); got != 0 {
		t.Errorf("a second End() = %d; want 0", got)
	}
}

// A count that has ended samples no more, and each sample before that calls what was asked.
func TestCountSamples(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // without the samples of its timer
		p := OpenCounter()
		if p.f == nil {
			t.Fatal("this kernel has no /proc/loadavg")
		}
		c := p.Count()
		calls := 0
		c.OnSample(func() { calls++ })
		c.sample()
		c.sample()
		if first, second := c.End(), c.End(); second < first || calls != 2 {
			t.Errorf("End() = %d and then %d, with %d calls; want 2 calls", first, second, calls)
		}
		c.sample()
		if calls != 2 {
			t.Errorf("%d calls after the end; want 2", calls)
		}
	})
}

// Between two samples that are a pause apart no round of ids can go by, even if the machine
// forks as fast as it can.
func TestCounterEvery(t *testing.T) {
	t.Parallel()
	for _, most := range []uint64{2*reservedPids + 1, 4096, 32768, 4 << 20} {
		p := &Counter{max: most}
		if every := p.every(); every <= 0 || every > slowest || uint64(every/fastest) > p.round() {
			t.Errorf("with ids up to %d a sample is taken every %s; want at most a round of %d", most, every, p.round())
		}
	}
}
