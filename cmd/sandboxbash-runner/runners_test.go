//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// writes has a file grow every 10 ms for as long as the process lives.
const writes = `while sleep 0.01; do echo >>%s; done`

// grows reports whether a file of the lab grows within some time.
func (l *lab) grows(file string) bool {
	size := func() int64 {
		info, err := os.Stat("/proc/" + l.pid() + "/root" + labWork + "/" + file)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	before := size()
	time.Sleep(300 * time.Millisecond)
	return size() > before
}

// What a killed runner has left ends, however it hides. Whatever else runs in the session goes
// on: what commands have left behind in an orderly way, with what it has started since, and
// other runners with their commands.
func TestRunnerKilled(t *testing.T) {
	t.Parallel()
	for name, attack := range map[string]string{
		"a group":          `sleep 4301 & sleep 4301 & echo; sleep 0.2; kill -KILL $PPID; sleep 4301`,
		"sessions":         `setsid sleep 4301 & (setsid sh -c 'setsid sleep 4301 & sleep 4301' &); echo; sleep 0.2; kill -KILL $PPID; sleep 4301`,
		"deaf":             `trap '' TERM HUP; echo; sleep 0.2; kill -KILL $PPID; while :; do sleep 4301; done`,
		"stopped":          `setsid sh -c 'kill -STOP $$; sleep 4301' & echo; sleep 0.2; kill -KILL $PPID; sleep 4301`,
		"many that go on":  `f() { sleep 0.01; f & }; f & f & echo; sleep 0.2; kill -KILL $PPID; sleep 4301`,
		"a late daemon":    `(sleep 0.25; setsid sh -c 'sleep 4301 & sleep 4301' &) & echo; sleep 0.2; kill -KILL $PPID; exit`,
		"a leader that is": `echo; exec sh -c 'sleep 0.2; kill -KILL $PPID; exec sleep 4301'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newDevLab(t)
			before := l.serve()
			if a := before.run(wire.Request{Script: []byte(`exec >/dev/null 2>&1; (` + fmt.Sprintf(writes, "left") + `) & setsid sh -c '` +
				fmt.Sprintf(writes, "own") + `' & sleep 4302 &`)}); a.exit.Left == 0 {
				t.Fatalf("%+v; want children left", a.exit)
			}
			before.ends()
			other := l.serve()
			other.request(wire.Request{Script: []byte("echo; exec sleep 4303")})
			other.started()
			_, job := l.background("exec sleep 4304", labJob(true))

			h := l.serve()
			h.request(wire.Request{Script: []byte(attack), Env: []string{"PATH=/usr/bin:/bin"}})
			h.started()
			_ = h.ends()
			eventually(t, "the end of what the runner left", func() bool { return l.count("sleep 4301") == 0 })
			time.Sleep(200 * time.Millisecond) // for one that is in no list
			if n := l.count("sleep 4301"); n != 0 {
				t.Errorf("%d processes live on after the runner was killed; want none", n)
			}
			for _, text := range []string{"sleep 4302", "sleep 4303", "sleep 4304"} {
				if n := l.count(text); n == 0 {
					t.Errorf("%s has ended with another command's runner", text)
				}
			}
			for _, file := range []string{"left", "own"} {
				eventually(t, "what writes to "+file+" to go on", func() bool { return l.grows(file) })
			}
			for _, state := range l.jobs() {
				if state.ID == job.ID && !state.Alive {
					t.Error("the job has ended with another command's runner")
				}
			}
		})
	}
}

// A job whose runner is killed is lost, and nothing of it is left.
func TestJobRunnerKilled(t *testing.T) {
	t.Parallel()
	l := newDevLab(t)
	_, job := l.background("setsid sleep 4305 & sleep 0.3; kill -KILL $PPID; sleep 4305", labJob(true))
	eventually(t, "the end of the job's runner", func() bool {
		for _, state := range l.jobs() {
			if state.ID == job.ID {
				return !state.Alive
			}
		}
		t.Fatalf("%s is not listed", job.ID)
		return false
	})
	eventually(t, "the end of what it left", func() bool { return l.count("sleep 4305") == 0 })
}

// What a runner has stopped goes on when it is killed in the middle of a freeze, except what
// was stopped before.
func TestRunnerKilledInFreeze(t *testing.T) {
	t.Parallel()
	l := newDevLab(t)
	h := l.serve()
	h.request(wire.Request{Script: []byte(`(` + fmt.Sprintf(writes, "stopped") + `) & kill -STOP $!; (` + fmt.Sprintf(writes, "file") + `) & sleep 0.2; echo; wait`)})
	h.started()
	// It stops all that commands run, as a runner does, and is killed then.
	l.role = labFreeze
	freezes := l.command()
	out, _ := freezes.CombinedOutput()
	if status, ok := freezes.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != unix.SIGKILL || len(out) > 0 {
		t.Fatalf("%s: %s; want it killed", freezes.ProcessState, out)
	}
	l.role = labVerb
	eventually(t, "the bystander to go on", func() bool { return l.grows("file") })
	if l.grows("stopped") {
		t.Error("what its user had stopped goes on")
	}
}

// A runner that cannot restore its OOM score says why the command was not started, and ends;
// nothing of the command is left.
func TestRunnerSpoiled(t *testing.T) {
	t.Parallel()
	l := newDevLab(t)
	l.role = labOdd
	h := l.serve()
	a := h.run(wire.Request{Script: []byte("setsid sleep 4306 & setsid sleep 4306 & exec sleep 4306")})
	if a.failed == nil || a.failed.Errno != int(unix.EINVAL) || !strings.Contains(a.failed.Detail, "restore oom_score_adj") {
		t.Errorf("%+v, %+v; want the start to have failed with EINVAL", a.failed, a.exit)
	}
	if code := h.ends(); code != 1 {
		t.Errorf("the runner ends with %d; want 1", code)
	}
	l.role = labVerb
	eventually(t, "the end of the command", func() bool { return l.count("sleep 4306") == 0 })
}

// SIGUSR1 has PID 1 hold all commands until a runner has started. Then they go on, except what
// was stopped before.
func TestInitHolds(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]uint32{"strict": labUser, "dev": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLabOf(t, time.Minute, user)
			h := l.serve()
			h.request(wire.Request{Script: []byte(`(` + fmt.Sprintf(writes, "stopped") + `) & sleep 0.1; kill -STOP $!; (` + fmt.Sprintf(writes, "file") + `) & sleep 0.2; echo; wait`)})
			h.started()
			// Commands are held for holdTime at most: on a busy machine there are more tries.
			for try := 1; ; try++ {
				eventually(t, "the command writes", func() bool { return l.grows("file") })
				signalled := time.Now()
				if err := l.init.Process.Signal(unix.SIGUSR1); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				held := !l.grows("file")
				asked := time.Now()
				_ = l.jobs()
				took := time.Since(asked)
				goesOn := l.grows("file") && time.Since(signalled) < holdTime // which is not over
				if held && took <= holdTime/2 && goesOn {
					break
				}
				if try == 5 {
					t.Errorf("held: %t; a question took %s; the command goes on when a runner has started: %t", held, took, goesOn)
					break
				}
			}
			if l.grows("stopped") {
				t.Error("what its user had stopped goes on")
			}
		})
	}
}
