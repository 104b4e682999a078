package sandbox_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// A session without a network has no name server and no search list of the engine's
// machine, and a look-up fails at once.
func TestNamesWithoutNetwork(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{})
	if got, want := script(t, s, "cat /etc/resolv.conf | grep -v '^#' | sed '/^$/d'; cat /etc/hostname"), "nameserver 127.0.0.1\noptions timeout:1 attempts:2\nsandbox\n"; got != want &&
		got != strings.Replace(want, "options", "search .\noptions", 1) {
		t.Errorf("resolv.conf and hostname are %q; want %q", got, want)
	}
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := script(t, s, "cat /etc/hosts"); strings.Contains(got, own) {
		t.Errorf("/etc/hosts names this machine, %s:\n%s", own, got)
	}
	for _, look := range []string{
		"getent hosts no-such.example",
		"getent ahosts no-such", // the search list
		"curl -sS http://no-such.example/",
		`python3 -c 'import socket; socket.getaddrinfo("no-such.example", 80)'`,
		"git clone -q http://no-such.example/x x",
		"busybox nslookup no-such.example",
		"wget -q -t 1 http://no-such.example/",
	} {
		for try := 1; ; try++ { // more than one if the machine is busy
			begin := time.Now()
			res, err := s.Run(t.Context(), sandbox.Command{Script: look, Timeout: 20 * time.Second})
			took := time.Since(begin)
			if err == nil && res.Code != 0 && took > 2*time.Second && try < 3 {
				continue
			}
			if err != nil || res.Code == 0 || took > 2*time.Second {
				t.Errorf("%s: code %d, %v after %v; want it to fail at once", look, res.Code, err, took)
			}
			break
		}
	}
	script(t, s, `python3 -c 'import socket; socket.socket().bind(("127.0.0.1", 53)); socket.socket(type=socket.SOCK_DGRAM).bind(("127.0.0.1", 53))'`)
}

// What commands leave in the kernel's memory when they end is bounded, in a session and
// against its neighbours.
func TestKernelObjects(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Limits: sandbox.Limits{Memory: 256 << 20}})
	const python = `python3 - <<'E'
import ctypes, ctypes.util
c = ctypes.CDLL(ctypes.util.find_library("c") or "libc.so.6", use_errno=True)
shm = 0
while c.shmget(0, 1 << 20, 0o1600) >= 0: shm += 1
queues = 0
while c.msgget(0, 0o1600) >= 0: queues += 1
mq = 0
while c.mq_open(b"/q%d" % mq, 0o102, 0o600, None) >= 0: mq += 1
timers = 0
while c.timer_create(0, None, ctypes.byref(ctypes.c_void_p())) == 0: timers += 1
print(shm, queues, mq, timers <= 4096)
E`
	if got, want := script(t, s, python), "64 256 2 True\n"; got != want {
		t.Errorf("SysV segments of 1 MiB, queues, POSIX queues, timers: %q; want %q", got, want)
	}
	if got, want := script(t, start(t, sandbox.Spec{Limits: sandbox.Limits{Memory: 256 << 20}}), python), "64 256 2 True\n"; got != want {
		t.Errorf("a neighbour: %q; want %q", got, want)
	}
}

// The sizes of what is kept in memory are those that were asked for, and Info has
// them.
func TestSizes(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Limits: sandbox.Limits{Memory: 256 << 20, Home: 24 << 20, Tmp: 8 << 20}})
	const sizes = "stat -f -c '%n %b %S' /home/agent /tmp | awk '{print $1, $2*$3}'"
	if got, want := script(t, s, sizes), "/home/agent 25165824\n/tmp 8388608\n"; got != want {
		t.Errorf("sizes are %q; want %q", got, want)
	}
	if l := s.Info().Limits; l.Home != 24<<20 || l.Tmp != 8<<20 {
		t.Errorf("Limits = %+v; want the sizes that were asked for", l)
	}
	if got, want := script(t, start(t, sandbox.Spec{Limits: sandbox.Limits{Memory: 256 << 20}}), sizes), "/home/agent 67108864\n/tmp 67108864\n"; got != want {
		t.Errorf("default sizes are %q; want a quarter of the memory, %q", got, want)
	}
	dev := start(t, sandbox.Spec{Profile: sandbox.Dev, Limits: sandbox.Limits{Home: 24 << 20}})
	if notes := strings.Join(dev.Notes(), "\n"); !strings.Contains(notes, "the home is on the container's own root") || dev.Info().Limits.Home != 0 {
		t.Errorf("profile dev with a size of its home: %+v, notes %q; want a note and no size", dev.Info().Limits, notes)
	}
}

// The result of a command that fails where there is no room names the limit.
func TestFull(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Spec{Limits: sandbox.Limits{Memory: 512 << 20, Home: 4 << 20, Tmp: 4 << 20, Disk: 4 << 20}})
	for _, tt := range []struct {
		name, script string
		want         []string
	}{
		{"success", "head -c 5m /dev/zero >/tmp/x; true", nil},
		{"tmp", "head -c 5m /dev/zero >/tmp/x", []string{"/tmp is full: all of its 4MiB are used; give the session more with --tmp (limits.tmp)"}},
		{"failed with room", "rm /tmp/x; exit 3", nil},
		{"home", "head -c 5m /dev/zero >~/x || { rm -f /tmp/x; exit 4; }", []string{"/home/agent is full: all of its 4MiB are used; give the session more with --home (limits.home)"}},
		{"a signal", "kill -9 $$", []string{"/home/agent is full: all of its 4MiB are used; give the session more with --home (limits.home)"}},
		{"workspace", "rm ~/x; head -c 5m /dev/zero >x", []string{"/workspace is full: all of its 4MiB are used; give the session more with --disk (limits.disk)"}},
		{"shared memory", "rm x; head -c 65m /dev/zero >/dev/shm/x", []string{"/dev/shm is full: all of its 64MiB are used; that number is fixed"}},
		{"files", "rm /dev/shm/x; python3 -c 'import os\nfor i in range(300000): os.mkdir(\"/tmp/%d\" % i)'", []string{"/tmp is full: it has as many files as it takes, 204800; that number is fixed"}},
	} {
		res, err := s.Run(t.Context(), sandbox.Command{Script: tt.script, Timeout: time.Minute})
		var got []string
		for _, f := range res.Full {
			got = append(got, f.String())
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: code %d, %v, full %q; want %q", tt.name, res.Code, err, got, tt.want)
		}
	}
	job, err := s.StartJob(t.Context(), sandbox.Command{Script: "head -c 5m /dev/zero >~/x"}, sandbox.JobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := job.Wait(t.Context()); err != nil || len(info.Full) != 2 || info.Full[0].Path != "/home/agent" {
		t.Errorf("a job: full %v, %v; want /home/agent and /tmp", info.Full, err)
	}
}
