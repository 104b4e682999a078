package agent

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

func asyncSettings() tool.Settings {
	s := tool.DefaultSettings()
	s.Async = true
	return s
}

// deliveries collects what is delivered to an owner, until the test ends.
type deliveries struct {
	mu   sync.Mutex
	told [][]tool.Delivery // guarded by mu; one for each call
	fail int               // guarded by mu; how many calls fail at first

	during func([]tool.Delivery) // what each call does before it returns; nil: nothing
}

func deliver(t *testing.T, s *Session, fail int) *deliveries {
	t.Helper()
	d := &deliveries{fail: fail}
	d.start(t, s)
	return d
}

func (d *deliveries) start(t *testing.T, s *Session) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Deliveries(ctx, func(_ context.Context, list []tool.Delivery) error {
			if d.during != nil {
				d.during(list)
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.told = append(d.told, list)
			if d.fail > 0 {
				d.fail--
				return errors.New("refused")
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, errClosed) {
			t.Errorf("Deliveries() = %v; want it to end with its context", err)
		}
	})
}

func (d *deliveries) calls() [][]tool.Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([][]tool.Delivery(nil), d.told...)
}

func TestSessionJobs(t *testing.T) {
	t.Parallel()
	sb := startSandbox(t)
	s := openSession(t, sb, SessionOptions{Settings: asyncSettings(), Owner: "one", RC: "hi() { echo hi $1; }"})
	other := openSession(t, sb, SessionOptions{Settings: asyncSettings(), Owner: "two"})
	if r := call(t, s, "sleep 60", "async", true, "cwd", "nowhere"); r.Text != "Working directory does not exist: /workspace/nowhere" {
		t.Errorf("a job in no directory: %+v", r)
	}
	told := deliver(t, s, 1)
	shows(t, s, "export A=1", "(no output)")
	var updates heard
	r := callOn(t, s, Events{Update: updates.update}, "hi ${A-unset}; exit 3", "async", true, "timeout", 9000)
	want := "Timeout clamped to 3600s (requested 9000s; allowed range 1-3600s).\n\nBackground job bg_1 started: hi ${A-unset}; exit 3\nResult will be delivered automatically when complete.\n"
	if r.IsError || !strings.HasPrefix(r.Text, want) || r.Details.Async == nil || r.Details.Async.JobID != "bg_1" {
		t.Fatalf("started with %+v; want %q", r, want)
	}
	if len(updates.all) != 1 || updates.all[0].Details.Async.State != sandbox.JobRunning {
		t.Errorf("updates %+v; want one of a running job", updates.all)
	}
	// The first try fails, the second does not, and there is no third.
	eventually(t, "two tries to deliver", func() bool { return len(told.calls()) == 2 })
	for _, list := range told.calls() {
		text := list[0].Text
		if len(list) != 1 || list[0].JobID != "bg_1" || !strings.HasPrefix(text, "hi unset\n\n\nWall time: ") || !strings.HasSuffix(text, "range 1-3600s).\n\nCommand exited with code 3") {
			t.Errorf("delivered %+v; want bg_1 with what a foreground command shows, and no state of the shell", list)
		}
	}
	eventually(t, "the acknowledgement", func() bool {
		infos, err := sb.Jobs(t.Context(), "one")
		return err == nil && len(infos) == 1 && infos[0].Told
	})
	j, err := s.Job(t.Context(), "bg_1")
	if err != nil || j.Status != sandbox.JobFailed || j.Result != "" || !strings.Contains(j.Error, "code 3") {
		t.Errorf("Job() = %+v, %v; want it failed", j, err)
	}
	// Another owner neither sees nor ends it.
	if all, err := other.Jobs(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("another owner's Jobs() = %+v, %v; want none", all, err)
	}
	if _, err := other.Job(t.Context(), "bg_1"); !errors.Is(err, ErrUnknownJob) {
		t.Errorf("another owner's Job() = %v; want none", err)
	}
	if c, err := other.cancelJob(t.Context(), "bg_1"); err != nil || c.Status != "not_found" {
		t.Errorf("another owner's cancelJob() = %+v, %v; want not_found", c, err)
	}
	if len(told.calls()) != 2 {
		t.Errorf("delivered %d times; want twice", len(told.calls()))
	}
}

func TestSessionJobTool(t *testing.T) {
	t.Parallel()
	sb := startSandbox(t)
	s := openSession(t, sb, SessionOptions{Settings: asyncSettings(), Owner: "one"})
	told := deliver(t, s, 0)
	jobCall := func(arguments string) tool.Result { return s.Call(t.Context(), tool.JobName, raw(arguments), Events{}) }
	if r := jobCall(`{}`); r.Text != "No running background jobs to wait for." {
		t.Errorf("without jobs: %q", r.Text)
	}
	// The first job ends once the wait has sent an update, so the wait cannot be late.
	call(t, s, "until [ -e go ]; do sleep 0.05; done; echo first", "async", true)
	call(t, s, "sleep 60", "async", true)
	var updates heard
	waiting := make(chan struct{})
	var once sync.Once
	var released sync.WaitGroup
	released.Go(func() {
		<-waiting
		if _, err := sb.Run(t.Context(), sandbox.Command{Script: "touch go"}); err != nil {
			t.Errorf("end the first job: %v", err)
		}
	})
	start := time.Now()
	r := s.Call(t.Context(), tool.JobName, raw(`{}`), Events{Update: func(u tool.Update) {
		updates.update(u)
		if len(updates.texts()) == 2 {
			once.Do(func() { close(waiting) })
		}
	}})
	once.Do(func() { close(waiting) })
	released.Wait()
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("waited %v; want until the first has ended", took)
	}
	for _, part := range []string{"## Completed (1)", "### bg_1 [bash] — completed", "```\nfirst\n", "## Still Running (1)", "- `bg_2` [bash] — sleep 60"} {
		if !strings.Contains(r.Text, part) {
			t.Errorf("text %q; want %q in it", r.Text, part)
		}
	}
	if len(r.JobDetails.Jobs) != 2 || r.JobDetails.Jobs[0].Status != sandbox.JobCompleted || len(updates.texts()) < 2 || strings.Join(updates.texts(), "") != "" {
		t.Errorf("details %+v, updates %q", r.JobDetails, updates.texts())
	}
	// The end of ctx ends the wait, which the first update is the start of, and no job.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if r := s.Call(ctx, tool.JobName, raw(`{"poll":["bg_2"]}`), Events{Update: func(tool.Update) { cancel() }}); !strings.Contains(r.Text, "## Still Running (1)") {
		t.Errorf("a wait that was given up: %q", r.Text)
	}
	r = jobCall(`{"cancel":["bg_2","bg_1","bg_9"]}`)
	for _, part := range []string{"Cancelled background job bg_2.", "Background job bg_1 is already completed.", "Background job not found: bg_9"} {
		if !strings.Contains(r.Text, part) {
			t.Errorf("text %q; want %q in it", r.Text, part)
		}
	}
	if r := jobCall(`{"list":true}`); !strings.Contains(r.Text, "### bg_2 [bash] — cancelled") {
		t.Errorf("list %q; want bg_2 cancelled", r.Text)
	}
	// What the tool has told of is not delivered.
	call(t, s, "echo third", "async", true)
	eventually(t, "a delivery", func() bool { return len(told.calls()) > 0 })
	time.Sleep(2 * deliveryWindow)
	if got := told.calls(); len(got) != 1 || got[0][0].JobID != "bg_3" {
		t.Errorf("delivered %+v; want bg_3 alone", got)
	}
}

// Deliveries of jobs from two processes of one owner: each job is delivered once, in
// whichever process, with the end of its output.
func TestSessionDeliveries(t *testing.T) {
	t.Parallel()
	sb := startSandbox(t)
	s := openSession(t, sb, SessionOptions{Settings: asyncSettings()})
	told := deliver(t, s, 0)
	call(t, s, "seq 1 4000; exit 1", "async", true)
	eventually(t, "a delivery", func() bool { return len(told.calls()) == 1 })
	got := tool.FollowUp(told.calls()[0])
	for _, part := range []string{"Background job bg_1 has completed.", "\n1\n2\n3\n", "\n\n[Output truncated. Showing first 4,000 characters.]\nFull output: artifact://"} {
		if !strings.Contains(got, part) {
			t.Errorf("FollowUp() = %.300q; want %q in it", got, part)
		}
	}
	// A job of a process that delivers nothing is delivered by another process of its owner.
	next := openSession(t, sb, SessionOptions{Settings: asyncSettings()})
	call(t, next, "echo two", "async", true)
	eventually(t, "a delivery of another process's job", func() bool { return len(told.calls()) == 2 })
	if got := tool.FollowUp(told.calls()[1]); !strings.Contains(got, "Background job bg_2 has completed.") {
		t.Errorf("FollowUp() = %q; want bg_2 in it", got)
	}
	again := deliver(t, next, 0)
	time.Sleep(2 * deliveryWindow)
	if a, b := len(told.calls()), len(again.calls()); a != 2 || b != 0 {
		t.Errorf("%d and %d deliveries; want 2 and 0: no job is delivered twice", a, b)
	}
}

func TestSessionManaged(t *testing.T) {
	t.Parallel()
	settings := tool.DefaultSettings()
	settings.AutoBackground = true // after a minute, which no quick command takes
	s := openSession(t, startSandbox(t), SessionOptions{Settings: settings})
	shows(t, s, "export A=1; echo quick", "quick\n\n\nWall time")
	if r := call(t, s, "echo no; exit 4"); !r.IsError || !strings.HasSuffix(r.Text, "Command exited with code 4") {
		t.Errorf("failed in time: %+v", r)
	}
	var updates heard
	const slow = "export A=2; echo $A begins; until [ -e go ]; do sleep 0.05; done; echo ends"
	s.opts.Settings.ThresholdMs = 3000
	r := callOn(t, s, Events{Update: updates.update}, slow)
	s.opts.Settings.ThresholdMs = settings.ThresholdMs
	if want := "2 begins\n\nBackground job bg_1 started: " + slow + "\n"; !strings.HasPrefix(r.Text, want) {
		t.Errorf("text %q; want %q", r.Text, want)
	}
	last := updates.all[len(updates.all)-1]
	if first := updates.all[0]; first.Details.Async != nil || last.Details.Async == nil || last.Text != "2 begins\n" {
		t.Errorf("updates %+v; want the last of a job, the first not", updates.all)
	}
	// The shell's state is that of before, now and when the job has ended.
	shows(t, s, "echo $A; touch go", "1\n")
	j, err := waitJob(t.Context(), s, "bg_1")
	if err != nil || !strings.HasPrefix(j.Result, "2 begins\nends\n") {
		t.Errorf("waitJob() = %+v, %v", j, err)
	}
	shows(t, s, "echo $A; export A=3", "1\n")
	shows(t, s, "echo $A", "3\n")
	settings.ThresholdMs = 0
	s = openSession(t, startSandbox(t), SessionOptions{Settings: settings})
	shows(t, s, "echo at once", "Background job bg_1 started: echo at once\n")
}

func TestSessionBackground(t *testing.T) {
	t.Parallel()
	sb := startSandbox(t)
	s := openSession(t, sb, SessionOptions{Settings: asyncSettings()})
	if err := s.Background("c1"); !errors.Is(err, ErrNoCall) {
		t.Errorf("Background() of nothing = %v", err)
	}
	var updates heard
	done := make(chan tool.Result, 1)
	go func() {
		done <- callOn(t, s, Events{CallID: "c1", Update: updates.update}, "echo begins; until [ -e go ]; do sleep 0.05; done; echo ends")
	}()
	eventually(t, "output", func() bool { return len(updates.texts()) > 0 })
	if err := s.Background("c1"); err != nil {
		t.Errorf("Background() = %v", err)
	}
	if r := <-done; !strings.HasPrefix(r.Text, "begins\n\nBackground job bg_1 started:") {
		t.Errorf("handed over: %+v", r)
	}
	if err := s.Background("c1"); !errors.Is(err, ErrNoCall) {
		t.Errorf("Background() again = %v", err)
	}
	if _, err := sb.Run(t.Context(), sandbox.Command{Script: "touch go"}); err != nil {
		t.Errorf("end the job: %v", err)
	}
	if j, err := waitJob(t.Context(), s, "bg_1"); err != nil || !strings.HasPrefix(j.Result, "begins\nends\n") {
		t.Errorf("waitJob() = %+v, %v", j, err)
	}
}

func TestSessionJobLimit(t *testing.T) {
	t.Parallel()
	settings := asyncSettings()
	settings.MaxJobs = 1
	s := openSession(t, startSandbox(t), SessionOptions{Settings: settings})
	call(t, s, "sleep 60", "async", true)
	if r := call(t, s, "sleep 60", "async", true); r.Text != "Background job limit reached (1). Wait for running jobs to finish or cancel one." || r.Thrown != tool.ToolError {
		t.Errorf("beyond the limit: %+v", r)
	}
	settings.Async, settings.AutoBackground, settings.ThresholdMs = false, true, 200
	managed := openSession(t, startSandbox(t), SessionOptions{Settings: settings})
	shows(t, managed, "sleep 60", "Background job bg_1")
	r := shows(t, managed, "sleep 1; echo ok", "ok\n")
	if !strings.Contains(r.Text, "Not moved to the background: Background job limit reached (1).") {
		t.Errorf("beyond the limit: %q; want it to say so", r.Text)
	}
}

func TestSessionModes(t *testing.T) {
	t.Parallel()
	sb := startSandbox(t)
	s := openSession(t, sb, SessionOptions{Contract: tool.Modes, Env: []string{"OPENAI_API_KEY=x", "KEPT=1"}})
	if r := call(t, s, "echo ${OPENAI_API_KEY-withheld} ${KEPT-withheld} ${CI-none}; export A=1"); r.Text != "withheld 1 none\n" || r.IsError {
		t.Errorf("environment: %+v", r)
	}
	if r := call(t, s, "echo ${A-none}"); r.Text != "none\n" {
		t.Errorf("state: %+v; want none", r)
	}
	if r := call(t, s, "git push -f"); !r.IsError || !strings.HasPrefix(r.Text, "permission denied: git push --force") {
		t.Errorf("unsafe: %+v", r)
	}
	r := call(t, s, "echo out; echo err >&2; sleep 300 & sleep 300 & wait", "mode", "background")
	m := regexp.MustCompile(`^<pid>(\d+)</pid>\n<output_file>(/\S+)</output_file>\n<reminder>To stop: kill -9 -(\d+)</reminder>$`).FindStringSubmatch(r.Text)
	if m == nil || m[1] != m[3] || r.IsError {
		t.Fatalf("background: %+v", r)
	}
	pid, file := m[1], m[2]
	eventually(t, "its output", func() bool { return call(t, s, "cat "+file).Text == "out\nerr\n" })
	if r := call(t, s, "kill -9 -"+pid); r.IsError {
		t.Errorf("kill: %+v", r)
	}
	eventually(t, "its end in the file", func() bool {
		return call(t, s, "cat "+file).Text == "out\nerr\n\n\n[background process failed: signal: 9 (SIGKILL)]\n"
	})
	eventually(t, "no process left", func() bool {
		all, err := sb.Processes(t.Context())
		return err == nil && !strings.Contains(fmt.Sprint(all), "sleep 300")
	})
	if len(s.Definitions()) != 1 || !strings.HasSuffix(s.Definitions()[0].Description, "<pwd>/workspace</pwd>") {
		t.Errorf("definitions %+v", s.Definitions())
	}
}

// waitJob waits until a job has ended, or ctx has.
func waitJob(ctx context.Context, s *Session, id string) (tool.Job, error) {
	j, err := s.find(ctx, id)
	if err != nil {
		return tool.Job{}, err
	}
	info, err := j.Wait(ctx)
	if err != nil {
		return tool.Job{}, err
	}
	done, err := s.describe(ctx, info)
	return done.job, err
}
