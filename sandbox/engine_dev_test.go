package sandbox_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// seizer tries for as long as it lives to get hold of each process that begins, before
// that can make itself undumpable, and prints what it got of our own programs.
// Its own child shows that it can.
const seizer = `cat >seize.py <<'PY'
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
def last(): return int(open('/proc/loadavg').read().split()[-1])
def ours(pid):
    try: return open('/proc/%d/cmdline' % pid, 'rb').read().startswith(b'/.sandboxbash/runner\0') or pid == 1
    except OSError: return False
def got(pid):
    how = []
    if libc.ptrace(0x4206, pid, 0, 0) == 0:
        how.append('ptrace')
    for file in ('mem', 'environ', 'maps', 'fd/0', 'fd/1'):
        try:
            os.close(os.open('/proc/%d/%s' % (pid, file), os.O_RDWR if file == 'mem' else os.O_RDONLY))
            how.append(file)
        except OSError: pass
    here = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 1)
    there = (ctypes.c_size_t * 2)(4096, 1)
    if libc.process_vm_readv(pid, here, 1, there, 1, 0) >= 0 or ctypes.get_errno() == 14: # EFAULT: it may
        how.append('process_vm_readv')
    fd = libc.syscall(434, pid, 0)
    if fd >= 0:
        if libc.syscall(438, fd, 0, 0) >= 0: how.append('pidfd_getfd')
        os.close(fd)
    return how
child = os.fork()
if child == 0: time.sleep(600); os._exit(0)
print('own child:', ' '.join(got(child)), flush=True)
for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):
    if ours(pid):
        how = got(pid)
        print('saw', pid, 'GOT ' + ' '.join(how) if how else '', flush=True)
seen = last()
end = time.time() + 20
while time.time() < end:
    now = last()
    for pid in range(seen + 1, now + 4):
        if pid == os.getpid(): continue
        how = got(pid)
        if how and ours(pid): print('GOT', pid, ' '.join(how), flush=True)
    if now - 20 > seen: seen = now - 20
PY
echo ready; exec python3 seize.py`

// Commands of profile dev have the uid of their runners, and no way into them: not
// into those that run, and not into those that begin.
func TestDevForgesNothing(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Profile: sandbox.Dev})
	attack := job(t, s, seizer, time.Minute)
	awaitOutput(t, attack)
	for range 12 {
		other := another(t, s) // with runners of its own
		res, err := other.Run(t.Context(), sandbox.Command{Script: "exit 77", Timeout: 20 * time.Second})
		if err != nil || res.Reason != exec.Exited || res.Code != 77 {
			t.Errorf("Run(exit 77) = %s %d, %v; want exit code 77", res.Reason, res.Code, err)
		}
		term := terminal(t, other, sandbox.Command{Script: "exit 77"}, sandbox.TerminalOptions{})
		if res, err := term.Wait(); err != nil || res.Code != 77 {
			t.Errorf("on a terminal: %s %d, %v; want exit code 77", res.Reason, res.Code, err)
		}
		other.Release()
	}
	if _, err := attack.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := jobText(t, attack)
	if strings.Contains(out, "GOT") || strings.Count(out, "saw") < 2 || !strings.Contains(out, "own child: ptrace mem environ maps") {
		t.Errorf("the attack has printed\n%s\nwant its own child alone", out)
	}
}

// A command has none of what tells its runner from it.
func TestDevCapabilities(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Profile: sandbox.Dev})
	const want = "CapPrm:00000000000000fb\nCapEff:00000000000000fb\n"
	const look = `grep -E '^Cap(Prm|Eff)' /proc/self/status | tr -d '\t'`
	for _, how := range []string{
		look,
		"setsid -w bash -c \"" + look + "\"",
		`perl -e 'open F, "/proc/self/status"; while (<F>) { s/\t//g; print if /^Cap(Prm|Eff)/ }'`,
	} {
		if got := script(t, s, how); got != want {
			t.Errorf("%s: %q; want %q", how, got, want)
		}
	}
	term := onTerminal(t, s, look, "")
	if got := term.Output.Stdout.Text(); got != want {
		t.Errorf("on a terminal: %q; want %q", got, want)
	}
	pid1, runners := onHost(t, s)
	for _, pid := range append(runners, pid1) {
		waitFor(t, "runner that keeps what commands lack, or its end", func() bool {
			// Between fork and exec a command has the name of the runner that started it.
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			return pid != pid1 && err != nil || bytes.Contains(status, []byte("\nCapPrm:\t00000000200000fb\n"))
		})
	}
}
