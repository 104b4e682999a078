package sandbox_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// survivors are commands that outlive a kill which believes in one look at /proc.
// Each appends to the file $GROW as long as anything of it lives, and says ready.
var survivors = map[string]string{
	// A process whose main thread has ended is a zombie, and runs.
	"a main thread that ends": `cat >zl.py <<'PY'
import os,threading,ctypes,time,signal
signal.signal(signal.SIGTERM,signal.SIG_IGN)
if os.fork():
    while True: time.sleep(1)
os.setsid()
if os.fork(): os._exit(0)
for f in (0,1,2): os.close(f)
def w():
    while True:
        with open(os.environ['GROW'],'a') as f: f.write('x')
        time.sleep(.01)
threading.Thread(target=w).start()
libc = ctypes.CDLL(None)
libc.pthread_exit(None)
PY
python3 zl.py & sleep 0.5; echo ready; trap '' TERM; while :; do sleep 1; done`,
	// A process that forks and ends is in no list that takes its time to read.
	"a hopper": hopper(1),
	"hoppers":  hopper(3),
	"a hopper among the idle": `perl -e 'for (1..300) { if (!fork) { $SIG{TERM}="IGNORE"; sleep 600; exit } } exec "sleep 600"' & sleep 1; ` +
		hopper(1),
	// Each hop undoes what stops the others.
	"hoppers that continue each other": hopperWith(2, `kill "CONT", -1 if $n % 7 == 0;`),
}

func hopper(lanes int) string { return hopperWith(lanes, "") }

func hopperWith(lanes int, each string) string {
	return fmt.Sprintf(`cat >hop.pl <<'PL'
use POSIX; $SIG{TERM}=$SIG{HUP}=$SIG{CHLD}="IGNORE";
if (fork) { sleep 600 while 1 }
setsid(); POSIX::close($_) for 0..2; open F, ">>", $ENV{GROW};
for (2..%d) { last if !fork }
for ($n = 1; ; $n++) { my $p = fork; POSIX::_exit(0) if $p; %s syswrite F, "x" if $n %% 20 == 0 }
PL
perl hop.pl & sleep 0.5; echo ready; trap '' TERM; while :; do sleep 1; done`, lanes, each)
}

// killRoutes are the ways in which a command is killed. Each starts it in s and returns
// when it is said to be dead, or for a host that goes, when that has gone.
var killRoutes = map[string]func(t *testing.T, s *sandbox.Session, c sandbox.Command){
	"timeout": func(t *testing.T, s *sandbox.Session, c sandbox.Command) {
		t.Helper()
		c.Timeout = 3 * time.Second
		res, err := s.Run(t.Context(), c)
		expectKilled(t, res, err, exec.TimedOut)
	},
	"output limit": func(t *testing.T, s *sandbox.Session, c sandbox.Command) {
		t.Helper()
		c.Script = "(sleep 2; yes) & " + c.Script
		c.Output.Limit = 1 << 20
		res, err := s.Run(t.Context(), c)
		expectKilled(t, res, err, exec.OutputLimit)
	},
	"cancel": func(t *testing.T, s *sandbox.Session, c sandbox.Command) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := begin(ctx, t, s, c, "ready")
		cancel()
		e := <-done
		expectKilled(t, e.res, e.err, exec.Cancelled)
	},
	"host gone": func(t *testing.T, s *sandbox.Session, c sandbox.Command) {
		t.Helper()
		other := another(t, s)
		done := begin(t.Context(), t, other, c, "ready")
		other.Release()
		<-done
	},
	"job kill": func(t *testing.T, s *sandbox.Session, c sandbox.Command) {
		t.Helper()
		j := job(t, s, c.Script, time.Minute)
		awaitOutput(t, j)
		info, err := j.Kill(t.Context())
		expectJob(t, info, err, exec.Cancelled)
	},
	"job timeout": func(t *testing.T, s *sandbox.Session, c sandbox.Command) {
		t.Helper()
		j := job(t, s, c.Script, 3*time.Second)
		info, err := j.Wait(t.Context())
		expectJob(t, info, err, exec.TimedOut)
	},
	"terminal end": func(t *testing.T, s *sandbox.Session, c sandbox.Command) {
		t.Helper()
		term := terminal(t, s, c, sandbox.TerminalOptions{})
		seen(t, term, "ready")
		term.Kill()
		res, err := term.Wait()
		expectKilled(t, res, err, exec.Cancelled)
	},
}

func awaitOutput(t *testing.T, j *sandbox.Job) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		text := jobText(t, j)
		if strings.Contains(text, "ready") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the job has printed %q; want ready", text)
		}
	}
}

// jobText is what a job has printed so far.
func jobText(t *testing.T, j *sandbox.Job) string {
	t.Helper()
	out, err := j.Output(t.Context(), sandbox.JobOutput{}, sink.Options{Artifact: sink.Never})
	if err != nil {
		t.Fatal(err)
	}
	return out.Stdout.Text()
}

func expectKilled(t *testing.T, res sandbox.Result, err error, reason exec.Reason) {
	t.Helper()
	r := res.Receipt()
	if err != nil || res.Reason != reason || r == nil || !r.Proved || r.Survivors != 0 || r.Killed != "kill" {
		t.Errorf("= %s, %+v, %v; want %s by kill, and proved", res.Reason, r, err, reason)
	}
}

func expectJob(t *testing.T, info sandbox.JobInfo, err error, reason exec.Reason) {
	t.Helper()
	r := info.Receipt()
	if err != nil || info.Reason != reason || r == nil || !r.Proved || r.Survivors != 0 || r.Killed != "kill" {
		t.Errorf("= %s, %+v, %v; want %s by kill, and proved", info.Reason, r, err, reason)
	}
}

// grown is by how much a file grows within some time, long against what appends to it.
const grown = `a=$(stat -c %s "$F"); [ "$a" -gt 0 ] || echo "it never grew"; sleep 0.5; b=$(stat -c %s "$F"); [ "$a" = "$b" ] || echo "$((b-a)) bytes"`

// everyPair makes TestSurvivors try each attack by each way to kill (`make kills`,
// minutes). Otherwise it tries a third of the pairs, in which each attack and each
// way to kill appears.
var everyPair = os.Getenv("SANDBOXBASH_TEST_KILLS") == "all"

// Nothing of a command is left when it is said to be dead, whatever killed it, and
// nothing else in the session has been hurt.
func TestSurvivors(t *testing.T) { //nolint:tparallel // each attack has the machine for itself
	t.Parallel()
	for p, profile := range []sandbox.Profile{sandbox.Strict, sandbox.Dev} {
		for r, route := range slices.Sorted(maps.Keys(killRoutes)) {
			kill := killRoutes[route]
			t.Run(string(profile)+" "+route, func(t *testing.T) {
				s := start(t, sandbox.Spec{Profile: profile})
				bystander := job(t, s, "while sleep 0.05; do echo >>bystander; done", 0)
				for a, name := range slices.Sorted(maps.Keys(survivors)) {
					if !everyPair && (p+r+a)%3 != 0 {
						continue
					}
					text := survivors[name]
					t.Run(name, func(t *testing.T) {
						file := "/workspace/grow-" + strings.ReplaceAll(name, " ", "-")
						env := []string{"GROW=" + file}
						kill(t, s, sandbox.Command{Script: "export GROW=" + file + "; " + text, Env: env, Timeout: time.Minute})
						check := sandbox.Command{Script: grown, Env: []string{"F=" + file}}
						out := run(t, s, check)
						for until := time.Now().Add(10 * time.Second); route == "host gone" && out != "" && time.Now().Before(until); {
							out = run(t, s, check)
						}
						if out != "" {
							t.Errorf("after its end the file of %s grew: %s", name, out)
						}
					})
				}
				if got := script(t, s, `a=$(stat -c %s bystander); for i in $(seq 100); do sleep 0.2; [ "$(stat -c %s bystander)" -gt "$a" ] && echo lives && break; done`); got != "lives\n" {
					t.Errorf("the other job: %q; want it to live", got)
				}
				if info, err := bystander.Now(t.Context()); err != nil || info.State != sandbox.JobRunning {
					t.Errorf("the other job is %s, %v; want it to run", info.State, err)
				}
			})
		}
	}
}

// What stops everything for a moment is not seen by those that go on: a shell with a
// program in the foreground, one that a person has stopped, a job.
func TestSurvivorsBystanders(t *testing.T) {
	t.Parallel()
	for _, profile := range []sandbox.Profile{sandbox.Strict, sandbox.Dev} {
		t.Run(string(profile), func(t *testing.T) {
			t.Parallel()
			s := start(t, sandbox.Spec{Profile: profile})
			j := job(t, s, "while sleep 0.05; do echo >>bystander; done", 0)
			shell := terminal(t, s, sandbox.Command{Script: "PS1='$ ' exec bash --norc -i"}, sandbox.TerminalOptions{})
			pager := terminal(t, s, sandbox.Command{Script: "seq 1000 | less; echo over $?"}, sandbox.TerminalOptions{})
			types := func(text string) {
				t.Helper()
				if err := shell.Type(text); err != nil {
					t.Fatal(err)
				}
			}
			seen(t, pager, "42")
			types("exec -a stopped sleep 1000 & sleep 0.3; kill -STOP $!; echo sto''pped\n")
			seen(t, shell, "stopped")
			types("clear; bash -c 'echo fore''ground; sleep 999; :'\n")
			seen(t, shell, "foreground")
			for range 5 {
				res, err := s.Run(t.Context(), sandbox.Command{
					Script: "export GROW=/workspace/grow; " + survivors["a hopper"], Timeout: 1500 * time.Millisecond,
				})
				expectKilled(t, res, err, exec.TimedOut)
			}
			if shot := shell.Screen().Text(); strings.Count(shot, "Stopped") > 1 || strings.Contains(shot, "$") {
				t.Errorf("the shell has seen its program stop:\n%s", shot)
			}
			states := script(t, s, "ps -eo stat=,args= | grep -E '[s]topped|[s]leep 999|[l]ess' | cut -c1 | sort | tr -d '\\n'")
			if states != "SSSST" && states != "SSST" && states != "SST" {
				t.Errorf("states %q; want one that was stopped before to be still, and no other", states)
			}
			types("\x03")
			types("echo en''d $?\n")
			seen(t, shell, "end 130")
			if err := pager.Type("q"); err != nil {
				t.Fatal(err)
			}
			seen(t, pager, "over 0")
			if info, err := j.Now(t.Context()); err != nil || info.State != sandbox.JobRunning {
				t.Errorf("the job is %s, %v; want it to run", info.State, err)
			}
		})
	}
}
