package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// kills is how often the test below kills its program.
const kills = 50

// jobRun is one start of a command that is a job at once, or becomes one, by a
// program that is killed at some point.
type jobRun struct {
	n       int
	printed string // the job's id, if the program got to say it
}

func (r jobRun) mark() string { return fmt.Sprintf("job-of-run-%d-end", r.n) }

// code is the exit code of the command.
func (r jobRun) code() int { return r.n%100 + 1 }

// lines is what the command writes.
func (r jobRun) lines() string {
	var b strings.Builder
	for i := range 30 {
		fmt.Fprintf(&b, "run %d line %d\n", r.n, i+1)
	}
	return b.String()
}

func (r jobRun) script() string {
	return fmt.Sprintf(": %s; for i in $(seq 30); do echo run %d line $i; sleep 0.005; done; exit %d", r.mark(), r.n, r.code())
}

// start starts the program, and kills it after a while of up to most. It reports whether the
// program had ended by itself.
func (r *jobRun) start(t *testing.T, home, session string, most time.Duration) (ended bool) {
	t.Helper()
	flag := "--background"
	if r.n%2 == 1 {
		flag = "--background-after=40ms"
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(built, "sandboxbash"), "run", "--json", "--session", session, flag, r.script())
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(rand.N(most))
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed, or it was faster
	var said struct {
		ID  string
		Job struct{ ID string }
	}
	if json.Unmarshal(out.Bytes(), &said) == nil {
		r.printed = said.ID + said.Job.ID
	}
	return cmd.ProcessState.Exited()
}

type jobFound struct {
	ID, State, Label string
	ExitCode         *int
}

// listJobs waits until no job of a session runs.
func listJobs(t *testing.T, home, session string) []jobFound {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var all []jobFound
		text := sandboxbash(t, home, "job", "ls", "--session", session, "--json")
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatalf("job ls --json: %v\n%s", err, text)
		}
		if !strings.Contains(text, `"state":"running"`) {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("jobs still run: %s", text)
		}
	}
}

// If the process that starts a job is killed at any point, the job exists as a whole or not at
// all. No job that it has reported, no byte and no exit code is lost.
func TestJobsOfKilledHosts(t *testing.T) {
	t.Parallel()
	needEngine(t)
	home := t.TempDir()
	session := startSession(t, home)
	begin := time.Now()
	sandboxbash(t, home, "run", "--session", session, "--background", "true")
	most := 2 * time.Since(begin) // of a start, which takes about as long as that one
	var runs []jobRun
	for n := range kills {
		r := jobRun{n: n}
		if r.start(t, home, session, most) { // the machine may be faster or slower than at the first start
			most = most * 4 / 5
		} else {
			most = most * 5 / 4
		}
		runs = append(runs, r)
	}
	byLabel := map[string]jobFound{}
	for _, found := range listJobs(t, home, session) {
		_, mark, _ := strings.Cut(found.Label, ": ")
		mark, _, _ = strings.Cut(mark, ";")
		if _, twice := byLabel[mark]; twice {
			t.Errorf("there are two jobs of one run: %s", mark)
		}
		byLabel[mark] = found
	}
	told, there := 0, 0
	for _, r := range runs {
		found, ok := byLabel[r.mark()]
		if r.printed != "" {
			told++
		}
		if !ok {
			if r.printed != "" {
				t.Errorf("run %d: the job %s, whose id was printed, is not there", r.n, r.printed)
			}
			continue
		}
		there++
		if r.printed != "" && found.ID != r.printed {
			t.Errorf("run %d: it was printed as %s, and is there as %s", r.n, r.printed, found.ID)
		}
		if found.State != "failed" || found.ExitCode == nil || *found.ExitCode != r.code() {
			t.Errorf("run %d: %s ended as %s with exit code %s; want failed, %d", r.n, found.ID, found.State, text(found.ExitCode), r.code())
		}
		if got := sandboxbash(t, home, "job", "logs", "--session", session, found.ID) + "\n"; got != r.lines() {
			t.Errorf("run %d: %s has written %q; want %q", r.n, found.ID, got, r.lines())
		}
	}
	t.Logf("killed %d times within %v: %d jobs were printed, %d are there", kills, most, told, there)
	if there == 0 || there == kills {
		t.Errorf("%d of %d jobs are there: the kills came all too early or too late to test anything", there, kills)
	}
	// What became no job has ended with its process.
	var left, files string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) { // that of the last one
		left = sandboxbash(t, home, "session", "ps", session)
		files = sandboxbash(t, home, "run", "--session", session, "ls -A /run/jobs | grep -v '^bg_' || true")
		if !strings.Contains(left, "job-of-run") && files == ".lock" {
			return
		}
	}
	t.Errorf("left after the commands that became no jobs:\n%s\nand next to the jobs: %q", left, files)
}

func text(code *int) string {
	if code == nil {
		return "none"
	}
	return strconv.Itoa(*code)
}
