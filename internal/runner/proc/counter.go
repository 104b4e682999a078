//go:build linux

package proc

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"
)

// Counter reads the last process id that the kernel has given out in this container, from
// the last field of /proc/loadavg (see proc(5)). The kernel gives ids to processes and
// threads in order, and starts again from the lowest after the largest.
type Counter struct {
	f    *os.File // nil where there is none
	max  uint64   // the largest id plus one
	stat string   // proc_stat(5)
}

// reservedPids is the lowest id after the kernel starts again: RESERVED_PIDS in its pid.c.
const reservedPids = 300

// OpenCounter returns a Counter. It counts nothing where the kernel does not tell the last id.
func OpenCounter() *Counter {
	f, err := os.Open("/proc/loadavg")
	if err != nil {
		return &Counter{}
	}
	text, _ := os.ReadFile("/proc/sys/kernel/pid_max")
	n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil || n <= 2*reservedPids {
		f.Close()
		return &Counter{}
	}
	return &Counter{f: f, max: n, stat: "/proc/stat"}
}

// read returns the last id, or 0 if this kernel does not provide it.
func (p *Counter) read() uint64 {
	if p.f == nil {
		return 0
	}
	var b [128]byte
	n, _ := p.f.ReadAt(b[:], 0)
	return parseLastPid(b[:n])
}

func parseLastPid(b []byte) uint64 {
	b = bytes.TrimSpace(b)
	n, err := strconv.ParseUint(string(b[bytes.LastIndexByte(b, ' ')+1:]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// fastest is the least time between two ids. A fork takes five times as long on today's
// machines. Between two samples that are closer than a round of ids at this rate, no round
// can go unnoticed.
const fastest = 5 * time.Microsecond

// round returns how many ids the kernel gives out before it starts again.
func (p *Counter) round() uint64 { return p.max - reservedPids }

// every returns the longest time between two samples in which no round can have gone by, so
// that no other proof is needed.
func (p *Counter) every() time.Duration {
	return min(time.Duration(p.round())*fastest/2, slowest)
}

// slowest is the longest time between two samples. With it a command that sleeps costs
// hardly any processor time.
const slowest = 10 * time.Second

// forks returns how many processes and threads the whole machine has started since its
// boot, or 0 if this kernel does not provide it. It bounds how many ids were given out in
// the container.
func (p *Counter) forks() uint64 {
	b, err := os.ReadFile(p.stat)
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(b, []byte("\nprocesses "))
	text, _, _ := bytes.Cut(rest, []byte{'\n'})
	n, _ := strconv.ParseUint(string(text), 10, 64)
	return n
}

// since returns how many ids were given out between two samples.
func (p *Counter) since(last, now uint64) uint64 {
	if now >= last {
		return now - last
	}
	return p.max - min(last, p.max) + now - min(now, reservedPids)
}

// Count counts the processes and threads that start in the container: those of
// one command, and of anything else that runs meanwhile. The kernel gives out process
// ids in rounds, so the count is right only if less than a round goes by between two
// samples. It samples rarely while few processes start on the machine.
type Count struct {
	counter *Counter

	mu    sync.Mutex
	timer *time.Timer   // guarded by mu; nil if nothing is counted
	last  uint64        // guarded by mu; 0: unknown
	also  func()        // guarded by mu; called at each sample, if not nil
	total uint64        // guarded by mu
	at    time.Time     // guarded by mu; when the last sample was taken
	pause time.Duration // guarded by mu; until the next
	forks uint64        // guarded by mu; forks of the machine at the last sample; 0 if unknown
}

// Count starts to count. The caller must call End.
func (p *Counter) Count() *Count {
	b := &Count{counter: p, last: p.read(), at: time.Now(), pause: p.every()}
	if b.last > 0 {
		b.mu.Lock() // sample may run before the timer is set
		b.timer = time.AfterFunc(b.pause, b.sample)
		b.mu.Unlock()
	}
	return b
}

// OnSample also calls a function at each sample. It must not block.
func (b *Count) OnSample(also func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.also = also
}

func (b *Count) sample() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer == nil {
		return
	}
	forks := b.counter.forks()
	b.add(forks)
	if b.also != nil {
		b.also()
	}
	b.schedule(forks)
	b.forks = forks
	if b.last > 0 {
		b.timer.Reset(b.pause)
	}
}

// schedule sets the pause so that at the machine's present rate only a part of a
// round goes by in it. It is called with mu locked.
func (b *Count) schedule(forks uint64) {
	least := b.counter.every()
	if forks == 0 { // only the time bounds the number of ids
		b.pause = least
		return
	}
	longest := min(2*b.pause, slowest)
	if made := forks - min(b.forks, forks); b.forks > 0 && made > 0 {
		longest = min(longest, time.Duration(float64(b.pause)*float64(b.counter.round())/8/float64(made)))
	}
	b.pause = max(least, longest)
}

// add is called with mu locked. forks is the machine's count; 0 if it was not asked.
func (b *Count) add(forks uint64) {
	now, at := b.counter.read(), time.Now()
	if b.last == 0 || now == 0 {
		b.last, b.total = 0, 0
		return
	}
	n := b.counter.since(b.last, now)
	// If only the timer is the proof, it may be late, but not so late that a round could
	// have gone by with a fork every 10 µs.
	if at.Sub(b.at) > 4*b.counter.every() && (b.forks == 0 || forks < b.forks+n || forks-b.forks-n >= b.counter.round()) {
		b.last, b.total = 0, 0 // a round may have gone by unseen
		return
	}
	b.total += n
	b.last, b.at = now, at
}

// End stops counting and returns the count, or 0 if this kernel does not provide it.
func (b *Count) End() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	var forks uint64
	if b.forks > 0 && time.Since(b.at) > b.counter.every() { // it takes a moment on large machines
		forks = b.counter.forks()
	}
	b.add(forks)
	return b.total
}
