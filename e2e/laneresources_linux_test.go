package e2e

import (
	"encoding/json"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// resourceChecks are of the threat model's rows R.
var resourceChecks = []laneCheck{
	{"R1: fork bomb", func(t *testing.T, on *laneRun) {
		began := time.Now()
		_, code := on.in(t, on.session, "--timeout", "2s", ":(){ :|:& };: ; wait; sleep 60")
		if took := time.Since(began); code != 124 || took > 30*time.Second {
			t.Errorf("a fork bomb: status %d after %s; want 124", code, took)
		}
		on.works(t)
	}},
	{"R3: memory hog", func(t *testing.T, on *laneRun) {
		out, code := on.in(t, on.session, "--json", `exec perl -e '$x = q(a) x 2_000_000_000; sleep 9'`)
		var said struct{ Reason string }
		if json.Unmarshal([]byte(out), &said) != nil || code != 137 || said.Reason != "oom-killed" {
			t.Errorf("a memory hog: status %d, %s; want 137, oom-killed", code, out)
		}
		on.works(t)
	}},
	{"R6: number of files", func(t *testing.T, on *laneRun) {
		out, _ := on.in(t, on.session, `cd /tmp; perl -e 'for (1..300000) { open(F, q(>), qq(/tmp/f$_)) or print($!), last; close F }'; find /tmp -name 'f*' -delete`)
		if out != "No space left on device" {
			t.Errorf("300000 files: %q; want them refused", out)
		}
	}},
	{"R7: open files", func(t *testing.T, on *laneRun) {
		out, _ := on.in(t, on.session, `perl -e 'my @f; while (open(my $f, q(<), q(/dev/null))) { push @f, $f } print $!'`)
		if out != "Too many open files" {
			t.Errorf("open files: %q; want them refused", out)
		}
	}},
	{"R13: size of the workspace", func(t *testing.T, on *laneRun) {
		id := on.begin(t, "--disk", "8m")
		out, _ := on.in(t, id, "head -c 20M /dev/zero 2>&1 >fill | tail -n 1; stat -c %s fill; rm fill; echo works >file; cat file")
		if !strings.HasSuffix(out, "8388608\nworks") {
			t.Errorf("20 MB in 8: %q", out)
		}
	}},
	{"R11: processor time", func(t *testing.T, on *laneRun) {
		id := on.begin(t, "--cpus", "0.5")
		began := time.Now()
		out, _ := on.in(t, id, "--json", "--timeout", "3s", "for i in $(seq 16); do (while :; do :; done) & done; wait")
		var said struct {
			Usage struct{ CPUMs int }
		}
		// For 3 s that would be 1500 ms. They go on until they are killed, which takes a loaded machine a while.
		most := max(2500, int(time.Since(began).Milliseconds())/2+500)
		if err := json.Unmarshal([]byte(out), &said); err != nil || said.Usage.CPUMs > most || said.Usage.CPUMs == 0 {
			t.Errorf("16 busy loops on half a processor for 3 s used %d ms; want at most %d (%v)", said.Usage.CPUMs, most, err)
		}
	}},
	{"R4: files in memory", func(t *testing.T, on *laneRun) {
		out, _ := on.in(t, on.session, "for f in /tmp/fill ~/fill; do head -c 1G /dev/zero 2>&1 >$f | grep -o 'No space left on device'; done; rm -f /tmp/fill ~/fill")
		if out != "No space left on device\nNo space left on device" {
			t.Errorf("1 GB in memory, twice: %q; want it refused", out)
		}
		on.works(t)
	}},
	{"R8: output without end", checkEndlessOutput},
	{"R9: output without end on a terminal", func(t *testing.T, on *laneRun) {
		cmd := on.command(t.Context(), "run", "--pty", "--timeout", "2s", "--session", on.session, "yes")
		screen, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 220})
		if err != nil {
			t.Fatal(err)
		}
		defer screen.Close()
		n, err := io.Copy(io.Discard, screen)
		if err != nil && !isEIO(err) {
			t.Error(err)
		}
		if got := status(cmd.Wait()); got != 124 || n < 1<<16 {
			t.Errorf("yes on a terminal: status %d after %d bytes; want 124 after more than 64 KiB", got, n)
		}
		on.works(t)
	}},
	{"R12: crashes leave no file", func(t *testing.T, on *laneRun) {
		out, _ := on.in(t, on.session, `mkdir crash; cd crash; ulimit -c unlimited 2>/dev/null; sh -c 'kill -SEGV $$'; echo $?; ls; cd ..; rmdir crash`)
		if !strings.HasSuffix(out, "139") {
			t.Errorf("a crash: %q; want 139 and no file", out)
		}
	}},
}

// checkEndlessOutput has a command write as fast as it can: it is ended in time, its
// output counted, and this program's memory stays as it was.
func checkEndlessOutput(t *testing.T, on *laneRun) {
	cmd := on.command(t.Context(), "session", "exec", "--json", "--timeout", "2s", on.session, "yes")
	began := time.Now()
	out, err := cmd.Output()
	var said struct {
		Reason string
		Bytes  struct{ Stdout int64 }
	}
	if json.Unmarshal(out, &said) != nil || status(err) != 124 || said.Reason != "timed-out" || said.Bytes.Stdout < 1<<20 {
		t.Errorf("yes: status %d, %s after %d bytes; want 124, timed-out", status(err), said.Reason, said.Bytes.Stdout)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("yes took %s; its timeout was 2s", took)
	}
	const most = 64 << 10 // KiB; as in the script slow-limits
	if used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && used.Maxrss > most {
		t.Errorf("%d KiB resident; want at most %d", used.Maxrss, most)
	}
}
