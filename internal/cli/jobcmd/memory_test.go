package jobcmd_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/wire"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// jobs plays what keeps the jobs of a session: three of them.
type jobs struct {
	t      *testing.T
	key    []byte
	output string
	states []wire.JobState
	told   []string // what has been asked for, by verb and id
}

func newJobs(t *testing.T, m *clitest.Memory, id string) *jobs {
	t.Helper()
	j := &jobs{t: t, key: m.Key(id), output: "out c4nary-0123456789\n"}
	began := time.Now().Add(-time.Hour)
	add := func(id, label string, end *wire.JobEnd) {
		began = began.Add(time.Minute)
		start := wire.JobStart{ID: id, Tag: id, Owner: "o", Label: label, PID: 7, Runner: 6, Started: began}
		if id == "bg_2" {
			start.Timeout = time.Hour
		}
		s := wire.JobState{ID: id, Start: start.Seal(j.key), Alive: end == nil, Size: uint64(len(j.output))}
		if end != nil {
			end.ID, end.Tag, end.Ended, end.Elapsed = id, id, began.Add(time.Second), time.Second
			end.Written, end.Kept = s.Size, s.Size
			s.End = end.Seal(j.key)
		}
		j.states = append(j.states, s)
	}
	add("bg_1", "make all", &wire.JobEnd{})
	add("bg_2", "evil\nc4nary-0123456789", &wire.JobEnd{Code: 3})
	add("bg_3", "sleep 60", nil)
	m.Answer = j.answer
	return j
}

func (j *jobs) answer(req wire.Request, input []byte) (stdout, stderr []byte, end wire.Exit) {
	if req.Path == "" || req.Args[0] != string(wire.VerbJobs) {
		return nil, nil, wire.Exit{}
	}
	q, err := wire.ParseJobQuery(input)
	if err != nil {
		j.t.Errorf("query: %v", err)
	}
	switch q.Verb {
	case wire.JobList:
		return wire.AppendJobStates(nil, j.states), nil, wire.Exit{}
	case wire.JobRead, wire.JobFollow:
		return []byte(j.output[min(int(q.From), len(j.output)):]), nil, wire.Exit{}
	case wire.JobKill:
		j.told = append(j.told, "kill "+q.ID)
		for i, s := range j.states {
			if s.ID == q.ID && s.Alive {
				j.states[i].Alive = false
				j.states[i].End = wire.JobEnd{ID: q.ID, Tag: q.ID, Ending: wire.EndedByDemand, Signal: 15, Ended: time.Now()}.Seal(j.key)
			}
		}
	case wire.JobRemove:
		j.told = append(j.told, "rm "+q.ID)
		j.states = slices.DeleteFunc(j.states, func(s wire.JobState) bool { return s.ID == q.ID })
	}
	return nil, nil, wire.Exit{}
}

func TestListJobs(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	m.Environ = append(m.Environ, "X_TOKEN=c4nary-0123456789")
	newJobs(t, m, m.Session(1, sandbox.Spec{}))
	status, out, errs := m.Call("job", "ls")
	var got [][]string
	for line := range strings.Lines(out) {
		got = append(got, strings.Fields(line))
	}
	if status != 0 || errs != "" || len(got) != 4 {
		t.Fatalf("job ls = %d, %q, %q; want three jobs", status, out, errs)
	}
	for i, want := range []string{"bg_1 completed 0 7 59m none", "bg_2 failed 3 7 58m 1h", "bg_3 running - 7 57m none"} {
		if row := strings.Join(got[i+1][:6], " "); row != want {
			t.Errorf("row %d is %q; want %q", i+1, row, want)
		}
	}
	if strings.Contains(out, "c4nary") {
		t.Errorf("job ls shows a secret: %q", out)
	}
	status, out, errs = m.Call("job", "ls", "--json")
	var list []struct {
		ID, State string
		ExitCode  *int
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || status != 0 || errs != "" || len(list) != 3 || list[1].ExitCode == nil || *list[1].ExitCode != 3 || list[2].ExitCode != nil || strings.Contains(out, "c4nary") {
		t.Errorf("job ls --json = %d, %q, %q: %v", status, out, errs, err)
	}
	empty := clitest.NewMemory(t)
	empty.Session(1, sandbox.Spec{})
	if status, out, errs := empty.Call("job", "ls", "--json"); status != 0 || out != "[]\n" || errs != "" {
		t.Errorf("without jobs: job ls --json = %d, %q, %q; want []", status, out, errs)
	}
}

// Without an id, show and logs are about the job that was started last; wait ends as its command did.
func TestOneJob(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	m.Environ = append(m.Environ, "X_TOKEN=c4nary-0123456789")
	newJobs(t, m, m.Session(1, sandbox.Spec{}))
	for _, test := range []struct {
		args   []string
		status int
		out    []string
	}{
		{[]string{"show"}, 0, []string{"bg_3", "running", "sleep 60"}},
		{[]string{"show", "bg_2"}, 0, []string{"bg_2", "failed", "exited", "[REDACTED:X_TOKEN]"}},
		{[]string{"show", "--json", "bg_1"}, 0, []string{`"id":"bg_1"`, `"exitCode":0`}},
		{[]string{"logs", "bg_1"}, 0, []string{"out [REDACTED:X_TOKEN]\n"}},
		{[]string{"wait", "bg_1"}, 0, nil},
		{[]string{"wait", "bg_2"}, 3, nil},
		{[]string{"wait", "--json", "bg_2"}, 3, []string{`"id":"bg_2"`, `"exitCode":3`, "out [REDACTED:X_TOKEN]"}},
	} {
		status, out, errs := m.Call(append([]string{"job"}, test.args...)...)
		if status != test.status || strings.Contains(out+errs, "c4nary") {
			t.Errorf("job %q = %d, %q, %q; want %d", test.args, status, out, errs, test.status)
		}
		for _, want := range test.out {
			if !strings.Contains(out, want) {
				t.Errorf("job %q prints %q; want %q in it", test.args, out, want)
			}
		}
	}
}

// stop and rm do the same to each job, and print the ids of those it was done to.
func TestEachJob(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	j := newJobs(t, m, m.Session(1, sandbox.Spec{}))
	status, out, errs := m.Call("job", "rm", "bg_1", "bg_9", "bg_2")
	if status != exit.Usage || out != "bg_1\nbg_2\n" || !strings.Contains(errs, "bg_9") {
		t.Errorf("job rm = %d, %q, %q; want two of three removed", status, out, errs)
	}
	if status, out, errs := m.Call("job", "stop", "--quiet", "bg_3"); status != 0 || out+errs != "" {
		t.Errorf("job stop --quiet = %d, %q, %q; want silence", status, out, errs)
	}
	if diff := cmp.Diff([]string{"rm bg_1", "rm bg_2", "kill bg_3"}, j.told); diff != "" {
		t.Errorf("what was asked for (-want +got):\n%s", diff)
	}
}

// A job is one of a session: --session says which, unless there is only one.
func TestSessionOfJob(t *testing.T) {
	t.Parallel()
	m := clitest.NewMemory(t)
	if status, _, errs := m.Call("job", "ls"); status != exit.Usage || !strings.Contains(errs, "there is no session of yours") {
		t.Errorf("without a session: job ls = %d, %q", status, errs)
	}
	m.Session(1, sandbox.Spec{})
	second := m.Session(2, sandbox.Spec{})
	for _, args := range [][]string{{"ls"}, {"show"}, {"stop", "bg_1"}, {"logs"}, {"wait"}} {
		if status, out, errs := m.Call(append([]string{"job"}, args...)...); status != exit.Usage || out != "" || !strings.Contains(errs, "2 sessions are yours") || !strings.Contains(errs, "--session") {
			t.Errorf("job %q = %d, %q, %q; want that --session is asked for", args, status, out, errs)
		}
	}
	newJobs(t, m, second)
	if status, out, errs := m.Call("job", "show", "--session", second, "bg_1"); status != 0 || !strings.Contains(out, "make all") || errs != "" {
		t.Errorf("job show --session = %d, %q, %q", status, out, errs)
	}
	if status, out, errs := m.Call("job", "show", "--session", second, "--json", "bg_9"); status != exit.Usage || errs != "" || !strings.Contains(out, `"cause":"unknown-job"`) {
		t.Errorf("job show of none = %d, %q, %q", status, out, errs)
	}
	status, out, _ := m.Call("__complete", "job", "stop", "--session", second, "bg_1", "bg_")
	if status != 0 || strings.Contains(out, "bg_1\t") || !strings.Contains(out, "bg_2\tfailed: ") || !strings.Contains(out, "bg_3\trunning: sleep 60") {
		t.Errorf("completion of jobs = %d, %q", status, out)
	}
}
