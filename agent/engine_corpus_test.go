package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/corpus"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// sessionRow is a row of the corpus of results, with what only a session shows.
type sessionRow struct {
	Call struct {
		corpus.Call
		Calls   []string `json:"calls"`
		Abort   int      `json:"abort_after_ms"`
		Aborted bool     `json:"aborted"`
		After   string   `json:"after"`
		Assume  float64  `json:"assume_timeout_s"`
	} `json:"call"`
	Expect struct {
		corpus.Expect
		Number     string   `json:"details_number"`
		Elapsed    [2]int64 `json:"elapsed_ms"`
		AbsentLate []any    `json:"file_absent_after_ms"`
		Alive      bool     `json:"pid_alive"`
		Updates    int      `json:"updates_at_least"`
		Prefixes   bool     `json:"update_texts_prefix_of_each_other"`
		Last       string   `json:"last_text_starts"`
		None       bool     `json:"no_process_left"`
		Artifacts  *int     `json:"artifacts_created"`
	} `json:"expect"`
}

// The rows on results whose commands run, in a session: all that the contracts
// promise of a command, end to end.
func TestSessionResultCorpus(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	sb := startSandboxWith(t, sandbox.Spec{Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceVolume, Target: "/srv/s"}}, store)
	if _, _, err := sb.Ask(t.Context(), sandbox.Command{Script: "mkdir -p sub 'a b' rows; touch file.txt"}); err != nil {
		t.Fatal(err)
	}
	// What has no command is said by a contract alone, and the client's terminal is
	// not part of the session.
	leave := func(c corpus.Row) bool {
		var r sessionRow
		c.Into(t, &r)
		return c.Tier == "version" || r.Call.Command == nil && r.Call.Calls == nil
	}
	corpus.File{Path: "tool/testdata/results.jsonl", Leave: leave, Ran: 70}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r sessionRow
		c.Into(t, &r)
		s := openSession(t, sb, SessionOptions{Contract: contracts[c.Letter()]})
		checkInSession(t, sb, s, c.ID, &r, filepath.Join(store, sb.ID()))
	})
}

// contracts are the names of the letters in the specification.
var contracts = map[string]tool.Name{"A": tool.Agent, "B": tool.Plain, "C": tool.Modes}

func checkInSession(t *testing.T, sb *sandbox.Session, s *Session, id string, r *sessionRow, store string) {
	t.Helper()
	want := &r.Expect
	if want.TextStarts != nil && *want.TextStarts == "<home>\n" {
		*want.TextStarts = sb.Home() + "\n"
	}
	var updates *heard
	var start time.Time
	var res tool.Result
	const tries = 3 // the machine may be slow in one
	for try := 1; ; try++ {
		updates, start = &heard{}, time.Now()
		res = callRow(t, sb, s, id, r, updates)
		took := time.Since(start).Milliseconds()
		if want.Elapsed[1] == 0 || r.Call.Assume != 0 || took >= want.Elapsed[0] && took <= want.Elapsed[1] {
			break
		}
		if took < want.Elapsed[0] || try == tries {
			t.Errorf("it took %d ms; want %v", took, want.Elapsed)
			break
		}
	}
	checkText(t, res, want.Expect)
	artifactBytes, artifactName := want.Artifact, want.ArtifactName
	want.Artifact, want.ArtifactName = 0, nil
	checkDetails(t, res, want.Expect)
	if res.Plain != nil {
		checkPlain(t, *res.Plain, want.Expect)
	}
	if want.Number != "" && res.Details.WallTimeMs == nil {
		t.Errorf("details %+v; want %s", res.Details, want.Number)
	}
	if artifactBytes > 0 && res.Details != nil {
		files, err := filepath.Glob(filepath.Join(store, res.Details.ArtifactID+".*"))
		if err != nil || len(files) != 1 || artifactName != nil && !regexp.MustCompile(*artifactName).MatchString(filepath.Base(files[0])) {
			t.Fatalf("artifacts %q, %v; want one", files, err)
		}
		if info, err := os.Stat(files[0]); err != nil || info.Size() != artifactBytes {
			t.Errorf("artifact %v, %v; want %d bytes", info, err, artifactBytes)
		}
	}
	if want.Artifacts != nil && res.Details.ArtifactID != "" {
		t.Errorf("artifact %q; want none", res.Details.ArtifactID)
	}
	if want.Last != "" && !strings.HasPrefix(res.Text, want.Last) {
		t.Errorf("last text %q; want it to begin with %q", res.Text, want.Last)
	}
	texts := updates.texts()
	if len(texts) < want.Updates {
		t.Errorf("%d updates; want %d", len(texts), want.Updates)
	}
	for i := 1; i < len(texts) && want.Prefixes; i++ {
		if !strings.HasPrefix(texts[i], texts[i-1]) {
			t.Errorf("updates %q and %q; want one to begin with the other", texts[i-1], texts[i])
		}
	}
	if want.Alive {
		pid, _, _ := strings.Cut(res.Text, "\n")
		if _, st, err := sb.Ask(t.Context(), sandbox.Command{Script: "kill $1", Args: []string{pid}}); err != nil || st.Code != 0 {
			t.Errorf("kill %s: code %d, %v; want it alive until then", pid, st.Code, err)
		}
	}
	if want.None {
		noProcess(t, sb, "sleep 300")
	}
	if want.FileAbsent != "" {
		absent(t, sb, "/srv/s/"+want.FileAbsent)
		absent(t, sb, "/srv/s/rows/"+id+"/"+want.FileAbsent)
	}
	if len(want.AbsentLate) == 2 {
		late := time.Duration(want.AbsentLate[1].(float64) * float64(time.Millisecond))
		time.Sleep(time.Until(start.Add(late)))
		absent(t, sb, fmt.Sprintf("/srv/s/rows/%s/%s", id, want.AbsentLate[0]))
	}
}

func absent(t *testing.T, sb *sandbox.Session, file string) {
	t.Helper()
	if _, st, err := sb.Ask(t.Context(), sandbox.Command{Script: `[ ! -e "$1" ]`, Args: []string{file}}); err != nil || st.Reason != exec.Exited || st.Code != 0 {
		t.Errorf("%s is there (%+v, %v)", file, st, err)
	}
}

// callRow calls what a row calls. The longest timeouts are made a second long.
func callRow(t *testing.T, sb *sandbox.Session, s *Session, id string, r *sessionRow, updates *heard) tool.Result {
	t.Helper()
	on := Events{Update: updates.update}
	if r.Call.Calls != nil {
		var res tool.Result
		for _, command := range r.Call.Calls {
			res = callOn(t, s, on, command)
		}
		return res
	}
	if r.Call.After == "abort" {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		s.Call(ctx, tool.BashName, raw(`{"command":"sleep 60"}`), Events{})
	}
	if s.opts.Contract == tool.Agent && (r.Call.Cwd == nil || *r.Call.Cwd == "<tmp>") && !strings.Contains(string(r.Call.Command), "cd ") {
		dir := "/srv/s/rows/" + id
		if _, _, err := sb.Ask(t.Context(), sandbox.Command{Script: `mkdir -p "$1"`, Args: []string{dir}}); err != nil {
			t.Fatal(err)
		}
		r.Call.Cwd = &dir
	}
	ctx := t.Context()
	if r.Call.Abort > 0 || r.Call.Aborted {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Call.Abort)*time.Millisecond)
		defer cancel()
	}
	fields := r.Call.Call.JSON(t)
	if strings.HasPrefix(string(r.Call.Command), `"sleep 60`) && s.opts.Contract == tool.Plain {
		r.Call.Assume = 1
	}
	if r.Call.Assume == 0 {
		return s.Call(ctx, tool.BashName, fields, on)
	}
	c := running{plan: s.contract.Plan(fields, s.host(nil)), on: on}
	c.plan.Timeout.Seconds = r.Call.Assume
	return s.run(ctx, &c)
}

// The rows on variables whose commands run.
func TestSessionEnvCorpus(t *testing.T) {
	t.Parallel()
	sb := startSandbox(t)
	leave := func(c corpus.Row) bool {
		return c.Tier == "version" || c.Kind != "behaviour" && c.Kind != "non_interactive_default"
	}
	corpus.File{Path: "sink/testdata/env.jsonl", Leave: leave, Ran: 32}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		var r struct {
			Key, Value, Command string
			Env                 map[string]string
			Trim                *string `json:"stdout_trim"`
			Exact               *string `json:"stdout_exact"`
		}
		c.Into(t, &r)
		s := openSession(t, sb, SessionOptions{})
		if r.Key != "" {
			shows(t, s, "printf '%s.\\n' \"${"+r.Key+"-unset}\"", r.Value+".\n")
			return
		}
		res := call(t, s, r.Command, "env", r.Env)
		out, _, _ := strings.Cut(res.Text, "\n\nWall time: ")
		if r.Exact != nil && out != *r.Exact || r.Trim != nil && strings.TrimSpace(out) != *r.Trim {
			t.Errorf("%s printed %q", r.Command, out)
		}
	})
}

// notOfManagers are rows on job managers that are not executed here.
var notOfManagers = map[string]string{
	"asy-036": "an update cannot fail here: it returns nothing",
	"asy-039": "the retention of 5 minutes is the runner's, and tested with it",
	"asy-040": "the retention of 5 minutes is the runner's, and tested with it",
}

// The rows on what a job manager does in time.
func TestSessionManagerCorpus(t *testing.T) {
	t.Parallel()
	sb := startSandbox(t)
	open := func(t *testing.T, owner string) *Session {
		t.Helper()
		return openSession(t, sb, SessionOptions{Settings: asyncSettings(), Owner: t.Name() + owner})
	}
	start := func(t *testing.T, s *Session, command string) string {
		t.Helper()
		r := call(t, s, command, "async", true)
		if r.IsError {
			t.Fatalf("%q: %+v", command, r)
		}
		return r.Details.Async.JobID
	}
	isTold := func(s *Session, id string) bool {
		j, err := s.find(t.Context(), id)
		return err == nil && j.Info().Told
	}
	cancelAll := func(t *testing.T, s *Session) {
		t.Helper()
		jobs, err := s.Jobs(t.Context())
		if err != nil || len(jobs) == 0 {
			t.Fatalf("Jobs() = %+v, %v; want some", jobs, err)
		}
		for _, j := range jobs {
			if _, err := s.cancelJob(t.Context(), j.ID); err != nil {
				t.Error(err)
			}
		}
	}
	checks := map[string]func(*testing.T, json.RawMessage){
		"asy-038": func(t *testing.T, _ json.RawMessage) {
			t.Helper()
			s := open(t, "")
			told := deliver(t, s, 0)
			id := start(t, s, "sleep 60")
			for _, want := range []string{"cancelled", "already_completed"} {
				if c, err := s.cancelJob(t.Context(), id); err != nil || c.Status != want {
					t.Errorf("cancelJob() = %+v, %v; want %s", c, err, want)
				}
			}
			if j, err := s.Job(t.Context(), id); err != nil || j.Status != sandbox.JobCancelled {
				t.Errorf("Job() = %+v, %v", j, err)
			}
			time.Sleep(2 * deliveryWindow)
			if got := told.calls(); len(got) > 0 {
				t.Errorf("delivered %+v; want nothing", got)
			}
		},
		"asy-041": func(t *testing.T, _ json.RawMessage) {
			t.Helper()
			s := open(t, "")
			// In the first try itself: the second would come soon after it.
			told := &deliveries{fail: 1000, during: func(list []tool.Delivery) {
				if err := s.acknowledgeJob(t.Context(), list[0].JobID); err != nil {
					t.Error(err)
				}
			}}
			told.start(t, s)
			id := start(t, s, "echo done")
			eventually(t, "a first try", func() bool { return len(told.calls()) > 0 })
			time.Sleep(sandbox.RetryPause(1) + sandbox.RetryJitter + 2*deliveryWindow)
			if got := told.calls(); len(got) != 1 || !isTold(s, id) {
				t.Errorf("tried %d times; want once", len(got))
			}
		},
		"asy-042": func(t *testing.T, _ json.RawMessage) {
			t.Helper()
			s := open(t, "")
			told := deliver(t, s, 1000)
			start(t, s, "echo done")
			running := start(t, s, "sleep 61")
			eventually(t, "a try", func() bool { return len(told.calls()) > 0 })
			cancelAll(t, s)
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			tries := len(told.calls())
			time.Sleep(2*sandbox.RetryPause(1) + sandbox.RetryJitter)
			if n := len(told.calls()); n != tries {
				t.Errorf("%d tries after Close(); want none", n-tries)
			}
			if j, err := s.Job(t.Context(), running); err != nil || j.Status != sandbox.JobCancelled {
				t.Errorf("Job() = %+v, %v; want it cancelled", j, err)
			}
			noProcess(t, sb, "sleep 61")
		},
		"asy-043": func(t *testing.T, _ json.RawMessage) {
			t.Helper()
			mine, other := open(t, "3-AuthLoader"), open(t, "0-Main")
			a, b := start(t, mine, "sleep 60"), start(t, other, "sleep 60")
			cancelAll(t, mine)
			ja, errA := mine.Job(t.Context(), a)
			jb, errB := other.Job(t.Context(), b)
			if errors.Join(errA, errB) != nil || ja.Status != sandbox.JobCancelled || jb.Status != sandbox.JobRunning {
				t.Errorf("%+v and %+v, %v, %v; want the first cancelled alone", ja, jb, errA, errB)
			}
			cancelAll(t, other)
		},
		"asy-044": func(t *testing.T, _ json.RawMessage) {
			t.Helper()
			mine, other := open(t, "3-AuthLoader"), open(t, "0-Main")
			id := start(t, other, "sleep 60")
			told := deliver(t, mine, 0)
			start(t, mine, "sleep 0.2")
			eventually(t, "a delivery, without a wait for the other owner's job", func() bool { return len(told.calls()) == 1 })
			if j, err := other.Job(t.Context(), id); err != nil || j.Status != sandbox.JobRunning {
				t.Errorf("Job() = %+v, %v; want it running", j, err)
			}
			if _, err := other.cancelJob(t.Context(), id); err != nil {
				t.Error(err)
			}
		},
		"asy-045": func(t *testing.T, _ json.RawMessage) {
			t.Helper()
			s := open(t, "")
			told := deliver(t, s, 1000)
			id := start(t, s, "echo done")
			eventually(t, "a try", func() bool { return len(told.calls()) > 0 })
			if isTold(s, id) {
				t.Error("a delivery that has failed counts as made")
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New("Close waits for the delivery"))
			defer cancel()
			if err := s.Close(ctx); err != nil {
				t.Errorf("Close() = %v; want no wait for a delivery that fails", err)
			}
		},
		"asy-047": func(t *testing.T, _ json.RawMessage) {
			t.Helper()
			s := open(t, "")
			for _, id := range []string{start(t, s, "echo a"), start(t, s, "echo b")} {
				if _, err := waitJob(t.Context(), s, id); err != nil {
					t.Fatal(err)
				}
			}
			told := deliver(t, s, 0)
			eventually(t, "a delivery", func() bool { return len(told.calls()) > 0 })
			if got := told.calls(); len(got) != 1 || len(got[0]) != 2 || !strings.HasPrefix(tool.FollowUp(got[0]), "<system-notice>\n2 background jobs have completed.") {
				t.Errorf("delivered %+v; want both at once", got)
			}
		},
		"asy-048": func(t *testing.T, _ json.RawMessage) {
			t.Helper()
			s := open(t, "")
			told := deliver(t, s, 0)
			id := start(t, s, "sleep 0.3; echo done")
			eventually(t, "the acknowledgement", func() bool { return isTold(s, id) })
			time.Sleep(2 * deliveryWindow)
			if got := told.calls(); len(got) != 1 {
				t.Errorf("delivered %d times, with nothing else going on; want once", len(got))
			}
		},
		"asy-083": func(t *testing.T, row json.RawMessage) {
			t.Helper()
			s := openSession(t, sb, SessionOptions{Contract: tool.Modes})
			r := s.Call(t.Context(), tool.BashName, rowCall(t, row), Events{})
			m := regexp.MustCompile(`<pid>(\d+)</pid>`).FindStringSubmatch(r.Text)
			if m == nil {
				t.Fatalf("started with %+v", r)
			}
			call(t, s, "kill -9 -"+m[1])
			eventually(t, "no process left", func() bool {
				all, err := sb.Processes(t.Context())
				return err == nil && !strings.Contains(fmt.Sprint(all), "sleep 300")
			})
		},
		"asy-085": func(t *testing.T, row json.RawMessage) {
			t.Helper()
			r := openSession(t, sb, SessionOptions{Contract: tool.Modes}).Call(t.Context(), tool.BashName, rowCall(t, row), Events{})
			if !strings.Contains(r.Text, "notty") {
				t.Errorf("%+v; want no terminal", r)
			}
		},
	}
	leave := func(c corpus.Row) bool { return c.Tier == "version" || corpus.ManagerRows[c.ID] == "" }
	corpus.File{Path: "tool/testdata/async.jsonl", Elsewhere: notOfManagers, Leave: leave, Ran: 10}.Run(t, func(t *testing.T, c corpus.Row) {
		t.Helper()
		check := checks[c.ID]
		if check == nil {
			t.Fatal("nothing checks this row")
		}
		check(t, c.Raw)
	})
}

func rowCall(t *testing.T, row json.RawMessage) json.RawMessage {
	t.Helper()
	var r struct {
		Call json.RawMessage `json:"call"`
	}
	if err := json.Unmarshal(row, &r); err != nil {
		t.Fatal(err)
	}
	return r.Call
}
